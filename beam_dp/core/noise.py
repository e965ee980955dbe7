"""Keyed noise and the released comparison.

Neighbouring relation: add or remove one user. With weights of l2 sensitivity 1 the vector of
`weight + N(0, sigma^2)` is Gaussian-DP; with l1 sensitivity 1, `weight + Laplace(scale)` is 1/scale-DP.
Items nobody else holds are paid for by the threshold (beam_dp.accounting.thresholds).
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """Compare the precision-weighted mean of this and all earlier noisy weights, not this round's alone."""

    earlier_precision: float
    """Sum of 1/sigma_s^2 over the earlier rounds; 0 in the first."""


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """Release an item only if a keyed coin with probability 1 - exp(-rate * exposure) says so."""

    rate: float
    """> 0, from `beam_dp.accounting.thinned_threshold`."""


def add_noise_and_threshold(
    items: ItemBlock,
    *,
    secret: bytes,
    threshold: float,
    sigma: float | None = None,
    laplace_scale: float | None = None,
    pooling: Pooling | None = None,
    thinning: Thinning | None = None,
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
        pooling: with sigma only. Items that nobody lists draw noise too, for rounds in which they are listed.
        thinning: the items must have exposures.
    """
    earlier = np.zeros(len(items.keys), np.bool_) if items.found is None else items.found
    drawn = np.flatnonzero(items.weight if pooling is None else ~earlier)
    keys = items.keys if len(drawn) == len(items.keys) else items.keys.take(drawn)
    noisy = np.full(len(items.keys), -grid.SATURATION, np.int64)
    noisy[drawn] = items.weight[drawn] + grid.nearest(_noise(keys, secret, sigma, laplace_scale))
    evidence = None
    if pooling is not None:
        evidence, noisy[drawn] = _pool(items, noisy, drawn, pooling, sigma)
    reached = np.flatnonzero((items.weight > 0) & (noisy >= grid.threshold(threshold)) & ~earlier)
    if thinning is not None:
        reached = reached[_coins(items, reached, secret, thinning)]
    found = earlier.copy()
    found[reached] = True
    return dataclasses.replace(items, noisy=noisy, found=found, evidence=evidence)


def _pool(
    items: ItemBlock,
    noisy: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.intp],
    pooling: Pooling,
    sigma: float | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return all items' evidence with this round's added, and the means of the drawn ones, on the grid."""
    if sigma is None:
        raise ValueError("pooling must be used with sigma: only Gaussian noise adds up")
    if (items.evidence is None) != (pooling.earlier_precision == 0.0):
        raise ValueError("earlier_precision must be 0 in the first pooled round and only there")
    precision = 1.0 / sigma**2
    evidence = np.zeros(len(items.keys)) if items.evidence is None else items.evidence.copy()
    evidence[drawn] += noisy[drawn] * precision
    means = np.rint(evidence[drawn] / (pooling.earlier_precision + precision))
    return evidence, means.astype(np.int64)


def _coins(
    items: ItemBlock, rows: npt.NDArray[np.intp], secret: bytes, thinning: Thinning
) -> npt.NDArray[np.bool_]:
    """Throw the coins of some items; keyed like the noise, by a key derived from its."""
    if items.exposure is None:
        raise ValueError("thinning must be used with weights that come with exposures")
    bits = keyed_bits(
        items.keys.take(rows), hashlib.blake2b(b"thinning", key=secret, digest_size=32).digest()
    )
    uniform = (bits[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform < -np.expm1(-thinning.rate * grid.to_float(items.exposure[rows]))


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
