"""MAD in memory in plain NumPy: the yardstick for the blocks that flow through Beam.

    python -m benchmarks.numpy_mad [--scale 2]

Source: MAD (ICML) Algorithms 1 and 2, unbiased (b = b_min = b_max = 1), with line 7 read as
`r(i) = max(0, (w_init(i) - tau) / w_init(i))`. Integer ids in, ids of the released items out; no strings, no
files, no compiled loops. Its noise is a seeded generator's: a benchmark, not for production.
"""

import argparse
import time

import numpy as np
from numpy.typing import NDArray

SIGMA = 3.88414
"""Analytic Gaussian mechanism for epsilon 1 and half of delta 1e-5."""
THRESHOLD = 20.78974
"""MAD Theorem 3.3 for SIGMA, the other half of delta, and cap 100."""


def numpy_mad(
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    *,
    sigma: float = SIGMA,
    threshold: float = THRESHOLD,
    cap: int = 100,
    d_max: int = 50,
    beta: float = 2.0,
    seed: int = 0,
    textbook: bool = False,
) -> NDArray[np.int64]:
    """The ids of the items that MAD releases from pairs of dense non-negative ids, duplicates allowed.

    `textbook` groups and caps by `np.lexsort`, as one would write it at first; else by sorting single keys,
    many times faster where NumPy's sort has vector instructions.
    """
    rng = np.random.default_rng(seed)
    kept, degrees = (capped_pairs_textbook if textbook else capped_pairs)(users, items, cap, rng)
    tau = threshold + beta * sigma
    weights = mad_weights(kept, degrees, tau=tau, d_max=d_max)
    # An item that nobody kept has weight 0 and is never released.
    noisy = weights + rng.normal(0.0, sigma, len(weights))
    return np.flatnonzero((weights > 0) & (noisy >= threshold))


def capped_pairs(
    users: NDArray[np.int64], items: NDArray[np.int64], cap: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct items, grouped by user, at most `cap` random ones of each; and the users' degrees.

    Algorithm 1, subsampling. One sort of a combined key groups and removes duplicates. Then a float's integer
    part is the user and its fraction a random priority: sorted, they show each user's cap-th smallest one.
    """
    base = int(items.max(initial=0)) + 1
    keys = np.multiply(users, base, dtype=np.int64)
    keys += items
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    owners = keys // base
    items = keys - owners * base
    degrees = np.bincount(owners)
    degrees = degrees[degrees > 0]

    above = degrees > cap
    heavy = degrees[above]
    priorities = np.repeat(np.arange(len(heavy)), heavy) + rng.random(heavy.sum())
    starts = np.cumsum(heavy) - heavy
    last_kept = np.sort(priorities)[starts + cap - 1]
    kept = np.ones(len(items), np.bool_)
    kept[np.repeat(above, degrees)] = priorities <= np.repeat(last_kept, heavy)
    # Counted, not min(degrees, cap): of two equal priorities (rare) both are kept.
    return items[kept], np.add.reduceat(kept, np.cumsum(degrees) - degrees, dtype=np.int64)


def capped_pairs_textbook(
    users: NDArray[np.int64], items: NDArray[np.int64], cap: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same as `capped_pairs`, as one would write it first: a lexsort to group, another to cap."""
    order = np.lexsort((items, users))
    users, items = users[order], items[order]
    new = np.ones(len(users), np.bool_)
    new[1:] = (users[1:] != users[:-1]) | (items[1:] != items[:-1])
    users, items = users[new], items[new]
    order = np.lexsort((rng.random(len(users)), users))
    users, items = users[order], items[order]
    starts = np.flatnonzero(np.diff(users, prepend=-1))
    lengths = np.diff(starts, append=len(users))
    position = np.arange(len(users)) - np.repeat(starts, lengths)
    return items[position < cap], np.minimum(lengths, cap)


def mad_weights(
    items: NDArray[np.int64], degrees: NDArray[np.int64], *, tau: float, d_max: int
) -> NDArray[np.float64]:
    """Algorithm 2: the weight of every item, from `items` grouped by users of the given degrees.

    An adaptive user (degree <= d_max) adds `1/sqrt(d) - r(i)/d + alpha * e / d_max` to its items, another one
    1/sqrt(d). Summed over users, the middle term is `r(i) * w_init(i)`, so it is subtracted per item.
    """
    num_items = int(items.max(initial=-1)) + 1
    alpha = 1 - 1 / (2 * np.sqrt(d_max))  # line 2
    adaptive = degrees <= d_max  # line 3
    adaptive_degrees = degrees[adaptive]
    adaptive_items = items[np.repeat(adaptive, degrees)]
    w_init = np.bincount(  # lines 4 to 6
        adaptive_items, np.repeat(1 / adaptive_degrees, adaptive_degrees), minlength=num_items
    )
    excess = np.maximum(0, w_init - tau)
    ratio = np.divide(excess, w_init, out=np.zeros(num_items), where=w_init > 0)  # line 7: r
    starts = np.cumsum(adaptive_degrees) - adaptive_degrees
    returned = np.zeros(len(adaptive_degrees))
    if len(starts):
        returned = np.add.reduceat(ratio[adaptive_items], starts) / adaptive_degrees  # lines 10 and 11: e
    per_user = 1 / np.sqrt(degrees)
    per_user[adaptive] += alpha * returned / d_max  # line 12
    return np.bincount(items, np.repeat(per_user, degrees), minlength=num_items) - excess


def main() -> None:
    """Times it on the synthetic data; the best of three runs, pairs in random order."""
    from benchmarks.synthetic import pairs, zipf_sets

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=int, default=1, help="multiplies the number of users")
    users, items = pairs(zipf_sets(num_users=50_000 * parser.parse_args().scale))
    seconds = []
    for seed in range(3):
        start = time.perf_counter()
        released = numpy_mad(users, items, seed=seed)
        seconds.append(time.perf_counter() - start)
    print(f"{len(users)} pairs, {len(released)} items released, {min(seconds):.2f} s")


if __name__ == "__main__":
    main()
