import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.baselines import (
    UserSets,
    greedy_updates_weights,
    policy_gaussian_weights,
    select_greedy_updates,
    select_policy_gaussian,
    shuffled_sets,
    user_sets_from_pairs,
)
from beam_dp.errors import InputError

SIGMA, GAUSSIAN_THRESHOLD = 3.88414, 20.78974  # epsilon 1, delta 1e-5, cap 100
LAPLACE_THRESHOLD = 1 + np.log(1 / 2e-5)  # epsilon 1, delta 1e-5
ONE_PAIR = {"offsets": [0, 1], "items": [0], "num_items": 1, "sigma": 1.0, "threshold": 5.0, "seed": 0}
NUM_ITEMS = 8

sets_of_items = st.lists(st.lists(st.integers(0, NUM_ITEMS - 1), unique=True, max_size=5), max_size=12)
taus = st.floats(1.0, 4.0)


def as_sets(lists: list[list[int]], num_items: int = NUM_ITEMS) -> UserSets:
    offsets = np.cumsum([0, *map(len, lists)])
    return UserSets(offsets, np.array([item for one in lists for item in one], np.int32), num_items)


def without(lists: list[list[int]], user: int) -> list[list[int]]:
    return lists[:user] + lists[user + 1 :]


# --- Policy Gaussian ---


@pytest.mark.parametrize(
    ("lists", "tau", "expected"),
    [
        pytest.param([[0]], 5, [1, 0], id="single_item_gets_1"),
        pytest.param([[0, 1]], 5, [0.5**0.5, 0.5**0.5], id="equal_gaps_share_equally"),
        pytest.param([[0], [0, 1]], 4, [1.6, 0.8], id="gaps_3_and_4_give_steps_3_and_4_fifths"),
        pytest.param([[0], [0]], 1.5, [1.5, 0], id="a_gap_within_reach_is_closed"),
        pytest.param([[0], [0], [0, 1], [0]], 1.5, [1.5, 1.0], id="at_tau_gets_nothing_more"),
    ],
)
def test_policy_gaussian_by_hand(lists, tau, expected):
    np.testing.assert_allclose(policy_gaussian_weights(*as_sets(lists, 2), tau=tau), expected, rtol=1e-14)


@settings(deadline=None)
@given(sets_of_items, taus)
def test_policy_gaussian_has_l2_sensitivity_1(lists, tau):
    weights = policy_gaussian_weights(*as_sets(lists), tau=tau)
    for user in range(len(lists)):
        smaller = policy_gaussian_weights(*as_sets(without(lists, user)), tau=tau)
        assert np.linalg.norm(weights - smaller) <= 1 + 1e-12


@settings(deadline=None)
@given(sets_of_items, taus)
def test_policy_gaussian_gives_t_novel_items_at_most_one_over_root_t(lists, tau):
    weights = policy_gaussian_weights(*as_sets(lists), tau=tau)
    for user, own in enumerate(lists):
        novel = sorted(set(own).difference(*without(lists, user)))
        if novel:
            assert weights[novel].max() <= 1 / np.sqrt(len(novel)) + 1e-12


def test_policy_gaussian_caps_the_degree():
    one_user = as_sets([list(range(50))], 50)
    result = select_policy_gaussian(
        *one_user, sigma=SIGMA, threshold=GAUSSIAN_THRESHOLD, max_degree=4, seed=1
    )
    assert sorted(result.weights[result.weights > 0]) == [0.5] * 4


# --- Greedy updates ---


@pytest.mark.parametrize(
    ("lists", "tau", "expected"),
    [
        pytest.param([[0, 1]], 5, [1, 0], id="all_to_the_first_item"),
        pytest.param([[1, 0]], 5, [0, 1], id="first_in_the_order_given"),
        pytest.param([[0], [0, 1]], 1.5, [1.5, 0.5], id="the_rest_goes_to_the_next_item"),
        pytest.param([[0], [0, 1], [0]], 1.5, [1.5, 0.5], id="at_tau_gets_nothing_more"),
        pytest.param([[0], [1], [0, 1], [0, 1], [1]], 1.25, [1.25, 1.25], id="stops_when_all_own_are_at_tau"),
    ],
)
def test_greedy_updates_by_hand(lists, tau, expected):
    np.testing.assert_allclose(greedy_updates_weights(*as_sets(lists, 2), tau=tau), expected, rtol=1e-14)


