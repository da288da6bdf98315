"""The dimensions of a group's columns, by which Spark compiles kernels before it starts tasks."""

from __future__ import annotations

import math

from haply.joins.warm import warm_selection
from haply.models import GaussianND, Samples, Uniform
from haply.pruning.threshold import Threshold
from haply.selection.conditions import Apart, Polynomial, Range
from haply.selection.grouping import group_of
from haply.selection.select import Selection

BELOW = (Range(-math.inf, 1.0),)


def test_samples_of_numbers_beside_points():
    """Samples that are added to a number have one dimension, whatever else is in the group."""
    a, u, p = ("a", None), ("u", None), ("p", 1)
    near = Apart("q", "r", 0.5)
    conditions = [
        Polynomial(((a, 1.0), (p, 1.0)), (), BELOW),
        Polynomial((), ((a, u, 1.0),), BELOW),
        Apart("p", "q", 1.0),
        near,
    ]
    kinds = {"a": Samples, "u": Uniform, "p": GaussianND, "q": GaussianND, "r": Samples}
    group = group_of(conditions, kinds)
    assert {name: dim for name, _, dim in group.shapes} == {"a": 1, "u": 1, "p": 2, "q": 2, "r": 2}


def test_kernels_for_them_are_compiled():
    a, u = ("a", None), ("u", None)
    conditions = [Polynomial((), ((a, u, 1.0),), BELOW), Polynomial(((u, 1.0), (("p", 0), 1.0)), (), BELOW)]
    kinds = {"a": Samples, "u": Uniform, "p": GaussianND}
    warm_selection(Selection((group_of(conditions, kinds),), Threshold(0.5)))
