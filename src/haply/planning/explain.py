"""Descriptions of plans as text: a tree, rendered once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from haply.selection.select import MANY, RowStep

_WIDTH = 13
"""The width of the names of lines."""


@dataclass(frozen=True)
class NotTaken:
    """A strategy that was not taken, and why."""

    strategy: str
    reason: str


@dataclass(frozen=True)
class Description:
    """The description of a plan."""

    title: str = ""
    verdict: str = ""
    """One sentence on how many pairs or rows will be looked at."""
    lines: tuple[tuple[str, str], ...] = ()
    """Names, and the text for each."""
    details: tuple[tuple[str, str], ...] = ()
    """The same for ``explain(verbose=True)``."""
    not_taken: tuple[NotTaken, ...] = ()
    parts: tuple[Description, ...] = field(default=())
    """Plans that this one is made of."""
    estimate: tuple[float, float] | None = None
    """How many pairs are possible, and about how many will be looked at, where that is known."""

    def with_more(self, other: Description) -> Description:
        """Add what an engine knows to the description of a plan."""
        return replace(
            self,
            verdict=other.verdict or self.verdict,
            lines=self.lines + other.lines,
            details=self.details + other.details,
            not_taken=self.not_taken + other.not_taken,
            estimate=other.estimate or self.estimate,
        )

    def text(self, verbose: bool = False) -> str:
        """Write it as text: the verdict first, then the tree, then strategies that were not taken."""
        verdict = self.first_verdict()
        lines = [*([verdict] if verdict else []), *self._tree(verbose, "")]
        rejected = self._all_not_taken()
        if rejected:
            lines.append("Not taken")
            lines += [f"  {one.strategy:<{_WIDTH}} {one.reason}" for one in rejected]
        return "\n".join(lines)

    def records(self, depth: int = 0) -> list[dict[str, Any]]:
        """Return the tree as records ``depth, name, said``, for a chart; titles have no name."""
        found = [{"depth": depth, "name": "", "said": self.title or "Plan"}]
        found += [{"depth": depth, "name": name, "said": said} for name, said in self.lines]
        return found + [record for part in self.parts for record in part.records(depth + 1)]

    def first_estimate(self) -> tuple[float, float] | None:
        """Return the estimate of the plan, or of the first of its parts that has one."""
        return self.estimate or next((found for part in self.parts if (found := part.first_estimate())), None)

    def first_verdict(self) -> str:
        """Return the verdict of the plan, or of the first of its parts that has one."""
        return self.verdict or next((found for part in self.parts if (found := part.first_verdict())), "")

    def _all_not_taken(self) -> list[NotTaken]:
        found = [*self.not_taken, *(one for part in self.parts for one in part._all_not_taken())]
        return list(dict.fromkeys(found))

    def _tree(self, verbose: bool, indent: str) -> list[str]:
        shown = (*self.lines, *(self.details if verbose else ()))
        lines = [f"{indent}{self.title}", *(f"{indent}  {name:<{_WIDTH}} {said}" for name, said in shown)]
        for part in self.parts:
            lines += part._tree(verbose, indent + "  ")
        return lines


@dataclass(frozen=True, repr=False)
class RowExplanation:
    """Explains why a selection keeps a row or not; returned by ``Plan.explain_row``.

    Parameters
    ----------
    probability
        The exact probability of the condition for the row.
    kept
        Whether the selection keeps the row.
    threshold
        The threshold, or None.
    condition
        The condition as text.
    steps
        The filters that were applied, in order. Each has the ``group`` of conditions, the name of the ``filter``, the
        ``cost`` of the group's exact value in seconds, the ``selectivity`` expected of it, its ``rank``, the bounds
        ``lower`` and ``upper`` that are then proved for the group, ``least`` and ``most`` for the row, and a
        ``verdict``.
    groups
        The independent groups of conditions, each with its exact probability.
    failed
        The certain condition that does not hold for the row; empty if all hold.

    Examples
    --------
    >>> import haply as hp, pyarrow as pa
    >>> plan = hp.plan_where(pa.table({"kg": [2.0, 2.2]}), "gaussian(kg, 0.1) > 2.1", threshold=0.5)
    >>> told = plan.explain_row({"kg": 2.2})
    >>> told.kept, round(told.probability, 4)
    (True, 0.8413)
    """

    probability: float
    kept: bool
    threshold: float | None
    condition: str
    steps: tuple[RowStep, ...] = ()
    groups: tuple[tuple[str, float], ...] = ()
    failed: str = ""

    @property
    def order(self) -> list[str]:
        """List the filters that were applied, in their order, each with its group of conditions.

        Returns
        -------
        list of str
            For example ``"Cantelli: x * x + y * y < 4"``.
        """
        return [f"{step.filter}: {step.group}" for step in self.steps]

    @property
    def decided_by(self) -> str:
        """Name the filter that decided the row.

        Returns
        -------
        str
            The name of a rule, ``"exact value"``, or ``"certain condition"``.
        """
        return self.steps[-1].filter if self.steps else "certain condition"

    def _sentence(self) -> str:
        verdict = "Kept" if self.kept else "Not kept"
        if self.failed:
            return f"{verdict}: the certain condition `{self.failed}` does not hold."
        if not self.groups:
            return f"{verdict}: every condition is certain, and all hold."
        if self.threshold is None:
            beside = "above 0" if self.kept else "so that the row is impossible"
        else:
            side = "at least" if self.kept else "below" if self.probability < self.threshold else "not above"
            beside = f"{side} the threshold of {self.threshold:g}"
        last = self.steps[-1]
        return (
            f"{verdict}: the probability of `{self.condition}` is {written(self.probability)}, {beside}. "
            f"'{last.filter}' of {self._number(last)} decided, in step {len(self.steps)}."
        )

    def _number(self, step: RowStep) -> str:
        return f"group {[text for text, _ in self.groups].index(step.group) + 1}"

    def _table(self) -> list[tuple[str, ...]]:
        """Return the steps as texts, with their headings."""
        rows: list[tuple[str, ...]] = [_HEADINGS]
        for number, step in enumerate(self.steps, 1):
            known = written(step.lower) if step.lower == step.upper else _interval(step.lower, step.upper)
            row = written(step.least) if step.least == step.most else _interval(step.least, step.most)
            rank = f"{1e-6 * step.rank:.3g} per µs"
            asked = (str(number), step.filter, self._number(step), price(step.cost), f"{step.selectivity:.3g}", rank)
            rows.append((*asked, known, row, step.verdict))
        return rows

    def __str__(self) -> str:
        lines = [self._sentence()]
        for number, (text, chance) in enumerate(self.groups, 1):
            lines.append(f"  {f'group {number}':<{_WIDTH}} {text}: exactly {written(chance)}")
        if self.steps:
            table = self._table()
            widths = [max(len(row[k]) for row in table) for k in range(len(_HEADINGS))]
            lines += ["  ".join(["", *map(str.ljust, row, widths)]).rstrip() for row in table]
            lines.append(f"  {'note':<{_WIDTH}} {_IN_LARGE_TABLES}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        groups = "".join(f"<li>{escape(text)}: exactly {written(chance)}</li>" for text, chance in self.groups)
        rows = [[escape(cell) for cell in row] for row in self._table()] if self.steps else []
        lines = [f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in row)}</tr>"
                 for tag, row in zip(("th", *("td",) * len(rows)), rows, strict=False)]  # fmt: skip
        listed = f"<ol>{groups}</ol><table>{''.join(lines)}</table><p>{_IN_LARGE_TABLES}</p>" if self.steps else ""
        return f"<div><p>{escape(self._sentence())}</p>{listed}</div>"


_HEADINGS = ("step", "filter", "of", "cost", "s", "rank", "group then", "row then", "verdict")
_IN_LARGE_TABLES = (
    f"rank is (1 - s) / cost, s the selectivity expected of the group. With more than {MANY:,} rows, a sample first "
    "shows where bounds pay off; elsewhere they are left out."
)


def _interval(low: float, high: float) -> str:
    return f"{written(low)} to {written(high)}"


def written(probability: float) -> str:
    """Write a probability with four digits, without rounding a near certainty to one.

    >>> written(0.25), written(0.99999)
    ('0.25', '1 - 1.0e-05')
    """
    return f"1 - {1.0 - probability:.1e}" if 0.9999 < probability < 1.0 else f"{probability:.4g}"


def price(seconds: float) -> str:
    """Write the cost of a row.

    >>> price(2.5e-6), price(0.0025)
    ('2.5 µs', '2.5 ms')
    """
    return f"{1e6 * seconds:.2g} µs" if seconds < 1e-4 else f"{1e3 * seconds:.2g} ms"


def about(number: float) -> str:
    """Write a number of rows or pairs that is only estimated: two digits, in words from a million on."""
    if number < 1:
        return "no"
    digits = len(str(round(number))) - 2
    rounded = round(number) if digits <= 0 else round(number / 10**digits) * 10**digits
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if rounded >= size:
            return f"{rounded / size:.3g} {word}"
    return f"{rounded:,}"


def looked_at(candidates: float, pairs: float) -> str:
    """Write the verdict on a join: how many of all pairs will be looked at."""
    candidates = min(candidates, pairs)
    noun = "pair" if round(pairs) == 1 else "pairs"
    if candidates < 1.0:
        return f"Hardly any of {about(pairs)} {noun} will be looked at."
    return f"About {about(candidates)} of {about(pairs)} {noun} will be looked at."
