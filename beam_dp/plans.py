"""Plans: an algorithm's parameters resolved to the numbers of each round.

Made when the pipeline is built; workers get numbers only. Profiles:

- `paper` accounts exactly as the algorithm's paper does, so that its tables can be reproduced;
- `tight` composes Gaussian rounds exactly: sum of 1/sigma_r^2 = 1/sigma^2 with sigma = sigma(epsilon,
  delta/2), and delta = delta/2 + sum of delta_r, where delta_r pays for round r's novel items. Given that no
  novel item is released, the rounds are adaptive Gaussian mechanisms of sensitivity 1 and everything else
  is post-processing; the conditioning is that of SIPS Lemma 7 (docs/privacy.md).

Both hold for adding or removing one user with any number of pairs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from beam_dp import checks
from beam_dp.accounting import (
    calibrate_sigma,
    check_scale,
    gaussian_threshold,
    laplace_threshold,
    split_sigma,
    thinned_threshold,
    union_threshold,
    water_filling_threshold,
    zcdp_rho,
    zcdp_sigma,
)
from beam_dp.algorithms import (
    DEFAULT_MAX_ADAPTIVE_DEGREE,
    Algorithm,
    DpSips,
    Mad,
    Mad2R,
    ParallelGreedy,
    PooledGaussian,
    PooledMad,
    WeightedGaussian,
    WeightedLaplace,
    algorithm_named,
    delta_shares,
)
from beam_dp.core.noise import Pooling, Thinning
from beam_dp.core.removal import Biasing, Dropping, Preparation
from beam_dp.core.weights.mad import MAX_ADAPTIVE_THRESHOLD, MadParameters
from beam_dp.core.weights.uniform import Norm
from beam_dp.core.weights.water_filling import WaterFillingParameters

Profile = Literal["tight", "paper"]

PAPER_MAD2R_SPLIT = (0.1, 0.9)
TIGHT_MAD2R_SPLIT = (0.02, 0.98)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round: weights, noise, threshold."""

    share: float
    """The round's share of the budget."""
    delta: float
    """What the round's novel items cost: the chance that any is released."""
    threshold: float
    """rho: items whose noisy weight reaches it are released."""
    sigma: float | None = None
    """Standard deviation of Gaussian noise, or None."""
    laplace_scale: float | None = None
    """Scale of Laplace noise, or None."""
    mad: MadParameters | None = None
    """Adaptive weights; None for uniform ones."""
    pooling: Pooling | None = None
    """Whether, and with how much earlier precision, this round's evidence adds to that of earlier ones."""
    thinning: Thinning | None = None
    """The coin of a thinned release, or None."""
    water_filling: WaterFillingParameters | None = None
    """Weights by water filling, whose coins are thrown with the weights; None for others."""
    max_growth: float | None = None
    """How far dropped items' weight may go to others where releases are thinned; else None."""

    @property
    def pooled_sigma(self) -> float:
        """The standard deviation of the estimate that is compared with the threshold."""
        if self.sigma is None:
            raise ValueError("a round with Laplace noise has no sigma")
        earlier = 0.0 if self.pooling is None else self.pooling.earlier_precision
        return (earlier + self.sigma**-2) ** -0.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All numbers of a run."""

    epsilon: float
    delta: float
    max_degree: int
    profile: Profile
    algorithm: Algorithm
    rounds: tuple[Round, ...]

    @property
    def refills(self) -> bool:
        """Whether found items make room in the lists for the users' other items (SIPS re-truncation)."""
        return isinstance(self.algorithm, DpSips | PooledMad | PooledGaussian) and len(self.rounds) > 1

    @property
    def norm(self) -> Norm:
        """The norm in which one user's uniform weights are at most 1."""
        return "l1" if self.rounds[0].laplace_scale is not None else "l2"

    def preparation(self, index: int) -> Preparation | None:
        """Return what is prepared between rounds `index` and `index + 1`, besides removing what was found."""
        algorithm, before_last = self.algorithm, index + 2 == len(self.rounds)
        if not isinstance(algorithm, Mad2R | PooledMad | PooledGaussian):
            return None
        sigma, next_threshold = self.rounds[index].pooled_sigma, self.rounds[index + 1].threshold
        upper_margin = algorithm.upper_confidence * sigma
        if isinstance(algorithm, PooledGaussian):
            return Dropping(next_threshold=next_threshold, upper_margin=upper_margin) if before_last else None
        return Biasing(
            next_threshold=next_threshold,
            lower_margin=algorithm.lower_confidence * sigma,
            upper_margin=upper_margin if before_last else None,
        )

    def report(self) -> dict[str, Any]:
        """Describe the guarantee and the parameters, ready for JSON; nothing in it comes from data."""
        return {
            "guarantee": {
                "epsilon": self.epsilon,
                "delta": self.delta,
                "neighbouring_relation": "add or remove one user",
                "unit": "one user with all their items",
            },
            "algorithm": self.algorithm.name,
            "algorithm_parameters": json.loads(json.dumps(asdict(self.algorithm), default=float)),
            "profile": self.profile,
            "max_degree": self.max_degree,
            "rounds": [
                {
                    **({"sigma": r.sigma} if r.sigma is not None else {"laplace_scale": r.laplace_scale}),
                    "threshold": r.threshold,
                    "share": r.share,
                    "delta": r.delta,
                    **({} if r.mad is None else {"mad": asdict(r.mad)}),
                    **({} if r.pooling is None else {"pooled_sigma": r.pooled_sigma}),
                    **({} if r.thinning is None else {"thinning_rate": r.thinning.rate}),
                    **({} if r.water_filling is None else {"water_filling": asdict(r.water_filling)}),
                    **({} if r.max_growth is None else {"max_growth": r.max_growth}),
                }
                for r in self.rounds
            ],
        }


