"""Joins of any number of tables: a chain of joins of two, and one selection at the end over the wide rows.

Each join of the chain keeps what can still belong to the answer: all conditions together are at most as likely as some
of them. The selection at the end sees all uncertain conditions at once and gives their joint probability, because
conditions that share a value are not independent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.errors import HaplyError
from haply.models import Certain, Gaussian, GaussianND
from haply.query import Column, Expression, Literal, columns_of, to_sql
from haply.query.expressions import And, Between, Comparison, rewritten
from haply.query.forms import Form, Near, Part, split
from haply.spark.columns import gaussian, model_of_spark_type, quoted
from haply.spark.join import plan_join
from haply.spark.plan import InvalidMode, JoinPlan
from haply.spark.where import plan_where
from haply.spark.window import time_window

SLACK = 1e-9
"""The joins before the last selection keep a little more: they round differently."""

_MINE, _THEIRS = "__haply_mine", "__haply_theirs"


@dataclass(frozen=True)
class Generator:
    """A condition between the tables so far and the next one that tells which rows may belong together.

    With ``sums``, it is about two sums of Gaussian columns, which are Gaussian again: SQL for their means and sds.
    """

    condition: Expression
    because: Expression
    sums: tuple[tuple[str, str], tuple[str, str]] | None = None


@dataclass(frozen=True)
class Step:
    """One join of the chain."""

    table: str
    certain: tuple[Expression, ...]
    generator: Generator | None


class SeveralPlan:
    """A join of several tables that has been checked and planned but not run.

    Conditions name their tables by the keys of ``frames``; the result has all columns of all tables in order, under
    names of its own (see ``names``), then ``probability``.
    """

    def __init__(
        self,
        frames: Mapping[str, DataFrame],
        conditions: Sequence[Expression],
        threshold: float | None = None,
        *,
        strict: bool = False,
        windows: Mapping[tuple[str, str], Any] | None = None,
        times: Mapping[str, str] | None = None,
        probability: str = "exact",
        invalid: InvalidMode = "raise",
        funnel: Any = None,
    ) -> None:
        self.threshold, self.strict, self.probability = threshold, strict, probability
        self.invalid, self.funnel = invalid, funnel
        self._tables = list(frames)
        self._inner = _inner_names(frames)
        self.names = [self._inner[table, column] for table in frames for column in frames[table].columns]
        """The columns of the result, but for the probability."""
        self._frames = {
            table: frame.toDF(*(self._inner[table, column] for column in frame.columns))
            for table, frame in frames.items()
        }
        conditions = [*conditions, *self._window_conditions(frames, windows or {}, times or {})]
        self._kinds = {
            (table, field.name): model_of_spark_type(field.dataType)
            for table, frame in self._frames.items()
            for field in frame.schema.fields
        }
        inner = [rewritten(condition, self._renamed) for condition in conditions]
        self._uncertain = [one for one in inner if not all(map(self._is_certain, columns_of(one)))]
        self._certain = [one for one in inner if all(map(self._is_certain, columns_of(one)))]
        self._steps = list(self._chain())
        self._selection(self._wide(planned=True))  # refuses here what it cannot compute

    # -- names ---------------------------------------------------------------------------------------------------------

    def _renamed(self, node: Expression) -> Expression | None:
        if isinstance(node, Column) and node.table is not None:
            return replace(node, name=self._inner.get((node.table, node.name), node.name))
        return None

    def _is_certain(self, column: Column) -> bool:
        assert column.table is not None
        return self._kinds[column.table, column.name] in (None, Certain)

    def _window_conditions(
        self, frames: Mapping[str, DataFrame], windows: Mapping[tuple[str, str], Any], times: Mapping[str, str]
    ) -> Iterator[Expression]:
        """Windows as conditions on the difference of two times; certain times as numbers, in columns of their own."""
        for (one, other), length in windows.items():
            window = time_window(frames[one], frames[other], (times[one], times[other]), length, 0)
            assert window is not None
            ends: list[Expression] = []
            for table, name, uncertain in zip((one, other), (window.left, window.right), window.uncertain, strict=True):
                inner = self._inner[table, name]
                if not uncertain:
                    number = F.expr(window.number(inner))
                    inner = f"__haply_{inner}_{'seconds' if any(window.uncertain) else 'number'}"
                    self._frames[table] = self._frames[table].withColumn(inner, number)
                ends.append(Column(table, inner))
            yield abs(ends[0] - ends[1]) <= window.length

    # -- planning ------------------------------------------------------------------------------------------------------

    def _chain(self) -> Iterator[Step]:
        """Tables that a condition connects with those before come first, equalities before all else."""
        joined = [self._tables[0]]
        while len(joined) < len(self._tables):
            rest = [table for table in self._tables if table not in joined]
            best = max(rest, key=lambda table: self._rank(joined, table))
            yield self._step(joined, best)
            joined.append(best)

    def _between(self, conditions: Iterable[Expression], joined: Sequence[str], table: str) -> list[Expression]:
        """Conditions that speak of a table and of others that are there already."""
        tables = [(one, {column.table for column in columns_of(one)}) for one in conditions]
        return [one for one, named in tables if table in named and len(named) > 1 and named <= {*joined, table}]

    def _own(self, conditions: Iterable[Expression], table: str) -> list[Expression]:
        return [one for one in conditions if {column.table for column in columns_of(one)} == {table}]

    def _rank(self, joined: Sequence[str], table: str) -> int:
        certain = self._between(self._certain, joined, table)
        if any(isinstance(one, Comparison) and one.op == "=" for one in certain):
            return 3
        return 2 if self._between(self._uncertain, joined, table) else 1 if certain else 0

    def _step(self, joined: list[str], table: str) -> Step:
        certain = self._between(self._certain, joined, table)
        linking = self._between(self._uncertain, joined, table)
        left, right = _side_by_side([self._frames[name] for name in joined]), self._frames[table]
        generator = self._generator(left, right, certain, linking, table) if linking else None
        if generator is None and linking and not certain and self.threshold is None:
            raise HaplyError(
                "Without a threshold every combination is possible",
                expected="values with a bounded support, or a threshold",
                found=f"`{self._text(linking[0])}`",
                hint="write WITH THRESHOLD 0.01 or another limit: the answer would be the cross product",
            )
        return Step(table, tuple(certain), generator)

    def _generator(
        self, left: DataFrame, right: DataFrame, certain: list[Expression], linking: list[Expression], table: str
    ) -> Generator | None:
        """The first condition that a join of two takes: all, or one by itself, or one that follows from one."""
        whole = [And(tuple(linking))] if len(linking) > 1 else []
        candidates = [Generator(one, one) for one in (*whole, *linking)]
        candidates += [implied for one in linking for implied in self._implied(one, table)]
        wide = None
        for candidate in candidates:
            try:
                plan = self._join(left, right, Step(table, tuple(certain), candidate))
            except HaplyError:
                continue  # a join of two does not understand it
            if _is_narrow(plan):
                return candidate
            wide = wide or candidate
        return wide

    def _implied(self, condition: Expression, table: str) -> Iterator[Generator]:
        """Bands on sums of columns that hold wherever the condition holds."""
        (part,) = (part for group in split(condition, self._is_certain).groups for part in group)
        for terms, low, high in _bands(part):
            ours = [(column, factor) for column, factor in terms if column.table != table]
            theirs = [(column, -factor) for column, factor in terms if column.table == table]
            if not ours or not theirs:
                continue
            sums = self._gaussian_sum(ours), self._gaussian_sum(theirs)
            if _is_plain(ours) and _is_plain(theirs):
                yield Generator(_within(ours[0][0], theirs[0][0], low, high), condition)
            elif sums[0] is not None and sums[1] is not None:
                mine, other = Column(self._tables[0], _MINE), Column(table, _THEIRS)
                yield Generator(_within(mine, other, low, high), condition, (sums[0], sums[1]))

    def _gaussian_sum(self, terms: list[tuple[Column, Fraction]]) -> tuple[str, str] | None:
        """SQL for mean and sd of a sum of Gaussian columns or components; none if one is of another kind."""
        means, variances, negative = [], [], ["false"]
        for column, factor in terms:
            assert column.table is not None
            kind, name = self._kinds[column.table, column.name], quoted(column.name)
            number = f"({float(factor)!r}D)"
            if kind is Gaussian and column.index is None:
                means.append(f"{number} * {name}.mean")
                variances.append(f"{number} * {number} * {name}.sd * {name}.sd")
                negative.append(f"{name}.sd < 0")
            elif kind is GaussianND and column.index is not None:
                means.append(f"{number} * get({name}.mean, {column.index})")
                for other, weight in terms:
                    if other.name == column.name and other.index is not None:
                        at = f"{column.index} * size({name}.mean) + {other.index}"
                        variances.append(f"{number} * ({float(weight)!r}D) * get({name}.cov, {at})")
            else:
                return None
        # a bad row stays one
        return " + ".join(means), f"IF({' OR '.join(negative)}, -1D, sqrt(greatest(0D, {' + '.join(variances)})))"

    # -- building the DataFrame ----------------------------------------------------------------------------------------

    def run(self) -> DataFrame:
        """The combinations, as a lazy DataFrame."""
        selected = self._selection(self._wide(planned=False))
        found = selected if isinstance(selected, DataFrame) else selected.run()
        return found.select(*map(quoted, self.names), *(["probability"] if self.probability == "exact" else []))

    def _selection(self, wide: DataFrame) -> Any:
        if not self._uncertain:
            return wide.withColumn("probability", F.lit(1.0)) if self.probability == "exact" else wide
        return self._where(wide, self._uncertain, self.threshold, self.strict, self.probability, self.funnel)

    def _where(
        self,
        frame: DataFrame,
        conditions: Sequence[Expression],
        threshold: float | None,
        strict: bool,
        probability: Any,
        funnel: Any = None,
    ) -> Any:
        alone = [rewritten(one, _without_table) for one in conditions]
        return plan_where(
            frame, alone[0] if len(alone) == 1 else And(tuple(alone)), threshold,
            strict=strict, probability=probability, invalid=self.invalid, funnel=funnel,
        )  # fmt: skip

    def _wide(self, planned: bool) -> DataFrame:
        """The rows of all tables together that may be in the answer; if only planned, a product for its schema."""
        whole = self._first(self._tables[0], planned)
        for step in self._steps:
            following = self._first(step.table, planned)
            whole = whole.crossJoin(following) if planned else self._joined(whole, following, step)
        return whole

    def _first(self, table: str, planned: bool) -> DataFrame:
        """A table's rows that pass its own conditions."""
        frame = self._frames[table]
        for condition in self._own(self._certain, table):
            frame = frame.where(F.expr(to_sql(condition, lambda column: quoted(column.name))))
        own = self._own(self._uncertain, table)
        return frame if planned or not own else self._where(frame, own, self._lenient, False, "none").run()

    @property
    def _lenient(self) -> float | None:
        return None if self.threshold is None else max(self.threshold - SLACK, self.threshold / 2)

    def _joined(self, left: DataFrame, right: DataFrame, step: Step) -> DataFrame:
        return self._join(left, right, step).run().drop(_MINE, _THEIRS)

    def _join(self, left: DataFrame, right: DataFrame, step: Step) -> JoinPlan:
        parts = [*step.certain, *([step.generator.condition] if step.generator else [])]

        def on_a_side(node: Expression) -> Expression | None:
            if isinstance(node, Column):
                return replace(node, table="right" if node.table == step.table else "left")
            return None

        if step.generator and step.generator.sums:
            ours, theirs = step.generator.sums
            left = left.withColumn(_MINE, gaussian(F.expr(ours[0]), F.expr(ours[1])))
            right = right.withColumn(_THEIRS, gaussian(F.expr(theirs[0]), F.expr(theirs[1])))
        sided = [rewritten(part, on_a_side) for part in parts]
        on = Literal(True) if not sided else sided[0] if len(sided) == 1 else And(tuple(sided))
        return plan_join(left, right, on, self._lenient, probability="none", invalid=self.invalid)

    # -- explaining it -------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """How the join will run, in words."""
        lines = ["Join of several tables"]
        for table in self._tables:
            own = [*self._own(self._certain, table), *self._own(self._uncertain, table)]
            lines.append(f"  table {table:<8}{'; '.join(map(self._text, own)) if own else 'all rows'}")
        for step in self._steps:
            by = [self._text(one) for one in step.certain]
            if step.generator:
                implied = step.generator.condition is not step.generator.because
                kind = "what follows from " if implied else ""
                by.append(f"{kind}{self._text(step.generator.because)} (uncertain)")
            lines.append(f"  join  {step.table:<8}{'; '.join(by) if by else 'with every row so far'}")
        selected = self._selection(self._wide(planned=True))
        if isinstance(selected, DataFrame):
            return "\n".join([*lines, "  selection     none: every condition is certain, probability 1.0"])
        joint = " AND ".join(map(self._text, self._uncertain))
        return "\n".join([*lines, f"  selection     {joint}: one joint probability", selected.explain()])

    def _text(self, condition: Expression) -> str:
        """A condition as it was written."""
        outer = {inner: Column(*key) for key, inner in self._inner.items()}

        def original(node: Expression) -> Expression | None:
            if not isinstance(node, Column) or node.name not in outer:
                return None
            return replace(outer[node.name], index=node.index)

        return str(rewritten(condition, original))


