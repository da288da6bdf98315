"""Compute the probability of a condition: exact kernels and certified bounds on flat arrays."""

from typing import TYPE_CHECKING, Any

from haply.probability.region import Difference, Distance, Region

if TYPE_CHECKING:
    from haply.probability.distance import within_distance
    from haply.probability.exact import difference_cdf, equal_within, greater, less, region_probability
    from haply.probability.joint import joint_probability
    from haply.probability.multivariate import (
        box,
        box_estimate,
        box_probability,
        disc_probability,
        form_probability,
        quadratic,
        quadratic_probability,
    )

__all__ = [
    "Difference",
    "Distance",
    "Region",
    "box",
    "box_estimate",
    "box_probability",
    "difference_cdf",
    "disc_probability",
    "equal_within",
    "form_probability",
    "greater",
    "joint_probability",
    "less",
    "quadratic",
    "quadratic_probability",
    "region_probability",
    "within_distance",
]

_HOMES = {
    "distance": ("within_distance",),
    "exact": ("difference_cdf", "equal_within", "greater", "less", "region_probability"),
    "joint": ("joint_probability",),
    "multivariate": (
        "box",
        "box_estimate",
        "box_probability",
        "disc_probability",
        "form_probability",
        "quadratic",
        "quadratic_probability",
    ),
}


def __getattr__(name: str) -> Any:
    """Import names with kernels on first use: conditions do not need them."""
    if name not in __all__:
        raise AttributeError(f"module 'haply.probability' has no attribute '{name}'")
    import importlib

    home = next(module for module, names in _HOMES.items() if name in names)
    found = getattr(importlib.import_module(f"haply.probability.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
