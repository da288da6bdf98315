"""``hp.calibrate``: candidates for learning errors, as numbers.

All right rows whose centre is near that of a left row are found in one pass of the engine. Of each pair only numbers
are taken: where its centres are, their stated variances, and which left row it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
"""Whose stated errors are in doubt."""

MOST_GATHERED = 5_000_000
"""As many candidates of Spark are brought into this process."""

_CENTRE, _VARIANCE, _DENSITY = "__haply_centre", "__haply_variance", "__haply_density"


@dataclass(frozen=True)
class LearnOptions:
    """What ``hp.calibrate`` is asked for besides its tables and ``same``."""

    radius: float
    density: float | str | Density
    learn: tuple[Learned, ...]
    assign: Assign = "left"
    max_rounds: int = 500
    sample: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not (_is_number(self.radius) and 0.0 < self.radius < math.inf):
            raise HaplyError("The radius is no distance", expected="a positive number", found=repr(self.radius))
        density = self.density.area if isinstance(self.density, Density) else self.density
        if not isinstance(density, str) and not (_is_number(density) and 0.0 < density < math.inf):
            raise HaplyError("The density is no positive number", expected="e.g. density=0.02", found=repr(density))
        if not self.learn:
            raise HaplyError("hp.calibrate is told nothing to learn", expected=", ".join(map(repr, LEARNED)))
        for name in self.learn:
            if name not in LEARNED:
                raise unknown_name("value that can be learned, called", name, LEARNED)
        if self.assign not in ("left", "right", "both"):
            raise HaplyError("assign names no table", expected="'left', 'right' or 'both'", found=repr(self.assign))
        if not (isinstance(self.max_rounds, int) and self.max_rounds >= 1):
            raise HaplyError("max_rounds is no number of rounds", expected="1 or more", found=repr(self.max_rounds))
        if self.sample is not None and not (_is_number(self.sample) and 0.0 < self.sample <= 1.0):
            raise HaplyError(
                "sample is no share of the left rows", expected="more than 0, at most 1", found=repr(self.sample)
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
                raise HaplyError(f"The density '{density}' is no column of numbers")
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

    def run(self, engine: Engine) -> Candidates:
        """Find the candidates, and take the numbers that are needed."""
        local = self.left.engine_name == "local"
        names = [one.name for one in self.pairs.result]
        found = engine.pairs(self.pairs, None).gathered(names, 1 << 62 if local else MOST_GATHERED + 1)
        if not local and found.num_rows > MOST_GATHERED:
            raise HaplyError(
                f"There are more than {MOST_GATHERED:,} candidates",
                hint="a share of the left rows is enough: sample=0.1; or give a smaller radius",
            )
        rows = self.left.where(f"{quoted(_CENTRE)} IS NOT NULL").count_rows()
        ids = found["row"].combine_chunks()
        ids = ids.field("row") if pa.types.is_struct(ids.type) else ids
        row = np.unique(ids.to_numpy(zero_copy_only=False), return_inverse=True)[1]
        variances = [found[f"{side}_variance"].to_numpy().astype(np.float64) for side in ("left", "right")]
        scaled, fixed = {
            "left": (variances[0], variances[1]),
            "right": (variances[1], variances[0]),
            "both": (variances[0] + variances[1], np.zeros(len(row))),
        }[self.options.assign]
        return Candidates(row, rows, self._differences(found), scaled, fixed, self._density(found))

    def _differences(self, found: pa.Table) -> np.ndarray:
        left, right = (_points(found[f"{side}_centre"]) for side in ("left", "right"))
        return on_the_sky(left, right) if self.on_sky else right - left

    def _density(self, found: pa.Table) -> np.ndarray:
        density = self.options.density
        if isinstance(density, str):
            values = found["density"].to_numpy().astype(np.float64)
            if not ((values > 0.0) & np.isfinite(values)).all():
                raise HaplyError(f"The density '{density}' has rows that are no positive numbers")
            return values
        number = self.right.count_rows() / density.area if isinstance(density, Density) else float(density)
        return np.full(found.num_rows, number)


def _numbers(frame: Frame, column: str, side: str) -> Frame:
    """Add the centre of each row, and its variance on an axis."""
    called = f"Column '{column}' of the {side} table"
    frame = frame.with_function(_CENTRE, [column], partial(centres, called=called))
    return frame.with_function(_VARIANCE, [column], axis_variances)


def _points(column: pa.ChunkedArray) -> np.ndarray:
    """Lists of one length as an array (n, dimension)."""
    whole = column.combine_chunks()
    return whole.flatten().to_numpy().reshape(len(whole), -1) if len(whole) else np.zeros((0, 1))


def _model(frame: Frame, column: str, side: str) -> type[Model]:
    field = field_of(frame, column)
    model = field.model if is_one_dimensional(field.model) else position_model(field)
    if model is None:
        raise HaplyError(
            f"Column '{column}' of the {side} table is no measurement",
            expected="a model of a number or a position, or certain ones",
            found=field.text,
        )
    return model


def _refuse_errors(frame: Frame, column: str, model: type[Model], options: LearnOptions) -> None:
    """Refuse to learn the size of errors that are not Gaussian: those of certain values may be."""
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
