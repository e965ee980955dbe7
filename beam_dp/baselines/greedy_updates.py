"""Greedy updates: users one by one, each filling one item after another up to tau with an l1 budget of 1.

Source: Carvalho et al., "Incorporating Item Frequency for Differentially Private Set Union" (AAAI 2022),
"Greedy updates Without sampling" (GW); described in DP-SIPS 3.2.2, whose stopping rule (all own items at tau)
is used here.
"""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from .release import Selection, adaptive_threshold, check_positive, release_above
from .user_sets import checked_sets, shuffled_sets


def select_greedy_updates(
    offsets: ArrayLike,
    items: ArrayLike,
    num_items: int,
    *,
    laplace_scale: float,
    threshold: float,
    beta: float = 4.0,
    seed: int,
) -> Selection:
    """Selects items by greedy updates, users in random order. A comparison baseline, not for production.

    The published calibration is `laplace_scale = 1/epsilon` and `threshold = 1 + ln(1/(2 delta))/epsilon`
    (11.81978 for epsilon 1 and delta 1e-5): the weights have l1 sensitivity 1, and since tau >= 1 a new user
    gives to at most one item that only it holds, never more than 1. There is no degree cap.

    That argument passes over the users after the new one: their budget is displaced, and may reach items that
    had no weight before, any number of them. The algorithm is kept as printed for comparison, and no claim is
    made here that it satisfies (epsilon, delta).

    The paper prefers a user's most frequent items; our sets have no frequencies, so a user's order is random.
    The order matters: an order that all users share lets them agree on the same items, and finds more.

    Args:
        offsets: with `items` and `num_items`: each user's distinct items, see `UserSets`.
        items: see `offsets`.
        num_items: see `offsets`.
        laplace_scale: scale b of the Laplace noise, of density exp(-|x|/b) / (2b).
        threshold: rho; released is what reaches it with noise.
        beta: tau = threshold + beta * laplace_scale. MAD 5.2 counts beta in standard deviations, sqrt(2)
            times as much, the authors' program in scales; with beta 4 on Higgs both find equally many.
        seed: of everything random here, through `np.random.default_rng`.
    """
    check_positive("laplace_scale", laplace_scale)
    tau = adaptive_threshold(threshold, beta, laplace_scale)
    rng = np.random.default_rng(seed)
    sets = shuffled_sets(offsets, items, num_items, rng=rng)
    weights = greedy_updates_weights(*sets, tau=tau)
    noise = rng.laplace(0.0, laplace_scale, num_items)
    return Selection(release_above(weights, noise, threshold), weights)


def greedy_updates_weights(
    offsets: ArrayLike, items: ArrayLike, num_items: int, *, tau: float
) -> NDArray[np.float64]:
    """The weights when users, and each user's items, are visited in the order given.

    A user adds `min(budget, tau - H)` to one item after another until its budget of 1 is spent. Adding or
    removing one user changes the result by at most 1 in l1 norm.
    """
    check_positive("tau", tau)
    sets = checked_sets(offsets, items, num_items)
    weights: NDArray[np.float64] = _fill_each_user(sets.offsets, sets.items, sets.num_items, float(tau))
    return weights


@njit(cache=True, nogil=True)
def _fill_each_user(
    offsets: NDArray[np.int64], items: NDArray[np.int32], num_items: int, tau: float
) -> NDArray[np.float64]:
    weights = np.zeros(num_items)
    for user in range(len(offsets) - 1):
        budget = 1.0
        for item in items[offsets[user] : offsets[user + 1]]:
            gap = tau - weights[item]
            if gap > budget:
                weights[item] += budget
                break
            weights[item] = tau  # exactly, so that no rounding carries it past tau
            budget -= gap
    return weights
