"""Plans, and the strategies that make them: each says what it costs, or why it does not fit; the cheapest is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from haply.drawing.inline import drawn
from haply.errors import HaplyError
from haply.planning.explain import Description, NotTaken, RowExplanation
from haply.planning.frames import Engine, Frame, TableRow, TableT

if TYPE_CHECKING:
    import altair

Node = TypeVar("Node", contravariant=True)


class PlannedQuery(Protocol):
    """A query that has been checked and planned: a join of two or more tables, or a selection."""

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""

    def describe(self, engine: Engine) -> Description:
        """Describe how it will run; joins read their tables once, to estimate sizes."""


@runtime_checkable
class ExplainsRows(Protocol):
    """A query that decides rows one by one, and can explain each."""

    def explain_row(self, row: TableRow) -> RowExplanation:
        """Explain a row: the order of the filters, what each proves, and which decides."""


class ExplainedPair(Protocol):
    """Why a join keeps a pair of rows, or why it does not; ``str()`` says it in a sentence."""

    @property
    def probability(self) -> float:
        """Return the probability that the condition holds."""

    @property
    def kept(self) -> bool:
        """Return whether the join keeps the pair."""

    @property
    def decided_by(self) -> str:
        """Return the rule at which the join stops."""

    @property
    def steps(self) -> tuple[Any, ...]:
        """Return the rules that were applied, in order, with the bounds that each proves."""

    def chart(self) -> altair.VConcatChart:
        """Draw the two values, and how the rules close in on the probability."""


@dataclass(frozen=True)
class Fits:
    """A strategy that can answer a query: what it costs, and what makes its plan."""

    cost: float
    """About how many microseconds a candidate takes: it ranks strategies, and does not say how long a query takes."""
    plan: Callable[[], PlannedQuery]


@dataclass(frozen=True)
class DoesNotFit:
    """A strategy that cannot answer a query, and why."""

    error: HaplyError
    meant: bool = False
    """Whether this is the strategy for such a query: its reason is then the error if no other strategy fits."""


class Strategy(Protocol[Node]):
    """One way to answer a query."""

    name: str
    cheapest: float
    """The least that it can cost: it is not tried if another strategy is cheaper."""

    def fits(self, node: Node) -> Fits | DoesNotFit:
        """Return what it costs to answer the query this way, or why that cannot be done."""


@dataclass(frozen=True)
class Chosen:
    """The plan of a query, and the strategies that were not taken."""

    strategy: str
    cost: float
    query: PlannedQuery
    not_taken: tuple[NotTaken, ...]

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return self.query.run(engine, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how it will run."""
        found = self.query.describe(engine)
        return replace(found, not_taken=found.not_taken + self.not_taken)


class FunnelStage:
    """A funnel that takes only some of the counters of one stage of a plan."""

    def __init__(self, funnel: Any, may_say: Callable[[str], bool]) -> None:
        self.funnel, self.may_say = funnel, may_say

    def start_over(self) -> None:
        """Do nothing: both stages fill one funnel, which is emptied before."""

    def follow(self, source: Callable[[], Mapping[str, Any]], live: bool = False) -> None:
        """Pass on the counters of this stage, and that it has reported."""

        def said() -> dict[str, Any]:
            counts = source()
            return {"stages": 1, **{k: v for k, v in counts.items() if self.may_say(k)}} if counts else {}

        self.funnel.follow(said, live)


def _says_all(name: str) -> bool:
    return True


def _says_pairs(name: str) -> bool:
    """Return rows are counted once, whatever the number of joins."""
    return not name.startswith(("rows_", "null_", "hopeless_", "invalid_"))


