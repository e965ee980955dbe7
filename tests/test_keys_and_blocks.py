"""Keys and blocks: the data model against Python lists, and its bytes on the wire."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.core import blocks, exchange
from beam_dp.core.blocks import Answers, ItemBlock, Pairs, PartialSums, UserBlock, decode, encode
from beam_dp.core.keys import Keys, dictionary, is_bytes_like, unify
from beam_dp.errors import InputError

byte_strings = st.one_of(st.binary(max_size=9), st.sampled_from([b"", b"\x00", b"\x00\x00", "ä😀".encode()]))
key_lists = st.lists(byte_strings, max_size=12)


# --- keys ---


@given(key_lists)
def test_keys_keep_any_bytes(values):
    keys = Keys.from_bytes(values)
    assert keys.to_bytes() == values
    assert len(keys) == len(values)
    assert keys.offsets[0] == 0
    assert keys.offsets[-1] == len(keys.data) == sum(map(len, values))


@given(key_lists, st.data())
def test_take_is_indexing(values, data):
    positions = st.lists(st.integers(0, len(values) - 1), max_size=15) if values else st.just([])
    indices = data.draw(positions)
    taken = Keys.from_bytes(values).take(np.array(indices, np.int32))
    assert taken.to_bytes() == [values[index] for index in indices]


@given(key_lists, st.data())
def test_slice_is_slicing_and_holds_its_own_bytes_only(values, data):
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    part = Keys.from_bytes(values).slice(start, stop)
    assert part.to_bytes() == values[start:stop]
    assert (part.offsets[0], len(part.data)) == (0, sum(map(len, values[start:stop])))
    assert part.slice(0, len(part)).to_bytes() == values[start:stop]


@given(key_lists, st.data())
def test_from_arrow_takes_sliced_arrays(values, data):
    start = data.draw(st.integers(0, len(values)))
    array = pa.array(values, pa.large_binary()).slice(start)
    keys = Keys.from_arrow(array)
    assert keys.to_bytes() == values[start:]
    assert keys.offsets[0] == 0
    assert len(keys.data) == sum(map(len, values[start:]))


@given(st.lists(key_lists, max_size=5))
def test_unify_finds_the_distinct_keys_and_where_they_stand(parts):
    maps, keys = unify([Keys.from_bytes(part) for part in parts])
    distinct = keys.to_bytes()
    assert len(set(distinct)) == len(distinct)
    assert set(distinct) == {value for part in parts for value in part}
    assert [[distinct[index] for index in one] for one in maps] == parts
    assert all(one.dtype == np.int32 for one in maps)


# --- dictionaries of columns ---

TYPES = {
    "string": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=4), str.encode),
    "large_string": (pa.large_string(), st.text(st.characters(codec="utf-8"), max_size=4), str.encode),
    "binary": (pa.binary(), st.binary(max_size=4), bytes),
    "large_binary": (pa.large_binary(), st.binary(max_size=4), bytes),
    "int8": (pa.int8(), st.integers(-128, 127), lambda value: b"%d" % value),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), lambda value: b"%d" % value),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), lambda value: b"%d" % value),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "dictionary"])
@settings(max_examples=50)
@given(data=st.data())
def test_dictionary_gives_every_row_its_key(name, encoded, data):
    data_type, values, identity = TYPES[name]
    chunks = data.draw(st.lists(st.lists(values, max_size=8), max_size=4))
    column = pa.chunked_array(chunks, data_type)
    if encoded:
        column = pa.chunked_array(
            [chunk.dictionary_encode() for chunk in column.chunks], pa.dictionary(pa.int32(), data_type)
        )
    codes, keys = dictionary(column, "item")
    names = keys.to_bytes()
    assert [names[code] for code in codes] == [identity(value) for chunk in chunks for value in chunk]
    assert codes.dtype == np.int32
    assert set(names) == {identity(value) for chunk in chunks for value in chunk}


def test_a_sliced_column_has_the_keys_of_its_rows():
    column = pa.chunked_array([["a", None, "b", "c", "b"]]).slice(2)
    codes, keys = dictionary(column, "item")
    assert [keys.to_bytes()[code] for code in codes] == [b"b", b"c", b"b"]


def test_dictionaries_with_small_indices_and_repeated_values_are_read():
    repeated = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0], pa.int8()), pa.array(["a", "a", "b"]))
    codes, keys = dictionary(pa.chunked_array([repeated]), "user")
    assert [keys.to_bytes()[code] for code in codes] == [b"a", b"a", b"b", b"a"]
    maps, distinct = unify([keys])
    assert [distinct.to_bytes()[maps[0][code]] for code in codes] == [b"a", b"a", b"b", b"a"]
    assert len(distinct) == 2


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([["a", None]]),
        pa.chunked_array([["a"], [None]]),
        pa.chunked_array([pa.array([1, None], pa.int64())]),
        pa.chunked_array([pa.array(["a", None]).dictionary_encode()]),
        pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))]),
    ],
    ids=["string", "chunk", "integer", "null_index", "null_value"],
)
def test_nulls_are_refused(column):
    with pytest.raises(InputError) as error:
        dictionary(column, "user")
    assert str(error.value) == "user must not be None (null), got at least one; filter such rows out first"


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (pa.array([1.5]), "double"),
        (pa.array([1.5]).dictionary_encode(), "double"),
        (pa.array([True]), "bool"),
        (pa.array([0], pa.timestamp("s")), "timestamp[s]"),
        (pa.array([0], pa.timestamp("s")).dictionary_encode(), "timestamp[s]"),
        (pa.array([["a"]]), "list<item: string>"),
        (pa.array([None]), "null"),
    ],
    ids=str,
)
def test_types_without_an_agreed_identity_are_refused(array, shown):
    with pytest.raises(InputError) as error:
        dictionary(pa.chunked_array([array]), "item")
    assert str(error.value) == (
        f"item must be a column of strings, binaries or integers, got {shown}; cast it to one of these first"
    )


def test_errors_of_dictionary_show_no_values():
    for column in (pa.chunked_array([["secret", None]]), pa.chunked_array([[7777.25]])):
        with pytest.raises(InputError) as error:
            dictionary(column, "item")
        assert "secret" not in str(error.value)
        assert "7777" not in str(error.value)


def test_bytes_like_types():
    assert all(is_bytes_like(one) for one in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()))
    assert not any(is_bytes_like(one) for one in (pa.int32(), pa.float32(), pa.list_(pa.string())))


# --- blocks on the wire ---

int32s = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9).map(lambda v: np.array(v, np.int32))
int64s = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9).map(lambda v: np.array(v, np.int64))
floats = st.lists(st.floats(allow_nan=True), max_size=9).map(lambda v: np.array(v, np.float64))
bools = st.lists(st.booleans(), max_size=9).map(lambda v: np.array(v, np.bool_))
keys_of = key_lists.map(Keys.from_bytes)
shards = st.integers(0, 2**16)


def optional(strategy):
    return st.none() | strategy


any_block = st.one_of(
    st.builds(Pairs, users=keys_of, user_index=int32s, items=keys_of, item_index=int32s),
    st.builds(
        UserBlock,
        shard=shards,
        offsets=int64s,
        items=int32s,
        keys=keys_of,
        slices=int64s,
        bias=optional(floats),
    ),
    st.builds(
        PartialSums, shard=shards, sums=st.lists(int64s, max_size=3).map(tuple), keys=optional(keys_of)
    ),
    st.builds(Answers, shard=shards, values=floats),
    st.builds(
        ItemBlock,
        shard=shards,
        keys=keys_of,
        askers=st.lists(shards, max_size=3).map(tuple),
        rows=st.lists(int32s, max_size=3).map(tuple),
        weight=int64s,
        noisy=optional(int64s),
        found=optional(bools),
    ),
)


def arrays_in(value) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tuple):
        return [array for part in value for array in arrays_in(part)]
    if dataclasses.is_dataclass(value):
        return [
            array for field in dataclasses.fields(value) for array in arrays_in(getattr(value, field.name))
        ]
    return []


def same(one, other) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    return one == other


def test_every_kind_of_block_is_generated_here():
    kinds = {
        kind for kind in vars(blocks).values() if isinstance(kind, type) and issubclass(kind, blocks.Block)
    }
    assert kinds == {blocks.Block, Pairs, UserBlock, PartialSums, Answers, ItemBlock}


@settings(max_examples=300)
@given(any_block)
def test_blocks_survive_the_wire(block):
    data = encode(block)
    assert isinstance(data, bytes)
    restored = decode(data)
    assert same(restored, block)
    assert encode(restored) == encode(decode(encode(restored)))


@settings(max_examples=200)
@given(any_block)
def test_decoded_arrays_are_aligned_and_read_only(block):
    for array in arrays_in(decode(encode(block))):
        assert array.ctypes.data % 8 == 0 or array.size == 0
        assert not array.flags.writeable or array.size == 0


def test_slices_ship_their_own_bytes_only():
    parent = np.arange(1_000_000)
    whole = Answers(shard=0, values=parent.astype(np.float64))
    part = Answers(shard=0, values=whole.values[500:600])
    assert 800 <= len(encode(part)) < 1500
    strided = Answers(shard=0, values=whole.values[0:1000:10])
    assert 800 <= len(encode(strided)) < 1500
    assert same(decode(encode(strided)).values, np.ascontiguousarray(strided.values))
    keys = Keys.from_bytes([b"%06d" % number for number in range(100_000)])
    assert len(encode(PartialSums(shard=0, sums=(), keys=keys.slice(70, 80)))) < 1000
    assert len(encode(PartialSums(shard=0, sums=(), keys=keys.take(np.arange(70, 80))))) < 1000


def test_what_is_sent_to_all_item_shards_together_is_the_block_once():
    n = 100_000
    keys = Keys.from_bytes([b"%06d" % number for number in range(n)])
    block = UserBlock(
        shard=3,
        offsets=np.array([0, n]),
        items=np.arange(n, dtype=np.int32),
        keys=keys,
        slices=np.linspace(0, n, 17).astype(np.int64),
    )
    messages = exchange.partial_sums(block, (np.arange(n),), introduce=True)
    sizes = [len(encode(message)) for _, message in messages]
    assert len(sizes) == 16
    assert sum(sizes) < n * (8 + 8 + 6) * 1.01 + 16 * 1000


def test_a_megabyte_costs_little_more_than_its_bytes():
    block = Answers(shard=1, values=np.ones(131_072))
    assert len(encode(block)) - block.values.nbytes < 1000


def test_blocks_are_immutable_and_have_no_equality_of_arrays():
    block = Answers(shard=1, values=np.zeros(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        block.shard = 2
    assert block != Answers(shard=1, values=block.values)


# --- exchanges ---


@st.composite
def user_blocks(draw):
    """Some user blocks over one set of items, with the slices of Q item shards."""
    num_shards = draw(st.integers(1, 4))
    placed = draw(
        st.dictionaries(st.binary(max_size=3), st.integers(0, num_shards - 1), min_size=1, max_size=12)
    )
    result = []
    for shard in draw(st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4)):
        mine = draw(st.lists(st.sampled_from(sorted(placed)), unique=True, min_size=1))
        mine.sort(key=lambda key: placed[key])
        at = np.searchsorted([placed[key] for key in mine], np.arange(num_shards + 1))
        result.append(
            UserBlock(
                shard=shard,
                offsets=np.zeros(1, np.int64),
                items=np.zeros(0, np.int32),
                keys=Keys.from_bytes(mine),
                slices=at.astype(np.int64),
            )
        )
    return num_shards, placed, result


@settings(max_examples=200)
@given(user_blocks(), st.randoms())
def test_an_exchange_sums_by_item_and_answers_by_position(example, random):
    num_shards, placed, users = example
    by_shard = {shard: [] for shard in range(num_shards)}
    expected: dict[bytes, int] = {}
    for block in users:
        values = np.array([random.randrange(100) for _ in range(len(block.keys))], np.int64)
        for key, value in zip(block.keys.to_bytes(), values, strict=True):
            expected[key] = expected.get(key, 0) + int(value)
        for shard, message in exchange.partial_sums(block, (values, 2 * values), introduce=True):
            by_shard[shard].append(decode(encode(message)))
    answers = {block.shard: [] for block in users}
    for shard, messages in by_shard.items():
        if not messages:
            continue
        random.shuffle(messages)
        items = decode(encode(exchange.introduce_items(shard, messages)))
        assert (items.weight == 0).all()
        once, twice = exchange.total_sums(items, messages, 2)
        assert dict(zip(items.keys.to_bytes(), once, strict=True)) == {
            key: value for key, value in expected.items() if placed[key] == shard
        }
        assert (twice == 2 * once).all()
        for user_shard, answer in exchange.answers(items, once.astype(np.float64)):
            answers[user_shard].append(answer)
    for block in users:
        random.shuffle(answers[block.shard])
        values = exchange.gather_answers(block, answers[block.shard])
        assert values.tolist() == [expected[key] for key in block.keys.to_bytes()]


def test_first_messages_must_carry_keys():
    with pytest.raises(ValueError) as error:
        exchange.introduce_items(0, [PartialSums(shard=0, sums=())])
    assert str(error.value) == "the first message to an item shard must carry the item keys"
