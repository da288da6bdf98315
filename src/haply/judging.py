"""``hp.calibration``, ``hp.shifted`` and ``hp.calibrate``: whether probabilities and errors are right.

Tables are returned in the kind in which they came, so their type is not known in advance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from haply.drawing.inline import drawn
from haply.errors import HaplyError, advise
from haply.inputs import engine_of, frame_of, number_column, table_of, together
from haply.joins.calibration.fit import Fitted, Learned, fit, sum_places
from haply.joins.calibration.residuals import Transforming, Transforms, transform_problem
from haply.joins.calibration.scores import Scores, Scoring, compare_fakes, count_excess
from haply.models import Model
from haply.models.moving import GAUSSIANS, moved, rescaled
from haply.planning.answers.candidates import Assign, CandidatePlan, LearnOptions, learned
from haply.planning.answers.match import Density
from haply.planning.frames import (
    FilePath,
    Frame,
    SideName,
    TableT,
    Tabular,
    field_of,
    find_column,
    is_one_dimensional,
    names_of,
    position_model,
)
from haply.report.calibration import Calibration, pandas_frame, rounded, transform_records

if TYPE_CHECKING:
    import altair
    import pandas

_MOST_BINS = 1000
_FAR_OUT = 4.0
"""A number of standard deviations beyond which almost nothing lies."""


# -- probabilities -----------------------------------------------------------------------------------------------------


def calibration(
    pairs: Tabular,
    *,
    probability: str = "p_match",
    label: str | None = None,
    fakes: Sequence[Tabular] | None = None,
    bins: int = 10,
    same: str | tuple[str, str] | None = None,
    completeness: float | None = None,
) -> Calibration:
    """Check whether the probabilities of pairs are right, and the errors that they were computed from.

    With labels, each bin of probabilities is compared with the share of its pairs that are true. Without labels, give
    matches of shifted left rows, all of which are false: ``(1 - completeness)`` times their number must agree with the
    expected number of false pairs of rows that have no partner.

    Parameters
    ----------
    pairs
        A table of pairs, as ``hp.match`` returns it, or any with a column of probabilities. With a Spark DataFrame,
        only sums leave the workers.
    probability
        The column of probabilities. Rows where it is null are left out.
    label
        The column that says which pairs are true: booleans, or 1 and 0. Rows where it is null are left out.
    fakes
        Results of ``hp.match`` with the same options, whose left table was moved by ``hp.shifted``.
    bins
        How many bins of equal width there are.
    same
        The columns of the pairs that were compared: ``("pos_left", "pos_right")``, or ``"pos"`` for these two. The
        report then shows where differences lie within their errors (the probability integral transform): for true
        pairs, or without labels for all, weighted by their probability.
    completeness
        With fakes, the ``completeness`` of the match. By default it is read from ``p_match``, ``p_any`` and
        ``bayes_factor``.

    Returns
    -------
    Calibration
        ``table()``, ``brier``, ``log_loss``, ``decomposition``, ``fakes_table()``, ``residuals_table()``, ``chart()``,
        and the conclusions as sentences.

    Raises
    ------
    HaplyError
        If a column is missing, or holds no probabilities or labels.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> pairs = pa.table({"p_match": [0.9, 0.6, 0.3, 0.2], "truth": [True, True, False, True]})
    >>> report = hp.calibration(pairs, label="truth", bins=2)
    >>> round(report.brier, 3), round(report.log_loss, 3)
    (0.225, 0.646)
    """
    if not (isinstance(bins, int) and 1 <= bins <= _MOST_BINS):
        raise HaplyError("bins is not a number of bins", expected=f"1 to {_MOST_BINS}", found=repr(bins))
    frame = table_of(pairs, "The table of pairs")
    p = number_column(frame, probability)
    truth = None if label is None else find_column(frame, label, "given")
    some = number_column(frame, "p_any") if fakes is not None else None
    scoring = Scoring(bins, p, truth, some, _factor(frame) if fakes is not None else None)
    scores = scoring.read(frame.totals(scoring.columns, scoring))
    transforms = None if same is None else _transforms(frame, same, p, truth)
    if fakes is None:
        return Calibration(scores, truth is not None, transforms)
    share = _completeness(scores, completeness)
    counts = []
    for number, table in enumerate(fakes, 1):
        fake = table_of(table, f"Table {number} of the fakes")
        counted = Scoring(bins, number_column(fake, probability), factor=_factor(fake))
        counts.append(counted.read(fake.totals(counted.columns, counted)))
    if not counts:
        raise HaplyError("fakes has no tables", expected="one for each shift", hint="leave it out, or see hp.shifted")
    found = tuple(compare_fakes(scores, counts, share))
    return Calibration(scores, truth is not None, transforms, found, count_excess(scores, counts), share)


def _factor(frame: Frame) -> str | None:
    return "bayes_factor" if "bayes_factor" in names_of(frame) else None


def _completeness(scores: Scores, given: float | None) -> float:
    found = scores.completeness() if given is None else given
    if found is None:
        raise HaplyError(
            "The completeness of the match cannot be read from its pairs",
            expected="p_match, p_any and bayes_factor of hp.match without exclusive=True",
            hint="give completeness=, the value that hp.match was given",
        )
    if not (isinstance(found, (int, float)) and 0.0 < found < 1.0):
        raise HaplyError(f"completeness is {found!r}", expected="a number between 0 and 1, both excluded")
    return float(found)


def _transforms(frame: Frame, same: str | tuple[str, str], p: str, truth: str | None) -> Transforms:
    names = (f"{same}_left", f"{same}_right") if isinstance(same, str) else same
    left, right = (find_column(frame, name, "given") for name in names)
    models = [_model(frame, name) for name in (left, right)]
    problem = transform_problem(models[0], models[1])
    if problem is not None:
        raise HaplyError(f"Differences of '{left}' and '{right}' cannot be compared with their errors: {problem}")
    adding = Transforming(left, right, p if truth is None else truth)
    on_a_line = is_one_dimensional(models[0])
    return Transforms(frame.totals(adding.columns, adding), on_a_line, truth is not None)


def _model(frame: Frame, column: str) -> type[Model] | None:
    field = field_of(frame, column)
    return field.model if is_one_dimensional(field.model) else position_model(field)


# -- fakes -------------------------------------------------------------------------------------------------------------


def shifted(left: TableT | FilePath, column: str, by: Sequence[float | Sequence[float]]) -> list[TableT]:
    """Move the values of a column, so that every match of a row is then false.

    Choose several shifts, in different directions, that are longer than any error, but not so long that the density
    of right rows changes.

    Parameters
    ----------
    left
        A table.
    column
        The column of numbers, positions or models of them that is moved.
    by
        A vector for each result: numbers for values on a line, as many coordinates as positions have, arcseconds to
        the east and north on the sky. There a position moves along a great circle, and errors keep their angle to
        north.

    Returns
    -------
    list of tables
        A table for each vector, of the kind of the given one.

    Raises
    ------
    HaplyError
        If the column has no such values.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> left = pa.table({"id": [1], "x": [{"mean": 5.0, "sd": 0.1}]})
    >>> [fake["x"].to_pylist() for fake in hp.shifted(left, "x", by=[40, -55])]
    [[{'mean': 45.0, 'sd': 0.1}], [{'mean': -50.0, 'sd': 0.1}]]
    """
    frame = frame_of(left, "The table")
    name = find_column(frame, column, "given")
    if _model(frame, name) is None:
        raise HaplyError(
            f"Column '{name}' cannot be moved",
            expected="numbers, positions, or models of them",
            found=field_of(frame, name).text,
        )
    if isinstance(by, (str, int, float)) or not len(by):
        raise HaplyError("by is not a list of shifts", expected="e.g. [(40, 0), (0, 55)], or [40, -55]", found=repr(by))
    return [frame.with_function(name, [name], partial(moved, by=_vector(one))).give() for one in by]


def _vector(given: float | Sequence[float]) -> tuple[float, ...]:
    try:
        vector = tuple(float(x) for x in np.atleast_1d(np.asarray(given, np.float64)))
    except (TypeError, ValueError):
        vector = ()
    if not vector or not all(map(math.isfinite, vector)):
        raise HaplyError("A shift is not a vector of numbers", expected="e.g. (40, 0)", found=repr(given))
    return vector


# -- errors ------------------------------------------------------------------------------------------------------------


def calibrate(
    left: Tabular,
    right: Tabular,
    same: str | tuple[str, str],
    *,
    radius: float,
    density: float | str | Density,
    learn: Sequence[Learned] = ("share", "offset", "scale"),
    assign: Assign = "left",
    max_rounds: int = 500,
    sample: float | None = None,
) -> ErrorFit:
    """Learn the size of errors, an offset between two tables, and how many rows have a counterpart.

    Left rows and all right rows near them are modelled as a mixture: of counterparts, whose difference is normal with
    the stated errors rescaled, and of unrelated rows. The likeliest values are found by expectation and maximisation.
    Left rows nearer to the border of the right table than ``radius`` should be left out: they miss counterparts.

    Parameters
    ----------
    left, right
        Two tables. Candidates are found in one pass. Spark keeps their numbers (differences and variances) on its
        workers while it learns, and each round is an aggregation: only sums leave the workers.
    same
        What is measured on both sides: a column that both tables have, or ``("mag", "vmag")`` for a column of each.
    radius
        How far apart centres of candidates are at most: larger than the offset and all errors together.
    density
        Right rows per unit of the value that are unrelated to a left row, as in ``hp.match``. A wrong density makes the
        share wrong.
    learn
        What is learned. ``"share"``: how many left rows have a counterpart. ``"offset"``: right minus left, on the sky
        in arcseconds to the east and north. ``"scale"``: the factor of the stated errors. ``"extra"``: a further error
        of every row, on each axis. What is not learned stays: a share of 0.5, no offset, a scale of 1, no extra error.
        Scale and extra need Gaussian values or positions; for a position, the mean variance of its axes is used. For
        other models, which count as normals of the same variance, only share and offset can be learned.
    assign
        Whose errors are rescaled: those of ``"left"`` or ``"right"`` rows alone, while the others are taken as correct,
        or those of ``"both"`` by the same factor.
    max_rounds
        The most rounds of learning.
    sample
        The share of left rows to learn from, drawn by a fixed seed; by default all.

    Returns
    -------
    ErrorFit
        ``share``, ``offset``, ``scale``, ``extra``, ``table()`` with standard errors, and ``apply(left)``, which makes
        a table with corrected values. Standard errors assume that left rows are independent: where many share
        candidates, that of the share is too small, by up to a factor of 2 in crowded fields.

    Raises
    ------
    HaplyError
        If something cannot be learned: there are too few matches, or all stated errors are equal and both a scale and
        an extra error are asked for.

    Examples
    --------
    >>> import haply as hp, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(7)
    >>> true = np.arange(300) * 10.0
    >>> def measured(error):
    ...     return [{"mean": x + error * rng.normal(), "sd": 0.5} for x in true]
    >>> one, other = pd.DataFrame({"x": measured(1.0)}), pd.DataFrame({"x": measured(0.5)})
    >>> fit = hp.calibrate(one, other, "x", radius=5, density=0.1)
    >>> 1.8 < fit.scale < 2.2
    True
    """
    options = LearnOptions(radius, density, learned(learn), assign, max_rounds, sample)
    one, other = frame_of(left, "The left table"), frame_of(right, "The right table")
    together({"the left table": one, "the right table": other})
    plan = CandidatePlan.plan(one, other, same, options)
    with plan.run(engine_of(one)) as found:
        fitted = fit(found, options.learn, max_rounds)
        places = found.totals(partial(sum_places, guess=fitted.guess), len(fitted.guess.offset))
    _warn_of_radius(fitted, radius)
    before, after = (Transforms(sums, len(fitted.guess.offset) == 1, False) for sums in np.split(places, 2))
    return ErrorFit(fitted, plan.column, assign, before, after)


@dataclass(frozen=True, repr=False)
class ErrorFit:
    """Holds errors and an offset that were learned from candidates; returned by ``hp.calibrate``.

    Parameters
    ----------
    fitted
        The likeliest values, and how sure they are.
    column
        The compared columns of the left and the right table.
    assign
        Whose errors are rescaled.
    before, after
        Where differences lie within the stated errors, and within the learned ones.
    """

    fitted: Fitted
    column: tuple[str, str]
    assign: Assign
    before: Transforms
    after: Transforms

    @property
    def share(self) -> float:
        """Return how many left rows have a counterpart.

        Returns
        -------
        float
            A share: the ``completeness`` for ``hp.match``.
        """
        return self.fitted.guess.share

    @property
    def offset(self) -> float | tuple[float, ...]:
        """Return how much larger right values are than left ones.

        Returns
        -------
        float or tuple of float
            A number for numbers; for positions one for each axis, on the sky arcseconds to the east and north.
        """
        found = tuple(float(x) for x in self.fitted.guess.offset)
        return found[0] if len(found) == 1 else found

    @property
    def scale(self) -> float:
        """Return how many times larger errors are than stated.

        Returns
        -------
        float
            A factor of standard errors; 1 if it was not learned.
        """
        return self.fitted.guess.scale

    @property
    def extra(self) -> float:
        """Return how large a further error is, which every row has.

        Returns
        -------
        float
            A standard error on each axis; 0 if it was not learned.
        """
        return self.fitted.guess.extra

    @property
    def converged(self) -> bool:
        """Return whether further rounds would change nothing.

        Returns
        -------
        bool
            False if ``max_rounds`` was reached first.
        """
        return self.fitted.converged

    @property
    def rounds(self) -> int:
        """Return how many rounds were made.

        Returns
        -------
        int
            Their number.
        """
        return self.fitted.rounds

    @property
    def log_likelihood(self) -> float:
        """Return how likely the candidates are with these values.

        Returns
        -------
        float
            The logarithm of the likelihood of all left rows.
        """
        return self.fitted.log_likelihood

    @property
    def pairs(self) -> int:
        """Return how many candidates there were.

        Returns
        -------
        int
            Pairs of a left row and a right row near it.
        """
        return self.fitted.pairs

    @property
    def matches(self) -> float:
        """Return how many of the candidates are expected to be counterparts.

        Returns
        -------
        float
            The sum of their probabilities.
        """
        return self.fitted.matches

    def table(self) -> pandas.DataFrame:
        """Return what was learned.

        Returns
        -------
        pandas.DataFrame
            ``name``, ``estimate`` and ``standard_error``, which is NaN where a value is at the border of its range.
        """
        return pandas_frame(
            [
                {"name": name, "estimate": estimate, "standard_error": error}
                for name, estimate, error in zip(
                    self.fitted.names, self.fitted.estimates, self.fitted.standard_errors, strict=True
                )
            ]
        )

    def apply(self, table: TableT | FilePath, *, side: SideName | None = None) -> TableT:
        """Correct the values of a table: means by the offset, variances by ``scale**2 v + extra**2``.

        With ``assign="both"``, apply it to both tables: the offset goes to the left one, half of the extra variance to
        each.

        Parameters
        ----------
        table
            A table with the compared column.
        side
            Which of the two tables it is; by default the one whose errors were rescaled, the left one if both were.

        Returns
        -------
        table
            The same table with a corrected column in place of the compared one, of the same kind.

        Raises
        ------
        HaplyError
            If nothing was learned about this side.
        """
        at: SideName = side or ("right" if self.assign == "right" else "left")
        if at not in ("left", "right"):
            raise HaplyError("side names no table", expected="'left' or 'right'", found=repr(side))
        if self.assign != "both" and at != self.assign:
            raise HaplyError(
                f"The {at} table was taken as correct", hint=f'hp.calibrate(..., assign="{at}") learns its errors'
            )
        frame = frame_of(table, "The table")
        name = find_column(frame, self.column[0 if at == "left" else 1], at)
        sign = (1.0 if at == "left" else -1.0) if at == self.assign or at == "left" else 0.0
        extra = self.extra * (math.sqrt(0.5) if self.assign == "both" else 1.0)
        by = tuple(sign * float(x) for x in self.fitted.guess.offset)
        widened = bool({"scale", "extra"} & set(self.fitted.names))
        if widened and _model(frame, name) not in GAUSSIANS and not field_of(frame, name).is_point:
            raise HaplyError(f"The errors of '{name}' are not Gaussian", found=field_of(frame, name).text)
        correct = partial(_corrected, by=by, scale=self.scale, extra=extra if widened else 0.0, widened=widened)
        return frame.with_function(name, [name], correct).give()

    def chart(self) -> altair.HConcatChart:
        """Draw where differences lie within the stated errors, and within the learned ones.

        Returns
        -------
        altair.HConcatChart
            Two histograms, which are even if errors are right. Candidates are weighted by their probability.
        """
        from haply.report import calibration_charts as draw

        highest = float(max(self.before.shares.max(), self.after.shares.max()))
        panels = [
            draw.transform_panel(transform_records(one.shares, one.standard_error), name, one.on_a_line, highest)
            for one, name in ((self.before, "With the stated errors"), (self.after, "With the learned errors"))
        ]
        return draw.calibration_chart(panels, self._title())

    def _title(self) -> str:
        words = []
        if "scale" in self.fitted.names:
            words.append(f"errors are {self.scale:.3g} times as large as stated")
        if "extra" in self.fitted.names:
            words.append(f"a further error is {self.extra:.3g}")
        if not words:
            offset = self.offset if isinstance(self.offset, tuple) else (self.offset,)
            words.append(f"right values are larger by {', '.join(f'{x:.3g}' for x in offset)}")
        text = ", and ".join(words)
        return text[0].upper() + text[1:]

    def __repr__(self) -> str:
        lines = [f"Errors learned from {self.pairs:,} candidates, about {self.matches:,.0f} of them matches"]
        each = zip(self.fitted.names, self.fitted.estimates, self.fitted.standard_errors, strict=True)
        lines += [f"  {name:<10}{rounded(value):>10}  ± {rounded(error)}" for name, value, error in each]
        if not self.converged:
            lines.append(f"  not converged after {self.rounds} rounds: give a larger max_rounds")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{rounded(value)}</td><td>± {rounded(error)}</td></tr>"
            for name, value, error in zip(
                self.fitted.names, self.fitted.estimates, self.fitted.standard_errors, strict=True
            )
        )
        head = "<tr><th>name</th><th>estimate</th><th>standard error</th></tr>"
        return f"<div><table>{head}{rows}</table>{drawn(self.chart, self._title())}</div>"


def _corrected(column: pa.Array, by: Sequence[float], scale: float, extra: float, widened: bool) -> pa.Array:
    placed = moved(column, by) if any(by) else column
    return rescaled(placed, scale, extra) if widened else placed


def _warn_of_radius(fitted: Fitted, radius: float) -> None:
    needed = float(np.linalg.norm(fitted.guess.offset)) + _FAR_OUT * fitted.typical_error
    if needed > radius:
        advise(
            f"The radius {radius:g} leaves out matches: offset and errors reach as far as {needed:.3g}.",
            "give a larger radius",
        )