def make_plan(
    *,
    epsilon: float,
    delta: float,
    max_degree: int,
    algorithm: Algorithm | str = "pooled_gaussian",
    profile: Profile = "tight",
) -> Plan:
    """Resolve an algorithm to numbers.

    Args:
        epsilon: > 0.
        delta: in (0, 1); choose it well below 1 / (number of users).
        max_degree: the degree cap, 1..1,000,000: how many items of one user count.
        algorithm: one of `beam_dp.algorithms`, or its name for the default parameters.
        profile: "tight" or "paper".

    Raises:
        ValueError: naming the parameter that is out of range.
    """
    epsilon, delta = checks.epsilon(epsilon), checks.delta(delta)
    max_degree = checks.max_degree(max_degree)
    if profile not in get_args(Profile):
        raise ValueError(f"profile must be 'tight' or 'paper', got {profile!r}")
    if isinstance(algorithm, str):
        algorithm = algorithm_named(algorithm)
    rounds: tuple[Round, ...]
    match algorithm:
        case WeightedLaplace():
            rounds = (_laplace_round(epsilon, delta, max_degree),)
        case WeightedGaussian() | DpSips():
            rounds = tuple(
                _gaussian_round(noise, max_degree)
                for noise in _sips_noise(algorithm, epsilon, delta, profile)
            )
        case Mad():
            (noise,) = _tight_noise(epsilon, delta, (1.0,))
            rounds = (_mad_round(noise, max_degree, algorithm),)
        case Mad2R():
            split = algorithm.budget_split or (PAPER_MAD2R_SPLIT if profile == "paper" else TIGHT_MAD2R_SPLIT)
            split_noise = _paper_noise if profile == "paper" else _tight_noise
            first, second = split_noise(epsilon, delta, checks.budget_split(split, rounds=2))
            rounds = (
                _mad_round(first, max_degree, algorithm),
                _mad_round(second, max_degree, algorithm, algorithm.min_bias, algorithm.max_bias),
            )
        case ParallelGreedy():
            _require_tight(profile, algorithm)
            rounds = (_water_filling_round(epsilon, delta, algorithm),)
        case PooledMad() | PooledGaussian():
            _require_tight(profile, algorithm)
            rounds = _pooled_rounds(epsilon, delta, max_degree, algorithm)
        case _:
            raise ValueError(
                f"algorithm must be an algorithm of beam_dp.algorithms or its name, got {algorithm!r}"
            )
    return Plan(
        epsilon=epsilon,
        delta=delta,
        max_degree=max_degree,
        profile=profile,
        algorithm=algorithm,
        rounds=rounds,
    )


@dataclass(frozen=True, kw_only=True)
class _Noise:
    share: float
    sigma: float
    delta: float


def _noise(epsilon: float, share: float, sigma: float, delta: float) -> _Noise:
    return _Noise(share=share, sigma=check_scale(sigma, epsilon), delta=delta)


def _tight_noise(epsilon: float, delta: float, shares: tuple[float, ...]) -> list[_Noise]:
    sigma = calibrate_sigma(epsilon, delta / 2)
    return [_noise(epsilon, s, split_sigma(sigma, s), s * delta / 2) for s in shares]


def _paper_noise(epsilon: float, delta: float, shares: tuple[float, ...]) -> list[_Noise]:
    """Basic composition: rounds of (s epsilon, s delta), half of each delta for thresholds (MAD Alg. 5)."""
    return [_noise(epsilon, s, calibrate_sigma(s * epsilon, s * delta / 2), s * delta / 2) for s in shares]


def _zcdp_noise(epsilon: float, delta: float, shares: tuple[float, ...]) -> list[_Noise]:
    """Share rho and the thresholds' delta, half of the whole (SIPS Alg. 3; Corollary 9 for what remains)."""
    novel = delta / 2
    rho = zcdp_rho(epsilon, (delta - novel) / (1 - novel))
    return [_noise(epsilon, s, zcdp_sigma(s * rho), s * novel) for s in shares]


def _sips_noise(
    algorithm: WeightedGaussian | DpSips, epsilon: float, delta: float, profile: Profile
) -> list[_Noise]:
    if isinstance(algorithm, WeightedGaussian):
        return _tight_noise(epsilon, delta, (1.0,))
    if profile == "tight":
        return _tight_noise(epsilon, delta, algorithm.shares())
    if algorithm.budget_split is not None:
        return _paper_noise(epsilon, delta, algorithm.shares())
    return _zcdp_noise(epsilon, delta, algorithm.shares())


