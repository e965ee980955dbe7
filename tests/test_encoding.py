"""From rows to user blocks: a function of the set of pairs alone."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dp.core import encoding
from beam_dp.core.blocks import Pairs, UserBlock, encode
from beam_dp.core.capping import cap_degrees
from beam_dp.core.encoding import build_user_block, split_pairs
from beam_dp.core.randomness import RunKey, placement_hash, shard_of
from beam_dp.errors import InputError

KEY = RunKey.from_seed(77)
FALSE_ALARM = 1e-6
texts = st.text(st.characters(codec="utf-8"), max_size=3)
pair_lists = st.lists(st.tuples(texts, texts), min_size=1, max_size=40)


def table_of(pairs) -> pa.Table:
    users, items = [user for user, _ in pairs], [item for _, item in pairs]
    return pa.table({"user": pa.array(users, pa.string()), "item": pa.array(items, pa.string())})


def all_blocks(tables, *, num_shards=1, **arguments) -> dict[int, UserBlock]:
    parts = defaultdict(list)
    for table in tables:
        for shard, pairs in split_pairs(table, run_key=arguments.get("run_key", KEY), num_shards=num_shards):
            parts[shard].append(pairs)
    arguments = {"run_key": KEY, "num_item_shards": num_shards, **arguments}
    return {shard: build_user_block(shard, pairs, **arguments) for shard, pairs in parts.items()}


def lists_of(block: UserBlock) -> list[list[bytes]]:
    keys = block.keys.to_bytes()
    bounds = zip(block.offsets[:-1], block.offsets[1:], strict=True)
    return [[keys[item] for item in block.items[start:stop]] for start, stop in bounds]


# --- the block is the set of pairs ---


@settings(max_examples=200, deadline=None)
@given(pair_lists, st.integers(1, 5))
def test_blocks_hold_each_users_distinct_items(pairs, num_shards):
    expected = defaultdict(set)
    for user, item in pairs:
        expected[user].add(item.encode())
    blocks = all_blocks([table_of(pairs)], num_shards=num_shards)
    lists = [one for block in blocks.values() for one in lists_of(block)]
    assert Counter(map(frozenset, lists)) == Counter(map(frozenset, expected.values()))
    assert all(len(one) == len(set(one)) for one in lists)
    for block in blocks.values():
        keys = block.keys.to_bytes()
        assert set(keys) == {item for one in lists_of(block) for item in one}
        assert len(keys) == len(set(keys))
        assert block.num_users == len(lists_of(block))


@settings(max_examples=200, deadline=None)
@given(pair_lists, st.randoms(), st.integers(1, 4), st.sampled_from([None, 1, 2]))
def test_blocks_depend_on_the_set_of_pairs_only(pairs, random, num_shards, cap):
    """Not on order, repeats, tables, or the type of the columns."""
    once = all_blocks([table_of(sorted(set(pairs)))], num_shards=num_shards, max_degree=cap)
    shuffled = random.sample(pairs, len(pairs)) + random.choices(pairs, k=5)
    cuts = sorted(random.randrange(len(shuffled) + 1) for _ in range(3))
    tables = [table_of(shuffled[a:b]) for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    tables[0] = pa.table({name: tables[0][name].dictionary_encode() for name in ("user", "item")})
    tables[1] = tables[1].cast(pa.schema([("user", pa.large_binary()), ("item", pa.binary())]))
    again = all_blocks(random.sample(tables, len(tables)), num_shards=num_shards, max_degree=cap)
    assert {shard: encode(block) for shard, block in once.items()} == {
        shard: encode(block) for shard, block in again.items()
    }


@settings(max_examples=100, deadline=None)
@given(pair_lists, st.integers(1, 6))
def test_users_and_items_stand_in_the_shards_of_their_hashes(pairs, num_shards):
    for shard, part in split_pairs(table_of(pairs), run_key=KEY, num_shards=num_shards):
        assert set(shard_of(placement_hash(part.users, KEY.derive("user shard")), num_shards)) == {shard}
    for block in all_blocks([table_of(pairs)], num_shards=num_shards).values():
        hashes = placement_hash(block.keys, KEY.derive("item priority"))
        assert (np.diff(hashes.astype(object)) >= 0).all()
        for shard in range(num_shards):
            inside = shard_of(hashes[block.slices[shard] : block.slices[shard + 1]], num_shards)
            assert (inside == shard).all()
        assert (block.slices[0], block.slices[-1]) == (0, len(block.keys))


@settings(max_examples=100, deadline=None)
@given(pair_lists, st.integers(1, 5))
def test_split_pairs_loses_nothing(pairs, num_shards):
    rows = []
    for _, part in split_pairs(table_of(pairs), run_key=KEY, num_shards=num_shards):
        users, items = part.users.to_bytes(), part.items.to_bytes()
        rows += [(users[u], items[i]) for u, i in zip(part.user_index, part.item_index, strict=True)]
        assert {users[u] for u in part.user_index} == set(users)  # nothing is shipped that is not used
        assert {items[i] for i in part.item_index} == set(items)
    assert Counter(rows) == Counter((user.encode(), item.encode()) for user, item in pairs)


def test_equal_items_of_a_window_have_the_same_place_in_all_blocks():
    pairs = [(f"u{number}", f"i{number % 7}") for number in range(200)]
    places = {}
    for block in all_blocks([table_of(pairs)], num_shards=4, window=b"w").values():
        shards = np.searchsorted(block.slices, np.arange(len(block.keys)), side="right") - 1
        for key, shard in zip(block.keys.to_bytes(), shards, strict=True):
            assert places.setdefault(key, shard) == shard
    assert len(places) == 7


def test_no_pairs_give_an_empty_block():
    assert list(split_pairs(table_of([]), run_key=KEY, num_shards=3)) == []
    block = build_user_block(0, [], run_key=KEY, num_item_shards=3)
    assert (block.num_users, len(block.keys), block.slices.tolist()) == (0, 0, [0, 0, 0, 0])


def test_null_users_and_items_are_refused():
    for name in ("user", "item"):
        columns = {"user": ["u"], "item": ["i"], name: pa.array([None], pa.string())}
        with pytest.raises(InputError) as error:
            list(split_pairs(pa.table(columns), run_key=KEY, num_shards=1))
        assert str(error.value) == (
            f"{name} must not be None (null), got at least one; filter such rows out first"
        )


# --- the cap ---


@settings(max_examples=200, deadline=None)
@given(pair_lists, st.integers(1, 4))
def test_the_cap_keeps_the_first_of_each_list(pairs, cap):
    (whole,) = all_blocks([table_of(pairs)]).values()
    capped = cap_degrees(whole, cap)
    assert lists_of(capped) == [one[:cap] for one in lists_of(whole)]
    assert capped.keys is whole.keys
    (early,) = all_blocks([table_of(pairs)], max_degree=cap).values()
    assert lists_of(early) == lists_of(capped)
    assert set(early.keys.to_bytes()) == {item for one in lists_of(capped) for item in one}


def test_the_cap_keeps_a_uniform_subset():
    # 12,000 users with the same 8 items, cap 3: counts of the 56 possible subsets, chi-square with 55 degrees of
    # freedom at a false alarm of 1e-6 (bound 118). A rule by which half of the subsets are 15% too
    # likely and half too unlikely adds 0.15^2 * 12,000 = 270 and is found with probability > 0.999.
    users, items, cap = 12_000, 8, 3
    pairs = [(f"u{user}", f"i{item}") for user in range(users) for item in range(items)]
    (block,) = all_blocks([table_of(pairs)], max_degree=cap).values()
    subsets = Counter(frozenset(one) for one in lists_of(block))
    assert len(subsets) == 56
    assert stats.chisquare(list(subsets.values())).statistic < stats.chi2.isf(FALSE_ALARM, 55)


def test_each_order_of_a_users_items_is_equally_likely():
    # As above for the 24 orders of 4 items: later rounds move the next in line up.
    pairs = [(f"u{user}", f"i{item}") for user in range(12_000) for item in range(4)]
    (block,) = all_blocks([table_of(pairs)]).values()
    orders = Counter(map(tuple, lists_of(block)))
    assert len(orders) == 24
    assert stats.chisquare(list(orders.values())).statistic < stats.chi2.isf(FALSE_ALARM, 23)


@pytest.mark.parametrize(
    "change", [{"run_key": RunKey.from_seed(78)}, {"window": b"1"}], ids=["key", "window"]
)
def test_priorities_are_drawn_anew_for_another_key_or_window(change):
    # Each of 2,000 users keeps 1 of 10 items; two independent draws agree for 200 users, sd 13.4; false alarm 1e-6
    # at 4.9 sd, 266. The same draw agrees for all 2,000.
    pairs = [(f"u{user}", f"i{item}") for user in range(2_000) for item in range(10)]

    plain = kept_by_user(pairs, KEY)
    other = kept_by_user(pairs, change.get("run_key", KEY), change.get("window", b""))
    agreeing = sum(plain[user] == other[user] for user in plain)
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], 2_000, 0.1)
    assert low <= agreeing <= high


def kept_by_user(pairs, run_key: RunKey, window: bytes = b"") -> dict[str, bytes]:
    """The one item each user keeps at cap 1, each user encoded alone, since blocks forget names."""
    by_user = defaultdict(list)
    for user, item in pairs:
        by_user[user].append((user, item))
    kept = {}
    for user, mine in by_user.items():
        parts = [part for _, part in split_pairs(table_of(mine), run_key=run_key, num_shards=1)]
        block = build_user_block(0, parts, run_key=run_key, num_item_shards=1, max_degree=1, window=window)
        ((kept[user],),) = lists_of(block)
    return kept


@settings(max_examples=50, deadline=None)
@given(pair_lists)
def test_a_users_list_does_not_depend_on_other_users(pairs):
    (block,) = all_blocks([table_of(pairs)]).values()
    alone = []
    for user in {user for user, _ in pairs}:
        (own,) = all_blocks([table_of([pair for pair in pairs if pair[0] == user])]).values()
        alone += lists_of(own)
    assert Counter(map(tuple, lists_of(block))) == Counter(map(tuple, alone))


# --- collisions of hashes ---


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=5),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.integers(1, 12),
)
def test_colliding_item_hashes_neither_merge_nor_repeat_items(users, hashes, cap):
    """Only three different hashes for six items."""
    bounds = np.cumsum([0, *map(len, users)])
    items = np.array([item for one in users for item in one], np.int32)
    item_hashes = np.array(hashes, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    user_hashes = np.arange(len(users), dtype=np.uint64)
    offsets, kept = encoding._sort_and_cap(bounds, items, user_hashes, item_hashes, cap)
    for user, one in enumerate(users):
        mine = kept[offsets[user] : offsets[user + 1]].tolist()
        assert len(mine) == len(set(mine)) == min(cap, len(set(one)))
        assert set(mine) <= set(one)


@settings(max_examples=50, deadline=None)
@given(pair_lists, st.integers(1, 3))
def test_blocks_are_right_if_all_hashes_collide(pairs, num_shards):
    def constant(keys, secret):
        return np.full(len(keys), 12345 << 40, np.uint64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "placement_hash", constant)
        (block,) = all_blocks([table_of(pairs)], num_shards=num_shards).values()
    expected = defaultdict(set)
    for user, item in pairs:
        expected[user].add(item.encode())
    assert Counter(map(frozenset, lists_of(block))) == Counter(map(frozenset, expected.values()))
    assert all(len(one) == len(set(one)) for one in lists_of(block))
    assert len(block.keys) == len({item for _, item in pairs})


def test_pairs_hold_what_they_were_given():
    ((shard, part),) = split_pairs(table_of([("u", "i"), ("u", "i")]), run_key=KEY, num_shards=1)
    assert isinstance(part, Pairs)
    assert (shard, part.users.to_bytes(), part.items.to_bytes()) == (0, [b"u"], [b"i"])
    assert (part.user_index.tolist(), part.item_index.tolist()) == ([0, 0], [0, 0])
