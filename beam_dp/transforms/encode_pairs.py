"""EncodePairs: the entrance. (user, item) elements or pair tables -> user blocks."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam import coders
from apache_beam.transforms.window import WindowedValue

from beam_dp import checks
from beam_dp.core.blocks import Pairs, UserBlock
from beam_dp.core.encoding import ITEM, USER, build_user_block, split_pairs
from beam_dp.core.randomness import RunKey
from beam_dp.errors import InputError
from beam_dp.transforms.coder import KeyedBlock
from beam_dp.transforms.windows import check_single_firing, window_coder

DEFAULT_NUM_SHARDS = 64
_PAIRS_PER_TABLE = 1 << 16


class EncodePairs(beam.PTransform):
    """(user, item) pairs -> user blocks of distinct edges, one block per user shard.

    Input: either elements `(user, item)`, both of any type with a deterministic Beam coder; or pair tables:
    `pyarrow.Table` elements (and typed so) with columns `user` and `item` of strings, binaries or integers.
    Repeated pairs count once.

    Args:
        num_shards: user shards, and as many item shards; a block has to fit into a worker's memory (5 to 50
            million pairs), and each exchange sends up to num_shards^2 messages.
        max_degree: keep only a random subset of this many items of each user, now and for good; leave it
            out for algorithms that refill lists in later rounds.
        run_key: as for `AddNoiseThreshold`; here it only shuffles.

    Raises:
        ValueError: at construction, naming the parameter; or when applied, for a coder that is not
            deterministic.
        InputError: while running, for a user or item that is None or cannot be encoded deterministically.
    """

    def __init__(
        self,
        *,
        num_shards: int = DEFAULT_NUM_SHARDS,
        max_degree: int | None = None,
        run_key: RunKey | None = None,
    ):
        super().__init__()
        self._num_shards = checks.integer("num_shards", num_shards, low=1, high=1 << 16)
        self._max_degree = None if max_degree is None else checks.max_degree(max_degree)
        self._run_key = run_key

    def expand(self, pairs: beam.PCollection) -> beam.PCollection:
        """Split by user shard, group, build the blocks."""
        check_single_firing(pairs, "EncodePairs")
        run_key = self._run_key or RunKey.fresh()
        split: beam.DoFn
        if is_columnar(pairs):
            split = _SplitTables(run_key, self._num_shards)
        else:
            user_coder, item_coder = pair_coders(pairs)
            split = _SplitElements(run_key, self._num_shards, user_coder, item_coder)
        build = _Build(run_key, self._num_shards, self._max_degree, window_coder(pairs))
        return (
            pairs
            | "SplitByUser" >> beam.ParDo(split).with_output_types(KeyedBlock)
            | "GroupByUserShard" >> beam.GroupByKey()
            | "BuildBlocks" >> beam.ParDo(build).with_output_types(UserBlock)
        )

    def display_data(self) -> dict[str, int]:
        """Show the sharding on the job page."""
        cap = {} if self._max_degree is None else {"max_degree": self._max_degree}
        return {"num_shards": self._num_shards, **cap}


def is_columnar(pairs: beam.PCollection) -> bool:
    """Tell whether the elements are declared to be Arrow tables."""
    return isinstance(pairs.element_type, type) and issubclass(pairs.element_type, pa.Table)


def pair_coders(pairs: beam.PCollection) -> tuple[coders.Coder, coders.Coder]:
    """Return deterministic coders of the users and the items of a PCollection of pairs.

    Raises:
        ValueError: if the element type is no pair or has no deterministic coder.
    """
    hint = pairs.element_type
    if hint in (beam.typehints.Any, Any):
        return _deterministic_coder(USER, beam.typehints.Any), _deterministic_coder(ITEM, beam.typehints.Any)
    # Beam infers a union where, for instance, some users are numbers and some are text.
    pair_types = [getattr(kind, "tuple_types", ()) for kind in getattr(hint, "union_types", (hint,))]
    if any(len(parts) != 2 for parts in pair_types):
        raise ValueError(
            f"input must be (user, item) tuples or pyarrow tables, got elements of type {hint}; "
            "map them to pairs, with a type hint such as Tuple[str, str]"
        )
    user_type, item_type = (beam.typehints.Union[kinds] for kinds in zip(*pair_types, strict=True))
    return _deterministic_coder(USER, user_type), _deterministic_coder(ITEM, item_type)


def _deterministic_coder(name: str, hint: Any) -> coders.Coder:
    way_out = (
        f"{name} must have a deterministic coder, got type {hint}; "
        "use str, bytes, int or tuples of these, or register a deterministic coder"
    )
    try:
        return coders.registry.get_coder(hint).as_deterministic_coder(name, way_out)
    except ValueError:
        raise ValueError(way_out) from None


class _SplitTables(beam.DoFn):
    """pa.Table -> (user shard, Pairs)."""

    def __init__(self, run_key: RunKey, num_shards: int):
        self._run_key = run_key
        self._num_shards = num_shards

    def process(self, element: pa.Table) -> Iterator[KeyedBlock]:
        missing = [name for name in (USER, ITEM) if name not in element.column_names]
        if missing:
            raise InputError(
                f"a pair table must have the columns user and item, got one without {missing[0]}"
            )
        yield from split_pairs(element, run_key=self._run_key, num_shards=self._num_shards)


class _SplitElements(beam.DoFn):
    """(user, item) -> (user shard, Pairs), collected over a bundle, so that few elements make a table."""

    def __init__(self, run_key: RunKey, num_shards: int, user_coder: coders.Coder, item_coder: coders.Coder):
        self._run_key = run_key
        self._num_shards = num_shards
        self._user_coder = user_coder
        self._item_coder = item_coder

    def start_bundle(self) -> None:
        self._pending: dict[Any, _Pending] = defaultdict(_Pending)

    def process(self, element: tuple[Any, Any], window: Any = beam.DoFn.WindowParam) -> Iterator[KeyedBlock]:
        user, item = element
        pending = self._pending[window]
        pending.users.append(user)
        pending.items.append(item)
        if len(pending.users) >= _PAIRS_PER_TABLE:
            yield from self._split(self._pending.pop(window))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window, pending in self._pending.items():
            for message in self._split(pending):
                yield WindowedValue(message, window.max_timestamp(), (window,))

    def _split(self, pending: _Pending) -> Iterator[KeyedBlock]:
        table = pa.table(
            {
                USER: _key_array(USER, pending.users, self._user_coder),
                ITEM: _key_array(ITEM, pending.items, self._item_coder),
            }
        )
        yield from split_pairs(table, run_key=self._run_key, num_shards=self._num_shards)


@dataclasses.dataclass(slots=True)
class _Pending:
    users: list[Any] = dataclasses.field(default_factory=list)
    items: list[Any] = dataclasses.field(default_factory=list)


def _key_array(name: str, values: list[Any], coder: coders.Coder) -> pa.Array:
    """Encode values to keys; text and bytes in one Arrow call. No value ever gets into an error."""
    if any(value is None for value in values):
        raise InputError(f"{name} must not be None, got at least one; filter such pairs out first")
    try:
        if isinstance(coder, coders.StrUtf8Coder):
            return pa.array(values, pa.large_string()).cast(pa.large_binary())
        if not isinstance(coder, coders.BytesCoder):
            values = [coder.encode(value) for value in values]
        return pa.array(values, pa.large_binary())
    except Exception as error:  # any coder may fail in its own way, with the value in its message
        raise InputError(
            f"{name} must be of the type its coder {type(coder).__name__} encodes deterministically, got at "
            f"least one value for which it raised {type(error).__name__}; correct the type hint or the data"
        ) from None


class _Build(beam.DoFn):
    """(user shard, its Pairs) -> UserBlock."""

    def __init__(self, run_key: RunKey, num_item_shards: int, max_degree: int | None, coder: Any):
        self._run_key = run_key
        self._num_item_shards = num_item_shards
        self._max_degree = max_degree
        self._window_coder = coder

    def process(
        self, element: tuple[int, Iterable[Pairs]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[UserBlock]:
        shard, parts = element
        yield build_user_block(
            shard,
            parts,
            run_key=self._run_key,
            num_item_shards=self._num_item_shards,
            max_degree=self._max_degree,
            window=self._window_coder.encode(window),
        )
