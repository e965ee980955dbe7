"""Noise: its distribution, its extremes, its keys, and the released comparison."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock
from beam_dp.core.keys import Keys
from beam_dp.core.noise import add_noise_and_threshold, gaussian, laplace
from beam_dp.core.randomness import RunKey, keyed_bits

SECRET = RunKey.from_seed(5).derive("noise")
FALSE_ALARM = 1e-6
N = 1_000_000
KINDS = {"sigma": (gaussian, stats.norm), "laplace_scale": (laplace, stats.laplace)}
kinds = pytest.mark.parametrize("kind", KINDS)


def item_block(keys: list[bytes], weight, found=None) -> ItemBlock:
    return ItemBlock(
        shard=0,
        keys=Keys.from_bytes(keys),
        askers=(0,),
        rows=(np.arange(len(keys), dtype=np.int32),),
        weight=grid.round_down(np.asarray(weight, np.float64)),
        found=None if found is None else np.asarray(found, np.bool_),
    )


# --- the maps from bits ---


@kinds
@pytest.mark.parametrize("scale", [1.0, 3.88414, 1e5])
def test_noise_has_its_distribution(kind, scale):
    # Kolmogorov-Smirnov at a false alarm of 1e-6: sup-distance below kstwo.isf(1e-6, 1e6) = 0.0027. A scale that is
    # wrong by 2% moves the normal cdf by 0.0048 (Laplace: 0.0037), found with probability > 0.99.
    draw, distribution = KINDS[kind]
    bits = np.random.default_rng(11).integers(0, 2**64, (N, 2), np.uint64)
    result = stats.kstest(draw(bits, scale), distribution(scale=scale).cdf)
    assert result.statistic < stats.kstwo.isf(FALSE_ALARM, N)


@kinds
def test_noise_has_both_tails(kind):
    # Counts beyond the quantiles at 1e-2, 1e-3 and 1e-4, each side: binomial, false alarm 1e-6 over the 6 counts.
    # Found with probability > 0.9: at 1e-4 (100 expected) a tail 1.75 times too heavy or 0.4 times too light, at 1e-3
    # (1000 expected) one that is 25% off.
    draw, distribution = KINDS[kind]
    noise = draw(np.random.default_rng(12).integers(0, 2**64, (N, 2), np.uint64), 2.0)
    for tail in (1e-2, 1e-3, 1e-4):
        quantile = distribution.isf(tail, scale=2.0)
        for count in (np.sum(noise > quantile), np.sum(noise < -quantile)):
            low, high = stats.binom.ppf([FALSE_ALARM / 12, 1 - FALSE_ALARM / 12], N, tail)
            assert low <= count <= high


@kinds
def test_noise_of_keyed_draws_has_its_distribution(kind):
    # The whole way from items to noise. KS as above with n = 100,000: bound 0.0085, finds a scale wrong by 8%.
    draw, distribution = KINDS[kind]
    keys = Keys.from_bytes([b"item %d" % number for number in range(100_000)])
    noise = draw(keyed_bits(keys, SECRET), 1.0)
    assert stats.kstest(noise, distribution.cdf).statistic < stats.kstwo.isf(FALSE_ALARM, len(keys))


def words(*leading: int, further: int = 2**63) -> np.ndarray:
    """Rows of 128 bits: 64 leading ones, and further ones that stand for one half of a step of these."""
    return np.array([(word, further) for word in leading], np.uint64)


EXTREMES = [0, 1, 2, 3, 2**10, 2**52, 2**53 + 1, 2**62, 2**63 - 2**11, 2**63 - 1]


def exact_tail(bits: int) -> mpmath.mpf:
    return (mpmath.mpf(bits) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64


@pytest.mark.parametrize("bits", EXTREMES)
def test_gaussian_noise_is_exact_at_the_extremes(bits):
    with mpmath.workdps(50):
        tail = exact_tail(bits)
        positive = gaussian(words(bits + 2**63), 1.0)[0]
        # Compare tails, not quantiles: near 0 the double nearest to the tail decides.
        error = abs(mpmath.ncdf(-mpmath.mpf(float(positive))) - tail)
        assert error <= mpmath.mpf(2) ** -53 * tail * 100
    assert gaussian(words(bits), 1.0)[0] == -positive
    assert gaussian(words(bits + 2**63), 2.0**20)[0] == positive * 2.0**20
    assert positive == pytest.approx(stats.norm.isf(float(tail)), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("bits", EXTREMES)
def test_laplace_noise_is_exact_at_the_extremes(bits):
    with mpmath.workdps(50):
        exact = -mpmath.log(2 * exact_tail(bits))
        positive = laplace(words(bits + 2**63), 1.0)[0]
        assert abs(mpmath.mpf(float(positive)) - exact) <= mpmath.mpf(2) ** -50 * max(exact, 1)
    assert laplace(words(bits), 1.0)[0] == -positive


@kinds
def test_no_bits_give_infinite_noise(kind):
    draw, _ = KINDS[kind]
    ends = draw(words(0, 2**63 - 1, 2**63, 2**64 - 1), 2.0**20)
    assert np.isfinite(ends).all()
    assert -ends[0] == ends[2] > 9 * 2.0**20  # the tails reach 2^-65
    assert ends[1] == ends[3] == 0
    assert np.abs(grid.nearest(ends)).max() < grid.SATURATION


@kinds
@given(bits=st.integers(0, 2**63 - 1))
def test_noise_is_symmetric(kind, bits):
    draw, _ = KINDS[kind]
    negative, positive = draw(words(bits, bits + 2**63), 1.5)
    assert negative == -positive <= 0


@kinds
@given(bits=st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=50))
def test_noise_falls_with_the_tail(kind, bits):
    draw, _ = KINDS[kind]
    noise = draw(words(*(bit + 2**63 for bit in sorted(bits))), 1.0)
    assert (np.diff(noise) <= 0).all()


# --- the grid ---


@given(st.floats(0, 1e6))
def test_weights_round_down_and_thresholds_up(value):
    below, above = grid.round_down(np.array([value]))[0], grid.threshold(value)
    assert below * 2.0**-32 <= value <= (above - 1) * 2.0**-32
    assert above - 1 - below in (0, 1)
    assert (above - 1 == below) == ((value * 2.0**32).is_integer())


@given(st.floats(-(2.0**21), 2.0**21))
def test_noise_rounds_to_the_nearest_step(value):
    (near,) = grid.nearest(np.array([value]))
    assert abs(near * 2.0**-32 - value) <= 2.0**-33


def test_noise_is_cut_at_the_saturation():
    ends = grid.nearest(np.array([-np.inf, -1e30, 1e30, np.inf]))
    assert ends.tolist() == [-grid.SATURATION, -grid.SATURATION, grid.SATURATION, grid.SATURATION]


@given(st.lists(st.integers(0, grid.SATURATION), min_size=1, max_size=10), st.randoms())
def test_saturating_sums_do_not_wrap_and_do_not_depend_on_the_order(parts, random):
    def add(values):
        total = np.zeros(1, np.int64)
        for value in values:
            grid.add_saturating(total, np.array([0]), np.array([value], np.int64))
        return int(total[0])

    shuffled = random.sample(parts, len(parts))
    assert add(parts) == add(shuffled) == min(sum(parts), grid.SATURATION)


def test_a_saturated_weight_and_the_largest_noise_do_not_overflow():
    block = item_block([b"a"], [0.0])
    block.weight[:] = grid.SATURATION
    result = add_noise_and_threshold(block, secret=SECRET, threshold=1.0, sigma=2.0**20)
    assert result.noisy[0] > 0
    assert result.found[0]


# --- the released comparison ---


@kinds
def test_items_without_weight_are_never_found(kind):
    n = 20_000
    weight = np.where(np.arange(n) % 2, 2.0**-32, 0.0)
    block = item_block([b"%d" % number for number in range(n)], weight)
    result = add_noise_and_threshold(block, secret=SECRET, threshold=-1000.0, **{kind: 1.0})
    assert result.found.tolist() == (weight > 0).tolist()
    assert (result.noisy[weight == 0] == -grid.SATURATION).all()


@kinds
@settings(max_examples=50)
@given(
    weights=st.lists(st.floats(0, 4), min_size=1, max_size=20),
    threshold=st.floats(0, 4),
    scale=st.floats(1e-3, 5.0),
)
def test_the_comparison_is_weight_plus_noise_on_the_grid(kind, weights, threshold, scale):
    keys = [b"%d" % number for number in range(len(weights))]
    block = item_block(keys, weights)
    result = add_noise_and_threshold(block, secret=SECRET, threshold=threshold, **{kind: scale})
    draw, _ = KINDS[kind]
    noise = draw(keyed_bits(block.keys, SECRET), scale)
    held = block.weight > 0
    expected = [int(w) + round(float(e) * 2**32) for w, e in zip(block.weight, noise, strict=True)]
    assert result.noisy[held].tolist() == [
        value for value, is_held in zip(expected, held, strict=True) if is_held
    ]
    assert result.found.tolist() == [
        bool(is_held) and value >= grid.threshold(threshold)
        for value, is_held in zip(expected, held, strict=True)
    ]


def test_reaching_the_threshold_exactly_is_found_and_one_step_less_is_not():
    block = item_block([b"a"], [1.0])
    noisy = add_noise_and_threshold(block, secret=SECRET, threshold=0.0, sigma=1.0).noisy
    at = float(grid.to_float(noisy)[0])
    for threshold, found in [
        # One step above the threshold, which pays for the rounding of the noise.
        (at - 2.0**-32, True),
        (at - 2.0**-34, False),
        (at, False),
        (at - 2.0**-31, True),
    ]:
        result = add_noise_and_threshold(block, secret=SECRET, threshold=threshold, sigma=1.0)
        assert result.found.tolist() == [found]


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_items_found_earlier_stay_found(found):
    block = item_block([b"%d" % number for number in range(len(found))], [0.0] * len(found), found)
    result = add_noise_and_threshold(block, secret=SECRET, threshold=0.0, sigma=1.0)
    assert result.found.tolist() == found


def test_the_input_block_is_left_as_it_was():
    block = item_block([b"a", b"b"], [1.0, 5.0], [True, False])
    add_noise_and_threshold(block, secret=SECRET, threshold=2.0, sigma=0.1)
    assert (block.noisy, block.found.tolist()) == (None, [True, False])


@kinds
@settings(max_examples=50)
@given(keys=st.lists(st.binary(max_size=5), unique=True, min_size=2, max_size=20), cut=st.integers(1, 19))
def test_an_item_has_the_same_noise_in_every_block(kind, keys, cut):
    """Whatever stands beside it, in whatever order, and wherever items without weight stand between."""

    def noise(names, weights):
        block = item_block(names, weights)
        result = add_noise_and_threshold(block, secret=SECRET, threshold=0.0, **{kind: 1.0})
        held = block.weight > 0
        taken = (result.noisy - block.weight)[held].tolist()
        return dict(zip([n for n, w in zip(names, held, strict=True) if w], taken, strict=True))

    whole = noise(keys, [1.0] * len(keys))
    assert noise(keys[::-1], [2.0] * len(keys)) == whole
    assert noise(keys[:cut], [1.0] * len(keys[:cut])) | noise(keys[cut:], [3.0] * len(keys[cut:])) == whole
    alternating = [float(number % 2) for number in range(len(keys))]
    assert noise(keys, alternating).items() <= whole.items()


def test_rounds_and_windows_have_noise_of_their_own():
    # Correlations of 50,000 pairs of standard normal noises: standard deviation 1/sqrt(n) = 0.0045, false alarm 1e-6
    # over the 6 correlations at 5.2 of those, 0.0235. Shared noise has correlation 1; noise shared by a twentieth of
    # the items has 0.05 and is found with probability > 0.999.
    keys = [b"%d" % number for number in range(50_000)]
    key = RunKey.from_seed(3)
    secrets = [
        key.derive("noise"),
        key.derive("noise", number=1),
        key.derive("noise", window=b"w"),
        RunKey.from_seed(4).derive("noise"),
    ]
    noises = [gaussian(keyed_bits(Keys.from_bytes(keys), secret), 1.0) for secret in secrets]
    correlations = np.corrcoef(noises)[np.triu_indices(len(noises), 1)]
    assert np.abs(correlations).max() < stats.norm.isf(FALSE_ALARM / 12) / np.sqrt(len(keys))


@pytest.mark.parametrize("scales", [{}, {"sigma": 1.0, "laplace_scale": 1.0}], ids=str)
def test_exactly_one_kind_of_noise_is_asked_for(scales):
    with pytest.raises(ValueError) as error:
        add_noise_and_threshold(item_block([b"a"], [1.0]), secret=SECRET, threshold=1.0, **scales)
    assert str(error.value) == "exactly one of sigma and laplace_scale must be given"
