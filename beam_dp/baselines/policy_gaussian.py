"""Policy Gaussian: users one by one, each moving its items toward tau by an l2 step of at most 1.

Source: Gopi et al., "Differentially Private Set Union" (ICML 2020, "DPSU"), the l2-descent policy; described
in MAD (ICML) 5.2 and DP-SIPS 3.2.1.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from .release import Selection, adaptive_threshold, check_positive, release_above
from .user_sets import checked_sets, shuffled_sets


def select_policy_gaussian(
    offsets: ArrayLike,
    items: ArrayLike,
    num_items: int,
    *,
    sigma: float,
    threshold: float,
    max_degree: int = 100,
    beta: float = 4.0,
    seed: int,
) -> Selection:
    """Selects items by Policy Gaussian, users in random order. A comparison baseline, not for production.

    The weights have l2 sensitivity 1, and t items that only one user holds get at most 1/sqrt(t) each, as
    with the weighted Gaussian. So its calibration gives (epsilon, delta): `sigma` for (epsilon, delta/2) by
    the analytic Gaussian mechanism, and as `threshold` the maximum over t in 1..max_degree of
    `1/sqrt(t) + sigma * isf(1 - (1 - delta/2)^(1/t))` (MAD Theorem 3.3). For epsilon 1, delta 1e-5 and
    max_degree 100 these are 3.88414 and 20.78974.

    Args:
        offsets: with `items` and `num_items`: each user's distinct items, see `UserSets`.
        items: see `offsets`.
        num_items: see `offsets`.
        sigma: standard deviation of the Gaussian noise.
        threshold: rho; released is what reaches it with noise.
        max_degree: items of a user beyond this many are left out, at random.
        beta: tau = threshold + beta * sigma. More protects found items against noise, less frees more weight.
        seed: of everything random here, through `np.random.default_rng`.
    """
    check_positive("sigma", sigma)
    tau = adaptive_threshold(threshold, beta, sigma)
    rng = np.random.default_rng(seed)
    sets = shuffled_sets(offsets, items, num_items, rng=rng, max_degree=max_degree)
    weights = policy_gaussian_weights(*sets, tau=tau)
    noise = rng.normal(0.0, sigma, num_items)
    return Selection(release_above(weights, noise, threshold), weights)


def policy_gaussian_weights(
    offsets: ArrayLike, items: ArrayLike, num_items: int, *, tau: float
) -> NDArray[np.float64]:
    """The weights when users are visited in the order given, all their items used.

    A user moves the vector H of its items' weights to `H + min(1, |tau - H|) * (tau - H) / |tau - H|`, items
    that have reached tau left out. Adding or removing one user changes the result by at most 1 in l2 norm.
    """
    check_positive("tau", tau)
    sets = checked_sets(offsets, items, num_items)
    weights: NDArray[np.float64] = _step_each_user(sets.offsets, sets.items, sets.num_items, float(tau))
    return weights


@njit(cache=True, nogil=True)
def _step_each_user(
    offsets: NDArray[np.int64], items: NDArray[np.int32], num_items: int, tau: float
) -> NDArray[np.float64]:
    weights = np.zeros(num_items)
    for user in range(len(offsets) - 1):
        own = items[offsets[user] : offsets[user + 1]]
        squares = 0.0
        for item in own:
            squares += (tau - weights[item]) ** 2
        norm = math.sqrt(squares)
        for item in own:
            if norm <= 1.0:
                weights[item] = tau  # exactly, so that no rounding carries it past tau
            else:
                weights[item] += (tau - weights[item]) / norm
    return weights
