"""Output that is updated while work goes on, in a terminal or a notebook only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.live import Live


class Changing(Protocol):
    """Output for both: text for terminals, HTML for notebooks."""

    def __rich__(self) -> RenderableType:
        """Return the output for a terminal."""

    def _repr_html_(self) -> str: ...


Show = Callable[[Changing], None]
"""Shows output in place of the previous one."""


@contextmanager
def shown(console: Console, keep: bool) -> Iterator[Show | None]:
    """Yield a function that shows output; None if there is neither a terminal nor a notebook.

    At the end the last output stays, or, in a terminal, can be removed.
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