def _without_table(node: Expression) -> Expression | None:
    return replace(node, table=None) if isinstance(node, Column) else None


def _inner_names(frames: Mapping[str, DataFrame]) -> dict[tuple[str, str], str]:
    """Names of which no two are alike, whatever the case of their letters."""
    found: dict[tuple[str, str], str] = {}
    taken = {"probability"}
    for table, frame in frames.items():
        for column in frame.columns:
            name, number = f"{table}_{column}", 1
            while name.lower() in taken:
                number += 1
                name = f"{table}_{column}_{number}"
            taken.add(name.lower())
            found[table, column] = name
    return found


def _side_by_side(frames: Sequence[DataFrame]) -> DataFrame:
    """All columns of the tables, for planning."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.crossJoin(frame)
    return whole


def _is_narrow(plan: JoinPlan) -> bool:
    """Whether the condition leaves each row few partners, and not half of all."""
    difference = plan.condition.difference
    return difference is None or not (difference.region.one_sided or difference.region.outside)


def _is_plain(terms: list[tuple[Column, Fraction]]) -> bool:
    return len(terms) == 1 and terms[0][1] == 1 and terms[0][0].index is None


def _within(one: Column, other: Column, low: Fraction | None, high: Fraction | None) -> Expression:
    difference = one - other
    if low is None or high is None:
        return difference >= float(low) if low is not None else difference <= float(high or 0)
    return Between(difference, Literal(float(low)), Literal(float(high)))


_Band = tuple[list[tuple[Column, Fraction]], Fraction | None, Fraction | None]


def _bands(part: Part | Near) -> Iterator[_Band]:
    """Sums of columns and the interval in which each must lie for the condition to hold."""
    if isinstance(part, Near):
        if isinstance(part.limit, Fraction) and not part.beyond:
            ends = [(replace(part.one, index=0), Fraction(1)), (replace(part.other, index=0), Fraction(-1))]
            yield ends, -part.limit, part.limit
        return
    if len(part.intervals) != 1:
        return
    low, high, form = part.intervals[0].low, part.intervals[0].high, part.form
    if isinstance(low, Expression) or isinstance(high, Expression):
        return
    if not form.squares:
        terms = [(form.columns[name], factor) for name, factor in form.linear.items() if isinstance(factor, Fraction)]
        if len(terms) == len(form.linear):
            yield terms, low, high
            turned = [(column, -factor) for column, factor in terms]
            yield turned, None if high is None else -high, None if low is None else -low
    elif high is not None and high >= 0 and not form.linear:
        for one, other, factor in _square_differences(form):
            # no more than the root of what all squares are together, rounded up
            limit = Fraction(sqrt(float(high / factor)) * (1 + 1e-12))
            ends = [(form.columns[one], Fraction(1)), (form.columns[other], Fraction(-1))]
            yield ends, -limit, limit
            yield [(column, -sign) for column, sign in ends], -limit, limit


def _square_differences(form: Form) -> list[tuple[str, str, Fraction]]:
    """The form as a sum of ``factor * (one - other)^2`` and squares, with positive factors; empty if it is none."""
    rest = dict(form.squares)
    if not all(isinstance(factor, Fraction) for factor in rest.values()):
        return []
    found: list[tuple[str, str, Fraction]] = []
    for (one, other), factor in form.squares.items():
        if one == other:
            continue
        assert isinstance(factor, Fraction)
        half = -factor / 2
        if half <= 0 or rest.get((one, one)) != half or rest.get((other, other)) != half:
            return []
        for pair in ((one, other), (one, one), (other, other)):
            del rest[pair]
        found.append((one, other, half))
    return found if all(isinstance(factor, Fraction) and factor > 0 for factor in rest.values()) else []
