"""MaxAdaptiveDegree weights (MAD Alg. 2), in two exchanges.

Users with few items first send 1/d to each. What an item receives above the adaptive threshold tau is
excess; it goes back to its senders, who spread a share alpha of it over all their items. Everyone also
sends its (biased) l2 weight. In sums per item:

    weight(i) = base(i) + min(init(i), tau) + reroute(i)
    base(i)    = sum of w_b(i) - 1/d over adaptive users + sum of w_b(i) over the others
    init(i)    = sum of 1/d over adaptive users
    reroute(i) = sum of alpha/d_max * e_u over adaptive users, e_u = (1/d) sum of r(j) over u's items j
    r(i)       = max(0, (init(i) - tau) / init(i)); the paper prints min

The l2 sensitivity is at most 1 (MAD Lemma B.6), and with t items nobody else has, none of those weighs more
than b_max/sqrt(t) (Lemma B.3). The paper asks for d_max >= 4 in Lemma B.3, but its last line needs only
b_max >= 2 alpha/sqrt(d_max), which holds for every d_max >= 2:
2 alpha/sqrt(d) <= 2/sqrt(d) - 1/d = 1 - (1 - 1/sqrt(d))^2 <= 1 <= b_max.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock, UserBlock
from beam_dp.core.weights.user_weights import user_weights

MAX_ADAPTIVE_THRESHOLD = 2.0**26
"""Keeps `MadParameters.reroute_scale` at least as fine as the grid."""


@dataclass(frozen=True, kw_only=True)
class MadParameters:
    """The numbers of one MAD round; `beam_dp.transforms.MadWeights` checks their ranges."""

    adaptive_threshold: float
    """tau in [1, MAX_ADAPTIVE_THRESHOLD], in weight units; usually rho + beta * sigma."""
    max_adaptive_degree: int
    """d_max >= 2: users with more items send plain weights."""
    min_bias: float = 1.0
    """b_min in [0.5, 1]."""
    max_bias: float = 1.0
    """b_max >= 1."""

    @property
    def min_adaptive_degree(self) -> int:
        """Users with fewer items send plain weights, which could be below 1/d (Alg. 2, line 3)."""
        return math.ceil(1.0 / self.min_bias**2)

    @property
    def discount(self) -> float:
        """alpha (Alg. 2, line 2), less one part in 2^20.

        The margin is many times the relative error that double arithmetic puts between the excess taken
        from an item and what its senders reroute.
        """
        return (self.min_bias - 0.5 / math.sqrt(self.max_adaptive_degree)) * (1.0 - 2.0**-20)

    @property
    def reroute_scale(self) -> float:
        """Grid steps per unit of rerouted weight: as fine as leaves room for 8 tau before saturation.

        Others' rerouted weights change when a user is added, each by up to one rounding step more than the
        proof's real numbers; a fine grid keeps the sum of those steps far below the noise for any number
        of users that fits into the grid at all (docs/privacy.md).
        """
        return 2.0 ** (61 - math.ceil(math.log2(8.0 * self.adaptive_threshold)))


def first_sums(
    block: UserBlock, parameters: MadParameters
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sum base and init over the users of a block; both of shape (len(block.keys),), on the grid."""
    return _first(
        block.offsets,
        block.items,
        len(block.keys),
        _bias(block),
        parameters.min_adaptive_degree,
        parameters.max_adaptive_degree,
        parameters.min_bias,
        parameters.max_bias,
        grid.SCALE,
    )


