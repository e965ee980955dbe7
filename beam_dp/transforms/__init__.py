"""Beam wiring: each file puts plain functions of `beam_dp.core` into a pipeline, no more."""

from .add_noise_threshold import AddNoiseThreshold as AddNoiseThreshold
from .cap_degrees import CapDegrees as CapDegrees
from .decode_items import DecodeItems as DecodeItems
from .encode_pairs import EncodePairs as EncodePairs
from .mad_weights import MadWeights as MadWeights
from .remove_found import RemoveFound as RemoveFound
from .select_partitions import SelectPartitions as SelectPartitions
from .uniform_weights import UniformWeights as UniformWeights
from .water_filling_weights import WaterFillingWeights as WaterFillingWeights
