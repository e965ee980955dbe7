"""Keyed noise and the released comparison.

Neighbouring relation: add or remove one user. With weights of l2 sensitivity 1 the vector of
`weight + N(0, sigma^2)` is Gaussian-DP; with l1 sensitivity 1, `weight + Laplace(scale)` is 1/scale-DP.
Items nobody else holds are paid for by the threshold (beam_dp.accounting.thresholds).
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import special

from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock
from beam_dp.core.keys import Keys
from beam_dp.core.randomness import keyed_bits

_SIGN = np.uint64(1 << 63)


def gaussian(bits: npt.NDArray[np.uint64], sigma: float) -> npt.NDArray[np.float64]:
    """Map rows of 128 uniform bits to N(0, sigma^2): a sign and an upper-tail probability."""
    sign, tail = _sign_and_tail(bits)
    return sign * (sigma * -special.ndtri(tail))


def laplace(bits: npt.NDArray[np.uint64], scale: float) -> npt.NDArray[np.float64]:
    """Map rows of 128 uniform bits to Laplace(0, scale), in the same way."""
    sign, tail = _sign_and_tail(bits)
    return sign * (scale * -np.log(2.0 * tail))


def add_noise_and_threshold(
    items: ItemBlock,
    *,
    secret: bytes,
    threshold: float,
    sigma: float | None = None,
    laplace_scale: float | None = None,
) -> ItemBlock:
    """Add keyed noise to each weight and mark as found the items that reach the threshold.

    An item without weight is never found, whatever its noise: nobody holds it in this round. Items found
    earlier stay found.

    Args:
        items: with this round's weights.
        secret: 32 bytes from `RunKey.derive`, of this round and window alone.
        threshold: rho, in weight units.
        sigma: standard deviation of Gaussian noise; or
        laplace_scale: scale of Laplace noise. Exactly one of the two.
    """
    held = np.flatnonzero(items.weight)
    keys = items.keys if len(held) == len(items.keys) else items.keys.take(held)
    noise = _noise(keys, secret, sigma, laplace_scale)
    noisy = np.full(len(items.keys), -grid.SATURATION, np.int64)
    noisy[held] = items.weight[held] + grid.nearest(noise)
    found = noisy >= grid.threshold(threshold)
    if items.found is not None:
        found |= items.found
    return dataclasses.replace(items, noisy=noisy, found=found)


def _noise(
    keys: Keys, secret: bytes, sigma: float | None, laplace_scale: float | None
) -> npt.NDArray[np.float64]:
    bits = keyed_bits(keys, secret)
    if sigma is not None and laplace_scale is None:
        return gaussian(bits, sigma)
    if laplace_scale is not None and sigma is None:
        return laplace(bits, laplace_scale)
    raise ValueError("exactly one of sigma and laplace_scale must be given")


def _sign_and_tail(
    bits: npt.NDArray[np.uint64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Split each row into a sign (1 bit) and a tail probability in (0, 1/2] (127 bits).

    64 bits would do for the release. But the proof counts the noisy weights as published: with so few, points
    of the grid beyond 6.5 sigma could not be reached, and which ones would depend on the weight.
    """
    leading, further = bits[:, 0], bits[:, 1]
    sign = np.where(leading & _SIGN, 1.0, -1.0)
    fraction = (further.astype(np.float64) + 0.5) * 2.0**-64
    return sign, ((leading & ~_SIGN).astype(np.float64) + fraction) * 2.0**-64
