"""Models of uncertain values on arrays, one row per element.

>>> from haply.models import Histogram, Uniform
>>> Uniform(0, 5).cdf(2.0)
array([0.4])
>>> Histogram([[0, 1, 3]], [[0.25, 0.75]]).mean()
array([1.625])
"""

from haply.models.asymmetric import Asymmetric
from haply.models.base import Model, OneDimensional
from haply.models.multi_dimensional import GaussianND, MixtureND
from haply.models.one_dimensional import (
    Certain,
    Gaussian,
    Histogram,
    Mixture,
    Samples,
    TruncatedGaussian,
    Uniform,
)
from haply.models.sky import Sky, SkyEllipse, sky_ellipses, sky_positions

__all__ = [
    "Asymmetric",
    "Certain",
    "Gaussian",
    "GaussianND",
    "Histogram",
    "Mixture",
    "MixtureND",
    "Model",
    "OneDimensional",
    "Samples",
    "Sky",
    "SkyEllipse",
    "TruncatedGaussian",
    "Uniform",
    "sky_ellipses",
    "sky_positions",
]
