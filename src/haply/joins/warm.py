"""Compile kernels ahead: a tiny join of given kinds runs every kernel that a large join of these kinds runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import get_args

import numpy as np

from haply.joins.cells.exchange import warm_exchange
from haply.joins.match import match_overlapping
from haply.joins.moments import match_moments
from haply.joins.operators.position import join_positions
from haply.joins.operators.similarity import SIDES, SimilarityJoin
from haply.joins.operators.timing import TimingJoin
from haply.joins.operators.window import Algorithm, WindowJoin, join_windows
from haply.joins.paged import OF_STRATEGY, match_paged
from haply.models import (
    Gaussian,
    GaussianND,
    Histogram,
    MixtureND,
    Model,
    OneDimensional,
    Samples,
    Sky,
    Uniform,
)
from haply.models.one_dimensional import ONE_DIMENSIONAL
from haply.probability.distance import clouds, within_distance
from haply.probability.joint import Joint
from haply.probability.multivariate import box
from haply.probability.region import Difference, Distance, Region
from haply.pruning.bounds.clouds import extents
from haply.pruning.candidates.intervals import Intervals, row_intervals
from haply.pruning.candidates.one_pass import warm_order
from haply.pruning.threshold import Threshold
from haply.selection.conditions import RowValues
from haply.selection.costs import calibrate
from haply.selection.group import Group
from haply.selection.select import Selection

STEPS = len(ONE_DIMENSIONAL) ** 2 + 6
"""The names that ``warm_everything`` yields."""


def _example(kind: type[Model]) -> OneDimensional:
    assert issubclass(kind, OneDimensional)
    return kind.example()


def _from_arrow(values: np.ndarray) -> np.ndarray:
    """Return a read-only array, as Arrow gives it: numba compiles kernels separately for such arrays."""
    values.setflags(write=False)
    return values


@lru_cache(maxsize=1024)
def warm_pair(
    left: type[OneDimensional],
    right: type[OneDimensional],
    region: Region,
    threshold: Threshold,
    exact: bool,
    strategy: str = "auto",
    keyed: bool = False,
) -> None:
    """Run a join of two rows a side, with the layout that rows from Arrow have; if keyed, with equal keys."""
    models = []
    for kind in (left, right):
        model_class = type(_example(kind))
        models.append(model_class.from_arrow(_example(kind).to_arrow()))
        row_intervals(models[-1], len(models) == 1, region, threshold, exact)
    if strategy in OF_STRATEGY:
        match_paged(models[0], models[1], region, threshold, exact, OF_STRATEGY[strategy])
        return
    overlapping = Intervals(_from_arrow(np.zeros(2)), _from_arrow(np.ones(2)), np.zeros(2, dtype=bool))
    groups = np.zeros(2, np.int64) if keyed else None
    match_overlapping(
        models[0], models[1], overlapping, overlapping, region, threshold, exact,
        left_groups=groups, right_groups=groups,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def warm_moments(
    left: type[OneDimensional], right: type[OneDimensional], region: Region, threshold: Threshold, exact: bool
) -> None:
    """Run a join of two models with an index of means and variances."""
    models = [type(_example(kind)).from_arrow(_example(kind).to_arrow()) for kind in (left, right)]
    match_moments(models[:1], models[1:], [region], threshold, exact)


def warm_clouds(dim: int, exact: bool) -> None:
    """Run a similarity join of two objects a side, with equal and other weights, with every rule and with the grid."""
    points = np.zeros((2, 2 * dim))
    for probs in (None, [[0.25, 0.75]] * 2):
        model = Samples.from_arrow(Samples(points, probs, dim=dim).to_arrow())
        extents(clouds(model), 0.5)
        for rules in ("auto", "paper"):
            join = SimilarityJoin(1.0, 0.5, dim=dim, rules=rules, probability="exact" if exact else "none")
            for side in SIDES:
                join.push(side, {"id": [0, 1], "pos": model})


@lru_cache(maxsize=1)
def warm_times() -> None:
    """Run a timing join of a few events a side, with and without tables."""
    times = Histogram.from_arrow(Histogram([[0.0, 1.0, 2.0]] * 2, [[0.5, 0.5]] * 2).to_arrow())
    for templates in (None, times):
        join = TimingJoin(1.0, 0.5, templates=templates)
        for side in SIDES:
            join.push(side, {"id": [0, 1], "time": times})


@lru_cache(maxsize=3)
def warm_windows(algorithm: Algorithm | None) -> None:
    """Run a window join of three streams: by an algorithm of ``WindowJoin``, or if None by ``join_windows``."""
    windows = {("a", "b"): 1.0, ("b", "c"): 2.0}
    if algorithm is None:
        rows = {"id": np.arange(2), "time": np.arange(2.0), "key": np.zeros(2, np.int64)}
        join_windows(windows, {"a": rows, "b": rows, "c": rows})
        return
    join = WindowJoin(windows, algorithm=algorithm)
    for stream in ("a", "b", "c"):
        join.push(stream, {"id": np.arange(2), "time": np.arange(2.0), "key": np.zeros(2)})
    join.expire(9.0)


@lru_cache(maxsize=64)
def warm_joint(joint: Joint, kinds: tuple[tuple[str, type[Model]], ...]) -> None:
    """Compute a joint probability of two rows."""
    of, dims = dict(kinds), dict.fromkeys(dict(kinds), 1)
    for condition in (one for group in joint.groups for one in group if isinstance(one, Distance)):
        dims.update(dict.fromkeys(condition.names, _common_dimension([of[name] for name in condition.names])))
    joint.likely({name: _example_in(kind, dims[name]) for name, kind in kinds}, np.zeros(2))


def _common_dimension(kinds: Sequence[type[Model]]) -> int:
    """Return a number of coordinates that positions of all these kinds can have."""
    if Sky in kinds:
        return 3
    return 2 if all(kind in (GaussianND, MixtureND, Samples) for kind in kinds) else 1


def warm_selection(selection: Selection) -> None:
    """Select from two rows, with bounds as per-row planning does, and without bounds."""
    _warm_selection(selection.groups, selection.exact)


@lru_cache(maxsize=64)
def _warm_selection(groups: tuple[Group, ...], exact: bool) -> None:
    values: dict[str, Model] = {}
    numbers = {number: np.ones(2) for group in groups for number in group.numbers}
    for name, kind, dim in ((name, kind, dim) for group in groups for name, kind, dim in group.shapes):
        values[name] = _example_in(kind, dim)
    batch = RowValues(values, numbers, 2)
    Selection(groups, Threshold(0.5), exact=exact).select(batch)
    Selection(groups, Threshold(0.5)).probabilities(batch)


def _example_in(kind: type[Model], dim: int) -> Model:
    """Return two rows of a model, in several dimensions if it has them."""
    if kind is GaussianND:
        model: Model = GaussianND(np.zeros((2, dim)), np.tile(np.eye(dim), (2, 1, 1)))
    elif kind is MixtureND:
        weights, means = np.tile([0.5, 0.5], (2, 1)), np.zeros((2, 2 * dim))
        model = MixtureND(weights, means, np.tile(np.eye(dim).ravel(), (2, 2)))
    elif issubclass(kind, Sky):
        model = kind([0.0, 1.0], [0.0, 1.0], 1.0, 1.0)
    elif kind is Samples and dim > 1:
        model = Samples(np.zeros((2, 2 * dim)), dim=dim)
    else:
        model = _example(kind)
    return type(model).from_arrow(model.to_arrow())


def warm_everything() -> Iterator[str]:
    """Warm every pair of models under every kind of condition, and all other kernels; yield what was just done."""
    regions = (Region(-1.0, 1.0), Region(0.0, math.inf, low_closed=False), Region(-1.0, 1.0, outside=True))
    for left, right in product(ONE_DIMENSIONAL, ONE_DIMENSIONAL):
        for region in regions:
            for exact in (True, False):
                warm_pair(left, right, region, Threshold(0.5), exact)
        yield f"{left.__name__} - {right.__name__}"
    for strategy in OF_STRATEGY:  # their kernels see bounds, not models
        warm_pair(Uniform, Uniform, regions[0], Threshold(0.5), True, strategy)
    yield "pages"
    for exact in (True, False):
        warm_clouds(2, exact)
    yield "distances"
    warm_times()
    yield "times"
    for algorithm in get_args(Algorithm):
        warm_windows(None if algorithm == "auto" else algorithm)
    near = [Difference("a", "b", Region(-1.0, 1.0)), Difference("b", "c", Region(-1.0, 1.0))]
    for kind in (Samples, Gaussian):
        of_kind = dict.fromkeys("abc", kind)
        warm_joint(Joint.of(near, of_kind), tuple(of_kind.items()))
    yield "windows"
    for dim in (2, 3):
        points = GaussianND(np.zeros((2, dim)), np.tile(np.eye(dim), (2, 1, 1)))
        within_distance(points, points, 1.0)
        box(points, -np.ones(dim), np.ones(dim))
        for probability in ("exact", "none"):
            join_positions(points, points, 1.0, 0.5, probability=probability)
    warm_exchange()
    warm_order()
    yield "several dimensions"
    calibrate()
    yield "selections, and what they cost here"
