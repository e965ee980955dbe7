"""Synthetic user sets as long-tailed as words in film reviews, sized like the MAD paper's IMDb.

    python -m benchmarks.synthetic OUTPUT.tsv [--scale 2]
    python -m benchmarks.synthetic OUTPUT.parquet

Scale 1: 50,000 users, about 190,000 items in use and 7.6 million distinct pairs. Scale k: k times the users.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from beam_dp.baselines import UserSets, user_sets_from_pairs

ROW_GROUP = 1_000_000
DEGREE_SPREAD = 0.6
"""Standard deviation of the logarithm of a user's degree."""


def zipf_sets(
    num_users: int = 50_000,
    mean_degree: float = 152.0,
    num_items: int = 194_000,
    exponent: float = 1.1,
    seed: int = 0,
) -> UserSets:
    """Users with log-normal numbers of draws from a Zipf law over items, repeats dropped.

    A user's number of draws is the one that yields its intended number of distinct items on average, so the
    mean degree comes out as asked (as long as no user is to hold more than half of the items). Item ids are
    shuffled: the id says nothing of the popularity. Rare items may stay undrawn; their ids remain.
    """
    rng = np.random.default_rng(seed)
    popularity = np.arange(1, num_items + 1, dtype=np.float64) ** -exponent
    popularity /= popularity.sum()
    degrees = rng.lognormal(sigma=DEGREE_SPREAD, size=num_users)
    degrees = np.minimum(degrees * (mean_degree / degrees.mean()), num_items / 2)
    draws = np.rint(_draws_for_distinct(degrees, popularity)).astype(np.int64)
    users = np.repeat(np.arange(num_users), draws)
    # The inverse of the cumulative popularity; its last entry may have been rounded to less than 1.
    ranks = np.searchsorted(popularity.cumsum(), rng.random(len(users)), side="right")
    items = rng.permutation(num_items)[np.minimum(ranks, num_items - 1)]
    offsets, held, _ = user_sets_from_pairs(users, items)
    return UserSets(np.pad(offsets, (0, num_users + 1 - len(offsets)), mode="edge"), held, num_items)


def pairs(sets: UserSets, *, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The (users, items) pair arrays in random order, as a log of events would have them."""
    order = np.random.default_rng(seed).permutation(len(sets.items))
    users = np.repeat(np.arange(len(sets.offsets) - 1), np.diff(sets.offsets))
    return users[order], sets.items[order].astype(np.int64)


def write_tsv(path: Path | str, users: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """Writes `u123<TAB>i4567` lines without a header, one per pair."""
    options = pa.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with pa.csv.CSVWriter(path, _SCHEMA, write_options=options) as writer:
        for batch in _batches(users, items):
            writer.write_batch(batch)


def write_parquet(path: Path | str, users: NDArray[np.int64], items: NDArray[np.int64]) -> None:
    """Writes the string columns `user` and `item`, about a million rows to a row group."""
    with pa.parquet.ParquetWriter(path, _SCHEMA) as writer:
        for batch in _batches(users, items):
            writer.write_batch(batch)


_SCHEMA = pa.schema([("user", pa.string()), ("item", pa.string())])


def _batches(users: NDArray[np.int64], items: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    user_names = _names("u", users)
    item_names = _names("i", items)
    for start in range(0, len(users), ROW_GROUP):
        stop = start + ROW_GROUP
        columns = [user_names.take(pa.array(users[start:stop])), item_names.take(pa.array(items[start:stop]))]
        yield pa.record_batch(columns, schema=_SCHEMA)


def _names(prefix: str, ids: NDArray[np.int64]) -> pa.StringArray:
    numbers = pa.array(np.arange(ids.max(initial=-1) + 1)).cast(pa.string())
    return pc.binary_join_element_wise(prefix, numbers, "")


def _draws_for_distinct(degrees: NDArray[np.float64], popularity: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many draws give so many distinct items on average: n draws give `sum(1 - (1 - popularity)^n)`."""
    most = 2.0
    counts = [0.0]
    distinct = [0.0]
    log_missed = np.log1p(-popularity)
    while distinct[-1] < degrees.max():
        counts.append(most)
        distinct.append(-np.expm1(most * log_missed).sum())
        most *= 1.2
    return np.interp(degrees, distinct, counts)


def main() -> None:
    """Writes the file named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path, help="a .parquet or .tsv file")
    parser.add_argument("--scale", type=int, default=1, help="multiplies the number of users")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write = {".parquet": write_parquet, ".tsv": write_tsv}.get(arguments.output.suffix)
    if write is None:
        parser.error(f"output must end in .parquet or .tsv, got {arguments.output.name}")
    sets = zipf_sets(num_users=50_000 * arguments.scale, seed=arguments.seed)
    write(arguments.output, *pairs(sets, seed=arguments.seed))
    used = np.count_nonzero(np.bincount(sets.items))
    print(f"{len(sets.offsets) - 1} users, {used} items, {len(sets.items)} pairs")


if __name__ == "__main__":
    main()
