"""Reports of calibration: whether probabilities and errors are right, as numbers, tables, sentences and charts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from haply.drawing.inline import drawn
from haply.errors import HaplyError, missing_package
from haply.joins.calibration.residuals import TENTHS, Transforms
from haply.joins.calibration.scores import Decomposition, Excess, Fakes, Scores

if TYPE_CHECKING:
    import altair
    import pandas

_FAR = 3.0
"""The number of standard deviations that counts as more than chance."""
_SOME = 2.0
"""The number of standard deviations that shows a direction."""
_CLEAR = 0.5
"""The threshold in the sentence if all thresholds agree."""
_LIKELY = 0.3
"""The lowest threshold; below it most pairs are negligible."""


@dataclass(frozen=True)
class Calibration:
    """Holds how right probabilities are; returned by ``hp.calibration``.

    Parameters
    ----------
    scores
        Sums of the pairs by bins of their probability.
    labelled
        Whether it is known which pairs are true.
    transforms
        Where the differences of pairs lie within their errors, if ``same`` was given.
    fakes
        False pairs at each threshold, as probabilities and as shifted rows say, if there are such.
    excess
        Matches as probabilities and as shifted rows say, where both are known.
    completeness
        The share of left rows with a partner that the probabilities were computed with, where there are fakes.
    """

    scores: Scores
    labelled: bool
    transforms: Transforms | None = None
    fakes: tuple[Fakes, ...] = ()
    excess: Excess | None = None
    completeness: float | None = None

    # -- numbers -------------------------------------------------------------------------------------------------------

    @property
    def pairs(self) -> int:
        """Return how many pairs were used.

        Returns
        -------
        int
            Their number. Rows without a probability, or a label, are not among them.
        """
        return self.scores.count

    @property
    def skipped(self) -> int:
        """Return how many rows have no probability, or no label.

        Returns
        -------
        int
            Their number.
        """
        return self.scores.skipped

    @property
    def brier(self) -> float:
        """Return the Brier score.

        Returns
        -------
        float
            The mean of ``(p - y)**2``: 0 is best.

        Raises
        ------
        HaplyError
            If there are no labels.
        """
        self._need_labels("The Brier score")
        return self.scores.brier

    @property
    def log_loss(self) -> float:
        """Return the log loss.

        Returns
        -------
        float
            The mean of ``-log`` of the probability that was given to what happened; infinite if that was 0.

        Raises
        ------
        HaplyError
            If there are no labels.
        """
        self._need_labels("The log loss")
        return self.scores.log_loss

    @property
    def decomposition(self) -> Decomposition:
        """Return the parts of the Brier score.

        Returns
        -------
        Decomposition
            ``reliability``, ``resolution``, ``uncertainty``, ``within_variance`` and ``within_covariance``. The score
            is the first less the second, plus the third and fourth, less twice the last.

        Raises
        ------
        HaplyError
            If there are no labels.
        """
        self._need_labels("The decomposition of the Brier score")
        return self.scores.decomposition()

    def _need_labels(self, what: str) -> None:
        if not self.labelled:
            raise HaplyError(f"{what} needs to know which pairs are true", hint='give label="truth", a column')

    # -- tables --------------------------------------------------------------------------------------------------------

    def table(self) -> pandas.DataFrame:
        """Return the bins of probabilities that are not empty.

        Returns
        -------
        pandas.DataFrame
            ``low`` and ``high``, ``mean_probability``, ``n``, and with labels ``share_true`` with its 95% interval
            ``share_low`` to ``share_high``.
        """
        return pandas_frame(self._bins())

    def fakes_table(self) -> pandas.DataFrame:
        """Return the false pairs at each threshold, as probabilities and as shifted rows say.

        Returns
        -------
        pandas.DataFrame
            ``threshold``, ``kept``, ``expected_false`` (``sum (1 - p_match)``), of which ``without_partner``
            (``sum (1 - p_any)``) and ``other_partner`` (``sum (p_any - p_match)``), ``fakes``, ``by_fakes``
            (``(1 - f) fakes``, to be compared with ``without_partner``), and the ``standard_error`` of the difference.
        """
        return pandas_frame([one._asdict() for one in self.fakes])

    def residuals_table(self) -> pandas.DataFrame:
        """Return how many pairs have differences in each tenth of their errors' law.

        Returns
        -------
        pandas.DataFrame
            ``low`` and ``high``, the ``share`` of pairs, and its ``standard_error``. Shares are even if errors are
            right.

        Raises
        ------
        HaplyError
            If the compared columns were not named.
        """
        return pandas_frame(self._residuals())

    def _bins(self) -> list[dict[str, Any]]:
        found = []
        for one in self.scores.bins():
            row: dict[str, Any] = {"low": one.low, "high": one.high, "mean_probability": one.mean, "n": one.n}
            if self.labelled:
                row |= {"share_true": one.share, "share_low": one.share_low, "share_high": one.share_high}
            found.append(row)
        return found

    def _residuals(self) -> list[dict[str, Any]]:
        if self.transforms is None:
            raise HaplyError(
                "Residuals need the two compared columns", hint='give same=("pos_left", "pos_right"), or same="pos"'
            )
        return transform_records(self.transforms.shares, self.transforms.standard_error)

    # -- words ---------------------------------------------------------------------------------------------------------

    def sentences(self) -> list[str]:
        """Return the conclusions from the numbers.

        Returns
        -------
        list of str
            A sentence on the probabilities, with fakes one on false pairs, with compared columns one on errors.
        """
        found = []
        if self.labelled:
            found.append(self._of_labels())
        if self.fakes:
            found.append(self._of_fakes())
        if self.transforms is not None:
            found.append(self._of_errors(self.transforms))
        if not found:
            found.append("It is not known whether the probabilities are right: give labels, or fakes.")
        return found

    def _of_labels(self) -> str:
        scores = self.scores
        if not scores.count:
            return "There are no pairs."
        count, true = scores.by_bin["count"], scores.by_bin["true"]
        middle = 0.5 * (scores.edges[1:] + scores.edges[:-1])
        said = scores.by_bin["p"] + count * middle
        squares = scores.by_bin["square"] + 2.0 * middle * scores.by_bin["p"] + count * middle**2
        variance = np.maximum(said - squares, 0.0)
        z = _deviations(true - said, variance)
        k = int(np.argmax(np.abs(z) * (count > 0)))
        # Small deviations of one sign, or of opposite signs at both ends, show in the sums of bins, not in single bins.
        tilt = middle - 0.5
        whole = float(_deviations((true - said).sum(), variance.sum()))
        slope = float(_deviations((tilt * (true - said)).sum(), (tilt**2 * variance).sum()))
        in_all = f"f all pairs they say {said.sum():,.0f}, and {true.sum():,.0f} are true"
        if abs(z[k]) >= _FAR:
            return (
                f"The probabilities are not right: of {count[k]:,.0f} pairs from {scores.edges[k]:g} to "
                f"{scores.edges[k + 1]:g} they say {said[k] / count[k]:.1%}, and {true[k] / count[k]:.1%} are true "
                f"({abs(z[k]):.1f} standard deviations). O{in_all}."
            )
        if abs(whole) >= _FAR:
            size = "high" if whole < 0.0 else "low"
            return (
                f"The probabilities are a little too {size}: o{in_all} ({abs(whole):.1f} standard deviations). "
                "No single bin shows it."
            )
        if abs(slope) >= _FAR:
            doubt = "sure: they are nearer to 0 and 1" if slope < 0.0 else "cautious: they are nearer to 0.5"
            return (
                f"The probabilities are a little too {doubt} than what happens ({abs(slope):.1f} standard deviations "
                "over all bins). No single bin shows it."
            )
        largest = max(abs(float(z[k])), abs(whole), abs(slope), 0.05)
        return (
            f"The probabilities are right as far as {scores.count:,} pairs show: in all {int((count > 0).sum())} bins, "
            f"and in all together, as many are true as they say, within {largest:.1f} standard deviations."
        )

    @property
    def _doubt(self) -> tuple[str, str]:
        """Return what fakes say about the probabilities, in a few words and in a sentence.

        Both numbers of false pairs grow with ``1 - f``, so they hardly show a wrong ``f``; the excess of pairs over
        fakes does.
        """
        excess = self.excess
        if excess is not None and abs(excess.z) >= _FAR:
            sure = ("too sure", "only ", "too high", "too low")
            found = sure if excess.z > 0 else ("too cautious", "", "too low", "too high")
            return f"are {found[0]}", (
                f"The probabilities are {found[0]}: they expect {excess.expected:,.0f} matches among pairs that speak "
                f"for one thing, but there are {found[1]}{excess.seen:,.0f} ± {excess.standard_error:,.0f} more of "
                f"them than of shifted rows. The completeness may be {found[2]}, or the density {found[3]}."
            )
        far = max(self.fakes, key=lambda one: abs(one.z))
        if abs(far.z) < _FAR:
            return "agree with shifted rows", (
                "They agree at every threshold: nothing speaks against the density and the completeness."
            )
        clear = max((one for one in self.fakes if one.threshold >= _LIKELY), key=lambda one: abs(one.z), default=far)
        signs = {one.z > 0 for one in self.fakes if one.threshold > 0.0 and abs(one.z) >= _SOME}
        if abs(clear.z) < _FAR or len(signs) > 1:  # too sure of some pairs, too cautious of others
            return "do not agree with shifted rows", (
                "They do not agree: errors are wrong, or the density or the completeness is."
            )
        if clear.z < 0:
            return "are too sure", (
                "The probabilities are too sure: chance makes more pairs than they allow for. The density may be too "
                "low, or errors are wrong."
            )
        return "are too cautious", (
            "The probabilities are too cautious: chance makes fewer pairs than they allow for. The density may be too "
            "high, or errors are wrong."
        )

    def _of_fakes(self) -> str:
        far = max(self.fakes, key=lambda one: abs(one.z))
        shown = min(self.fakes, key=lambda one: abs(one.threshold - _CLEAR)) if abs(far.z) < _FAR else far
        return (
            f"Of {shown.kept:,} pairs at {shown.threshold:g} or more, {shown.without_partner:,.0f} are expected to be "
            f"false because their row has no partner; shifted rows say {shown.by_fakes:,.0f} "
            f"± {shown.standard_error:,.0f}. {self._doubt[1]}"
        )

    def _of_errors(self, found: Transforms) -> str:
        if not found.weight:
            return "There are no pairs whose differences could be compared with their errors."
        pairs = "true pairs" if self.labelled else "pairs, weighted by their probability,"
        if abs(found.lean) >= _FAR and abs(found.lean) > abs(found.spread):
            side = "right value is mostly the larger one" if found.lean > 0 else "left value is mostly the larger one"
            return f"One side has an offset: of {pairs} the {side} ({abs(found.lean):.1f} standard deviations)."
        if abs(found.spread) < _FAR:
            more = "" if self.labelled else " Weights come from the same errors, so this is not a proof."
            return f"The errors are right as far as {pairs} show: their differences are as large as errors say.{more}"
        size = ("too small", "larger") if found.spread > 0 else ("too large", "smaller")
        more = "" if self.labelled else " Probabilities that are not right may look like this, too."
        return (
            f"The errors are {size[0]}: differences of {pairs} are {size[1]} than they say "
            f"({abs(found.spread):.1f} standard deviations). hp.calibrate learns by how much.{more}"
        )

    def __str__(self) -> str:
        lines = [f"Calibration of {self.pairs:,} pairs", *(f"  {one}" for one in self.sentences())]
        if self.labelled and self.pairs:
            lines.append(f"  Brier score {self.brier:.4f}, log loss {self.log_loss:.4f}")
        return "\n".join(lines)

    __repr__ = __str__

    # -- pictures ------------------------------------------------------------------------------------------------------

    def chart(self) -> altair.HConcatChart:
        """Draw the report: reliability with intervals or fakes, a histogram of probabilities, and residuals.

        Returns
        -------
        altair.HConcatChart
            The panels for which there are numbers, side by side; ``.save("file.svg")`` writes them.
        """
        from haply.report import calibration_charts as draw

        if not self.pairs:
            raise HaplyError("There are no pairs to draw")
        panels = []
        if self.labelled:
            panels.append(draw.reliability_panel(self._bins()))
        if self.fakes:
            panels.append(draw.fakes_panel([one._asdict() for one in self.fakes]))
        panels.append(draw.probability_panel(self._bins()))
        found = self.transforms
        if found is not None and found.weight:
            name = "Differences within their errors" + ("" if self.labelled else ", by probability")
            panels.append(draw.transform_panel(self._residuals(), name, found.on_a_line))
        return draw.calibration_chart(panels, self._title(), self._subtitle())

    def _subtitle(self) -> str:
        excess = self.excess
        if excess is None:
            return ""
        return (
            f"Matches among pairs that speak for one thing: {excess.expected:,.0f} expected, "
            f"{excess.seen:,.0f} ± {excess.standard_error:,.0f} more pairs than of shifted rows"
        )

    def _title(self) -> str:
        """Return the first part of the first sentence: titles are short."""
        first = self.sentences()[0]
        if self.labelled:
            return first.partition(":")[0]
        if self.fakes:
            return f"The probabilities {self._doubt[0]}"
        return first.partition(":")[0]

    def _repr_html_(self) -> str:
        words = "".join(f"<p>{escape(one)}</p>" for one in self.sentences())
        if self.labelled and self.pairs:
            words += f"<p>Brier score {self.brier:.4f}, log loss {self.log_loss:.4f}, {self.pairs:,} pairs.</p>"
        return f"<div>{words}{drawn(self.chart, ' '.join(self.sentences())) if self.pairs else ''}</div>"


def _deviations(difference: Any, variance: Any) -> np.ndarray:
    """Return differences in standard deviations: infinite where there is a difference but no variance."""
    spread = np.sqrt(variance)
    exact = np.where(np.abs(difference) < 1e-9, 0.0, np.copysign(np.inf, difference))
    return np.divide(difference, spread, out=exact, where=spread > 1e-9)


def transform_records(shares: np.ndarray, standard_error: float) -> list[dict[str, Any]]:
    """Return the shares of tenths as records."""
    return [
        {"low": k / TENTHS, "high": (k + 1) / TENTHS, "share": float(shares[k]), "standard_error": standard_error}
        for k in range(TENTHS)
    ]


def pandas_frame(records: list[dict[str, Any]]) -> pandas.DataFrame:
    """Make a pandas DataFrame from records; pandas is an optional package."""
    try:
        import pandas
    except ImportError as missing:
        raise missing_package("Tables of pandas", missing, "pandas") from None
    return pandas.DataFrame.from_records(records)


def rounded(value: float) -> str:
    """Write a number as people read it; a dash if it is not known."""
    return "–" if math.isnan(value) else f"{value:.4g}"
