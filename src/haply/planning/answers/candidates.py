"""``hp.calibrate``: candidates for learning errors, as numbers.

All right rows whose centre is near that of a left row are found in one pass of the engine. Only numbers of each pair
are kept: the difference of its centres, and their stated variances. The pairs of a left row make one list. The engine
keeps these lists while errors are learned; only sums leave it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from haply.errors import HaplyError, unknown_name
from haply.joins.calibration.fit import LEARNED, Candidates, Learned
from haply.joins.calibration.residuals import axis_variances, centres, on_the_sky
from haply.models import Model, Sky
from haply.models.moving import GAUSSIANS
from haply.planning.answers.join import ROW_IDS
from haply.planning.answers.match import Density
from haply.planning.frames import Engine, Frame, field_of, find_column, is_one_dimensional, position_model, quoted
from haply.planning.nodes import Shown
from haply.planning.pairs import PairPlan, method_for
from haply.probability.region import Distance
from haply.pruning.threshold import Threshold
from haply.query.conditions import JoinCondition

Assign = Literal["left", "right", "both"]
"""Whose errors are rescaled."""

_CENTRE, _VARIANCE, _DENSITY = "__haply_centre", "__haply_variance", "__haply_density"
_PAIRS = "pairs"
"""The column of lists."""


@dataclass(frozen=True)
class LearnOptions:
    """The options of ``hp.calibrate``, besides its tables and ``same``."""

    radius: float
    density: float | str | Density
    learn: tuple[Learned, ...]
    assign: Assign = "left"
    max_rounds: int = 500
    sample: float | None = None

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        if not (_is_number(self.radius) and 0.0 < self.radius < math.inf):
            raise HaplyError("The radius is not a distance", expected="a positive number", found=repr(self.radius))
        density = self.density.area if isinstance(self.density, Density) else self.density
        if not isinstance(density, str) and not (_is_number(density) and 0.0 < density < math.inf):
            raise HaplyError("The density is not a positive number", expected="e.g. density=0.02", found=repr(density))
        if not self.learn:
            raise HaplyError("hp.calibrate has nothing to learn", expected=", ".join(map(repr, LEARNED)))
        for name in self.learn:
            if name not in LEARNED:
                raise unknown_name("value that can be learned, called", name, LEARNED)
        if self.assign not in ("left", "right", "both"):
            raise HaplyError("assign names no table", expected="'left', 'right' or 'both'", found=repr(self.assign))
        if not (isinstance(self.max_rounds, int) and self.max_rounds >= 1):
            raise HaplyError("max_rounds is not a number of rounds", expected="1 or more", found=repr(self.max_rounds))
        if self.sample is not None and not (_is_number(self.sample) and 0.0 < self.sample <= 1.0):
            raise HaplyError(
                "sample is not a share of the left rows", expected="more than 0, at most 1", found=repr(self.sample)
            )


@dataclass(frozen=True)
class CandidatePlan:
    """A search for candidates that has been checked and planned."""

    left: Frame
    right: Frame
    column: tuple[str, str]
    pairs: PairPlan
    on_sky: bool
    options: LearnOptions

    @classmethod
    def plan(cls, left: Frame, right: Frame, same: str | tuple[str, str], options: LearnOptions) -> CandidatePlan:
        """Check and plan it."""
        names = (same, same) if isinstance(same, str) else same
        if not (isinstance(names, tuple) and len(names) == 2 and all(isinstance(one, str) for one in names)):
            raise HaplyError(
                "What is the same of two rows cannot be read",
                expected='a column "pos", or two columns ("mag", "vmag")',
                found=repr(same),
            )
        if left.streaming or right.streaming:
            raise HaplyError("Errors are learned from tables, not from streams")
        columns = find_column(left, names[0], "left"), find_column(right, names[1], "right")
        models = _model(left, columns[0], "left"), _model(right, columns[1], "right")
        if issubclass(models[0], Sky) != issubclass(models[1], Sky):
            raise HaplyError(f"One of '{columns[0]}' and '{columns[1]}' is on the sky, the other is not")
        for frame, column, model in zip((left, right), columns, models, strict=True):
            _refuse_errors(frame, column, model, options)
        if options.sample is not None and options.sample < 1.0:
            left = left.sampled(options.sample)
        density = options.density
        if isinstance(density, str):
            density = find_column(left, density, "left")
            if not field_of(left, density).is_number:
                raise HaplyError(f"The density '{density}' is not a column of numbers")
            left = left.with_columns({_DENSITY: f"CAST({quoted(density)} AS DOUBLE)"})
        frames = [_numbers(left, columns[0], "left"), _numbers(right, columns[1], "right")]
        kept = [_CENTRE, _VARIANCE, *([_DENSITY] if isinstance(density, str) else [])]
        frames = [frames[0].select(kept).with_row_id(ROW_IDS["left"]), frames[1].select([_CENTRE, _VARIANCE])]
        shown = [Shown("left", ROW_IDS["left"], "row"), Shown("left", _CENTRE, "left_centre"),
                 Shown("right", _CENTRE, "right_centre"), Shown("left", _VARIANCE, "left_variance"),
                 Shown("right", _VARIANCE, "right_variance")]  # fmt: skip
        shown += [Shown("left", _DENSITY, "density")] if isinstance(density, str) else []
        condition = JoinCondition(distance=Distance(_CENTRE, _CENTRE, float(options.radius)))
        method, one, other = method_for(condition, frames[0], frames[1], Threshold(None), False)
        pairs = PairPlan(one, other, condition, Threshold(None), method, False, tuple(shown))
        return cls(frames[0], right, columns, pairs, issubclass(models[0], Sky), options)

    @contextmanager
    def run(self, engine: Engine) -> Iterator[ListedCandidates]:
        """Find the candidates, and let the engine keep them while errors are learned."""
        found = engine.pairs(self.pairs, None)
        found = found.with_function("delta", ["left_centre", "right_centre"], partial(_differences, sky=self.on_sky))
        scaled, fixed = {
            "left": ("left_variance", "right_variance"),
            "right": ("right_variance", "left_variance"),
            "both": ("left_variance + right_variance", "CAST(0 AS DOUBLE)"),
        }[self.options.assign]
        numbers = {"delta": "delta", "scaled": scaled, "fixed": fixed}
        density = self.options.density
        if isinstance(density, str):
            numbers["density"] = "COALESCE(density, CAST('NaN' AS DOUBLE))"
            number = None
        else:
            number = self.right.count_rows() / density.area if isinstance(density, Density) else float(density)
        rows = self.left.where(f"{quoted(_CENTRE)} IS NOT NULL").count_rows()
        with found.project({"row": "row", **numbers}).listed("row", _PAIRS).held() as lists:
            yield ListedCandidates(lists, rows, number)


@dataclass(frozen=True)
class ListedCandidates:
    """Candidates that an engine keeps: a list of pairs for each left row that has any."""

    lists: Frame
    rows: int
    """How many left rows there are, also those without a pair."""
    density: float | None
    """Of unrelated right rows; None if each pair has its own."""

    def totals(self, function: Callable[[Candidates], np.ndarray], dimension: int) -> np.ndarray:
        """Add up what a function returns for a few left rows at a time; only sums leave the engine."""
        reading = partial(_on_lists, function=function, dimension=dimension, density=self.density)
        return self.lists.totals([_PAIRS], reading)


def _on_lists(
    table: pa.Table, function: Callable[[Candidates], np.ndarray], dimension: int, density: float | None
) -> np.ndarray:
    """Call a function with the candidates of some left rows."""
    lists = table[_PAIRS].combine_chunks()
    pairs = pa.table(lists.flatten().flatten(), names=[field.name for field in lists.type.value_type])
    row = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    delta = pairs["delta"].combine_chunks().flatten().to_numpy().reshape(len(row), -1 if len(row) else dimension)
    densities = pairs["density"].to_numpy() if density is None else np.full(len(row), density)
    return function(
        Candidates(row, len(lists), delta, pairs["scaled"].to_numpy(), pairs["fixed"].to_numpy(), densities)
    )


def _differences(left: pa.Array, right: pa.Array, sky: bool) -> pa.Array:
    """Return how far right centres are from left ones, on the sky to the east and north: lists of coordinates."""
    one, other = _points(left), _points(right)
    delta = on_the_sky(one, other) if sky and len(one) else other - one
    ends = np.arange(len(delta) + 1, dtype=np.int32) * np.int32(delta.shape[1])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(delta.ravel(), pa.float64()))


def _numbers(frame: Frame, column: str, side: str) -> Frame:
    """Add the centre of each row, and its variance on an axis."""
    called = f"Column '{column}' of the {side} table"
    frame = frame.with_function(_CENTRE, [column], partial(centres, called=called))
    return frame.with_function(_VARIANCE, [column], axis_variances)


def _points(lists: pa.Array) -> np.ndarray:
    """Lists of one length as an array (n, dimension)."""
    return lists.flatten().to_numpy().reshape(len(lists), -1) if len(lists) else np.zeros((0, 1))


def _model(frame: Frame, column: str, side: str) -> type[Model]:
    field = field_of(frame, column)
    model = field.model if is_one_dimensional(field.model) else position_model(field)
    if model is None:
        raise HaplyError(
            f"Column '{column}' of the {side} table is not a measurement",
            expected="a model of a number or a position, or certain ones",
            found=field.text,
        )
    return model


def _refuse_errors(frame: Frame, column: str, model: type[Model], options: LearnOptions) -> None:
    """Refuse to learn the size of errors that are not Gaussian; certain values are allowed."""
    sizes = [name for name in options.learn if name in ("scale", "extra")]
    if sizes and model not in GAUSSIANS and not field_of(frame, column).is_point:
        raise HaplyError(
            f"learn={sizes[0]!r}: the errors of '{column}' are not Gaussian",
            expected="Gaussian values or positions, or certain ones",
            found=model.kind,
            hint="of others an offset can be learned: learn=('share', 'offset')",
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def learned(names: Sequence[str] | str) -> tuple[Any, ...]:
    """Return what is to be learned as a tuple; one name may be given as a text."""
    return (names,) if isinstance(names, str) else tuple(names)
