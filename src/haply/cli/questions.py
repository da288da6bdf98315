"""The query of each command: its files, its models, and its plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haply.api import plan_check, plan_join, plan_where
from haply.errors import HaplyError, unknown_name
from haply.inputs import frame_of
from haply.planning.frames import Field, Frame, find_column
from haply.planning.plans import Plan
from haply.query import Column, Expression, distance
from haply.questions import density, plan_match
from haply.report.funnel import Funnel
from haply.sky import position
from haply.statements import plan_sql
from haply.statements.syntax import Statement, read

Tables = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """A query on files."""

    text: str
    """The query as text, for a report."""
    tables: dict[str, str]
    """Files by the names of tables."""
    plan: Callable[[Tables, Funnel], Plan]
    """Plans the query, from tables by their names."""
    models: dict[str, dict[str, str]] = field(default_factory=dict)
    """Uncertain columns to make, by table and name."""
    streams: dict[str, str] = field(default_factory=dict)


# -- two files ---------------------------------------------------------------------------------------------------------


def join(arguments: argparse.Namespace) -> Asked:
    """Make the query of ``haply join``."""

    def plan(tables: Tables, funnel: Funnel) -> Plan:
        return _planned_join(arguments, tables, arguments.on, funnel)

    return _of_two(arguments, arguments.on, plan)


def match(arguments: argparse.Namespace) -> Asked:
    """Make the query of ``haply match``."""
    same = [_compared(text) for text in arguments.same]
    given = None if arguments.density is None else _number_or_text(arguments.density)
    dense = density(area=arguments.area) if arguments.area is not None else given

    def plan(tables: Tables, funnel: Funnel) -> Plan:
        return plan_match(
            tables["left"], tables["right"], same, density=dense, completeness=arguments.completeness,
            threshold=arguments.threshold, how=arguments.how, keep=arguments.keep, exclusive=arguments.exclusive,
            k=arguments.k, within=arguments.within, on=arguments.on, invalid=arguments.invalid,
            columns=_listed(arguments.columns), funnel=funnel,
        )  # fmt: skip

    return _of_two(arguments, f"the same {' and '.join(arguments.same)}", plan)


def sky(arguments: argparse.Namespace) -> Asked:
    """Make the query of ``haply sky``."""

    def plan(tables: Tables, funnel: Funnel) -> Plan:
        places = [_position(tables[side], side, arguments) for side in ("left", "right")]
        near = distance(places[0], places[1]) <= arguments.within
        return _planned_join(arguments, tables, near, funnel)

    return _of_two(arguments, f"positions within {arguments.within:g} arcseconds", plan)


def _of_two(arguments: argparse.Namespace, text: str, plan: Callable[[Tables, Funnel], Plan]) -> Asked:
    models = {side: named("--" + side, getattr(arguments, side)) for side in ("left", "right")}
    return Asked(text, {"left": arguments.left_file, "right": arguments.right_file}, plan, models)


def _planned_join(arguments: argparse.Namespace, tables: Tables, on: Expression | str, funnel: Funnel) -> Plan:
    return plan_join(
        tables["left"], tables["right"], on, arguments.threshold, strict=arguments.strict, how=arguments.how,
        keep=arguments.keep, k=arguments.k, invalid=arguments.invalid, columns=_listed(arguments.columns),
        self_key=arguments.self_key, funnel=funnel,
    )  # fmt: skip


def _compared(text: str) -> Any:
    """Read ``kg``, ``mag=vmag`` or ``mag=vmag:0.3``: columns that are compared, and how dense unrelated values are."""
    columns, _, dense = text.partition(":")
    parts = [part.strip() for part in columns.replace("==", "=").split("=")]
    parts = [part.removeprefix(f"{side}.") for part, side in zip(parts, ("left", "right"), strict=False)]
    if not all(parts):
        raise HaplyError(f"--same {text} names no columns", expected="NAME, LEFT=RIGHT, or LEFT=RIGHT:DENSITY")
    both = (parts[0], parts[-1])
    return (*both, _number_or_text(dense.strip())) if dense else parts[0] if len(parts) == 1 else both


# -- positions ---------------------------------------------------------------------------------------------------------

USUAL = {
    "ra": ("ra", "raj2000", "ra_icrs", "_ra", "ra_deg", "radeg", "ramean", "alpha_j2000", "right_ascension"),
    "dec": ("dec", "de", "decl", "dej2000", "de_icrs", "_de", "dec_deg", "dedeg", "decmean", "delta_j2000",
            "declination"),
    "ra_error": ("ra_error", "ra_err", "e_ra", "e_raj2000", "e_ra_icrs", "e_radeg", "raerr", "err_ra", "sigra",
                 "sigma_ra", "rameanerr"),
    "dec_error": ("dec_error", "dec_err", "e_dec", "e_de", "e_dej2000", "e_de_icrs", "e_dedeg", "decerr", "err_dec",
                  "sigdec", "sigma_dec", "decmeanerr"),
    "error": ("pos_error", "pos_err", "poserr", "e_pos", "position_error", "radec_err", "error_radius", "sigma_pos",
              "error", "err"),
    "corr": ("ra_dec_corr", "radeccor", "ra_dec_cor"),
}  # fmt: skip
"""Names, in lower case, that columns of catalogues usually have; those that come first are preferred."""

_SPELLED = {"arcsec": "arcsec", "mas": "mas", "deg": "deg", '"': "arcsec", "arcseconds": "arcsec", "degree": "deg"}


def _position(table: Any, side: str, arguments: argparse.Namespace) -> Expression:
    frame = frame_of(table, f"The {side} table")
    given = _listed(getattr(arguments, f"{side}_columns"))
    columns = _usual_columns(frame, side) if given is None else [find_column(frame, name, side) for name in given]
    if len(columns) == 1:
        return Column(side, columns[0])
    if not 3 <= len(columns) <= 5:
        raise HaplyError(
            f"--{side}-columns names {len(columns)} columns",
            expected="RA,DEC,ERROR or RA,DEC,RA_ERROR,DEC_ERROR, or these and the correlation of the errors",
        )
    ra, dec, ra_error = columns[:3]
    dec_error = columns[3] if len(columns) > 3 else ra_error
    fields = {one.name: one for one in frame.fields}
    unit = arguments.errors_in or _unit(fields[ra_error])
    corr: Any = Column(side, columns[4]) if len(columns) > 4 else 0.0
    if given is None and sys.stderr.isatty():
        print(f"{side}: {ra}, {dec}; errors {ra_error}, {dec_error} in {unit}", file=sys.stderr)
    at = [Column(side, name) for name in (ra, dec, ra_error, dec_error)]
    found: Expression = position(at[0], at[1], at[2], at[3], corr, errors_in=unit)
    return found


def _usual_columns(frame: Frame, side: str) -> list[str]:
    names = {one.name.lower(): one.name for one in reversed(frame.fields)}
    found = {what: next((names[one] for one in usual if one in names), None) for what, usual in USUAL.items()}
    one = {
        "ra": found["ra"], "dec": found["dec"], "ra_error": found["ra_error"] or found["error"],
        "dec_error": found["dec_error"] or found["error"],
    }  # fmt: skip
    for what, name in one.items():
        if name is None:
            raise HaplyError(
                f"No column of the {side} table has a usual name for {what}",
                expected="one such as " + ", ".join(USUAL[what]),
                found=", ".join(each.name for each in frame.fields),
                hint=f"--{side}-columns RA,DEC,ERROR names them",
            )
    pair = found["ra_error"] is not None and found["dec_error"] is not None
    return [*(name for name in one.values() if name), *([found["corr"]] if pair and found["corr"] else [])]


def _unit(column: Field) -> Any:
    """Return the unit of an error from the file, else arcseconds."""
    if column.unit is None:
        return "arcsec"
    if column.unit.strip().lower() not in _SPELLED:
        raise HaplyError(
            f"The unit of column '{column.name}' is '{column.unit}'",
            expected="arcsec, mas or deg",
            hint="--errors-in says what it is",
        )
    return _SPELLED[column.unit.strip().lower()]


# -- one file ----------------------------------------------------------------------------------------------------------


def where(arguments: argparse.Namespace) -> Asked:
    """Make the query of ``haply where``."""

    def plan(tables: Tables, funnel: Funnel) -> Plan:
        options = {"strict": arguments.strict, "invalid": arguments.invalid, "funnel": funnel}
        return plan_where(tables["given"], arguments.on, arguments.threshold, **options)

    return Asked(arguments.on, {"given": arguments.file}, plan, {"given": named("--model", arguments.model)})


def check(arguments: argparse.Namespace) -> Asked:
    """Make the query of ``haply check``."""
    models, column = named("--model", arguments.model), arguments.column
    if column is not None and "(" in column:
        models[column] = column

    def plan(tables: Tables, funnel: Funnel) -> Plan:
        given = tables["given"]
        return plan_check(given, column or _uncertain_column(frame_of(given, "The table")))

    return Asked(f"bad rows of {column or arguments.file}", {"given": arguments.file}, plan, {"given": models})


def _uncertain_column(frame: Frame) -> str:
    found = [field.name for field in frame.fields if field.uncertain_model is not None]
    if len(found) != 1:
        raise HaplyError(
            "Which column to check is not clear",
            expected="a table with one uncertain column",
            found=", ".join(found) or "none",
            hint="name one, as in haply check FILE COLUMN, or a model, as in haply check FILE 'gaussian(kg, err)'",
        )
    return found[0]


# -- SQL ---------------------------------------------------------------------------------------------------------------


def sql(arguments: argparse.Namespace) -> Asked:
    """Make the query of ``haply sql`` and ``haply explain``."""
    query = read_query(arguments.query)
    statement = read(query)  # mistakes in the query are reported before anything is read
    tables, streams = named("--table", arguments.table), named("--stream", arguments.stream)
    twice = [name for name in streams if name in tables]
    if twice:
        raise HaplyError(f"'{twice[0]}' is a table and a stream", expected="one of them")
    tables |= {source.name[0]: source.name[0] for source in statement.sources() if source.is_file}
    _check_names(statement, [*tables, *streams])

    def plan(frames: Tables, funnel: Funnel) -> Plan:
        delay = _number_or_text(arguments.max_delay)
        return plan_sql(query, None, arguments.time, max_delay=delay, funnel=funnel, **frames)

    return Asked(query.strip(), tables, plan, streams=streams)


def _check_names(statement: Statement, known: Sequence[str]) -> None:
    lowered = [name.lower() for name in known]
    for source in statement.sources():
        if len(source.name) == 1 and source.name[0].lower() not in lowered:
            name = source.name[0]
            with statement.at(source.start):
                raise unknown_name("table", name, known, f"--table {name}={name}.csv says in which file it is")


def read_query(given: str) -> str:
    """Return the query itself, or from standard input (``-``) or a file (``@name``)."""
    if given == "-":
        return sys.stdin.read()
    return Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given


QUESTIONS: dict[str, Callable[[argparse.Namespace], Asked]] = {
    "join": join, "match": match, "sky": sky, "where": where, "check": check, "sql": sql, "explain": sql,
}  # fmt: skip
"""The functions that make queries, by the names of commands."""


# -- what is typed -----------------------------------------------------------------------------------------------------


def named(option: str, given: list[str] | None) -> dict[str, str]:
    """Read ``name=value`` of each time that an option was given."""
    what, wanted, example = "model", "NAME=MODEL", "kg=gaussian(kg, err)"
    if option in ("--table", "--stream"):
        what, wanted, example = "file", "name=path", "a=a.parquet"
    found: dict[str, str] = {}
    for text in given or []:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not name or not sign or not value:
            raise HaplyError(f"{option} {text} names no {what}", expected=wanted, hint=f"{option} '{example}'")
        if name in found:
            raise HaplyError(f"{option} gives '{name}' twice", expected="a name for each")
        found[name] = value
    return found


def _listed(given: str | None) -> list[str] | None:
    return None if given is None else list(_names(given))


def _names(given: str) -> Iterator[str]:
    yield from (name for part in given.split(",") if (name := part.strip()))


def _number_or_text(given: str) -> float | str:
    try:
        return float(given)
    except ValueError:
        return given
