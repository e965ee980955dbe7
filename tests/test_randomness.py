"""Keyed draws: published hash vectors, one draw per identity, and a secret that stays one."""

import copy
import hashlib
import logging
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dp.core.keys import Keys
from beam_dp.core.randomness import RunKey, edge_priority, keyed_bits, placement_hash, shard_of

KEY = RunKey.from_seed(1)
FALSE_ALARM = 1e-6

# The reference implementation's vectors for SipHash-2-4: key 00..0f, message 00, 01, .. of length 0, 1, ..; the
# last, of length 15, is the worked example of the paper's appendix A.
SIPHASH_VECTORS = [
    "310e0edd47db6f72",
    "fd67dc93c539f874",
    "5a4fa9d909806c0d",
    "2d7efbd796666785",
    "b7877127e09427cf",
    "8da699cd64557618",
    "cee3fe586e46c9cb",
    "37d1018bf50002ab",
    "6224939a79f5f593",
    "b0e4a90bdf82009e",
    "f3b9dd94c5bb5d7a",
    "a7ad6b22462fb3f4",
    "fbe50e86bc8f1e75",
    "903d84c02756ea14",
    "eef27a8e90ca23f7",
    "e545be4961ca29a1",
]


def test_siphash_gives_the_published_vectors():
    messages = [bytes(range(length)) for length in range(len(SIPHASH_VECTORS))]
    hashes = placement_hash(Keys.from_bytes(messages), bytes(range(32)))
    assert [int(one).to_bytes(8, "little").hex() for one in hashes] == SIPHASH_VECTORS
    assert hashes[15] == 0xA129CA6149BE45E5


