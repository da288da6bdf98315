"""HOW LIKELY a condition is: exact kernels and certified bounds on flat arrays."""

from haply.probability.distance import within_distance
from haply.probability.exact import difference_cdf, equal_within, greater, less, region_probability
from haply.probability.region import Difference, Distance, Region

__all__ = [
    "Difference",
    "Distance",
    "Region",
    "difference_cdf",
    "equal_within",
    "greater",
    "less",
    "region_probability",
    "within_distance",
]
