"""Binds a query to its tables: names and constructors become columns, and everything is checked.

Every error says where in the query it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from haply.errors import HaplyError, unknown_name
from haply.joins.counting import DISTRIBUTION
from haply.planning.answers.options import Answer
from haply.planning.frames import Catalog, Frame, is_one_dimensional, names_of, quoted
from haply.planning.history.asked import asked_of
from haply.planning.history.keys import keyed
from haply.planning.nodes import refuse_no_numbers
from haply.query import Column, Expression, Literal, columns_of, to_sql
from haply.query.checks import refuse_equalities
from haply.query.choices import parts_of
from haply.query.expressions import And, Call, Or, is_value, rewritten
from haply.query.forms import Near, Part
from haply.query.rewrites import split
from haply.statements.asked import question_of
from haply.statements.bound import Bound, CountQuestion, ResultItem, Table
from haply.statements.numbers import numbers_in, written
from haply.statements.scope import Scope, is_field
from haply.statements.syntax import Item, Select, Source, Statement, spelled


def bind(
    statement: Statement, catalog: Catalog, time: Any, frames: Mapping[str, Frame], names: Mapping[str, str]
) -> Bound:
    """Bind the query to these tables, or those of the engine's catalog.

    ``names`` identify tables with a key: see ``history.name_of``.
    """
    return _Binder(statement, catalog, time, frames, names).bound(statement.select)


class _Binder:
    """Binds a query and those inside it."""

    def __init__(
        self,
        statement: Statement,
        catalog: Catalog,
        time: Any,
        frames: Mapping[str, Frame],
        names: Mapping[str, str],
    ) -> None:
        self.statement, self.catalog, self.time, self.frames = statement, catalog, time, frames
        self.names = names

    def bound(self, select: Select, inside: bool = False) -> Bound:
        tables: list[Table] = []
        for source in select.sources:
            if any(table.alias.lower() == source.alias.lower() for table in tables):
                raise self.statement.error(
                    source.start, f"two tables are called '{source.alias}'",
                    hint=f"give each its own name: {source.alias} a, {source.alias} b",
                )  # fmt: skip
            frame = self.frame(source)
            given = frame if source.query is None else None
            tables.append(Table(source.alias, frame, tuple(names_of(frame)), origin=self.origin(source), given=given))
        self.check_hint(select)
        found = Bound(self.statement, select, tables)
        scope = Scope(found, self.catalog, self.time)
        found.question = question_of(found, scope)
        asked = select if found.question is None else found.question
        pairs = [(original, scope.condition(original)) for original in asked.conditions]
        filters = [(original, self.filter(scope, original)) for original in asked.filters]
        wide = _side_by_side([table.frame for table in tables], found.wide_names(), found.known_numbers)
        for original, condition in pairs:
            if condition is not None:
                self.sort(found, scope, original, condition, wide)
        if found.question is None:
            self.with_history(found, scope, keys=not inside)
        found.used.clear()  # columns of conditions are found in the conditions
        found.answer = self.answer(found, scope)
        if isinstance(found.question, CountQuestion):
            self.choose_rows(found, filters)
        else:
            found.filters += [found.wide_sql(condition) for _, condition in filters]
        self.choose(found, scope, wide, inside)
        self.refuse_right(found)
        return found

    def with_history(self, found: Bound, scope: Scope, keys: bool) -> None:
        """Add the conditions of earlier queries on the tables, and make values that are the same one variable."""
        found.asked = asked_of(found.frames, [found.written(one) for one in found.conditions], keys)
        if found.asked.changed:
            parts = [scope.bound_again(part) for part in found.asked.parts]
            alone = parts[0].conditions if isinstance(parts[0], And) else parts
            found.conditions = [Or(tuple(parts))] if len(parts) > 1 else list(alone)

    # -- outer joins ---------------------------------------------------------------------------------------------------

    def filter(self, scope: Scope, original: Expression) -> Expression:
        """Return the condition that WHERE puts on the rows that a join returns; refuse an uncertain one."""
        condition = scope.condition(original)
        if condition is None or not all(map(scope.is_certain, columns_of(condition))):
            raise self.statement.error(
                original, "WHERE acts on the rows that the join returns, and this condition is uncertain",
                expected="conditions on certain columns", hint=f"move `{original}` into ON",
            )  # fmt: skip
        return condition

    def choose_rows(self, found: Bound, filters: list[tuple[Expression, Expression]]) -> None:
        """Leave out rows of the first table, whose partners are then not counted."""
        left = found.tables[0]
        for original, condition in filters:
            if any(column.table != left.alias for column in columns_of(condition)):
                raise self.statement.error(
                    original, f"WHERE chooses rows of {left.alias}, whose partners are counted",
                    expected=f"conditions on columns of {left.alias}", found=f"`{original}`",
                    hint=f"move `{original}` into ON: then it chooses partners",
                )  # fmt: skip
            with self.statement.at(original):
                left.frame = left.frame.where(to_sql(condition, lambda column: quoted(column.name)))

    def answer(self, found: Bound, scope: Scope) -> Answer:
        """Return which pairs and rows the query asks for, as options of ``hp.join``."""
        outer, kept = found.select.outer, found.select.kept
        if outer is not None and len(found.tables) > 2:
            raise self.statement.error(
                outer.start, f"{outer.words} is between two tables", found=f"{len(found.tables)} tables",
                hint="join two of them, and the result with the next",
            )  # fmt: skip
        how = outer.how if outer is not None else "inner"
        if kept is None:
            # an ASOF JOIN returns one event for each row, as in other databases
            return Answer(how, "all" if found.select.asof_start is None else "best_left")  # type: ignore[arg-type]
        if len(found.tables) != 2:
            raise self.statement.error(kept.start, "KEEP is for a join of two tables", found=f"{len(found.tables)}")
        keep = {"MUTUAL": "mutual", "ONE": "one_to_one", "ALL": "all"}.get(kept.what)
        if keep is None:
            table = scope.table(str(kept.table), kept.start)
            keep = "best_left" if table is found.tables[0] else "best_right"
        others = {"best_left": found.tables[1:], "best_right": found.tables[:1], "mutual": found.tables}.get(keep, [])
        keys = [scope.column(key.expression) for key in found.select.order if isinstance(key.expression, Column)]
        named = [key.name for key in keys if isinstance(key, Column) and key.table in [one.alias for one in others]]
        with self.statement.at(kept.start):
            return Answer(how, keep, kept.count, named or None, "all" if kept.ties else "first")  # type: ignore[arg-type]

    def refuse_right(self, found: Bound) -> None:
        """Refuse columns of the right table, and numbers of pairs, where only rows of the left are returned."""
        outer = found.select.outer
        if isinstance(found.question, CountQuestion):
            self.refuse_ungrouped(found, found.question)
        if outer is None or not found.answer.left_only:
            return
        left, right = (table.alias for table in found.tables)
        named = [f"{table}.{column}" for table, column in sorted(found.used) if table == right]
        named += [f"{call.name.upper()}()" for one, _ in written(found.select) for call in numbers_in(one)]
        if named:
            raise self.statement.error(
                outer.start, f"{outer.words} returns columns of {left} only", found=named[0],
                hint="put conditions on pairs into ON; a LEFT JOIN returns both tables",
            )  # fmt: skip

    def refuse_ungrouped(self, found: Bound, asked: CountQuestion) -> None:
        """Refuse columns that rows of the first table do not have, or groups of them."""
        left = found.tables[0].alias
        for table, column in sorted(found.used):
            if table != left or (asked.by and column not in asked.by):
                kept = ", ".join(f"{left}.{name}" for name in asked.by) or f"columns of {left}"
                raise self.statement.error(
                    found.select.groups[0], f"after GROUP BY, {table}.{column} has no single value", expected=kept,
                    hint=f"leave out {table}.{column}" + (", or add it to GROUP BY" if table == left else ""),
                )  # fmt: skip
        for name in asked.by:
            found.used.add((left, name))  # the plan returns them all

    # -- tables --------------------------------------------------------------------------------------------------------

    def check_hint(self, select: Select) -> None:
        """Check that a hint is about a join of two tables, and names one of them."""
        if select.broadcast is None:
            return
        hint, names = select.broadcast, [source.alias for source in select.sources]
        if len(names) != 2:
            raise self.statement.error(
                hint.start, "BROADCAST is for a join of two tables", found=f"{len(names)} of them",
                hint="leave out the hint",
            )  # fmt: skip
        if hint.table.lower() not in [name.lower() for name in names]:
            with self.statement.at(hint.start):
                raise unknown_name("table", hint.table, names)

    def frame(self, source: Source) -> Frame:
        if source.query is not None:
            return self.inner(source.query)
        name = ".".join(source.name)
        found = self.given(name)
        if found is None:
            found = self.catalog.table(source.name)
        if found is None:
            with self.statement.at(source.start):
                known, hint = [*self.frames, *self.catalog.names()], f"hp.sql(query, {name}=frame) says which one it is"
                raise unknown_name("table", name, known, hint)
        lowered = [column.lower() for column in names_of(found)]
        twice = sorted({column for column in lowered if lowered.count(column) > 1})
        if twice:
            raise self.statement.error(
                source.start, f"table '{name}' has two columns called '{twice[0]}'", hint="rename one of them"
            )
        if not source.key:
            return found
        with self.statement.at(source.start):
            if found.streaming:
                raise HaplyError(f"KEY is for tables, and '{name}' is a stream", hint="leave out KEY")
            given = [key for key in self.names if key.lower() == name.lower()]
            return keyed(found, source.key, self.names[given[0]] if given else f"table:{name.lower()}")

    def given(self, name: str) -> Frame | None:
        """Return the table that is an argument of this name; None if there is none."""
        alike = [key for key in self.frames if key.lower() == name.lower()]
        return self.frames[name] if name in self.frames else self.frames[alike[0]] if len(alike) == 1 else None

    def origin(self, source: Source) -> Any:
        """Return a value that is equal for two uses of the same table, or of selections from it."""
        if source.query is not None:
            return self.origin(source.query.sources[0])
        name = ".".join(source.name)
        found = self.given(name)
        return name.lower() if found is None else found.identity

    def inner(self, select: Select) -> Frame:
        """Return a query in parentheses: columns and certain conditions of one table."""
        error = self.statement.error
        if select.with_start is not None:
            raise error(
                select.with_start, "a query in parentheses has a threshold", expected="one, at the end of all",
                hint="move it behind the outer query",
            )  # fmt: skip
        if len(select.sources) > 1:
            raise error(
                select.sources[1].start, "a query in parentheses has two tables", expected="one",
                hint="name all tables after the outer FROM: haply sees all conditions at once there",
            )  # fmt: skip
        for expression, start in written(select):
            for call in numbers_in(expression):
                name = f"{call.name.upper()}()"
                raise error(start, f"{name} is that of the whole query", hint="move it to the outer SELECT")
        found = self.bound(select, inside=True)
        self.refuse_lost(found)
        wide = found.tables[0].frame.renamed(found.wide_names())
        for condition in found.certain:
            wide = wide.where(found.wide_sql(condition))
        return found.finished(wide)

    def refuse_lost(self, found: Bound) -> None:
        """Refuse a query in parentheses without the columns of its uncertain conditions: the outer query needs them."""
        shown = {output.sql for output in found.outputs}
        for condition in found.asked.uncertain if found.asked is not None else ():
            for column in columns_of(condition):
                if found.wide_column(column) not in shown:
                    raise self.statement.error(
                        found.select.start, f"a query in parentheses has the uncertain condition `{condition}`, "
                        f"but not the column {column.name} in its SELECT",
                        expected="the columns of the condition: it counts into the probability of the whole query",
                        hint=f"add {column.name} to the inner SELECT",
                    )  # fmt: skip

    # -- conditions ----------------------------------------------------------------------------------------------------

    def sort(self, found: Bound, scope: Scope, original: Expression, condition: Expression, wide: Frame) -> None:
        """Add a condition to the certain or the uncertain ones; refuse what is not a condition."""
        error = self.statement.error
        if is_value(condition) or isinstance(condition, Literal):
            raise error(original, f"`{original}` is a value", expected="a condition", hint="compare it with something")
        if all(map(scope.is_certain, columns_of(condition))):
            with self.statement.at(original):
                kind = wide.type_of(found.wide_sql(condition))
            if not kind.is_boolean:
                raise error(
                    original, f"`{original}` is not a condition", expected="something that is true or false",
                    found=kind.text, hint="compare it with something",
                )  # fmt: skip
            found.certain.append(condition)
        else:
            with self.statement.at(original):
                self.understood(found, scope, condition, wide)
            found.uncertain.append(condition)
        found.conditions.append(condition)

    def understood(self, found: Bound, scope: Scope, condition: Expression, wide: Frame) -> None:
        """Refuse an uncertain condition that has no normal form, or compares what cannot be compared."""
        refuse_no_numbers(condition, lambda column: wide.type_of(found.wide_column(column)))
        refuse_equalities(condition, lambda column: None if scope.is_certain(column) else scope.model(column))
        for part in (
            part for group in split(condition, scope.is_certain).groups for each in group for part in parts_of(each)
        ):
            for value in _certain_parts(part):
                kind = wide.type_of(found.wide_sql(value))
                if not kind.is_number_or_null:
                    raise HaplyError(
                        f"`{condition}` compares a number with something else", expected="a number",
                        found=f"`{value}`, of type {kind.text}",
                    )  # fmt: skip
            if isinstance(part, Near):
                for column in (part.one, part.other):
                    if wide.type_of(found.wide_column(column)).is_number_or_null:
                        raise HaplyError(
                            f"`{column}` is a number, not a point",
                            hint=f"write abs({part.one} - {part.other}), or SAMPLES(array({column})) as a point",
                        )
                continue
            for column in part.form.columns.values():
                model = scope.model(column)
                assert model is not None
                if column.index is None and not is_one_dimensional(model):
                    raise HaplyError(
                        f"`{column}` is a point of several dimensions", expected="a number",
                        hint=f"write {column}[0] for its first component, or DISTANCE(...)",
                    )  # fmt: skip

    # -- the select list -----------------------------------------------------------------------------------------------

    def choose(self, found: Bound, scope: Scope, wide: Frame, inside: bool) -> None:
        """Choose the columns of the result, and its order."""
        named = any(True for expression, _ in written(found.select) for _ in numbers_in(expression))
        starred = any(item.expression is None for item in found.select.items)
        starred = starred and not inside and not found.answer.left_only
        if found.question is not None or named or starred:
            found.numbers = found.known_numbers
        if found.answer.left_only:
            found.numbers = ()
        entries: list[tuple[str, str, str, Item]] = []  # name, the name if that is taken, SQL, where it is written
        for item in found.select.items:
            entries.extend(self.columns(found, scope, item, wide))
        if starred and not any(sql in found.numbers for _, _, sql, _ in entries):
            entries += [(name, name, name, found.select.items[-1]) for name in found.numbers]
        lowered = [name.lower() for name, *_ in entries]
        seen: dict[str, str] = {}
        for name, longer, sql, item in entries:
            chosen = longer if lowered.count(name.lower()) > 1 else name
            if chosen.lower() in seen:
                raise self.statement.error(
                    item.start, f"two columns of the result are called '{chosen}'", expected="different names",
                    hint="name one of them with AS",
                )  # fmt: skip
            seen[chosen.lower()] = sql
            found.outputs.append(ResultItem(chosen, sql))
        self.sorting(found, scope, seen, wide)

    def columns(self, found: Bound, scope: Scope, item: Item, wide: Frame) -> list[tuple[str, str, str, Item]]:
        if item.expression is None:
            columns = found.all_columns()
            if item.table is not None:
                table = scope.table(item.table, item.start)
                columns = [Column(table.alias, name) for name in table.shown]
            return [(one.name, f"{one.table}_{one.name}", found.wide_column(one), item) for one in columns]
        expression = scope.selected(item.expression)
        sql = found.wide_sql(expression)
        for name, constructor, arguments in scope.new_columns():
            with self.statement.at(item.expression):
                wide = wide.with_model(name, constructor, arguments)
        if not isinstance(expression, Column) or expression.index is not None:
            with self.statement.at(item.expression):
                self.certain_value(scope, expression)
                wide.type_of(sql)
        if item.name is not None:
            return [(item.name, item.name, sql, item)]
        if isinstance(item.expression, Call) and isinstance(expression, Column) and sql in found.numbers:
            return [(sql, sql, sql, item)]
        if isinstance(expression, Column) and expression.index is None and isinstance(item.expression, Column):
            return [(expression.name, f"{expression.table}_{expression.name}", sql, item)]
        name = spelled(item.expression)
        return [(name, name, sql, item)]

    def certain_value(self, scope: Scope, expression: Expression) -> None:
        for column in columns_of(rewritten(expression, lambda node: Literal(None) if is_field(node) else None)):
            if column.table is not None and not scope.is_certain(column):
                raise HaplyError(
                    f"`{expression}` is computed from `{column}`, which is uncertain",
                    expected="expressions of certain columns",
                    hint=f"select `{replace(column, index=None)}` itself, or one of its parameters, "
                    f"as in {replace(column, index=None)}.mean",
                )

    def sorting(self, found: Bound, scope: Scope, outputs: Mapping[str, str], wide: Frame) -> None:
        for key in found.select.order:
            written = key.expression
            if isinstance(written, Literal) and type(written.value) is int:
                if not 1 <= written.value <= len(found.outputs):
                    raise self.statement.error(
                        key.start, f"there is no column number {written.value}", expected=f"1 to {len(found.outputs)}"
                    )
                sql = found.outputs[written.value - 1].sql
            elif isinstance(written, Column) and written.table is None and written.name.lower() in outputs:
                sql = outputs[written.name.lower()] + ("" if written.index is None else f"[{written.index}]")
            else:
                expression = scope.selected(written)
                sql = found.wide_sql(expression)
            if any(table.frame.streaming for table in found.tables):
                raise self.statement.error(key.start, "a stream has no order", hint="leave out ORDER BY")
            found.order.append((sql, key.descending, key.nulls_first))
            for name, constructor, arguments in found.made:
                if name not in names_of(wide):
                    wide = wide.with_model(name, constructor, arguments)
            with self.statement.at(key.start):
                wide.type_of(sql)


def _side_by_side(frames: list[Frame], names: list[str], numbers: Sequence[str]) -> Frame:
    """Return all columns of all tables under these names, to find the types of expressions; it is never run."""
    whole: Frame | None = None
    position = 0
    for frame in frames:
        count = len(frame.fields)
        renamed = frame.renamed(names[position : position + count])
        whole = renamed if whole is None else whole.beside(renamed)
        position += count
    assert whole is not None
    return whole.with_columns({name: "array(1D)" if name == DISTRIBUTION else "1D" for name in numbers})


def _certain_parts(part: Part | Near) -> Iterator[Expression]:
    """Yield the certain expressions in an uncertain condition, which must be numbers."""
    if isinstance(part, Near):
        values = [part.limit]
    else:
        ends = [end for interval in part.intervals for end in (interval.low, interval.high) if end is not None]
        values = [*ends, *part.form.linear.values(), *part.form.squares.values()]
    yield from (value for value in values if isinstance(value, Expression))
