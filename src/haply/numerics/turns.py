"""One process compiles a kernel, and others that need the same one wait for it, instead of compiling it as well.

Processes that are started together, as Spark's workers are, need the same kernels at the same moment.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # missing on Windows: treated as a disk without locks
    fcntl = None  # type: ignore[assignment]

PATIENCE = 120.0
"""How many seconds to wait for another process: far longer than it takes to compile any kernel."""

_SHORT, _LONG = 0.002, 0.05


class Turns:
    """The turns that this process has: locks on bytes of a file beside the kernels, one byte for each kernel.

    The system gives a lock back when its process ends, whatever ends it, and does not hand it on to processes that are
    forked. A process that is stopped keeps its locks: others then wait in vain once, and never again. A kernel waits
    only for those that it calls, so no two processes wait for each other.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._held: list[tuple[int, int]] = []

    def take(self, folder: Path, name: str, waiting: Callable[[], None] | None = None) -> bool:
        """Take the turn for a kernel; return whether it may have been compiled meanwhile.

        ``waiting`` is called before a wait. Where the folder's disk has no locks there are no turns.
        """
        if fcntl is None or self.patience <= 0.0:
            return False
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
        try:
            file = _lock_file(str(folder))
            if not _lock(file, place):
                if waiting is not None:
                    waiting()
                if not self._wait(file, place):
                    self.patience = 0.0
                    return True
        except OSError:
            return False
        self._held.append((file, place))
        return True

    def _wait(self, file: int, place: int) -> bool:
        end, pause = time.monotonic() + self.patience, _SHORT
        while time.monotonic() < end:
            time.sleep(pause)
            if _lock(file, place):
                return True
            pause = min(2.0 * pause, _LONG)
        return False

    @contextmanager
    def given_back(self) -> Iterator[None]:
        """Give back, at the end, the turns that are taken inside."""
        before = len(self._held)
        try:
            yield
        finally:
            while len(self._held) > before:
                file, place = self._held.pop()
                with suppress(OSError):
                    fcntl.lockf(file, fcntl.LOCK_UN, 1, place)


@cache
def _lock_file(folder: str) -> int:
    """Open the file once and for good: a process that closes it anywhere loses all its locks."""
    return os.open(f"{folder}/turns", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(file: int, place: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):  # systems differ in what they call a lock that another process has
        return False
    return True
