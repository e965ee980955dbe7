"""Noise scales, thresholds and their composition, computed when a pipeline is built."""

from .gaussian import MAX_SCALE as MAX_SCALE
from .gaussian import calibrate_sigma as calibrate_sigma
from .gaussian import check_scale as check_scale
from .gaussian import gaussian_delta as gaussian_delta
from .gaussian import split_sigma as split_sigma
from .thinning import thinned_threshold as thinned_threshold
from .thinning import thinning_delta as thinning_delta
from .thresholds import gaussian_threshold as gaussian_threshold
from .thresholds import laplace_threshold as laplace_threshold
from .thresholds import union_threshold as union_threshold
from .water_filling import water_filling_delta as water_filling_delta
from .water_filling import water_filling_threshold as water_filling_threshold
from .zcdp import approximate_zcdp_delta as approximate_zcdp_delta
from .zcdp import zcdp_delta as zcdp_delta
from .zcdp import zcdp_rho as zcdp_rho
from .zcdp import zcdp_sigma as zcdp_sigma
