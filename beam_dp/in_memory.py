"""Partition selection on arrays, without Beam: the plain twin of `SelectPartitions`."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from beam_dp.core import exchange
from beam_dp.core.blocks import ItemBlock, UserBlock
from beam_dp.core.capping import cap_degrees
from beam_dp.core.noise import add_noise_and_threshold
from beam_dp.core.randomness import RunKey
from beam_dp.core.removal import item_status, remove_found
from beam_dp.core.weights.mad import MadParameters, add_reroute, first_sums, reroute_sums, truncate
from beam_dp.core.weights.uniform import Norm, exposure_sums, uniform_sums
from beam_dp.core.weights.water_filling import water_filling_weights
from beam_dp.plans import Plan


def select_in_memory(users: UserBlock, plan: Plan, run_key: RunKey) -> ItemBlock:
    """Run a plan on one user block that holds all users (one user shard, one item shard).

    Returns:
        The items, `found` telling the released ones: the same as `SelectPartitions` releases with the same
        run key, whatever its shards and workers.
    """
    if not plan.refills:
        users = cap_degrees(users, plan.max_degree)
    items = introduce(users)
    for index, numbers in enumerate(plan.rounds):
        capped = cap_degrees(users, plan.max_degree)
        if numbers.water_filling is not None:
            secret = run_key.derive("water filling", number=index)
            items = water_filling_weights(capped, items, numbers.water_filling, secret)
        elif numbers.mad is not None:
            items = mad_weights(capped, items, numbers.mad)
        else:
            items = uniform_weights(capped, items, plan.norm, numbers.max_growth)
        items = add_noise_and_threshold(
            items,
            secret=run_key.derive("noise", number=index),
            threshold=numbers.threshold,
            sigma=numbers.sigma,
            laplace_scale=numbers.laplace_scale,
            pooling=numbers.pooling,
            thinning=numbers.thinning,
        )
        if index + 1 < len(plan.rounds):
            status = _answer(users, items, item_status(items, plan.preparation(index)))
            users = remove_found(users, status)
    return items


def introduce(users: UserBlock) -> ItemBlock:
    """Return the item block of one user block; all weights 0."""
    return exchange.introduce_items(0, [part for _, part in exchange.partial_sums(users, (), introduce=True)])


def uniform_weights(
    users: UserBlock, items: ItemBlock, norm: Norm, max_growth: float | None = None
) -> ItemBlock:
    """Return the items with uniform weights, 1/sqrt(d) or 1/d for each of a user's d items.

    With `max_growth` also their exposures; see `beam_dp.transforms.UniformWeights`.
    """
    if max_growth is None:
        (weight,) = _ask(users, items, (uniform_sums(users, norm),))
        return dataclasses.replace(items, weight=weight)
    sums = (uniform_sums(users, norm, max_growth), exposure_sums(users))
    weight, exposure = _ask(users, items, sums)
    return dataclasses.replace(items, weight=weight, exposure=exposure)


def mad_weights(users: UserBlock, items: ItemBlock, parameters: MadParameters) -> ItemBlock:
    """Return the items with MAD weights (MAD Alg. 2)."""
    base, init = _ask(users, items, first_sums(users, parameters))
    weight, ratio = truncate(base, init, parameters)
    (reroute,) = _ask(users, items, (reroute_sums(users, _answer(users, items, ratio), parameters),))
    return add_reroute(dataclasses.replace(items, weight=weight), reroute, parameters)


def _ask(
    users: UserBlock, items: ItemBlock, sums: tuple[npt.NDArray[np.int64], ...]
) -> tuple[npt.NDArray[np.int64], ...]:
    parts = [part for _, part in exchange.partial_sums(users, sums, introduce=False)]
    return exchange.total_sums(items, parts, len(sums))


def _answer(users: UserBlock, items: ItemBlock, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return exchange.gather_answers(users, [part for _, part in exchange.answers(items, values)])