def plain_siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 in Python integers, from the paper."""
    mask = 2**64 - 1
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotate(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (64 - bits))) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            for a, b, c, d, r, s in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & mask
                v[c] = (v[c] + v[d]) & mask
                v[b] = rotate(v[b], r) ^ v[a]
                v[d] = rotate(v[d], s) ^ v[c]
                v[a] = rotate(v[a], 32)

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) % 256])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.lists(st.binary(max_size=300), min_size=1, max_size=8))
def test_siphash_agrees_with_plain_integers(secret, messages):
    hashes = placement_hash(Keys.from_bytes(messages), secret)
    assert hashes.tolist() == [plain_siphash(secret[:16], message) for message in messages]


@given(st.binary(min_size=32, max_size=32), st.lists(st.binary(max_size=200), max_size=8))
def test_noise_bits_are_keyed_blake2b(secret, messages):
    drawn = keyed_bits(Keys.from_bytes(messages), secret)
    digests = [hashlib.blake2b(message, key=secret, digest_size=16).digest() for message in messages]
    words = [(digest[:8], digest[8:]) for digest in digests]
    assert drawn.tolist() == [[int.from_bytes(word, "little") for word in pair] for pair in words]
    assert drawn.dtype == np.uint64


purposes = st.sampled_from(["noise", "noise ", "item priority", "", "1:n", "é"]) | st.text(max_size=5)
circumstances = st.tuples(
    st.integers(0, 5),
    purposes,
    st.integers(0, 12),
    st.sampled_from([b"", b"1", b":", b"0:"]) | st.binary(max_size=4),
)


def derived(circumstance) -> bytes:
    seed, purpose, number, window = circumstance
    return RunKey.from_seed(seed).derive(purpose, number=number, window=window)


@settings(max_examples=300)
@given(circumstances, circumstances)
def test_derived_keys_are_equal_exactly_for_equal_circumstances(one, other):
    assert (derived(one) == derived(other)) == (one == other)


TRICKY = [
    (0, "a", 1, b"1"),
    (0, "a1", 1, b""),
    (0, "a", 11, b""),
    (0, "a", 1, b"1:"),
    (0, "a1:", 1, b"1"),
    (0, "a", 1, b":1"),
    (0, "1:a", 1, b""),
    (0, "a1:1:", 1, b""),
    (0, "a:1", 1, b""),  # meets (0, "a", 1, b"1:") if only colons stand between
    (0, "", 1, b"a"),
    (0, "", 0, b""),
    (0, "0:", 0, b""),
    (0, "", 0, b"0:"),
    (0, "\x00", 0, b""),
    (0, "", 0, b"\x00"),
    (0, "é", 0, b""),
    (0, "e\u0301", 0, b""),
    (1, "", 0, b""),
]


def test_tricky_circumstances_have_keys_of_their_own():
    assert len({derived(one) for one in TRICKY}) == len(TRICKY)


@given(circumstances, circumstances, st.binary(max_size=6), st.binary(max_size=6))
def test_a_draw_is_a_function_of_all_it_depends_on(one, other, item, other_item):
    def draw(circumstance, identity):
        return keyed_bits(Keys.from_bytes([identity]), derived(circumstance))[0].tolist()

    assert draw(one, item) == draw(one, item)
    assert (draw(one, item) == draw(other, other_item)) == ((one, item) == (other, other_item))


def test_derived_keys_have_32_bytes_and_differ_from_the_run_key():
    secret = bytes(range(32))
    assert len(RunKey(secret).derive("noise")) == 32
    assert RunKey(secret).derive("noise") != secret


# --- the run key is a secret ---

SECRET = bytes(range(100, 132))


def shows(text: str) -> bool:
    """Whether any 4 bytes of the secret stand in the text: raw, escaped, hex or decimal."""
    windows = [SECRET[i : i + 4] for i in range(len(SECRET) - 3)]
    forms = (
        [w.decode("latin1") for w in windows] + [w.hex() for w in windows] + [repr(w)[2:-1] for w in windows]
    )
    forms += [", ".join(map(str, w)) for w in windows]
    return any(form in text for form in forms)


def test_the_search_for_the_secret_would_find_it():
    assert shows(repr(SECRET))
    assert shows(SECRET.hex())
    assert shows(str(list(SECRET)))


def test_the_run_key_never_shows_its_secret(caplog):
    key = RunKey(SECRET)
    restored = pickle.loads(pickle.dumps(key))
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").warning("%s %r %s", key, key, [key])
    texts = [repr(key), str(key), f"{key}", f"{[key]}", repr({"key": key}), caplog.text]
    texts += [repr(restored), str(restored), repr(copy.deepcopy(key))]
    assert not any(map(shows, texts))
    assert repr(key) == "RunKey(<secret>)"
    assert not hasattr(key, "__dict__")


def test_a_pickled_run_key_draws_the_same():
    key = RunKey(SECRET)
    for restored in (pickle.loads(pickle.dumps(key)), copy.copy(key), copy.deepcopy(key)):
        assert restored.derive("noise") == key.derive("noise")


@pytest.mark.parametrize("secret", [SECRET[:31], SECRET + b"x", bytearray(SECRET), SECRET.hex()[:32], None])
def test_a_wrong_secret_is_refused_and_not_shown(secret):
    with pytest.raises(ValueError) as error:
        RunKey(secret)
    assert str(error.value) == "run_key must be made of exactly 32 bytes"


@pytest.mark.parametrize("seed", [True, 1.0, "1", None])
def test_seeds_are_integers(seed):
    with pytest.raises(ValueError, match=re.escape(f"seed must be an integer, got {seed!r}")):
        RunKey.from_seed(seed)


def test_fresh_keys_differ():
    assert len({RunKey.fresh().derive("noise") for _ in range(100)}) == 100


# --- placement ---

all_hashes = st.lists(
    st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1, 2**32, 2**32 - 1]), min_size=1
)


@given(all_hashes, st.integers(1, 1 << 16))
def test_shards_are_in_range_monotone_and_exact(hashes, num_shards):
    hashes = np.sort(np.array(hashes, np.uint64))
    shards = shard_of(hashes, num_shards)
    assert shards.dtype == np.int32
    assert shards.tolist() == [(int(one) >> 32) * num_shards >> 32 for one in hashes]
    assert 0 <= shards.min() <= shards.max() < num_shards
    assert (np.diff(shards) >= 0).all()


def test_the_extreme_hashes_meet_the_extreme_shards():
    ends = np.array([0, 2**64 - 1], np.uint64)
    for num_shards in (1, 2, 3, 64, 1 << 16):
        assert shard_of(ends, num_shards).tolist() == [0, num_shards - 1]


@pytest.mark.parametrize("num_shards", [2, 64, 1000])
@pytest.mark.parametrize("purpose", ["user shard", "item priority"])
def test_placement_is_balanced(num_shards, purpose):
    # Chi-square of 200,000 consecutive texts over the shards, at a false alarm of 1e-6. A placement by which half of
    # the shards get 10% too much and half too little adds 0.1^2 * n = 2000 to the statistic, whose bound for 1000
    # shards is 1236: found with probability > 0.999.
    n = 200_000
    keys = Keys.from_bytes([b"user-%d" % number for number in range(n)])
    counts = np.bincount(
        shard_of(placement_hash(keys, KEY.derive(purpose)), num_shards), minlength=num_shards
    )
    assert stats.chisquare(counts).statistic < stats.chi2.isf(FALSE_ALARM, num_shards - 1)


def test_priorities_are_uniform_and_unrelated_between_users():
    # 2 x 100,000 priorities: chi-square over an 8 x 8 grid of two users' priorities for the same items, at a false
    # alarm of 1e-6; users whose orders agree on as little as 5% of the items add 0.05^2 * 7 * n = 1750 to it.
    n = 100_000
    item_hashes = placement_hash(Keys.from_bytes([b"%d" % i for i in range(n)]), KEY.derive("item priority"))
    users = placement_hash(Keys.from_bytes([b"u1", b"u2"]), KEY.derive("user priority"))
    with np.errstate(over="ignore"):
        first, second = (edge_priority.py_func(user, item_hashes) >> np.uint64(61) for user in users)
    cells = np.bincount((first * np.uint64(8) + second).astype(np.int64), minlength=64)
    assert stats.chisquare(cells).statistic < stats.chi2.isf(FALSE_ALARM, 63)


@settings(max_examples=200)
@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64 - 1), unique=True, min_size=2, max_size=20))
def test_priorities_tie_only_where_item_hashes_do(user, items):
    priorities = {int(edge_priority(np.uint64(user), np.uint64(item))) for item in items}
    assert len(priorities) == len(items)
