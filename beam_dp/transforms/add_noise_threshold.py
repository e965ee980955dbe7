"""AddNoiseThreshold: add keyed noise to each item's weight and mark those that reach the threshold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from beam_dp import checks
from beam_dp.accounting import MAX_SCALE
from beam_dp.core.blocks import ItemBlock
from beam_dp.core.noise import Pooling, Thinning, add_noise_and_threshold
from beam_dp.core.randomness import RunKey
from beam_dp.transforms.windows import check_single_firing, window_coder


class AddNoiseThreshold(beam.PTransform):
    """Item blocks -> item blocks with noisy weights and `found` marks.

    The release is as private as the numbers given: sigma from `beam_dp.accounting.calibrate_sigma` for
    weights of l2 sensitivity 1 (or laplace_scale = 1/epsilon for l1 sensitivity 1), and threshold from
    `beam_dp.accounting.gaussian_threshold` (or `laplace_threshold`) for the degree cap that was applied.

    Noise is a function of (run key, round, window, item): drawing again after a failure gives it again.
    Windows must fire once; anything else is refused.

    Args:
        threshold: rho, finite, in weight units.
        sigma: standard deviation of Gaussian noise, > 0; or
        laplace_scale: scale of Laplace noise, > 0. Exactly one of the two.
        pooling: compare the precision-weighted mean of all rounds' noisy weights (Gaussian noise only).
        thinning: release by a coin too; the weights must come with exposures (`UniformWeights(max_growth=)`).
        round_number: 0, 1, ...; rounds of one run must differ in it, or they share their noise.
        run_key: only for tests and for composites that share one key; left out, a fresh one is drawn each
            time the transform is applied.

    Raises:
        ValueError: at construction, naming the parameter out of range.
    """

    def __init__(
        self,
        *,
        threshold: float,
        sigma: float | None = None,
        laplace_scale: float | None = None,
        pooling: Pooling | None = None,
        thinning: Thinning | None = None,
        round_number: int = 0,
        run_key: RunKey | None = None,
    ):
        super().__init__()
        if (sigma is None) == (laplace_scale is None):
            raise ValueError(
                "exactly one of sigma and laplace_scale must be given, "
                f"got sigma={sigma!r} and laplace_scale={laplace_scale!r}"
            )
        for name, scale in (("sigma", sigma), ("laplace_scale", laplace_scale)):
            if scale is not None and not 0 < checks.number(name, scale) <= MAX_SCALE:
                raise ValueError(f"{name} must be a number > 0 and <= {MAX_SCALE:g}, got {scale!r}")
        if pooling is not None and sigma is None:
            raise ValueError(
                "pooling must be used with sigma, got laplace_scale; only Gaussian noise adds up"
            )
        self._pooling = pooling
        self._thinning = thinning
        self._threshold = checks.number("threshold", threshold)
        self._sigma = sigma
        self._laplace_scale = laplace_scale
        self._round_number = checks.integer("round_number", round_number, low=0)
        self._run_key = run_key

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        """Add noise to every block."""
        check_single_firing(items, "AddNoiseThreshold")
        dofn = _AddNoise(
            self._run_key or RunKey.fresh(),
            self._round_number,
            window_coder(items),
            threshold=self._threshold,
            sigma=self._sigma,
            laplace_scale=self._laplace_scale,
            pooling=self._pooling,
            thinning=self._thinning,
        )
        return items | "AddNoise" >> beam.ParDo(dofn).with_output_types(ItemBlock)

    def display_data(self) -> dict[str, Any]:
        """Show the parameters on the job page; the run key is not one of them."""
        scale = {"laplace_scale": self._laplace_scale} if self._sigma is None else {"sigma": self._sigma}
        thinning = {} if self._thinning is None else {"thinning_rate": self._thinning.rate}
        return {"threshold": self._threshold, "round": self._round_number, **scale, **thinning}


class _AddNoise(beam.DoFn):
    def __init__(self, run_key: RunKey, round_number: int, coder: Any, **noise: Any):
        self._run_key = run_key
        self._round_number = round_number
        self._window_coder = coder
        self._noise = noise

    def process(self, element: ItemBlock, window: Any = beam.DoFn.WindowParam) -> Iterator[ItemBlock]:
        identity = self._window_coder.encode(window)
        secret = self._run_key.derive("noise", number=self._round_number, window=identity)
        yield add_noise_and_threshold(element, secret=secret, **self._noise)
