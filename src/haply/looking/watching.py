"""Show running work of Spark: ``hp.progress`` for tables, ``hp.watch`` for streams."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from haply.drawing.live import shown
from haply.errors import HaplyError, need_session

if TYPE_CHECKING:
    from haply.engines.spark.runtime.following import SparkSession, Work
    from haply.engines.spark.streaming.reports import BatchReport, StreamingQuery

_BATCHES_SHOWN = 10
_BAR_LETTERS = 24


# -- tables ------------------------------------------------------------------------------------------------------------


@contextmanager
def progress(spark: SparkSession, title: str | None = None) -> Iterator[None]:
    """Show the progress of Spark's actions in a ``with`` block: a bar in a terminal or a notebook, nothing elsewhere.

    The bar counts stages and tasks that have started; Spark plans further ones while it runs. Joins that are planned
    inside of the block on a classic session also count the pairs that finished tasks have found. The counters of a
    funnel are filled when an action ends. Other work of the same session, such as a stream, is counted as well.

    Parameters
    ----------
    spark
        The session, classic or Spark Connect.
    title
        The text before the bar.

    Returns
    -------
    contextlib.AbstractContextManager
        For a ``with`` statement.

    Raises
    ------
    HaplyError
        If ``spark`` is not a Spark session.

    Examples
    --------
    >>> with hp.progress(spark):                                      # doctest: +SKIP
    ...     pairs = hp.join(probes, loggers, on=near, threshold=0.5)
    ...     pairs.write.parquet("pairs")
    """
    need_session(
        "hp.progress shows what a Spark session does", spark, "with hp.progress(spark): pairs.write.parquet(...)"
    )
    with shown(Console(stderr=True), keep=False) as show:
        if show is None:
            yield
            return
        from haply.engines.spark.runtime.following import following

        begun = time.perf_counter()
        with following(spark, lambda work: show(TaskBar(work, title or "Spark", begun))):
            yield


class TaskBar:
    """A bar of the tasks that are done, with its text and the elapsed time."""

    def __init__(self, work: Work, title: str, begun: float) -> None:
        self.work, self.title, self.begun = work, title, begun

    def __rich__(self) -> RenderableType:
        """Return the bar for a terminal."""
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self.work.tasks or None, completed=self.work.tasks_done, width=_BAR_LETTERS)
        line.add_row(self.title, bar, str(self.work), self._passed())
        return line

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.work.tasks_done}" max="{max(self.work.tasks, 1)}"></progress>'
        return f"<div>{escape(self.title)} {bar} {escape(str(self.work))} {self._passed()}</div>"

    def _passed(self) -> str:
        minutes, seconds = divmod(int(time.perf_counter() - self.begun), 60)
        return f"{minutes}:{seconds:02}"


# -- streams -----------------------------------------------------------------------------------------------------------


def watch(query: StreamingQuery, seconds: float | None = None) -> None:
    """Show the micro-batches of a streaming query as they end: rate, delay, state, and the funnel of each.

    A terminal or a notebook shows a table of the last batches; anything else gets a line for each batch. The funnel is
    shown if the join was given one (``funnel=hp.Funnel()``). It returns when the query ends, after ``seconds``, or on
    Ctrl-C; in the last two cases the query goes on.

    Parameters
    ----------
    query
        A query, as ``writeStream.start()`` returns it; classic or Spark Connect.
    seconds
        How long to watch; by default until the query ends.

    Raises
    ------
    HaplyError
        If the query fails because of a row that is not a distribution, or if ``query`` is not a streaming query.

    Examples
    --------
    >>> pairs = hp.join(left, right, on=near, threshold=0.5, window=60.0, funnel=hp.Funnel())  # doctest: +SKIP
    >>> query = pairs.writeStream.option("checkpointLocation", "checkpoint").start("pairs")    # doctest: +SKIP
    >>> hp.watch(query, seconds=60)                                                            # doctest: +SKIP
    """
    if not hasattr(query, "recentProgress"):
        raise HaplyError(
            "hp.watch shows a query that runs",
            expected="a StreamingQuery, as writeStream.start() returns it",
            found=type(query).__name__,
            hint="query = pairs.writeStream.start(...), then hp.watch(query)",
        )
    if seconds is not None and not seconds > 0.0:
        raise HaplyError("hp.watch looks for some time", expected="seconds above 0", found=str(seconds))
    from haply.engines.spark.runtime.failures import translate_failures
    from haply.engines.spark.streaming.reports import batches_of

    translate_failures()
    console, last = Console(), deque[Any](maxlen=_BATCHES_SHOWN)
    try:
        with _plain_interrupt(), shown(console, keep=True) as show:
            for new in batches_of(query, seconds):
                last.extend(new)
                if show is not None:
                    show(BatchTable(last))
                else:
                    for report in new:
                        console.print(str(report), soft_wrap=True, markup=False)
    except KeyboardInterrupt:
        console.print("No longer watched. The query goes on; query.stop() ends it.")


@contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Let Ctrl-C only interrupt: PySpark's own handler also cancels all jobs, and the query would fail."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class BatchTable:
    """A table of micro-batches, a row for each."""

    def __init__(self, reports: Sequence[BatchReport]) -> None:
        self.reports = list(reports)

    def columns(self) -> dict[str, list[str]]:
        """Return the texts of the table by the names of its columns, with those of the funnel if there is one."""
        found = {
            "batch": [f"{one.number}" for one in self.reports],
            "rows": [f"{one.rows:,}" for one in self.reports],
            "rows/s": [f"{one.rate:,.0f}" for one in self.reports],
            "delay": [f"{one.seconds:.1f} s" for one in self.reports],
            "state": [f"{one.state_rows:,}" for one in self.reports],
            "memory": [f"{one.state_bytes / 1e6:.1f} MB" for one in self.reports],
        }
        if any(one.counters is not None for one in self.reports):
            for name in ("candidates", "evaluated", "kept"):
                found[name] = [f"{(one.counters or {}).get(name, 0):,}" for one in self.reports]
        return found

    def __rich__(self) -> RenderableType:
        """Return the table for a terminal."""
        if not self.reports:
            return "No micro-batch has ended yet."
        columns = self.columns()
        table = Table(box=None, padding=(0, 1, 0, 0))
        for name in columns:
            table.add_column(name, justify="right", overflow="fold")
        for row in zip(*columns.values(), strict=True):
            table.add_row(*row)
        return table

    def _repr_html_(self) -> str:
        if not self.reports:
            return "<div>No micro-batch has ended yet.</div>"
        columns = self.columns()
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in zip(*columns.values(), strict=True))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
