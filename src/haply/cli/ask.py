"""The commands that run queries on files: read tables, answer, and show the result or write it into a file."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from haply.cli.progress import Note, followed, followed_here, spark_followed
from haply.cli.questions import QUESTIONS, Asked
from haply.cli.tables import room, table_text, wrapped
from haply.errors import HaplyError, count_of
from haply.inputs import frame_of
from haply.numerics.jit import seconds_compiling
from haply.outputs import ON_SPARK, check_folder, check_output, kind_of
from haply.planning.constructors import with_named_models
from haply.planning.plans import Plan
from haply.report.funnel import Funnel
from haply.report.page import Page

_SHOWN = 20
"""Rows that are printed if no output file is given."""
_PIPE = "-"


def answer(arguments: argparse.Namespace) -> int:
    """Run a query, and print the result; returns the exit status."""
    begun = time.perf_counter()
    request = Request(arguments, QUESTIONS[arguments.command](arguments), begun)
    # progress goes to another stream than the result, so that the result can be piped
    aside = Console(highlight=False, stderr=True)
    title = "Answering the query"
    steps = request.answer()
    told = followed(aside, title, steps, request.steps) if request.on_spark else followed_here(aside, title, steps)
    for _ in told:
        pass
    request.tell()
    if request.on_spark or aside.is_terminal:
        aside.print(str(request.laps), soft_wrap=True)
    return int(arguments.command == "check" and bool(request.rows))


class Laps:
    """Seconds by the name of a part, with separate ones for compiling kernels."""

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
    """One call of a command: the query, its tables, and where the result goes. Files are checked at once."""

    def __init__(self, arguments: argparse.Namespace, asked: Asked, begun: float) -> None:
        self.laps, self.asked, self.command = Laps(begun), asked, arguments.command
        if asked.streams and arguments.engine == "local":
            raise HaplyError("Streams need Spark", expected="--engine spark, or no --engine", found="--engine local")
        self.on_spark = arguments.engine == "spark" or bool(asked.streams)
        self.out: str | None = getattr(arguments, "out", None)
        self.report: str | None = getattr(arguments, "report", None)
        self.explains = arguments.command == "explain" or bool(getattr(arguments, "explain", False))
        self.alone: bool = arguments.alone
        self.verbose = bool(getattr(arguments, "verbose", False))
        self.computes = self.out is not None or self.report is not None or not self.explains
        self._check_files()
        self.funnel = Funnel()
        self.explanation = ""
        self.rows: int | None = None
        self.shown: tuple[list[str], list[list[str]]] | None = None

    def _check_files(self) -> None:
        streams = bool(self.asked.streams)
        if streams and self.computes and self.out in (None, _PIPE):
            raise HaplyError("The answer of streams goes into a file", expected="--out with a name")
        if streams and self.report is not None:
            raise HaplyError("A report is of tables only", hint="leave out --report")
        for path in self.asked.tables.values():
            kind_of(path)
        if self.out not in (None, _PIPE):
            check_output(str(self.out), stream=streams)
        for place in (self.out, self.report):
            if place not in (None, _PIPE):
                check_folder(str(place))

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return 2 + int(self.on_spark) + int(self.explains) + int(self.computes) + int(self.report is not None)

    def answer(self) -> Iterator[str]:
        """Run it, step by step; yields what was done, and the progress of a stream as a ``Note``."""
        self.laps.end("imports")
        spark: Any = None
        if self.on_spark:
            from haply.engines.spark import files

            paths = [*self.asked.tables.values(), *self.asked.streams.values()]
            spark = files.quiet_session(f"haply {self.command}", paths)
            self.laps.end("Java and Spark session")
            yield "Spark started"
            tables = {name: _on_spark(spark, path) for name, path in self.asked.tables.items()}
            tables |= {name: files.read_stream(spark, path) for name, path in self.asked.streams.items()}
        else:
            if self.alone:
                _leave_pandas_out()
            tables = dict(self.asked.tables)
        for name, models in self.asked.models.items():
            if models:
                made: Any = with_named_models(frame_of(tables[name], f"The {name} table"), models, name)
                tables[name] = made.give() if self.on_spark else made
        self.laps.end("tables")
        yield "tables read"
        plan = self.asked.plan(tables, self.funnel)
        self.explanation = plan.explain(self.verbose) if self.explains else ""
        self.laps.end("plan")
        yield "query planned"
        if self.explains:
            yield "plan explained"
        if self.computes:
            yield from self._compute_on_spark(plan, spark) if self.on_spark else self._compute_here(plan)
            self.laps.end("run")
            yield "answer computed"
        if self.report is not None:
            self._page(plan).write(self.report)
            self.laps.end("report")
            yield "report written"

    def _compute_here(self, plan: Plan) -> Iterator[Note]:
        from haply.engines.local.files.write import first_rows, write_csv

        if self.out is not None and self.out != _PIPE:
            self.rows = plan.write(self.out)
            if self.report is not None:  # what has been written is not computed twice
                self.shown = first_rows(_here(self.out), _SHOWN)
        else:
            frame: Any = plan.query.run(plan.engine, plan.funnel)
            if self.out == _PIPE:
                self.rows = write_csv(frame.schema, frame.tables(), sys.stdout.buffer)
            else:
                table = frame.table()
                self.rows, self.shown = table.num_rows, first_rows(table, _SHOWN)
        yield Note("done")

    def _compute_on_spark(self, plan: Plan, spark: Any) -> Iterator[Note]:
        from haply.engines.spark import files

        if self.asked.streams:
            yield from map(Note, files.write_stream(plan.run(), str(self.out)))
        else:
            with spark_followed(spark):
                self._compute_tables(plan.run())

    def _compute_tables(self, result: Any) -> None:
        from haply.engines.spark import files

        if self.out is None:
            names, rows = files.first_rows(result, _SHOWN + 1)
            self.shown = names, rows[:_SHOWN]
            self.rows = len(rows) if len(rows) <= _SHOWN else None
        elif self.out == _PIPE or check_output(self.out, stream=False) not in ON_SPARK:
            self.rows = _from_spark(result, self.out)
        else:
            self.rows = files.write_table(result, self.out)
        if self.report is not None and self.out is not None:  # what has been written is not computed twice
            written = result if self.out == _PIPE else _on_spark(result.sparkSession, self.out)
            self.shown = files.first_rows(written, _SHOWN)

    def _page(self, plan: Plan) -> Page:
        page = Page("A query", "What was asked, how it was answered, and how few pairs had to be looked at.")
        page.section("The query").code(self.asked.text)
        page.section("The plan").code(self.explanation or plan.explain())
        if self.funnel.filled:
            page.section("The funnel").code(str(self.funnel))
            if len({record["pairs"] for record in self.funnel.stages()}) > 1:
                page.chart(self.funnel.chart(), "Pairs that are left after each stage.")
        names, rows = self.shown or ([], [])
        page.section("The answer")
        if self.out is not None and self.rows is not None:
            page.prose(f"{count_of(self.rows, 'row')}, in {self.out}.")
        page.table(names, rows, caption=f"The first {count_of(len(rows), 'row')}" if rows else "No rows")
        return page

    def tell(self) -> None:
        """Print the result."""
        if self.explains:  # not among the rows of a pipe
            shown = sys.stderr if self.out == _PIPE else sys.stdout
            print(wrapped(self.explanation, room()) if shown.isatty() else self.explanation, file=shown)
        if self.out == _PIPE:
            sys.stdout.flush()
        elif self.out is not None:
            count = "The answer" if self.rows is None else count_of(self.rows, "row")
            print(f"{count} written to {self.out}")
        elif self.shown is not None and (self.rows != 0 or self.command != "check"):
            names, rows = self.shown
            print(table_text(names, rows, room()))
            if self.rows is None or self.rows > len(rows):
                print(f"The first {count_of(len(rows), 'row')}{self._of_all()}; -o FILE writes all of them.")
            else:
                print(count_of(self.rows, "row"))
        if self.command == "check" and not self.rows and self.out != _PIPE:
            print("No bad rows.")
        if self.report is not None:
            print(f"Report: {self.report}")

    def _of_all(self) -> str:
        return "" if self.rows is None else f" of {self.rows:,}"


def _leave_pandas_out() -> None:
    """Let pyarrow believe that pandas is not installed.

    It imports pandas at its first conversion, to know its types. That takes a third of a second, and a command that
    reads and writes files has no use for it.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array(np.zeros(1)).to_numpy()
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    """Finds that pandas is not installed, and leaves all other modules to the finders after it."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def _here(path: str) -> Any:
    """Return the table in a file, whole."""
    from haply.engines.local.inputs import local_frame

    return local_frame(path, "The table").table()


def _on_spark(spark: Any, path: str) -> Any:
    """Return a file as a table of Spark; what Spark cannot read goes through this process."""
    from haply.engines.spark import files

    return files.read_table(spark, path) if kind_of(path) in ON_SPARK else spark.createDataFrame(_here(path))


def _from_spark(result: Any, out: str) -> int:
    """Write a result of Spark, of which this process gets all rows."""
    from haply.engines.local.files.write import write_csv, write_tables

    table = result.toArrow()
    if out == _PIPE:
        return write_csv(table.schema, [table], sys.stdout.buffer)
    return write_tables(table.schema, [table], out)