@settings(deadline=None)
@given(sets_of_items, taus)
def test_greedy_updates_has_l1_sensitivity_1(lists, tau):
    weights = greedy_updates_weights(*as_sets(lists), tau=tau)
    for user in range(len(lists)):
        smaller = greedy_updates_weights(*as_sets(without(lists, user)), tau=tau)
        assert np.abs(weights - smaller).sum() <= 1 + 1e-12


@settings(deadline=None)
@given(sets_of_items, taus)
def test_greedy_updates_gives_to_one_novel_item_at_most(lists, tau):
    weights = greedy_updates_weights(*as_sets(lists), tau=tau)
    for user, own in enumerate(lists):
        novel = sorted(set(own).difference(*without(lists, user)))
        assert np.count_nonzero(weights[novel] > 1e-12) <= 1  # a full budget may leave a rounding error


def test_greedy_updates_has_no_degree_cap():
    # 500 users of the same 300 items, tau 1.5: 333 full items of room, so every item is filled.
    crowd = as_sets([list(range(300))] * 500, 300)
    result = select_greedy_updates(*crowd, laplace_scale=0.05, threshold=1.3, seed=1)
    np.testing.assert_array_equal(result.weights, np.full(300, 1.5))


# --- Both ---


@settings(deadline=None)
@given(sets_of_items, taus)
def test_weights_never_pass_tau(lists, tau):
    for weights_of in (policy_gaussian_weights, greedy_updates_weights):
        assert weights_of(*as_sets(lists), tau=tau).max(initial=0) <= tau


def select_both(sets: UserSets, *, scale: float, threshold: float, seed: int):
    return (
        select_policy_gaussian(*sets, sigma=scale, threshold=threshold, seed=seed),
        select_greedy_updates(*sets, laplace_scale=scale, threshold=threshold, seed=seed),
    )


def test_items_without_weight_are_never_released():
    sets = as_sets([[3], [3, 5], [7]], 10_000)
    for result in select_both(sets, scale=5.0, threshold=0.001, seed=2):
        assert set(np.flatnonzero(result.released)) <= {3, 5, 7}


def test_seed_decides_everything():
    sets = as_sets([[user % 40, 40 + user % 7, 47 + user % 11] for user in range(300)], 60)
    same, again, other = (select_both(sets, scale=1.0, threshold=4.5, seed=seed) for seed in (3, 3, 4))
    for first, second, third in zip(same, again, other, strict=True):
        np.testing.assert_array_equal(first.released, second.released)
        np.testing.assert_array_equal(first.weights, second.weights)
        assert (first.weights != third.weights).any()
        assert (first.released != third.released).any()


def test_adds_noise_of_the_scale_given():
    # 40,000 items of weight exactly 1. False alarm 10^-6 per assertion (4.9 standard deviations of a binomial
    # share, 0.009 and 0.010); a scale wrong by 8% (Gaussian) or 11% (Laplace) is found with probability 1/2.
    count = 40_000
    sets = as_sets([[item] for item in range(count)], count)
    gaussian = select_policy_gaussian(*sets, sigma=2.0, threshold=3.0, seed=5).released.mean()
    assert abs(gaussian - 0.158655) < 4.9 * np.sqrt(0.158655 * 0.841345 / count)  # P(N(0, 4) >= 2)
    laplace = select_greedy_updates(*sets, laplace_scale=2.0, threshold=3.0, seed=5).released.mean()
    expected = 0.5 * np.exp(-1)
    assert abs(laplace - expected) < 4.9 * np.sqrt(expected * (1 - expected) / count)


def test_no_users_and_no_items():
    for result in select_both(user_sets_from_pairs([], []), scale=1.0, threshold=5.0, seed=0):
        assert result.released.shape == result.weights.shape == (0,)


