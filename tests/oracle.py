"""The algorithms once more, slowly: dicts and Python floats, straight from the papers' pseudocode.

Written from MAD (ICML) Algorithms 2, 4 and 5, DP-SIPS Algorithm 3 and the corrections of the specification, section
1; nothing of the library is imported. Items and users are any hashable values; a user's items stand in priority order.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Item = Hashable
Lists = Mapping[Hashable, Sequence[Item]]


@dataclass
class Weights:
    """What one round computes about items; an item without weight is absent."""

    weight: dict[Item, float] = field(default_factory=lambda: defaultdict(float))
    rerouted: dict[Item, float] = field(default_factory=lambda: defaultdict(float))
    """The part of `weight` that was rerouted."""
    holders: dict[Item, int] = field(default_factory=lambda: defaultdict(int))
    """How many users gave to the item."""

    def tolerance(self, item: Item) -> float:
        """How far a computation on a grid of 2^-32 may be from the real number.

        Each holder's base and init lose less than a step each. The excess ratio r(j) = 1 - tau/init(j) moves by at
        most (holders of j) * 2^-32 / init(j) <= d_max * 2^-32, so what one holder reroutes, alpha/d_max times a mean
        of such r, by less than 2^-32. The discount is 2^-20 below alpha: 2^-19 leaves room for double arithmetic.
        """
        return (3 * self.holders[item] + 2) * 2.0**-32 + 2.0**-19 * self.rerouted[item]


def uniform(lists: Lists, norm: str) -> Weights:
    """MAD Algorithm 3 (l2) and the weighted Laplace algorithm (l1)."""
    result = Weights()
    for items in lists.values():
        for item in items:
            result.weight[item] += 1 / math.sqrt(len(items)) if norm == "l2" else 1 / len(items)
            result.holders[item] += 1
    return result


def user_weights(
    items: Sequence[Item], bias: Mapping[Item, float], b_min: float, b_max: float
) -> dict[Item, float]:
    """MAD Algorithm 4; the while loop ends within rounding of the norm 1."""
    root = math.sqrt(len(items))
    biased = [item for item in items if bias[item] < 1]
    unbiased = [item for item in items if bias[item] >= 1]
    w = {item: max(b_min, bias[item]) / root for item in biased}
    if unbiased:
        left = max(0.0, 1 - math.fsum(w[item] ** 2 for item in biased))
        w |= dict.fromkeys(unbiased, min(b_max / root, math.sqrt(left / len(unbiased))))
    while True:
        total = math.fsum(value**2 for value in w.values())
        small = [item for item in items if w[item] < 1 / root]
        if total >= 1 - 1e-13 or not small:
            break
        largest = max(w[item] for item in small)
        up_to_highest = b_max / root / largest
        up_to_norm = math.sqrt(1 + (1 - total) / math.fsum(w[item] ** 2 for item in small))
        for item in small:
            # The largest meets b_max/root exactly, as in real numbers: an ulp less could leave it small for ever.
            meets = up_to_highest <= up_to_norm and w[item] == largest
            w[item] = b_max / root if meets else w[item] * min(up_to_highest, up_to_norm)
    return {item: w[item] for item in items}


def mad(
    lists: Lists,
    tau: float,
    d_max: int,
    bias: Mapping[Item, float] | None = None,
    b_min: float = 1.0,
    b_max: float = 1.0,
) -> Weights:
    """MAD Algorithm 2, line 7 corrected to max{0, ...}; dropped items are no longer in `lists`."""
    bias = defaultdict(lambda: 1.0) if bias is None else bias
    lists = {user: items for user, items in lists.items() if items}
    alpha = b_min - 1 / (2 * math.sqrt(d_max))
    adaptive = [
        user for user, items in lists.items() if math.ceil(1 / b_min**2 - 1e-12) <= len(items) <= d_max
    ]
    init: dict[Item, float] = defaultdict(float)
    for user in adaptive:
        for item in lists[user]:
            init[item] += 1 / len(lists[user])
    r = {item: max(0.0, (value - tau) / value) for item, value in init.items()}
    result = Weights()
    for item, value in init.items():
        result.weight[item] += min(value, tau)
    for user in adaptive:
        e = math.fsum(r[item] for item in lists[user]) / len(lists[user])
        for item in lists[user]:
            result.weight[item] += alpha * e / d_max
            result.rerouted[item] += alpha * e / d_max
    is_adaptive = set(adaptive)
    for user, items in lists.items():
        for item, value in user_weights(items, bias, b_min, b_max).items():
            result.weight[item] += value - (1 / len(items) if user in is_adaptive else 0.0)
            result.holders[item] += 1
    return result


@dataclass
class SecondRound:
    """What MAD2R knows before its second round."""

    lists: dict[Hashable, list[Item]]
    bias: dict[Item, float]
    dropped: set[Item]


def mad2r_second_round(
    lists: Lists,
    noisy: Mapping[Item, float],
    *,
    rho_1: float,
    rho_2: float,
    lower_margin: float,
    upper_margin: float,
) -> SecondRound:
    """MAD Algorithm 5, lines 7 and 10 to 14; the margins are C_lb sigma_1 and C_ub sigma_1."""
    found = {item for item, value in noisy.items() if value >= rho_1}
    dropped = {item for item, value in noisy.items() if value + upper_margin < rho_2} - found
    bias = {}
    for item, value in noisy.items():
        lower = max(0.0, value - lower_margin)
        bias[item] = 1.0 if lower <= rho_2 else rho_2 / lower
    gone = found | dropped
    left = {user: [item for item in items if item not in gone] for user, items in lists.items()}
    return SecondRound(left, bias, dropped)


def sips_lists(lists: Lists, found: Iterable[Item], cap: int) -> dict[Hashable, list[Item]]:
    """DP-SIPS Algorithm 3: take the found items out, then truncate again."""
    found = set(found)
    return {user: [item for item in items if item not in found][:cap] for user, items in lists.items()}
