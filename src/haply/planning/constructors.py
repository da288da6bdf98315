"""The constructors of uncertain columns: their names and parameters, the same on every engine and in SQL."""

from __future__ import annotations

PARAMETERS: dict[str, tuple[str, ...]] = {
    "uniform": ("lo", "hi"),
    "gaussian": ("mean", "sd"),
    "truncated_gaussian": ("mean", "sd", "lo", "hi"),
    "mixture": ("weights", "means", "sds"),
    "histogram": ("edges", "probs"),
    "samples": ("points", "probs", "dim"),
    "gaussian_nd": ("mean", "sd", "corr", "cov"),
    "mixture_nd": ("weights", "means", "covs"),
    "latency": ("detected_at", "edges", "probs"),
}
"""By the names that they have in SQL, in lower case."""
