"""Work on threads: kernels and Arrow release the GIL while they compute."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")

Follower = Callable[[int, int], None]
"""Called with the number of cells of a join that are done, and the number of all cells."""
_follower: ContextVar[Follower | None] = ContextVar("follower", default=None)


@contextmanager
def followed_by(follower: Follower) -> Iterator[None]:
    """Report the progress of joins in a ``with`` block to a function."""
    token = _follower.set(follower)
    try:
        yield
    finally:
        _follower.reset(token)


def tell_follower(done: int, total: int) -> None:
    """Report the progress of a join to the function that follows it, if there is one."""
    follower = _follower.get()
    if follower is not None:
        follower(done, total)


class Once(Generic[_Done]):
    """A property that is computed at its first use, without a lock.

    Before Python 3.12 ``functools.cached_property`` has one lock for all objects of a class: a join that waits for a
    thread, on which the join that it takes rows from computes the same property, would wait for ever.
    """

    def __init__(self, compute: Callable[[Any], _Done]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, owner: Any, kind: Any = None) -> _Done:
        found: _Done = self._compute(owner)
        owner.__dict__[self._name] = found  # which Python finds before this the next time
        return found


def cores() -> int:
    """Count the cores that this process may use; ``HAPLY_THREADS`` overrides it."""
    asked = os.environ.get("HAPLY_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_threads(work: Callable[[_Item], _Done], items: Sequence[_Item]) -> Iterator[_Done]:
    """Run a function for each item on threads; yields results in the order of the items, few of them ahead."""
    if len(items) <= 1 or cores() == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(cores()) as pool:
        waiting: deque[Future[_Done]] = deque()
        remaining = iter(items)
        for item in itertools.islice(remaining, 2 * cores()):
            waiting.append(pool.submit(work, item))
        while waiting:
            done = waiting.popleft().result()
            for item in itertools.islice(remaining, 1):
                waiting.append(pool.submit(work, item))
            yield done