def _laplace_round(epsilon: float, delta: float, max_degree: int) -> Round:
    # The noise is pure epsilon-DP, so all of delta goes to the threshold.
    scale = check_scale((1.0 + 2.0**-30) / epsilon, epsilon)
    threshold = laplace_threshold(scale=scale, delta=delta, max_degree=max_degree)
    return Round(share=1.0, delta=delta, laplace_scale=scale, threshold=threshold)


def _water_filling_round(epsilon: float, delta: float, algorithm: ParallelGreedy) -> Round:
    scale = check_scale((1.0 + 2.0**-30) / epsilon, epsilon)
    threshold = water_filling_threshold(scale=scale, delta=delta)
    parameters = WaterFillingParameters(passes=algorithm.passes, target=threshold + algorithm.beta * scale)
    return Round(share=1.0, delta=delta, laplace_scale=scale, threshold=threshold, water_filling=parameters)


def _require_tight(profile: Profile, algorithm: Algorithm) -> None:
    if profile != "tight":
        raise ValueError(f"profile must be 'tight' with algorithm {algorithm.name}, got {profile!r}")


def _gaussian_round(noise: _Noise, max_degree: int) -> Round:
    threshold = gaussian_threshold(sigma=noise.sigma, delta=noise.delta, max_degree=max_degree)
    return Round(share=noise.share, delta=noise.delta, sigma=noise.sigma, threshold=threshold)


def _pooled_rounds(
    epsilon: float, delta: float, max_degree: int, algorithm: PooledMad | PooledGaussian
) -> tuple[Round, ...]:
    shares = checks.budget_split(algorithm.budget_split)
    deltas = delta_shares(shares, algorithm.delta_split)
    rounds: list[Round] = []
    earlier_precision = 0.0
    for index, noise in enumerate(_tight_noise(epsilon, delta, shares)):
        numbers = Round(
            share=noise.share,
            delta=deltas[index] * delta / 2,
            sigma=noise.sigma,
            threshold=0.0,
            pooling=Pooling(earlier_precision=earlier_precision),
        )
        earlier_precision += noise.sigma**-2
        sigma = numbers.pooled_sigma
        if isinstance(algorithm, PooledGaussian):
            growth = algorithm.max_growth if index + 1 == len(shares) else 1.0
            threshold, rate = thinned_threshold(
                sigma=sigma, delta=numbers.delta, max_degree=max_degree, max_growth=growth
            )
            rounds.append(
                replace(numbers, threshold=threshold, thinning=Thinning(rate=rate), max_growth=growth)
            )
        else:
            threshold = union_threshold(sigma=sigma, delta=numbers.delta, max_degree=max_degree)
            biases = (1.0, 1.0) if index == 0 else (algorithm.min_bias, algorithm.max_bias)
            mad = _mad_parameters(threshold + algorithm.beta * sigma, max_degree, algorithm, *biases)
            rounds.append(replace(numbers, threshold=threshold, mad=mad))
    return tuple(rounds)


def _mad_round(
    noise: _Noise, max_degree: int, algorithm: Mad | Mad2R, min_bias: float = 1.0, max_bias: float = 1.0
) -> Round:
    threshold = gaussian_threshold(
        sigma=noise.sigma, delta=noise.delta, max_degree=max_degree, max_bias=max_bias
    )
    adaptive_threshold = threshold + algorithm.beta * noise.sigma
    return Round(
        share=noise.share,
        delta=noise.delta,
        sigma=noise.sigma,
        threshold=threshold,
        mad=_mad_parameters(adaptive_threshold, max_degree, algorithm, min_bias, max_bias),
    )


def _mad_parameters(
    adaptive_threshold: float,
    max_degree: int,
    algorithm: Mad | Mad2R | PooledMad,
    min_bias: float,
    max_bias: float,
) -> MadParameters:
    adaptive_degree = algorithm.max_adaptive_degree
    if adaptive_degree is None:
        adaptive_degree = max(2, min(DEFAULT_MAX_ADAPTIVE_DEGREE, max_degree))
    elif adaptive_degree > max_degree:
        raise ValueError(
            f"max_adaptive_degree must be at most max_degree={max_degree}, got {adaptive_degree!r}; "
            "leave it out for the default, 50 or max_degree if that is less"
        )
    if not 1.0 <= adaptive_threshold <= MAX_ADAPTIVE_THRESHOLD:
        raise ValueError(
            f"the adaptive threshold must lie between 1 and {MAX_ADAPTIVE_THRESHOLD:g} for MAD's proof and "
            f"arithmetic, got {adaptive_threshold:g}; lower delta or raise epsilon"
        )
    return MadParameters(
        adaptive_threshold=adaptive_threshold,
        max_adaptive_degree=adaptive_degree,
        min_bias=min_bias,
        max_bias=max_bias,
    )