def truncate(
    base: npt.NDArray[np.int64], init: npt.NDArray[np.int64], parameters: MadParameters
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """On the items' side: return base + min(init, tau), on the grid, and the excess ratios r."""
    tau = math.floor(parameters.adaptive_threshold * grid.SCALE)
    excess = np.maximum(init - tau, 0)
    ratio = np.zeros(len(init))
    np.divide(excess, init, out=ratio, where=excess > 0)
    return np.minimum(base + np.minimum(init, tau), grid.SATURATION), ratio


def reroute_sums(
    block: UserBlock, ratio: npt.NDArray[np.float64], parameters: MadParameters
) -> npt.NDArray[np.int64]:
    """Sum the rerouted weight over the users of a block.

    Args:
        block: the same as for `first_sums`.
        ratio: shape (len(block.keys),), the excess ratios r.
        parameters: the same.

    Returns:
        Shape (len(block.keys),), in units of 1/reroute_scale.
    """
    per_excess = parameters.discount / parameters.max_adaptive_degree * parameters.reroute_scale
    return _reroute(
        block.offsets,
        block.items,
        _bias(block),
        ratio,
        parameters.min_adaptive_degree,
        parameters.max_adaptive_degree,
        per_excess,
        grid.SCALE,
    )


def add_reroute(items: ItemBlock, reroute: npt.NDArray[np.int64], parameters: MadParameters) -> ItemBlock:
    """On the items' side: add the rerouted weight, rounded down to the grid."""
    finer_bits = round(math.log2(parameters.reroute_scale)) - grid.BITS
    weight = np.minimum(items.weight + (reroute >> finer_bits), grid.SATURATION)
    return dataclasses.replace(items, weight=weight)


def _bias(block: UserBlock) -> npt.NDArray[np.float64]:
    """Return the biases, or an empty array that stands for all 1."""
    return np.zeros(0) if block.bias is None else block.bias


@nb.njit(cache=True, nogil=True)
def _first(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    num_items: int,
    bias: npt.NDArray[np.float64],
    min_degree: int,
    max_degree: int,
    min_bias: float,
    max_bias: float,
    scale: float,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    base, init = np.zeros(num_items, np.int64), np.zeros(num_items, np.int64)
    longest = 0
    for user in range(len(offsets) - 1):
        longest = max(longest, offsets[user + 1] - offsets[user])
    active = np.empty(longest, np.int32)
    biases, weights = np.ones(longest), np.empty(longest)
    for user in range(len(offsets) - 1):
        degree = _active(items[offsets[user] : offsets[user + 1]], bias, active)
        if degree == 0:
            continue
        share = 1.0 / degree if min_degree <= degree <= max_degree else 0.0
        init_share = np.int64(math.floor(scale / degree)) if share > 0.0 else np.int64(0)
        if len(bias) == 0:
            plain = np.int64(math.floor((1.0 / math.sqrt(degree) - share) * scale))
            for item in active[:degree]:
                base[item] += plain
                init[item] += init_share
        else:
            for position, item in enumerate(active[:degree]):
                biases[position] = bias[item]
            user_weights(biases[:degree], min_bias, max_bias, weights[:degree])
            for position, item in enumerate(active[:degree]):
                base[item] += np.int64(math.floor((weights[position] - share) * scale))
                init[item] += init_share
    return base, init


@nb.njit(cache=True, nogil=True)
def _reroute(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    bias: npt.NDArray[np.float64],
    ratio: npt.NDArray[np.float64],
    min_degree: int,
    max_degree: int,
    per_excess: float,
    scale: float,
) -> npt.NDArray[np.int64]:
    total = np.zeros(len(ratio), np.int64)
    active = np.empty(max_degree, np.int32)
    for user in range(len(offsets) - 1):
        mine = items[offsets[user] : offsets[user + 1]]
        degree = _active_degree(mine, bias)
        if degree < min_degree or degree > max_degree:
            continue
        _active(mine, bias, active)
        excess = 0.0
        for item in active[:degree]:
            excess += ratio[item]
        if excess == 0.0:
            continue
        sent = math.floor(scale / degree) / scale  # 1/d as `_first` rounded it: no more returns than was sent
        rerouted = np.int64(math.floor(per_excess * (excess * sent)))
        for item in active[:degree]:
            total[item] = min(total[item] + rerouted, grid.SATURATION)
    return total


@nb.njit(cache=True, nogil=True)
def _active(mine: npt.NDArray[np.int32], bias: npt.NDArray[np.float64], active: npt.NDArray[np.int32]) -> int:
    """Copy a user's items that were not dropped to the front of `active`; return how many they are."""
    degree = 0
    for item in mine:
        if len(bias) == 0 or bias[item] > 0.0:
            active[degree] = item
            degree += 1
    return degree


@nb.njit(cache=True, nogil=True)
def _active_degree(mine: npt.NDArray[np.int32], bias: npt.NDArray[np.float64]) -> int:
    degree = 0
    for item in mine:
        if len(bias) == 0 or bias[item] > 0.0:
            degree += 1
    return degree
