"""The algorithms of partition selection: what a person chooses, before any number is computed.

`beam_dp.plans.make_plan` turns one of these, with epsilon, delta and a degree cap, into numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from beam_dp import checks

DEFAULT_MAX_ADAPTIVE_DEGREE = 50
DEFAULT_POOLED_MAD_SPLIT = (0.025, 0.075, 0.225, 0.675)
DEFAULT_POOLED_GAUSSIAN_SPLIT = tuple(2.5**k * 1.5 / (2.5**6 - 1) for k in range(6))
LAST_ROUND_DELTA = 0.9


@dataclass(frozen=True, kw_only=True)
class WeightedGaussian:
    """Each of a user's d items gets weight 1/sqrt(d); Gaussian noise ("Basic"; MAD Alg. 3, SIPS Alg. 2)."""

    name = "weighted_gaussian"


@dataclass(frozen=True, kw_only=True)
class WeightedLaplace:
    """Each of a user's d items gets weight 1/d; Laplace noise (Korolova et al. 2009).

    Good where users hold one or two items each.
    """

    name = "weighted_laplace"


@dataclass(frozen=True, kw_only=True)
class DpSips:
    """Weighted Gaussian again and again; found items make room for others (SIPS Alg. 3)."""

    name = "dp_sips"

    rounds: int = 3
    """I >= 1. More rounds find more in skewed data and cost a pass over the data each."""
    ratio: float = 1 / 3
    """r in (0, 1]: each round spends 1/r times the budget of the one before."""
    budget_split: tuple[float, ...] | None = None
    """Explicit shares in place of `rounds` and `ratio`; positive, of sum 1."""

    def __post_init__(self) -> None:
        checks.integer("rounds", self.rounds, low=1, high=100)
        if not 0 < checks.number("ratio", self.ratio) <= 1:
            raise ValueError(f"ratio must be a number > 0 and <= 1, got {self.ratio!r}")
        if self.budget_split is not None:
            if (self.rounds, self.ratio) != (DpSips.rounds, DpSips.ratio):
                raise ValueError("budget_split must not be combined with rounds or ratio; it sets both")
            checks.budget_split(self.budget_split)

    def shares(self) -> tuple[float, ...]:
        """Return the budget's shares, first round first: `budget_split`, or r^(I-i-1) normalised."""
        if self.budget_split is not None:
            return checks.budget_split(self.budget_split)
        powers = [self.ratio ** (self.rounds - i - 1) for i in range(self.rounds)]
        return tuple(power / sum(powers) for power in powers)


@dataclass(frozen=True, kw_only=True)
class Mad:
    """Weight above what a popular item needs returns to its users' other items (MAD Alg. 2)."""

    name = "mad"

    max_adaptive_degree: int | None = None
    """d_max in 2..max_degree: users with more items take no part in rerouting. None: 50 or max_degree."""
    beta: float = 2.0
    """>= 0: an item's excess starts `beta` standard deviations above the threshold."""

    def __post_init__(self) -> None:
        _check_mad(self.max_adaptive_degree, self.beta)


@dataclass(frozen=True, kw_only=True)
class Mad2R:
    """MAD in two rounds: the second biases weights by the first one's noisy weights (MAD Alg. 5)."""

    name = "mad2r"

    max_adaptive_degree: int | None = None
    """As for `Mad`."""
    beta: float = 2.0
    """As for `Mad`."""
    budget_split: tuple[float, float] | None = None
    """Shares of the two rounds. None: (0.1, 0.9) with profile "paper", (0.02, 0.98) with "tight"."""
    min_bias: float = 0.5
    """b_min in [0.5, 1]: the least share of its normal weight that an item expected to pass gets."""
    max_bias: float = 2.0
    """b_max >= 1: the most an item's weight may grow; it raises the second threshold's first term."""
    lower_confidence: float = 1.0
    """C_lb >= 0: standard deviations below its noisy weight at which an item is assumed when it is biased."""
    upper_confidence: float = 3.0
    """C_ub >= 0: standard deviations above its noisy weight at which an item is still given up."""

    def __post_init__(self) -> None:
        _check_mad(self.max_adaptive_degree, self.beta)
        checks.between("min_bias", self.min_bias, 0.5, 1.0)
        checks.at_least("max_bias", self.max_bias, 1.0)
        checks.at_least("lower_confidence", self.lower_confidence, 0.0)
        checks.at_least("upper_confidence", self.upper_confidence, 0.0)
        if self.budget_split is not None:
            checks.budget_split(self.budget_split, rounds=2)


