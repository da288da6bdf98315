"""Spark's part in a join of streams, without Spark: state that a batch commits or not, watermarks and timers."""

from __future__ import annotations

import copy
import pickle
from abc import ABC, abstractmethod
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa

from haply.engines.spark.exchange.stack import CELL
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.streaming.parcels import CONTROL, NEWEST, unpack
from haply.engines.spark.streaming.stateful import CellProcessor
from haply.engines.spark.streaming.worker import stream_counter_names


def in_batches(rng, times, batches, max_delay):
    """Rows by batch, in the order of times that are delayed by up to ``max_delay``: none comes too late."""
    arrival = times + rng.uniform(0.0, max_delay, len(times)) if max_delay else times
    order = np.argsort(arrival, kind="stable")
    cuts = np.sort(rng.integers(0, len(times) + 1, batches - 1))
    return np.split(order, cuts)


class FakeState:
    """A value or a map of one cell, with the methods of Spark's."""

    def __init__(self, states, name):
        self._states, self._name = states, name

    @property
    def _mine(self):
        return self._states.current[self._name]

    def exists(self):
        return "value" in self._mine

    def get(self):
        return self._mine.get("value")

    def update(self, value):
        (data,) = value
        assert isinstance(data, bytes)
        self._states.burn()
        self._mine["value"] = value

    def clear(self):
        self._mine.clear()

    def getValue(self, key):  # noqa: N802 - Spark's name
        return self._mine.get(key)

    def updateValue(self, key, value):  # noqa: N802
        assert isinstance(value[0], bytes)
        self._states.burn()
        self._mine[key] = value

    def removeKey(self, key):  # noqa: N802
        assert key in self._mine, "a piece that is not there was removed"
        del self._mine[key]


class DiskFullError(Exception):
    """A batch fails."""


class FakeHandle:
    """The handle of one partition: ``current`` is the state of the cell that is being served.

    With a ``fuse`` it allows for so many writes, and then fails.
    """

    def __init__(self):
        self.cells, self.cell, self.fuse = {}, None, None

    def burn(self):
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise DiskFullError

    @property
    def current(self):
        return self.cells.setdefault(self.cell, {"index": {}, "pieces": {}, "timers": set()})

    def getValueState(self, name, schema):  # noqa: N802
        return FakeState(self, name)

    def getMapState(self, name, key_schema, value_schema):  # noqa: N802
        return FakeState(self, name)

    def registerTimer(self, milliseconds):  # noqa: N802
        assert isinstance(milliseconds, int)
        self.current["timers"].add(milliseconds)


class FakeCells(ABC):
    """Parcels to cells, watermarks and timers. What is joined is for subclasses to say."""

    def __init__(self, names, clock, delays, cells, seed):
        self.names, self.clock, self.cells = names, clock, cells
        self.delays = [clock.delay(delay) for delay in delays]
        self.rng = np.random.default_rng(seed)
        self.handle, self.newest, self.watermark = FakeHandle(), [None] * len(names), 0
        self.counted = Counter()
        self.start()

    @abstractmethod
    def make_query(self, name):
        """The query, under this name."""

    @abstractmethod
    def table(self, side, *columns):
        """The rows of one side with all that ``Pack`` asks for."""

    @abstractmethod
    def pack(self, side):
        """What makes parcels of the rows of one side."""

    @abstractmethod
    def found(self, row):
        """What is to be compared of a row that came out."""

    def start(self):
        """A new processor, as after a restart of the query: it has a new name, and knows nothing."""
        self.query = self.make_query(f"test-{self.rng.integers(1 << 62)}")
        self.processor = CellProcessor(self.query)

    def parcels(self, side, *columns):
        """The rows of one side as Spark would hand them on, in several Arrow batches."""
        table, pack = self.table(side, *columns), self.pack(side)
        parts = table.combine_chunks().to_batches(max_chunksize=int(self.rng.integers(1, table.num_rows + 2)))
        return pa.Table.from_batches(list(pack(iter(parts))))

    def batch(self, *sides, fail=False):
        """One micro-batch: the number and columns of each side that has rows; returns what came out.

        A batch that fails does so after some of its writes, within a cell or between two; nothing of it is committed.
        """
        packed = {side[0]: self.parcels(*side) for side in sides if len(side[1])}
        before = copy.deepcopy(self.handle.cells)
        if fail:
            self.handle.fuse = int(self.rng.integers(0, 3 * self.cells + 1))
        try:
            parcels = self._serve(packed)
        except DiskFullError:
            parcels = []
        self.handle.fuse = None
        if fail:
            self.handle.cells = before
            return []
        for side, table in packed.items():
            known = table[NEWEST].cast(pa.int64()).drop_null().to_pylist()
            if not known:
                continue  # no row has a time
            latest = max(known) // 1000
            self.newest[side] = latest if self.newest[side] is None else max(latest, self.newest[side])
        if None not in self.newest:
            moved = min(newest - delay for newest, delay in zip(self.newest, self.delays, strict=True))
            self.watermark = max(self.watermark, moved)
        return self._read(parcels)

    def _serve(self, packed):
        """The cells that have rows in any order, and then the timers that are due."""
        self.processor.init(self.handle)
        timer_values = SimpleNamespace(getCurrentWatermarkInMs=lambda: self.watermark)
        together = pd.concat(
            [pd.DataFrame({CELL: []}, dtype=int), *(table.drop([NEWEST]).to_pandas() for table in packed.values())]
        )
        parcels = []
        for cell in self.rng.permutation(together[CELL].unique()):
            self.handle.cell = int(cell)
            rows = together[together[CELL] == cell]
            cut = int(self.rng.integers(0, len(rows) + 1))
            chunks = iter([rows.iloc[:cut], rows.iloc[cut:]])
            parcels += list(self.processor.handleInputRows((int(cell),), chunks, timer_values))
        for cell in list(self.handle.cells):
            self.handle.cell = cell
            for timer in sorted(timer for timer in self.handle.current["timers"] if timer <= self.watermark):
                due = SimpleNamespace(getExpiryTimeInMs=lambda timer=timer: timer)
                parcels += list(self.processor.handleExpiredTimer((cell,), timer_values, due))
                self.handle.current["timers"].discard(timer)
        self.processor.close()
        return parcels

    def _read(self, parcels):
        pairs = []
        for frame in parcels:
            for found in unpack(iter([pa.RecordBatch.from_pandas(frame, preserve_index=False)])):
                for row in found.to_pylist():
                    if row[COUNTERS] is not None:
                        names = stream_counter_names(self.query.make(), self.names)
                        self.counted.update(dict(zip(names, row[COUNTERS], strict=True)))
                    else:
                        pairs.append(self.found(row))
        return pairs

    @property
    def state(self):
        """What is committed: rows of the index and of the pieces, and bytes."""
        cells = [cell for number, cell in self.handle.cells.items() if number != CONTROL]
        values = [value[0] for cell in cells for part in ("index", "pieces") for value in cell[part].values()]
        return SimpleNamespace(rows=len(values), bytes=sum(map(len, values)))

    def restart(self):
        """Kill the query: all that survives is what Spark has stored."""
        self.handle.cells = pickle.loads(pickle.dumps(self.handle.cells))
        self.start()
