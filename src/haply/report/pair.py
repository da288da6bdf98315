"""The explanation of one pair of rows: a sentence, the rules with their bounds, and a chart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from haply.drawing.inline import drawn
from haply.models import Model, OneDimensional, Samples
from haply.models.densities import density_records
from haply.models.plane import OUTLINED, Plane
from haply.planning.explain import written
from haply.probability.region import Difference, Distance, Region
from haply.pruning.threshold import Threshold
from haply.report.explain import ExplainedStep, deciding_step

if TYPE_CHECKING:
    import altair

_CORNERS = 72
"""The number of points of a circle."""


@dataclass(frozen=True)
class ComparedPair:
    """The two values that a condition compares, one row each."""

    left: Model
    right: Model
    condition: Difference | Distance

    @property
    def on_a_line(self) -> bool:
        """Return whether both are numbers."""
        return all(is_number(side) for side in (self.left, self.right))

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of the two values in a legend; numbers with their values."""
        found = []
        for side, model, column in (
            ("left", self.left, self.condition.left),
            ("right", self.right, self.condition.right),
        ):
            found.append(f"{side} {column}" + (f": {in_numbers(model)}" if is_number(model) else ""))
        return found[0], found[1]

    def panel(self) -> tuple[Any, str]:
        """Draw where the two values may lie, with a title."""
        return self._densities() if self.on_a_line else self._positions()

    def _densities(self) -> tuple[Any, str]:
        from haply.report.charts import density_panel

        region = self._region()
        assert isinstance(self.left, OneDimensional)
        assert isinstance(self.right, OneDimensional)
        middle = float(self.left.mean()[0])
        # left - right lies in the region, so that a right value lies this far from the middle of the left
        within = middle - region.high, middle - region.low
        band = "does not fulfil the condition" if region.outside else "fulfils the condition"
        records = density_records((self.left, self.right), self.names)
        title = "Where the two values may lie; the band is for the middle of the left one"
        return density_panel(records, within=within, band=band), title

    def _region(self) -> Region:
        if isinstance(self.condition, Distance):
            return Region(-self.condition.within, self.condition.within)
        return self.condition.region

    def _positions(self) -> tuple[Any, str]:
        from haply.drawing.shapes import position_panel

        assert isinstance(self.condition, Distance)
        plane = Plane.of([self.left, self.right])
        shapes: list[dict[str, Any]] = []
        for name, model in zip(self.names, (self.left, self.right), strict=True):
            _, _, placed = plane.parts(model)
            for part in range(len(placed.x)):
                outline = placed.outline(part)
                drawn = [[(placed.x[part], placed.y[part])], *([outline] if outline is not None else [])]
                shapes += [{"kind": name, "points": points, "closed": True} for points in drawn]
        within = self.condition.within
        shapes.append({"kind": f"within {within:g} of the left", "points": self._circle(plane), "closed": True})
        title = f"Where the two positions may lie: ellipses hold {OUTLINED:.0%} of each"
        return position_panel(shapes, plane.titles, east_left=plane.on_sky), title

    def _circle(self, plane: Plane) -> np.ndarray:
        """Return the circle around the middle of the left position."""
        middle = plane.place(self.left)
        radius = self.condition.within / plane.unit if isinstance(self.condition, Distance) else 0.0
        turn = np.linspace(0.0, 2.0 * math.pi, _CORNERS + 1)
        return np.column_stack([middle.x[0] + radius * np.cos(turn), middle.y[0] + radius * np.sin(turn)])


def is_number(model: Model) -> bool:
    """Return whether a model's values are numbers, not points of several coordinates."""
    return isinstance(model, OneDimensional) and not (isinstance(model, Samples) and not model.one_dimensional)


def in_numbers(model: Model) -> str:
    """Write a number of one row as its mean and its standard deviation."""
    assert isinstance(model, OneDimensional)
    mean, spread = float(model.mean()[0]), float(model.deviation()[0])
    return f"{mean:.6g}" if spread == 0.0 else f"{mean:.6g} ± {spread:.3g}"


@dataclass(frozen=True, repr=False)
class PairExplanation:
    """Explains why a pair is kept or not; returned by ``hp.explain_pair`` and ``Plan.explain_pair``.

    Parameters
    ----------
    probability
        The probability that the condition holds for the pair.
    kept
        Whether a join with this threshold keeps the pair.
    threshold
        The threshold, or None.
    condition
        The condition as text.
    steps
        The rules that were applied, in order, with the bounds that each proves. The last is the exact value.
    compared
        The two values of each uncertain condition.
    failed
        The certain condition that does not hold for the pair; empty if all hold.
    """

    probability: float
    kept: bool
    threshold: float | None
    condition: str
    steps: tuple[ExplainedStep, ...]
    compared: tuple[ComparedPair, ...] = ()
    failed: str = ""

    @property
    def decided_by(self) -> str:
        """Name the rule at which a join stops.

        Returns
        -------
        str
            The name of a rule, ``"exact value"``, or ``"certain condition"``.
        """
        return "certain condition" if self.failed else deciding_step(list(self.steps)).rule

    def __str__(self) -> str:
        verdict = "Kept" if self.kept else "Not kept"
        if self.failed:
            return f"{verdict}: the certain condition `{self.failed}` does not hold."
        limit = Threshold(self.threshold)
        said = "is" if 0.0 < self.probability < 1.0 else "is exactly"
        value = written(self.probability)
        if self.threshold is None:
            beside = "above 0" if self.kept else "so that the pair is impossible"
        else:
            beside = f"{'at least' if self.kept else 'below'} the threshold of {limit.value:g}"
        last = deciding_step(list(self.steps))
        early = "" if last is self.steps[-1] else f"; the rule '{last.rule}' shows it without the exact value"
        return f"{verdict}: the probability of `{self.condition}` {said} {value}, {beside}{early}."

    __repr__ = __str__

    def chart(self) -> altair.VConcatChart:
        """Draw where the two values may lie, and how the rules close in on the probability.

        Returns
        -------
        altair.VConcatChart
            Numbers are drawn as two densities over each other, with a band for the condition. Positions are drawn as
            ellipses, or dots, with the circle of the distance. Below are the bounds that each rule proves.
        """
        from haply.drawing.style import panels
        from haply.report.charts import waterfall_panel, waterfall_title

        drawn = [one.panel() for one in self.compared]
        if not self.failed:
            records = [step.record() for step in self.steps]
            drawn.append((waterfall_panel(records, self.threshold), waterfall_title(records)))
        return panels(drawn, str(self).partition(":")[0] + _title(self))

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(str(self))}</p>{drawn(self.chart, str(self))}</div>"


def _title(explained: PairExplanation) -> str:
    """Return the end of a chart's title: short, since the sentence is long."""
    if explained.failed:
        return ": a certain condition does not hold"
    limit = "" if explained.threshold is None else f", threshold {explained.threshold:g}"
    return f": probability {written(explained.probability)}{limit}"


def compared_pairs(found: Sequence[ComparedPair]) -> tuple[ComparedPair, ...]:
    """Leave out values that an earlier condition compares already: one chart shows both."""
    kept: dict[tuple[str, str], ComparedPair] = {}
    for one in found:
        kept.setdefault((one.condition.left, one.condition.right), one)
    return tuple(kept.values())
