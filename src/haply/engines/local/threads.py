"""Work on threads: kernels and Arrow let go of the interpreter while they compute."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")


def cores() -> int:
    """Count the cores that this process may use; ``HAPLY_THREADS`` says otherwise."""
    asked = os.environ.get("HAPLY_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_threads(work: Callable[[_Item], _Done], items: Sequence[_Item]) -> Iterator[_Done]:
    """Do work for each item on threads; results come in the order of the items, few of them at a time."""
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
