"""Progress of the jobs of a session, from Spark's public interfaces: its status tracker, or a handler over Connect.

Stages and tasks are counted when they start. Spark plans further stages while it runs, so the final number is not
known. Counters of a funnel come only when an action ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession as SparkSession

from haply.engines.spark.observing import counted_pairs
from haply.engines.spark.runtime.session import is_connect
from haply.errors import count_of

_SECONDS_BETWEEN_LOOKS = 0.25


@dataclass(frozen=True)
class Work:
    """Progress of the jobs of a session: what has started, and how much of it is done."""

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    pairs: int | None = None
    """Pairs that finished tasks have found; None if they are not counted."""

    def __str__(self) -> str:
        """Return the progress as text."""
        if not self.stages:
            return "no stage yet"
        parts = [f"{self.stages_done} of {count_of(self.stages, 'stage')}"]
        parts.append(f"{self.tasks_done:,} of {count_of(self.tasks, 'task')}")
        if self.pairs is not None:
            parts.append(f"{count_of(self.pairs, 'pair')} so far")
        return ", ".join(parts)


Tell = Callable[[Work], None]


@contextmanager
def following(spark: SparkSession, tell: Tell) -> Iterator[None]:
    """Report the progress of jobs that start in the ``with`` block to a function, a few times a second."""
    with _over_connect(spark, tell) if is_connect(spark) else _by_tracker(spark, tell):
        yield


@contextmanager
def _by_tracker(spark: SparkSession, tell: Tell) -> Iterator[None]:
    with counted_pairs(spark) as pairs:
        seen, ended = StagesSeen(spark.sparkContext.statusTracker()), threading.Event()

        def look() -> None:
            while not ended.wait(_SECONDS_BETWEEN_LOOKS):
                tell(seen.look(pairs.value))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
            tell(seen.look(pairs.value))


class StagesSeen:
    """The stages that started since this was made, as the status tracker of a classic session reports them."""

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._others = set(tracker.getActiveStageIds())
        self._tasks: dict[int, int] = {}
        self._done: dict[int, int] = {}

    def look(self, pairs: int | None) -> Work:
        """Read the tracker. Spark forgets old stages: a forgotten one counts as done."""
        active = set(self._tracker.getActiveStageIds()) - self._others
        for stage in sorted(active | {stage for stage in self._tasks if not self._ended(stage)}):
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._tasks[stage], self._done[stage] = info.numTasks, info.numCompletedTasks
            elif stage in self._tasks:
                self._done[stage] = self._tasks[stage]
        ended = sum(map(self._ended, self._tasks))
        return Work(len(self._tasks), ended, sum(self._tasks.values()), sum(self._done.values()), pairs)

    def _ended(self, stage: int) -> bool:
        return self._done[stage] >= self._tasks[stage]


@contextmanager
def _over_connect(spark: SparkSession, tell: Tell) -> Iterator[None]:
    told = StagesTold(tell)
    # a bound method is a new object each time: only the registered object can be removed
    handler: Any = told.handle
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


class StagesTold:
    """The stages of all actions of a Connect session, as its server reports them."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._actions: dict[str | None, Work] = {}

    def handle(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """Take the server's report on one action; Spark calls this."""
        known = list(stages or ())
        if not known:
            return
        ended = sum(one.done or one.num_completed_tasks >= one.num_tasks for one in known)
        tasks, completed = (sum(getattr(one, name) for one in known) for name in ("num_tasks", "num_completed_tasks"))
        self._actions[operation_id] = Work(len(known), ended, tasks, completed)
        names = ("stages", "stages_done", "tasks", "tasks_done")
        self._tell(Work(*(sum(getattr(one, name) for one in self._actions.values()) for name in names)))
