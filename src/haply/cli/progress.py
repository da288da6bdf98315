"""Progress: a bar with the time left on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from haply.errors import count_of

_FEW_STEPS = 7
_tell: ContextVar[Callable[[str], None] | None] = ContextVar("tell", default=None)
"""Shows text next to the bar, if there is one."""


class _Times(ProgressColumn):
    """The time that has passed, and the time left where it is known."""

    def render(self, task: Task) -> Text:
        """Write both."""
        passed, left = timedelta(seconds=int(task.elapsed or 0.0)), task.time_remaining
        beside = "" if left is None else f", {timedelta(seconds=int(left))} left"
        return Text(f"{passed}{beside}", no_wrap=True)


class Note(str):
    """A line about a step that goes on."""


def followed(console: Console, title: str, work: Iterable[str], total: int) -> Iterator[str]:
    """Pass the steps on while showing progress: a bar on a terminal, lines elsewhere (of many steps, every seventh).

    A ``Note`` is shown, and is not counted as a step.
    """
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(title, total=total)
            token = _tell.set(lambda words: progress.update(task, description=f"{title}: {words}"))
            for item in work:
                progress.update(task, advance=not isinstance(item, Note), description=f"{title}: {item}")
                yield item
            _tell.reset(token)
            progress.update(task, description=title)
        return
    console.print(f"{title} ({count_of(total, 'step')})")
    done = 0
    for item in work:
        done += not isinstance(item, Note)
        if isinstance(item, Note):
            console.print(f"  {item}")
        elif total <= _FEW_STEPS or done % _FEW_STEPS == 0 or done == total:
            console.print(f"  {done}/{total} {item}")
        yield item


def followed_here(console: Console, title: str, work: Iterable[str]) -> Iterator[str]:
    """Pass on the steps of a query of this process: on a terminal with the time left, elsewhere without output.

    The time left is known while the cells of a join are decided; before and after, the elapsed time is shown. The
    bar is removed at the end, so that only the result stays.
    """
    if not console.is_terminal:
        yield from work
        return
    from haply.engines.local.threads import followed_by

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Times())
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(*columns, console=console, transient=True))
        task = progress.add_task(title, total=None)

        def cells(done: int, total: int) -> None:
            ended = done == total  # the time after the last cell is not known
            progress.update(task, completed=done, total=None if ended else total)

        stack.enter_context(followed_by(cells))
        for item in work:
            progress.update(task, description=f"{title}: {item}", total=None)
            yield item


@contextmanager
def spark_followed(spark: Any) -> Iterator[None]:
    """Show the progress of Spark next to the bar of ``followed``, if there is one."""
    tell = _tell.get()
    if tell is None:
        yield
        return
    from haply.engines.spark.runtime.following import following

    with following(spark, lambda work: tell(str(work))):
        yield
