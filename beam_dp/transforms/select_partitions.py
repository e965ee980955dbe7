"""SelectPartitions: which items may be published, in one transform."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam import coders

from beam_dp.algorithms import Algorithm
from beam_dp.core.randomness import RunKey
from beam_dp.plans import Plan, Profile, make_plan
from beam_dp.transforms.add_noise_threshold import AddNoiseThreshold
from beam_dp.transforms.cap_degrees import CapDegrees
from beam_dp.transforms.decode_items import DecodeItems
from beam_dp.transforms.encode_pairs import DEFAULT_NUM_SHARDS, EncodePairs, is_columnar, pair_coders
from beam_dp.transforms.mad_weights import MadWeights
from beam_dp.transforms.remove_found import RemoveFound
from beam_dp.transforms.uniform_weights import UniformWeights
from beam_dp.transforms.water_filling_weights import WaterFillingWeights


class SelectPartitions(beam.PTransform):
    """(user, item) pairs -> items that may be published, under (epsilon, delta) user-level DP.

    Guarantee: for any two inputs that differ in all pairs of one user, and any set of outputs,
    P[output in set] <= e^epsilon P'[output in set] + delta; per window, where the input is windowed.

    Input: `(user, item)` elements of any types with a deterministic coder, or pair tables (`pyarrow.Table`
    elements with columns `user` and `item`). Output: the released items, each once, of the input's item
    type (text for pair tables), in no particular order.

    Args:
        epsilon: > 0.
        delta: in (0, 1), well below 1 / (number of users).
        max_degree: how many items of one user count; more are subsampled.
        algorithm: one of `beam_dp.algorithms` or its name; the default releases most on nearly all data.
        profile: "tight" accounting, or the algorithm's "paper" accounting.
        num_shards: see `EncodePairs`; it changes speed and memory, never the output.
        run_key: for tests only, so that a run can be repeated. Left out, a fresh one is drawn each time the
            transform is applied.

    Raises:
        ValueError: at construction, naming the parameter out of range; or when applied, for input types
            without deterministic coders and windows that may fire more than once.
        InputError: while running, for pairs that hold None.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        max_degree: int,
        algorithm: Algorithm | str = "pooled_gaussian",
        profile: Profile = "tight",
        num_shards: int = DEFAULT_NUM_SHARDS,
        run_key: RunKey | None = None,
    ):
        super().__init__()
        self.plan = make_plan(
            epsilon=epsilon, delta=delta, max_degree=max_degree, algorithm=algorithm, profile=profile
        )
        self._num_shards = num_shards
        self._run_key = run_key
        EncodePairs(num_shards=num_shards)  # checks num_shards now rather than when applied

    def expand(self, pairs: beam.PCollection) -> beam.PCollection:
        """Chain the plan's rounds."""
        plan = self.plan
        run_key = self._run_key or RunKey.fresh()
        item_coder = coders.StrUtf8Coder() if is_columnar(pairs) else pair_coders(pairs)[1]
        cap_once = None if plan.refills else plan.max_degree
        users = pairs | "EncodePairs" >> EncodePairs(
            num_shards=self._num_shards, max_degree=cap_once, run_key=run_key
        )
        items = None
        for index, numbers in enumerate(plan.rounds):
            round_label = f"Round{index + 1}"
            listed = users
            if plan.refills:
                listed = users | f"{round_label}/CapDegrees" >> CapDegrees(plan.max_degree)
            weights = _weights(plan, index, run_key)
            weighed = (listed if items is None else (listed, items)) | f"{round_label}/Weights" >> weights
            items = weighed | f"{round_label}/AddNoiseThreshold" >> AddNoiseThreshold(
                threshold=numbers.threshold,
                sigma=numbers.sigma,
                laplace_scale=numbers.laplace_scale,
                pooling=numbers.pooling,
                thinning=numbers.thinning,
                round_number=index,
                run_key=run_key,
            )
            if index + 1 < len(plan.rounds):
                users = (users, items) | f"{round_label}/RemoveFound" >> RemoveFound(plan.preparation(index))
        return items | "DecodeItems" >> DecodeItems(item_coder)

    def display_data(self) -> dict[str, Any]:
        """Show the guarantee and the parameters on the job page."""
        plan = self.plan
        return {
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "max_degree": plan.max_degree,
            "algorithm": plan.algorithm.name,
            "profile": plan.profile,
            "num_shards": self._num_shards,
        }


def _weights(plan: Plan, index: int, run_key: RunKey) -> beam.PTransform:
    """Return the weights of one round."""
    numbers = plan.rounds[index]
    if numbers.water_filling is not None:
        return WaterFillingWeights(
            passes=numbers.water_filling.passes,
            target=numbers.water_filling.target,
            round_number=index,
            run_key=run_key,
        )
    if numbers.mad is not None:
        return MadWeights(
            adaptive_threshold=numbers.mad.adaptive_threshold,
            max_adaptive_degree=numbers.mad.max_adaptive_degree,
            min_bias=numbers.mad.min_bias,
            max_bias=numbers.mad.max_bias,
        )
    return UniformWeights(plan.norm, max_growth=numbers.max_growth)