@dataclass(frozen=True, kw_only=True)
class PooledMad:
    """Rounds of MAD whose evidence adds up: an item is judged by all its noisy weights (specification 4).

    Found items make room for others; before the last round, items that can hardly pass are given up.
    """

    name = "pooled_mad"

    budget_split: tuple[float, ...] = DEFAULT_POOLED_MAD_SPLIT
    """Shares of the rounds, positive, of sum 1; increasing ones find popular items cheaply."""
    delta_split: tuple[float, ...] | None = None
    """Shares of the rounds in the delta that pays for novel items, as many as `budget_split` has. None: 0.9
    for the last round, the rest in proportion to the budget."""
    max_adaptive_degree: int | None = None
    """As for `Mad`."""
    beta: float = 2.0
    """As for `Mad`."""
    min_bias: float = 0.5
    """As for `Mad2R`, from the second round on."""
    max_bias: float = 2.0
    """As for `Mad2R`, from the second round on; it does not raise the threshold here."""
    lower_confidence: float = 0.0
    """As for `Mad2R`, in standard deviations of the pooled estimate."""
    upper_confidence: float = 1.5
    """As for `Mad2R`, in standard deviations of the pooled estimate; used before the last round only."""

    def __post_init__(self) -> None:
        _check_mad(self.max_adaptive_degree, self.beta)
        delta_shares(self.budget_split, self.delta_split)  # checks both
        checks.between("min_bias", self.min_bias, 0.5, 1.0)
        checks.at_least("max_bias", self.max_bias, 1.0)
        checks.at_least("lower_confidence", self.lower_confidence, 0.0)
        checks.at_least("upper_confidence", self.upper_confidence, 0.0)


@dataclass(frozen=True, kw_only=True)
class PooledGaussian:
    """Rounds of uniform weights whose evidence adds up, and a coin that spares light items their full price.

    The coin (see `beam_dp.accounting.thinning`) lowers the threshold by about a tenth, and the weights take
    one exchange a round. Found items make room for others; before the last round, items that can hardly
    pass are given up.
    """

    name = "pooled_gaussian"

    budget_split: tuple[float, ...] = DEFAULT_POOLED_GAUSSIAN_SPLIT
    """As for `PooledMad`; by default six rounds, each with 2.5 times the budget of the one before."""
    delta_split: tuple[float, ...] | None = None
    """As for `PooledMad`; it pays for light items."""
    max_growth: float = 2.0
    """>= 1: how many times its normal weight an item may get in the last round from what was given up; more
    raises the threshold."""
    upper_confidence: float = 1.5
    """As for `PooledMad`."""

    def __post_init__(self) -> None:
        delta_shares(self.budget_split, self.delta_split)  # checks both
        checks.between("max_growth", self.max_growth, 1.0, 100.0)
        checks.at_least("upper_confidence", self.upper_confidence, 0.0)


@dataclass(frozen=True, kw_only=True)
class ParallelGreedy:
    """Water filling: each user's unit of weight goes to one item after another, while it is needed there.

    The constant-round counterpart of the sequential greedy updates, with Laplace noise. Best where users hold
    few items each.
    """

    name = "parallel_greedy"

    passes: int = 10
    """K in 1..100: how many of a user's items may get weight; each costs an exchange there and back."""
    beta: float = 5.0
    """In 0..40: an item is full `beta` scales of the noise above the threshold."""

    def __post_init__(self) -> None:
        checks.integer("passes", self.passes, low=1, high=100)
        checks.between("beta", self.beta, 0.0, 40.0)


Algorithm = (
    WeightedGaussian | WeightedLaplace | DpSips | Mad | Mad2R | PooledMad | PooledGaussian | ParallelGreedy
)

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        *(WeightedGaussian, WeightedLaplace, DpSips, Mad, Mad2R),
        *(PooledMad, PooledGaussian, ParallelGreedy),
    )
}


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of that name with its default parameters."""
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, got {name!r}")
    return ALGORITHMS[name]()


def delta_shares(budget_split: tuple[float, ...], delta_split: tuple[float, ...] | None) -> tuple[float, ...]:
    """Return the rounds' shares of the delta for novel or light items: those given, or the default.

    The last round finds most, so its threshold matters most.

    Raises:
        ValueError: if the shares are not positive, of sum 1, and one a round.
    """
    shares = checks.budget_split(budget_split)
    if delta_split is not None:
        return checks.budget_split(delta_split, rounds=len(shares), name="delta_split")
    earlier = sum(shares[:-1])
    if earlier == 0:
        return (1.0,)
    return (*((1 - LAST_ROUND_DELTA) * share / earlier for share in shares[:-1]), LAST_ROUND_DELTA)


def _check_mad(max_adaptive_degree: object, beta: object) -> None:
    if max_adaptive_degree is not None:
        checks.integer(
            "max_adaptive_degree",
            max_adaptive_degree,
            low=2,
            high=checks.MAX_DEGREE_LIMIT,
            way_out="leave it out for the default, 50 or max_degree if that is less",
        )
    checks.at_least("beta", beta, 0.0)
