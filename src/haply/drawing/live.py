"""Pictures that change while work goes on: in a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live


class Changing(Protocol):
    """A picture for both: text for terminals, HTML for notebooks."""

    def __rich__(self) -> RenderableType:
        """Return what a terminal shows."""

    def _repr_html_(self) -> str: ...


Show = Callable[[Changing], None]
"""Shows a picture in place of the one before."""


@contextmanager
def shown(console: Console, keep: bool) -> Iterator[Show | None]:
    """Give a function that shows pictures; none if there is neither a terminal nor a notebook.

    At the end the last picture stays, or, in a terminal, is wiped away.
    """
    if console.is_jupyter:
        yield _in_notebook()
    elif console.is_terminal:
        with Live(console=console, transient=not keep) as live:
            yield live.update
    else:
        yield None


def _in_notebook() -> Show:
    handles: list[Any] = []

    def show(picture: Changing) -> None:
        from IPython.display import display

        if handles:
            handles[0].update(picture)
        else:
            handles.append(display(picture, display_id=True))

    return show
