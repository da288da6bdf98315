"""The commands ``haply sql`` and ``haply explain``: tables from files, a query, and the answer into a file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from haply.errors import HaplyError
from haply.numerics.jit import seconds_compiling
from haply.outputs import check_output
from haply.planning.plans import Plan
from haply.report.funnel import Funnel
from haply.report.page import Page
from haply.statements import plan_sql
from haply.statements.syntax import read

_SHOWN = 20
"""Rows that are printed where no file is asked for."""


class Note(str):
    """A line about a step that goes on."""


class Laps:
    """Where the time goes: seconds by the name of a part, those for compiling kernels apart."""

    def __init__(self, begun: float) -> None:
        self.begun = self._last = begun
        self._compiled = seconds_compiling()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """Count the time since the last call to a part."""
        now, compiled = time.perf_counter(), seconds_compiling()
        kernels = compiled - self._compiled
        for part, seconds in ((name, now - self._last - kernels), ("kernels", kernels)):
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds
        self._last, self._compiled = now, compiled

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
        return f"{self._last - self.begun:.1f} seconds: {parts}"


class Request:
    """One call of a command: what is asked, of what, and where the answer goes."""

    def __init__(self, arguments: argparse.Namespace, begun: float) -> None:
        self.laps = Laps(begun)
        self.query = read_query(arguments.query)
        read(self.query)  # what is written wrong is told before Spark is started
        self.tables = _pairs("--table", arguments.table)
        self.streams = _pairs("--stream", arguments.stream)
        twice = [name for name in self.streams if name in self.tables]
        if twice:
            raise HaplyError(f"'{twice[0]}' is a table and a stream", expected="one of them")
        if self.streams and arguments.engine == "local":
            raise HaplyError("Streams need Spark", expected="--engine spark, or no --engine", found="--engine local")
        self.on_spark = arguments.engine == "spark" or bool(self.streams)
        self.time, self.max_delay = arguments.time, _number_or_text(arguments.max_delay)
        self.out: str | None = getattr(arguments, "out", None)
        self.report: str | None = getattr(arguments, "report", None)
        self.explains = bool(getattr(arguments, "explain", True))
        self.verbose = bool(getattr(arguments, "verbose", False))
        self.computes = self.out is not None or self.report is not None or not self.explains
        if self.streams and self.computes and self.out is None:
            raise HaplyError("The answer of streams goes into a file", expected="--out with a name")
        if self.streams and self.report is not None:
            raise HaplyError("A report is of tables only", hint="leave out --report")
        if self.out is not None:
            check_output(self.out, stream=bool(self.streams))
        self.plan: Plan | None = None
        self.funnel = Funnel()
        self.rows: int | None = None
        self.shown: tuple[list[str], list[list[str]]] | None = None

    @property
    def steps(self) -> int:
        """How many steps it takes."""
        return 2 + int(self.on_spark) + int(self.explains) + int(self.computes) + int(self.report is not None)

    def answer(self) -> Iterator[str]:
        """Do it, step by step; yields what was done, and how a stream goes on as a ``Note``."""
        self.laps.end("imports")
        yield from self._answer_on_spark() if self.on_spark else self._answer_here()
        if self.report is not None:
            assert self.plan is not None
            self._page(self.plan).write(self.report)
            self.laps.end("report")
            yield "report written"

    def _planned(self, spark: Any, frames: dict[str, Any]) -> Plan:
        self.laps.end("tables")
        options: dict[str, Any] = {"max_delay": self.max_delay, "funnel": self.funnel}
        self.plan = plan_sql(self.query, spark, self.time, **options, **frames)
        self.explanation = self.plan.explain(self.verbose) if self.explains else ""
        return self.plan

    def _answer_here(self) -> Iterator[str]:
        from haply.engines.local.files import first_rows, read_table
        from haply.engines.local.inputs import local_frame

        frames = {name: read_table(path) for name, path in self.tables.items()}
        yield "tables read"
        plan = self._planned(None, frames)
        self.laps.end("plan")
        yield "query planned"
        if self.explains:
            yield "plan explained"
        if self.computes:
            if self.out is not None:
                self.rows = plan.write(self.out)
            if self.out is None:
                self.shown = first_rows(plan.run(), _SHOWN)
            elif self.report is not None:  # what has been written is not computed twice
                self.shown = first_rows(local_frame(self.out, "The answer").table(), _SHOWN)
            self.laps.end("run")
            yield "answer computed"

    def _answer_on_spark(self) -> Iterator[str]:
        from haply.engines.spark import files

        spark = files.quiet_session("haply sql", [*self.tables.values(), *self.streams.values()])
        self.laps.end("Java and Spark session")
        yield "Spark started"
        frames = {name: files.read_table(spark, path) for name, path in self.tables.items()}
        frames |= {name: files.read_stream(spark, path) for name, path in self.streams.items()}
        yield "tables read"
        plan = self._planned(spark, frames)
        result: Any = plan.run() if self.computes else None
        self.laps.end("plan")
        yield "query planned"
        if self.explains:
            yield "plan explained"
        if not self.computes:
            return
        if self.streams:
            assert self.out is not None
            yield from map(Note, files.write_stream(result, self.out))
        else:
            if self.out is not None:
                self.rows = files.write_table(result, self.out)
            if self.out is None or self.report is not None:
                # what has been written is not computed twice
                shown = result if self.out is None else files.read_table(spark, self.out)
                self.shown = files.first_rows(shown, _SHOWN)
        self.laps.end("run")
        yield "answer computed"

    def _page(self, plan: Plan) -> Page:
        page = Page("A query", "What was asked, how it was answered, and how few pairs had to be looked at.")
        page.section("The query").code(self.query.strip())
        page.section("The plan").code(self.explanation or plan.explain())
        if self.funnel.filled:
            page.section("The funnel").code(str(self.funnel))
            if len({record["pairs"] for record in self.funnel.stages()}) > 1:
                page.chart(self.funnel.chart(), "Pairs that are left after each stage, fewer and fewer.")
        assert self.shown is not None
        names, rows = self.shown
        page.section("The answer")
        if self.rows is not None:
            page.prose(f"{self.rows:,} rows, in {self.out}.")
        page.table(names, rows, caption=f"The first {len(rows)} rows" if rows else "No rows")
        return page


def tell(question: Request, console: Console) -> None:
    """Print what was found."""
    if question.explains:
        console.print(question.explanation, highlight=False, markup=False, soft_wrap=True)
    if question.out is not None:
        count = "The answer" if question.rows is None else f"{question.rows:,} row{'' if question.rows == 1 else 's'}"
        console.print(f"{count} written to {question.out}", highlight=False, markup=False, soft_wrap=True)
    elif question.shown is not None:
        names, rows = question.shown
        table = Table(*names)
        for row in rows:
            table.add_row(*row)
        console.print(table, markup=False)
        if len(rows) == _SHOWN:
            console.print(f"The first {_SHOWN} rows; --out writes all of them.", soft_wrap=True)
    if question.report is not None:
        console.print(f"Report: {question.report}", highlight=False, markup=False, soft_wrap=True)


def read_query(given: str) -> str:
    """The query itself, or from standard input (``-``) or a file (``@name``)."""
    if given == "-":
        return sys.stdin.read()
    return Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or []:
        name, sign, path = text.partition("=")
        if not name or not sign or not path:
            raise HaplyError(f"{option} {text} names no file", expected="name=path", hint=f"{option} a=a.parquet")
        if name in found:
            raise HaplyError(f"{option} gives '{name}' twice", expected="a name for each")
        found[name] = path
    return found


def _number_or_text(given: str) -> float | str:
    try:
        return float(given)
    except ValueError:
        return given
