"""A cell of a stream join, and a bucket of its rows, as Spark's stateful functions.

Spark also makes one in a separate process at every start of a query, only to find the names of the state. So this
module imports nothing heavy: the rest is imported with the first rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from haply.engines.spark.streaming.settling import Bucket, Settling
    from haply.engines.spark.streaming.worker import Cell, CellQuery


class CellProcessor(StatefulProcessor):
    """Passes rows and timers to a ``Cell``."""

    def __init__(self, query: CellQuery) -> None:
        self._packed = pickle.dumps(query)
        self._unpacked: Cell | None = None

    def init(self, handle: Any) -> None:
        """Declare the state: an index of the pieces with a stamp, and the pieces."""
        self._unpacked = None
        self._state = (
            handle,
            handle.getValueState("index", "data binary"),
            handle.getMapState("pieces", "number bigint", "data binary"),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802
        """Return rows of one batch."""
        return self._cell.take(key, rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802
        """Return a timer of a cell."""
        return self._cell.tick(key, timerValues)

    def close(self) -> None:
        """Nothing is held open."""

    @property
    def _cell(self) -> Cell:
        if self._unpacked is None:
            from haply.engines.spark.streaming.worker import Cell

            self._unpacked = Cell(pickle.loads(self._packed), *self._state)
        return self._unpacked


class BucketProcessor(StatefulProcessor):
    """Passes parcels to a ``Bucket``."""

    def __init__(self, settling: Settling) -> None:
        self._packed = pickle.dumps(settling)
        self._unpacked: Bucket | None = None

    def init(self, handle: Any) -> None:
        """Declare the state: an index of the pieces with a stamp, and the pieces."""
        self._unpacked = None
        self._state = (
            handle.getValueState("index", "data binary"),
            handle.getMapState("pieces", "number bigint", "data binary"),
        )

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802
        """Parcels of one batch."""
        if self._unpacked is None:
            from haply.engines.spark.streaming.settling import Bucket

            self._unpacked = Bucket(pickle.loads(self._packed), *self._state)
        return self._unpacked.take(key, rows)

    def close(self) -> None:
        """Nothing is held open."""
