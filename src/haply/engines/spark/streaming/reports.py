"""Spark's reports on the micro-batches of a query: rows, time, state, and haply's counters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming import StreamingQuery as StreamingQuery

from haply.engines.spark.observing import OBSERVED
from haply.errors import count_of

_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True)
class BatchReport:
    """One micro-batch that has ended."""

    number: int
    rows: int
    """Rows that came in."""
    seconds: float
    """From its start until its results were written: how long rows wait that are there when it starts."""
    state_rows: int
    """Entries of all state stores."""
    state_bytes: int
    counters: Mapping[str, int] | None
    """The counters of the funnel for this batch alone; None if the join has no funnel."""

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> BatchReport:
        """Read a report of Spark."""
        counters = Counter[str]()
        for name, row in (progress.get("observedMetrics") or {}).items():
            if name.startswith(OBSERVED):
                counters.update({key: int(value or 0) for key, value in _fields(row).items()})
        states = progress.get("stateOperators") or []
        rows = progress["numInputRows"]
        if rows is None:  # over Connect, where only the sources have it
            rows = sum(int(one["numInputRows"]) for one in progress.get("sources") or [])
        return cls(
            int(progress["batchId"]), int(rows), progress["batchDuration"] / 1000,
            sum(int(one["numRowsTotal"]) for one in states), sum(int(one["memoryUsedBytes"]) for one in states),
            dict(counters) if counters else None,
        )  # fmt: skip

    @property
    def rate(self) -> float:
        """Return rows a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """Return the report as one line."""
        parts = [f"micro-batch {self.number}: {count_of(self.rows, 'row')} in {self.seconds:.1f} s"]
        if self.state_rows or self.state_bytes:
            parts.append(f"state {count_of(self.state_rows, 'row')}, {self.state_bytes / 1e6:.1f} MB")
        if self.counters is not None:
            candidates, kept = (self.counters.get(name, 0) for name in ("candidates", "kept"))
            parts.append(f"{kept:,} kept of {count_of(candidates, 'candidate')}")
        return "; ".join(parts)


def _fields(row: Any) -> dict[str, Any]:
    """Return the fields of an observed row by name; over Connect its values and its schema come apart."""
    found: dict[str, Any] = row.asDict()
    if set(found) == {"schema", "values"}:
        names = (one["name"] for one in found["schema"]["fields"])
        return dict(zip(names, found["values"], strict=True))
    return found


def batches_of(query: StreamingQuery, seconds: float | None = None) -> Iterator[list[BatchReport]]:
    """Yield the batches that have ended since, about once a second, until the query ends or so many seconds passed.

    Raises the error with which the query failed. Spark keeps the last hundred reports, so that a query that is asked
    late has only these.
    """
    told, until = -1, None if seconds is None else time.monotonic() + seconds
    while True:
        ended = not query.isActive  # asked first, so that no report is missed
        new = [BatchReport.of(progress) for progress in query.recentProgress if progress["batchId"] > told]
        told = new[-1].number if new else told
        yield new
        if ended:
            query.awaitTermination()
            return
        left = _SECONDS_BETWEEN_LOOKS if until is None else min(_SECONDS_BETWEEN_LOOKS, until - time.monotonic())
        if left <= 0.0:
            return
        time.sleep(left)  # not inside Spark, where Ctrl-C would break the connection
