"""``hp.match``: which rows are the same thing, and how likely that is.

A left row has its counterpart in the right table with probability ``completeness``; other right rows are spread with
``density``. Then the odds of a pair are ``completeness / (1 - completeness)`` times its Bayes factor, and its
probability is its share of all odds of the left row, with 1 for "none of them".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from haply.errors import HaplyError
from haply.joins.cells.identity import IdentityMethod
from haply.joins.evidence import Attribute, Category, Evidence
from haply.models import Certain, Model, OneDimensional, Samples
from haply.planning.answers.join import ROW_IDS, AnsweredJoin, most_rows, with_columns
from haply.planning.answers.options import Answer
from haply.planning.constructors import bound_constructors
from haply.planning.explain import Description
from haply.planning.frames import Engine, Frame, InvalidMode, SideName, field_of, find_column, position_model
from haply.planning.nodes import JoinNode, NumbersAdded, Shown, shown_of
from haply.planning.pairs import PairPlan, Side, method_for
from haply.planning.plans import Chosen
from haply.probability.density import no_density
from haply.probability.region import Difference, Distance, Identity, Region
from haply.pruning.threshold import Threshold
from haply.query import Column, Expression, columns_of, respelled
from haply.query.conditions import JoinCondition, sorted_by_side
from haply.query.expressions import And, Comparison
from haply.query.text import parse

Same: TypeAlias = str | tuple[str, str] | tuple[str, str, float | str] | tuple[Expression, float | str] | Expression
"""What is compared to decide whether two rows are the same thing: a column of both tables, or one of each."""

_NO_ERRORS = (
    "numbers have no density without their errors: write hp.gaussian(hp.left.value, hp.left.error) == hp.right.value"
)
_MOST_EVIDENCE = 1e12
"""The largest Bayes factor that a further attribute may give to a pair that the first one has ruled out."""


@dataclass(frozen=True)
class Density:
    """Represents the density of right rows as their number divided by an area.

    ``hp.density`` makes it.

    Parameters
    ----------
    area
        The area, length or volume that the right table covers, in units of the compared values: for positions on the
        sky in square arcseconds.
    """

    area: float


@dataclass(frozen=True)
class MatchOptions:
    """The options of ``hp.match``, besides its tables and ``same``."""

    density: float | str | Density | None
    completeness: float
    threshold: float | None = None
    answer: Answer = field(default_factory=Answer)
    exclusive: bool = False
    tolerance: float = 1e-9
    within: float | None = None
    by_category: Mapping[str | tuple[str, str], tuple[float, float]] | None = None
    invalid: InvalidMode = "raise"
    suffixes: tuple[str, str] = ("_left", "_right")
    columns: Sequence[str] | None = None
    on: Expression | str | None = None
    """Certain conditions that candidates fulfil."""

    def __post_init__(self) -> None:
        """Refuse what cannot be a density or a probability."""
        if self.density is None:
            raise HaplyError(
                "hp.match needs a density: right rows per unit area that are unrelated to a left row",
                expected="e.g. density=0.02 or hp.density(area=...)",
                hint="in SQL, WITH DENSITY 0.02 or WITH DENSITY AREA 400",
            )
        number = self.density.area if isinstance(self.density, Density) else self.density
        if not isinstance(number, str) and not (_is_number(number) and 0.0 < number < math.inf):
            raise HaplyError("The density is not a positive number", expected="e.g. density=0.02", found=repr(number))
        if not (_is_number(self.completeness) and 0.0 < self.completeness < 1.0):
            raise HaplyError(
                f"completeness is {self.completeness!r}",
                expected="a number between 0 and 1, both excluded",
                hint="1 would say that every row has a partner; give .99" if self.completeness == 1 else "",
            )
        if not (_is_number(self.tolerance) and 0.0 < self.tolerance < 0.1):
            raise HaplyError("The tolerance is not a small number", expected="e.g. 1e-9", found=repr(self.tolerance))

    @property
    def odds(self) -> float:
        """Return the prior odds that a row has a counterpart."""
        return self.completeness / (1.0 - self.completeness)


@dataclass(frozen=True)
class MatchPlan(AnsweredJoin):
    """A match of two tables that has been checked and planned."""

    evidence: Evidence
    options: MatchOptions
    same: tuple[str, str]

    @classmethod
    def plan(cls, left: Frame, right: Frame, same: Same | Sequence[Same], options: MatchOptions) -> MatchPlan:
        """Check and plan it."""
        if left.streaming or right.streaming:
            raise HaplyError(
                "The same thing is not looked for in a second stream: each new row changes what earlier ones are",
                expected="two tables, or a stream on the left and a table on the right",
                hint="hp.join of both streams, with time and window, returns pairs that are near each other",
            )
        frames: dict[str | None, Frame] = {"left": left, "right": right}
        given = _attributes(same, frames)
        added = ("bayes_factor", "p_match", *(("p_low", "p_high") if options.exclusive else ()), "p_any")
        join_options = NumbersAdded(
            invalid=options.invalid, suffixes=options.suffixes, columns=options.columns, answer=options.answer,
            numbers=added,
        )  # fmt: skip
        result = shown_of(left, right, join_options)
        equal = [Comparison("=", Column("left", one[0]), Column("right", one[1])) for one in given]
        condition = equal[0] if len(equal) == 1 else And(tuple(equal))
        for name in frames:
            frames[name] = frames[name].with_row_id(ROW_IDS[str(name)])
        threshold = Threshold(options.threshold)
        node = JoinNode(frames["left"], frames["right"], condition, None, threshold, tuple(result), join_options)
        first = given[0]
        density = _density(options, node)
        categories = _categories(options.by_category, node)
        needed = [Column("left", one[0]) for one in given[1:]] + [Column("right", one[1]) for one in given[1:]]
        needed += [Column("right", one[2]) for one in given[1:] if isinstance(one[2], str)]
        needed += [
            Column(side, name) for one in categories for side, name in (("left", one.left), ("right", one.right))
        ]
        needed += [Column("left", density)] if isinstance(density, str) else []
        more = [(_side(str(column.table)), column.name) for column in needed]
        wide = with_columns(node, (first[0], first[1]), more)
        called = {(one.side, one.column): one.name for one in wide}
        evidence = Evidence(
            called["left", density] if isinstance(density, str) else density, called["left", first[0]],
            options.within,
            tuple(
                Attribute(called["left", one[0]], called["right", one[1]],
                          called["right", one[2]] if isinstance(one[2], str) else _among(one))
                for one in given[1:]
            ),
            tuple(replace(one, left=called["left", one.left], right=called["right", one.right]) for one in categories),
        )  # fmt: skip
        ids = [Shown(_side(side), name, name) for side, name in ROW_IDS.items()]
        cut = _log_cut(node, options, density, len(given) - 1)
        chosen = Chosen("match", 0.0, _pairs(node, first, options, cut, [*wide, *ids]), ())
        return cls(node, chosen, chosen, wide, evidence, options, (first[0], first[1]))

    @property
    def answer(self) -> Answer:
        """Return which pairs and rows are returned."""
        return self.options.answer

    @property
    def compared(self) -> tuple[str, str] | None:
        """Return the columns of both tables whose expected squared difference orders pairs of equal probability."""
        return self.same

    @property
    def ranked_by(self) -> str:
        """Return the column of pairs that ranks them, the largest first."""
        return "p_match"

    def run(self, engine: Engine, funnel: Any) -> Frame:
        """Run it on the engine of its tables."""
        return engine.matched(self, funnel)

    def describe(self, engine: Engine) -> Description:
        """Describe how the match will run."""
        found = super().describe(engine)
        worlds = "one-to-one assignments" if self.options.exclusive else "each left row alone"
        density = self.evidence.density
        lines = [
            ("same", " and ".join([self.same[0], *(one.left for one in self.evidence.attributes)])),
            (
                "density",
                f"{density if isinstance(density, str) else format(density, 'g')} unrelated right rows per unit",
            ),
            ("completeness", f"{self.options.completeness:g}, {worlds}"),
        ]
        return replace(found, title="Match", lines=(*lines, *found.lines))


def _side(name: str) -> SideName:
    return "left" if name == "left" else "right"


_Given: TypeAlias = tuple[str, str, float | str | None]


def _attributes(same: Same | Sequence[Same], frames: dict[str | None, Frame]) -> list[_Given]:
    """Return the columns of both sides that are compared, with the density of the later ones among the unrelated."""
    several = isinstance(same, list) or (isinstance(same, tuple) and not all(isinstance(one, str) for one in same[:2]))
    given = list(same) if several else [same]  # type: ignore[arg-type]
    if not given:
        raise HaplyError("hp.match has nothing to compare", expected='e.g. same="pos"')
    found = [_attribute(one, frames) for one in given]
    for place, (left, right, among) in enumerate(found):
        if place and among is None:
            raise HaplyError(
                f"'{left}' is the second attribute, and its density among unrelated rows is not known",
                expected=f'("{left}", "{right}", density), a number or a right column',
                hint="the first attribute has density=, which counts rows; later ones need a density that sums to 1",
            )
        if not place and among is not None:
            raise HaplyError(f"The density of '{left}' is given twice", expected=f'("{left}", "{right}") and density=')
    return found


def _attribute(one: Any, frames: dict[str | None, Frame]) -> _Given:
    if isinstance(one, str) and not any(sign in one for sign in "=<>("):
        one = (one, one)
    if isinstance(one, tuple) and len(one) in (2, 3) and all(isinstance(name, str) for name in one[:2]):
        left, right = (_found(frames, side, name) for side, name in zip(("left", "right"), one, strict=False))
        among = one[2] if len(one) == 3 else None
        return left, right, _among_column(frames, among)
    among = None
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], (str, Expression)):
        one, among = one[0], _among_column(frames, one[1])
    expression = parse(one) if isinstance(one, str) else one
    if isinstance(expression, Comparison) and expression.op == "=":
        bound = bound_constructors(expression, frames)
        assert isinstance(bound, Comparison)
        ends = bound.left, bound.right
        tables = [end.table if isinstance(end, Column) and end.index is None else None for end in ends]
        if sorted(map(str, tables)) == ["left", "right"]:
            names = {str(end.table): end.name for end in ends if isinstance(end, Column)}
            return _found(frames, "left", names["left"]), _found(frames, "right", names["right"]), among
    raise HaplyError(
        "What is the same of two rows cannot be read",
        expected='a column "pos", two columns ("mag", "vmag"), or hp.left.pos == hp.right.pos; '
        "a further one with its density, (hp.left.mag == hp.right.mag, 0.1)",
        found=repr(one),
    )


def _among_column(frames: dict[str | None, Frame], among: Any) -> Any:
    return find_column(frames["right"], among, "right") if isinstance(among, str) else among


def _found(frames: dict[str | None, Frame], side: str, name: str) -> str:
    column = find_column(frames[side], name, side)
    model = _model(frames[side], column)
    if model is None:
        raise HaplyError(
            f"Column '{column}' of the {side} table is not a measurement",
            expected="a model of a number or a position, or certain ones",
            found=field_of(frames[side], column).text,
            hint="categories are compared with by_category, in SQL with SAME(a.kind, b.kind, 0.9, 0.1)",
        )
    return column


def _model(frame: Frame, column: str) -> type[Model] | None:
    found = field_of(frame, column)
    model = found.model
    return model if model is not None and issubclass(model, OneDimensional) else position_model(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _among(given: _Given) -> float:
    if not _is_number(given[2]) or not float(given[2] or 0.0) > 0.0:
        raise HaplyError(f"The density of '{given[0]}' is not a positive number", found=repr(given[2]))
    return float(given[2] or 0.0)


def _density(options: MatchOptions, node: JoinNode) -> float | str:
    """Return the density of unrelated right rows: a number, or a column of the left table."""
    density = options.density
    assert density is not None
    if isinstance(density, str):
        name = find_column(node.left, density, "left")
        if not field_of(node.left, name).is_number:
            raise HaplyError(f"The density '{name}' is not a column of numbers", found=field_of(node.left, name).text)
        return name
    if not isinstance(density, Density):
        return float(density)
    rows = float(node.right.count_rows())
    if rows == 0.0:  # there is nothing to weigh
        return 1.0 / density.area
    if options.exclusive:  # if each row has at most one counterpart, counterparts are not background
        rows -= options.completeness * node.left.count_rows()
    if rows <= 0.0:
        raise HaplyError(
            "The density of the right table is not positive",
            found=f"about {rows:g} right rows that are unrelated to any left row",
            hint="give density= as a number, or a smaller completeness",
        )
    return rows / density.area


def _categories(given: Mapping[Any, tuple[float, float]] | None, node: JoinNode) -> list[Category]:
    found = []
    for names, shares in (given or {}).items():
        left, right = names if isinstance(names, tuple) else (names, names)
        if not all(_is_number(share) and 0.0 < share < 1.0 for share in shares) or len(shares) != 2:
            raise HaplyError(
                f"by_category of '{left}' needs two shares",
                expected="(share that agrees among the same, among unrelated), each between 0 and 1",
                found=repr(shares),
            )
        found.append(Category(find_column(node.left, left, "left"), find_column(node.right, right, "right"), *shares))
    return found


def _log_cut(node: JoinNode, options: MatchOptions, density: float | str, further: int) -> float:
    """Return the logarithm of the factor by which a density weighs as much as all pairs that may be left out."""
    rows = most_rows(node.right)
    least = node.left.least(density) if isinstance(density, str) else density
    if least == math.inf and not node.left.count_rows():  # there is nothing to weigh
        least = 1.0
    if not 0.0 < least < math.inf:
        raise HaplyError(
            f"The density '{density}' has rows that are not positive numbers", found=f"{least:g}",
            hint="leave such rows out",
        )  # fmt: skip
    factors = [max(same / other, (1 - same) / (1 - other)) for same, other in (options.by_category or {}).values()]
    factors += [_MOST_EVIDENCE] * further
    return math.log(rows * options.odds / (least * options.tolerance)) + math.fsum(map(math.log, factors))


def _certain(node: JoinNode, on: Expression | str | None) -> JoinCondition:
    """Sort the certain conditions that candidates fulfil."""
    if on is None:
        return JoinCondition()
    condition = parse(on) if isinstance(on, str) else on
    uncertain = [column for column in columns_of(condition) if node.field(column).uncertain_model is not None]
    if uncertain:
        raise HaplyError(
            f"`{condition}` has the uncertain column `{uncertain[0]}`",
            expected="certain conditions in on=, such as equal keys",
            hint="what is measured on both sides belongs into same=",
        )
    spelled = respelled(condition, lambda column: node.field(column).name)
    return sorted_by_side(spelled.conditions if isinstance(spelled, And) else [spelled])


def _pairs(node: JoinNode, first: _Given, options: MatchOptions, log_cut: float, result: list[Shown]) -> PairPlan:
    """Plan the join that finds all pairs whose weight is not negligible."""
    certain = _certain(node, options.on)
    left, right = first[0], first[1]
    models = _model(node.left, left), _model(node.right, right)
    assert models[0] is not None
    assert models[1] is not None
    reason = no_density(models[0], models[1])
    if reason is not None and options.within is None:
        raise HaplyError(
            f"'{left}' and '{right}' have no density at which they are equal: {reason}",
            hint=_NO_ERRORS if models == (Certain, Certain) else "samples have no density: add within=..., a distance",
        )
    if options.within is not None:
        condition = _within(node, first, options.within, certain)
        method, one, other = method_for(condition, node.left, node.right, Threshold(None), True)
    else:
        condition, method = (
            replace(certain, identity=Identity(left, right)),
            IdentityMethod((models[0], models[1]), log_cut),
        )
        one, other = Side("left", node.left, left, models[0]), Side("right", node.right, right, models[1])
    return PairPlan(one, other, condition, Threshold(None), method, True, tuple(result), invalid=options.invalid)


def _within(node: JoinNode, first: _Given, within: float, certain: JoinCondition) -> JoinCondition:
    """Return the condition for values without a density: that they are near each other."""
    left, right = first[0], first[1]
    if not (_is_number(within) and 0.0 < within < math.inf):
        raise HaplyError("within is not a distance", expected="a positive number", found=repr(within))
    fields = field_of(node.left, left), field_of(node.right, right)
    for name, one in zip((left, right), fields, strict=True):
        if not getattr(one.model, "bounded", one.is_list):
            raise HaplyError(f"'{name}' has a density: within is for samples and certain values", hint="leave it out")
    points = any(one.is_list or one.model is None or one.model is Samples for one in fields)
    if points:
        return replace(certain, distance=Distance(left, right, within))
    return replace(certain, difference=Difference(left, right, Region(-within, within)))
