"""User-level differentially private partition selection and counting on Apache Beam."""

from . import io as io
from .algorithms import DpSips as DpSips
from .algorithms import Mad as Mad
from .algorithms import Mad2R as Mad2R
from .algorithms import ParallelGreedy as ParallelGreedy
from .algorithms import PooledGaussian as PooledGaussian
from .algorithms import PooledMad as PooledMad
from .algorithms import WeightedGaussian as WeightedGaussian
from .algorithms import WeightedLaplace as WeightedLaplace
from .core.noise import Pooling as Pooling
from .core.noise import Thinning as Thinning
from .core.randomness import RunKey as RunKey
from .core.removal import Biasing as Biasing
from .core.removal import Dropping as Dropping
from .errors import InputError as InputError
from .transforms import AddNoiseThreshold as AddNoiseThreshold
from .transforms import CapDegrees as CapDegrees
from .transforms import DecodeItems as DecodeItems
from .transforms import EncodePairs as EncodePairs
from .transforms import MadWeights as MadWeights
from .transforms import RemoveFound as RemoveFound
from .transforms import SelectPartitions as SelectPartitions
from .transforms import UniformWeights as UniformWeights
from .transforms import WaterFillingWeights as WaterFillingWeights

__version__ = "0.1.0.dev0"