@dataclass(frozen=True)
class PartsOfJoin:
    """Joins of the same tables by conditions of which at most one holds; the result has the rows of all of them."""

    parts: tuple[PlannedQuery, ...]

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run them on the engine of their tables."""
        if funnel is not None:
            funnel.start_over()
        first, *others = (
            one.run(engine, None if funnel is None else FunnelStage(funnel, _says_all if n == 0 else _says_pairs))
            for n, one in enumerate(self.parts)
        )
        return first.stacked(others)

    def describe(self, engine: Engine) -> Description:
        """Describe how they will run."""
        verdict = f"The condition has {len(self.parts)} parts, of which one holds at most."
        return Description("Join by parts", verdict, parts=tuple(one.describe(engine) for one in self.parts))


@dataclass(frozen=True)
class Registry(Generic[Node]):
    """The strategies for one kind of query."""

    strategies: Sequence[Strategy[Node]]

    def choose(self, node: Node) -> Chosen | DoesNotFit:
        """Take the cheapest strategy that fits; if none does, return the reason of the intended or the dearest one."""
        best: tuple[str, Fits] | None = None
        refusals: list[DoesNotFit] = []
        not_taken: list[NotTaken] = []
        for strategy in sorted(self.strategies, key=lambda one: one.cheapest):
            if best is not None and best[1].cost <= strategy.cheapest:
                reason = f"costs more: {strategy.cheapest:g} µs a candidate at least, {best[0]} about {best[1].cost:g}"
                not_taken.append(NotTaken(strategy.name, reason))
                continue
            answer = strategy.fits(node)
            if isinstance(answer, DoesNotFit):
                refusals.append(answer)
                not_taken.append(NotTaken(strategy.name, answer.error.where))
            elif best is None or answer.cost < best[1].cost:
                if best is not None:
                    not_taken.append(NotTaken(best[0], f"costs more: about {best[1].cost:g} µs a candidate"))
                best = strategy.name, answer
            else:
                not_taken.append(NotTaken(strategy.name, f"costs more: about {answer.cost:g} µs a candidate"))
        if best is None:
            return next((refusal for refusal in refusals if refusal.meant), refusals[-1])
        return Chosen(best[0], best[1].cost, best[1].plan(), tuple(not_taken))

    def by_parts(self, nodes: Sequence[Node]) -> Chosen | DoesNotFit:
        """Choose a plan for each of several queries that have no row in common; the result has the rows of all."""
        plans: list[Chosen] = []
        for node in nodes:
            chosen = self.choose(node)
            if isinstance(chosen, DoesNotFit):
                return replace(chosen, meant=True)
            plans.append(chosen)
        if len(plans) == 1:
            return plans[0]
        return Chosen("parts", max(one.cost for one in plans), PartsOfJoin(tuple(plans)), ())

    def plan(self, node: Node) -> Chosen:
        """Take the cheapest strategy that fits; refuse a query that none fits."""
        chosen = self.choose(node)
        if isinstance(chosen, DoesNotFit):
            raise chosen.error
        return chosen


@dataclass(frozen=True)
class Plan(Generic[TableT]):
    """Represents a query that has been checked and planned but not run.

    ``hp.plan_join``, ``hp.plan_where`` and ``hp.plan_sql`` make plans.

    Parameters
    ----------
    query
        The plan of the query.
    engine
        What runs it.
    funnel
        An ``hp.Funnel()`` to fill, or None.
    notes
        Advice for the author of the query, which ``explain`` shows.
    pair
        What explains a pair of rows, or None.
    """

    query: PlannedQuery
    engine: Engine
    funnel: object | None = None
    notes: tuple[str, ...] = ()
    pair: Callable[[TableRow, TableRow], ExplainedPair] | None = None

    def run(self) -> TableT:
        """Run the query and return its result.

        Returns
        -------
        table
            On Spark a DataFrame, which is computed by the first action on it. Elsewhere a table of the kind of the
            first table, computed at once.
        """
        found: TableT = self.query.run(self.engine, self.funnel).give()
        return found

    def write(self, path: str) -> int:
        """Run the query and write its result into a new file.

        On the local engine rows are written as they are found, so that the result may be larger than memory.

        Parameters
        ----------
        path
            The file: its name ends with ``.parquet`` or ``.csv``.

        Returns
        -------
        int
            How many rows the file has.
        """
        return self.query.run(self.engine, self.funnel).write(path)

    def explain(self, verbose: bool = False) -> str:
        """Describe how the query will run.

        For joins this reads the inputs once, to estimate sizes.

        Parameters
        ----------
        verbose
            Whether to add how conditions were rewritten, the order of bounds, and how rows are partitioned.

        Returns
        -------
        str
            How many pairs or rows are expected, the plan, and the strategies that were not taken.
        """
        return self._text(self.query.describe(self.engine), verbose)

    def explain_row(self, row: TableRow) -> RowExplanation:
        """Explain how a selection decides one row.

        Parameters
        ----------
        row
            A dict from names of columns to values, a row of pandas, a ``Row`` of Spark, or a table of one row. Only the
            columns that the condition names are needed. Uncertain values are dicts with the fields of their struct.

        Returns
        -------
        RowExplanation
            ``print`` shows the filters in the order in which they are applied, each with its rank, the bounds that it
            proves, the filter that decides, and the exact probability.

        Raises
        ------
        HaplyError
            If the plan is not a selection on one table, or if the row lacks a column, or is null or not a distribution
            there.

        Examples
        --------
        >>> import haply as hp, pyarrow as pa
        >>> plan = hp.plan_where(pa.table({"kg": [2.0, 2.2]}), "gaussian(kg, 0.1) > 2.1", threshold=0.5)
        >>> told = plan.explain_row({"kg": 2.0})
        >>> told.kept, round(told.probability, 4), told.decided_by
        (False, 0.1587, 'exact value')
        """
        if not isinstance(self.query, ExplainsRows):
            raise HaplyError(
                "Single rows are explained by plans of selections", expected="one of hp.plan_where",
                hint="explain_pair(left_row, right_row) of a plan explains a pair of a join",
            )  # fmt: skip
        return self.query.explain_row(row)

    def explain_pair(self, left_row: TableRow, right_row: TableRow) -> ExplainedPair:
        """Explain why a join keeps a pair of rows, or why it does not.

        Parameters
        ----------
        left_row, right_row
            A row of each table, as in ``hp.explain_pair``. Only the columns that the condition and the window name are
            needed.

        Returns
        -------
        PairExplanation
            ``print`` shows the result in a sentence. ``decided_by`` names the rule that decides: the window or another
            certain condition, the core regions, a bound, or the exact value. ``steps`` shows what each rule proves.

        Raises
        ------
        HaplyError
            If the plan is not a join of two tables, or if a row lacks a column, or has no value there.

        Examples
        --------
        >>> import haply as hp, pyarrow as pa
        >>> one, other = pa.table({"x": [1.0]}), pa.table({"y": [1.1]})
        >>> plan = hp.plan_join(one, other, on="abs(gaussian(left.x, 0.1) - right.y) <= 0.2", threshold=0.5)
        >>> told = plan.explain_pair({"x": 1.0}, {"y": 1.1})
        >>> told.kept, round(told.probability, 4)
        (True, 0.84)
        """
        if self.pair is None:
            raise HaplyError(
                "Pairs of rows are explained by plans of joins of two tables", expected="one of hp.plan_join",
                hint="hp.explain_pair(left_row, right_row, on, threshold) needs no plan",
            )  # fmt: skip
        return self.pair(left_row, right_row)

    def _text(self, described: Description, verbose: bool = False) -> str:
        return "\n".join([described.text(verbose), *(f"  note          {note}" for note in self.notes)])

    def chart(self) -> altair.VConcatChart:
        """Draw the plan: its tree, and how few of the possible pairs it expects to look at.

        For joins this reads the inputs once, to estimate sizes, as ``explain`` does.

        Returns
        -------
        altair.VConcatChart
            A chart; ``.save("file.svg")`` writes it.
        """
        return _chart_of(self.query.describe(self.engine))

    def _repr_html_(self) -> str:
        described = self.query.describe(self.engine)
        text = escape(self._text(described))
        return f"<div>{drawn(lambda: _chart_of(described), described.first_verdict())}<pre>{text}</pre></div>"


def _chart_of(described: Description) -> altair.VConcatChart:
    from haply.drawing.plan import plan_chart

    verdict = described.first_verdict() or described.title
    return plan_chart(described.records(), described.first_estimate(), verdict.rstrip("."))