# --- User sets ---


def test_pairs_become_distinct_sets():
    offsets, items, num_items = user_sets_from_pairs([3, 0, 3, 0, 3], [2, 4, 1, 4, 2])
    assert offsets.tolist() == [0, 1, 1, 1, 3]
    assert items.tolist() == [4, 1, 2]
    assert num_items == 5


def test_shuffling_keeps_every_set():
    lists = [[], [1, 2, 3], [4], [0, 5, 6, 7], []]
    shuffled = shuffled_sets(*as_sets(lists), rng=np.random.default_rng(0))
    found = [sorted(part.tolist()) for part in np.split(shuffled.items, shuffled.offsets[1:-1])]
    assert sorted(found) == sorted(lists)


def test_shuffling_samples_items_and_visits_users_uniformly():
    # 20,000 users of the same 6 items, 2 kept: an item is kept with chance 1/3. False alarm 10^-6 for all
    # six together (5.3 standard deviations, 0.018); finds a share wrong by as much with probability 1/2.
    users, kept_share = 20_000, 1 / 3
    sets = shuffled_sets(*as_sets([list(range(6))] * users), rng=np.random.default_rng(1), max_degree=2)
    assert (np.diff(sets.offsets) == 2).all()
    counts = np.bincount(sets.items, minlength=6)[:6]
    assert np.abs(counts / users - kept_share).max() < 5.3 * np.sqrt(kept_share * (1 - kept_share) / users)
    visits = shuffled_sets(*as_sets([[user] for user in range(100)], 100), rng=np.random.default_rng(2)).items
    assert visits.tolist() != list(range(100))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0, 1], [0, 1], 2), "offsets must start with 0 and end with len(items); build them with np.cumsum"),
        (([], [], 2), "offsets must start with 0 and end with len(items); build them with np.cumsum"),
        (
            ([0, 2, 1, 2], [0, 1], 2),
            "offsets must never fall; build them with np.cumsum of the users' degrees",
        ),
        (([0, 2], [0, 2], 2), "items must be below num_items; raise num_items or renumber the items"),
        (
            ([0, 2], [1, 1], 2),
            "items must be distinct within a user; build the sets with user_sets_from_pairs",
        ),
        (
            ([0, 1], [-1], 2),
            "items must be a one-dimensional array of integers >= 0, got 1 dimension(s) of int64; "
            "number the values with np.unique(..., return_inverse=True)",
        ),
        (
            ([0, 1], ["a"], 2),
            "items must be a one-dimensional array of integers >= 0, got 1 dimension(s) of <U1; "
            "number the values with np.unique(..., return_inverse=True)",
        ),
    ],
)
def test_refuses_what_is_no_csr(arguments, text):
    for weights_of in (policy_gaussian_weights, greedy_updates_weights):
        with pytest.raises(InputError) as caught:
            weights_of(*arguments, tau=2.0)
        assert str(caught.value) == text


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"sigma": 0}, "sigma must be a finite number > 0, got 0; take it from the calibration"),
        (
            {"threshold": 0.25, "beta": 0.5},
            "threshold + beta * noise scale must be >= 1, got 0.75; raise the threshold, "
            "which one user alone (weight 1) should not reach",
        ),
    ],
)
def test_refuses_bad_parameters(changed, text):
    with pytest.raises(ValueError) as caught:
        select_policy_gaussian(**(ONE_PAIR | changed))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "changed",
    [
        {"sigma": float("nan")},
        {"threshold": float("inf")},
        {"threshold": True},
        {"beta": -1},
        {"max_degree": 0},
        {"num_items": 2.5},
        {"num_items": 2**31},
    ],
)
def test_checks_every_parameter(changed):
    (name,) = changed
    with pytest.raises(ValueError, match=f"^{name} must be "):
        select_policy_gaussian(**(ONE_PAIR | changed))


def test_refuses_pairs_that_do_not_match():
    with pytest.raises(InputError) as caught:
        user_sets_from_pairs([1, 2], [1])
    assert str(caught.value) == "users and items must have equal lengths; give one entry of each per pair"
