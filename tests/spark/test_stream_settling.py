"""``how=`` and ``keep=`` of streams, cells and buckets without Spark: each row of the answer of tables exactly once.

Batches are cut and shuffled at random, batches fail, workers forget, and the query is restarted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import haply as hp
from fake_stream import FakeCells
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.streaming import settling as stream_settling
from haply.engines.spark.streaming import worker as stream_worker
from haply.engines.spark.streaming.join import BLOCKS_PER_REACH
from haply.engines.spark.streaming.parcels import GROUP, OWN, UNTIL, Clock, RowNumbers, StreamPack, unpack
from haply.engines.spark.streaming.settling import BUCKET, SPREAD, BucketPack, Settling
from haply.engines.spark.streaming.stateful import BucketProcessor
from haply.engines.spark.streaming.worker import KIND, CellQuery, CellResult
from haply.joins import PairJoin, TimingJoin
from haply.joins.cells.exchange import Blocks
from haply.joins.cells.rows import FITS, TIME, RowSpec
from haply.joins.operators.operator import ANY_DELAY
from haply.joins.operators.timing import last_times, reach_back
from haply.models import Gaussian, Uniform
from haply.planning.answers.join import ROW_IDS
from haply.planning.answers.options import Answer
from haply.probability.region import Difference, Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.threshold import Threshold

BAND, P = 0.8, 0.4
HOWS = ("inner", "left", "right", "outer", "semi", "anti")
ANSWERS = [
    *(Answer(how) for how in HOWS[1:]),
    *(Answer(how, "best_left", 2, "id") for how in ("inner", "left", "right", "outer")),
    *(Answer(how, "best_right", None, "id") for how in HOWS),
    *(Answer(how, "mutual", None, "id") for how in HOWS),
    Answer("inner", "best_left", 1, None, "all"), Answer("outer", "mutual", None, None, "all"),
]  # fmt: skip
SIDES = ("left", "right")
FIELDS = [("id", pa.int64()), ("t", pa.float64()), ("key", pa.int64())]


class AnsweredCells(FakeCells):
    """Two stages: cells, then what SQL would ask, then buckets. The state of buckets is beside that of cells."""

    def __init__(self, answer, case, cells, seed=0):
        self.answer, self.case = answer, case
        self.told = {number: ROW_IDS[side] for number, side in enumerate(SIDES) if side in answer.identified}
        self.number = 0
        super().__init__(SIDES, Clock.of(case.stamps, case.window + case.delay), (case.delay,) * 2, cells, seed)

    def make_query(self, name):
        case, value = self.case, self.case.value
        kinds = [*(kind for _, kind in FIELDS), case.sides[0][value].type]
        fields = [(f"{prefix}{k}", kind) for prefix in "lr" for k, kind in enumerate(kinds)]
        schema = pa.schema(
            [
                *fields, ("probability", pa.float64()), (COUNTERS, pa.list_(pa.int64())), (KIND, pa.int8()),
                *((name, pa.binary()) for name in self.told.values()), (GROUP, pa.float64()),
            ]
        )  # fmt: skip
        result = CellResult(None, tuple(tuple(f"{p}{k}" for k in range(4)) for p in "lr"), schema, self.told)
        held = schema.remove(schema.get_field_index(COUNTERS))
        held = held.remove(held.get_field_index(GROUP))
        ranked = tuple(SIDES.index(side) for side in self.answer.ranked)
        order = {side: ("r0",) if side == 0 else ("l0",) for side in ranked}
        compared = ("l3", "r3") if ranked else None
        self.settling = Settling(
            self.answer.how, ranked, tuple(SIDES.index(side) for side in self.answer.preserved), self.told,
            self.answer.entangled, self.answer.k or 1, self.answer.ties == "all", order, compared,
            held.append(pa.field(SPREAD, pa.float64())) if ranked else held,
            pa.schema([("l0", pa.int64()), ("r0", pa.int64()), (KIND, pa.int8())]), name,
        )  # fmt: skip
        self.buckets = BucketProcessor(self.settling)
        ends = dict.fromkeys(self.told, UNTIL if case.timing else TIME)
        return CellQuery(case.make, ("l3", "r3"), result, case.window, self.clock, name, (), ends)

    def table(self, side, table):
        prefix, case = "lr"[side], self.case
        key = np.asarray(table["key"].to_numpy(zero_copy_only=False), np.float64)
        columns = {f"{prefix}{k}": table[name] for k, name in enumerate(("id", "t", "key", case.value))}
        fits = ~np.isnan(key)
        if not case.timing:
            columns[TIME] = table["t"]
            fits &= np.isfinite(table["t"].to_numpy(zero_copy_only=False))
        columns |= {GROUP: np.nan_to_num(key), FITS: fits, OWN: table["id"].to_numpy() % 9 != side}
        return pa.table(columns)

    def pack(self, side):
        prefix, case, name = "lr"[side], self.case, SIDES[side]
        place = partial(_place, is_left=side == 0, width=case.window if case.timing else BAND)
        spec = RowSpec(f"{prefix}3", tuple(f"{prefix}{k}" for k in range(4)), (), place, "value", None)
        more = {}
        if case.timing:
            more = {"timed": f"{prefix}3", "reach": partial(reach_back, threshold=Threshold(P))}
            if name in self.answer.identified:
                more["lasting"] = partial(last_times, threshold=Threshold(P))
        return StreamPack(
            side, spec, Blocks(self.cells, BLOCKS_PER_REACH * case.window), self.clock,
            None if case.timing else case.window, numbered=name in self.answer.identified,
            alone=name in self.answer.preserved, **more,
        )  # fmt: skip

    def batch(self, *sides, fail=False):
        found = super().batch(*sides, fail=fail)
        self.number += not fail
        return found

    def _serve(self, packed):
        parcels = super()._serve(packed)
        found, counters = [], []
        for frame in parcels:
            for batch in unpack(iter([pa.RecordBatch.from_pandas(frame, preserve_index=False)])):
                table = pa.Table.from_batches([batch])
                counting = table[COUNTERS].is_valid()
                counters.append(table.filter(counting))
                found.append(table.filter(pa.compute.invert(counting)).drop_columns([COUNTERS]))
        self.counters = counters
        if not found:
            return []
        together = self._asked(pa.concat_tables(found))
        packer, rows = BucketPack(self.settling, 3), together.to_batches(max_chunksize=int(self.rng.integers(1, 40)))
        packed = [batch.to_pandas() for batch in packer(iter(rows))]
        out = []
        self.buckets.init(self.handle)
        if packed:
            together = pd.concat(packed)
            for bucket in self.rng.permutation(together[BUCKET].unique()):
                self.handle.cell = ("bucket", int(bucket))
                parts = iter([together[together[BUCKET] == bucket]])
                out += list(self.buckets.handleInputRows((int(bucket),), parts, None))
        return out

    def _asked(self, table):
        """What SQL asks of pairs: the keys, the window, and a condition on both rows."""
        pairs = table[KIND].is_null().to_numpy()
        keep = np.ones(table.num_rows, bool)
        for k in np.flatnonzero(pairs):
            row = {name: table[name][int(k)].as_py() for name in ("l0", "l1", "l2", "r0", "r1", "r2")}
            keep[k] = row["l2"] == row["r2"] and row["l0"] % 5 != row["r0"] % 5
            keep[k] &= self.case.timing or abs(row["l1"] - row["r1"]) <= self.case.window
        return table.filter(pa.array(keep))

    def _read(self, parcels):
        for table in self.counters:
            for row in table[COUNTERS].to_pylist():
                names = stream_worker.stream_counter_names(self.query.make(), self.names)
                self.counted.update(dict(zip(names, row, strict=True)))
        return [
            (row["l0"], row["r0"], row[KIND])
            for frame in parcels
            for batch in unpack(iter([pa.RecordBatch.from_pandas(frame, preserve_index=False)]))
            for row in batch.to_pylist()
        ]

    def found(self, row):
        raise AssertionError("answers of streams are read from their parcels")


def _place(model, is_left, width):
    return row_intervals(model, is_left, Region(-width, width), Threshold(P), True)


def random_side(rng, n, value, long):
    """Rows with nulls and equal rows, and no times for some; the last ones only move the clock."""

    def maybe(value, share=0.1):
        return None if rng.random() < share else value

    t = np.sort(rng.integers(0, 120, n)).astype(float)
    means, lengths = rng.uniform(-4, 4, n), rng.uniform(1.0, 1.9, n)
    if value == "x":
        model = Gaussian(means, rng.uniform(0.05, 0.5, n)).to_arrow().to_pylist()
    else:
        model = Uniform(t - lengths, t).to_arrow().to_pylist()
    values = [maybe(one) for one in model]
    times = [float(time) for time in t]
    if value == "x":
        times = [maybe(time, 0.04) for time in times]
        times[n // 2] = float("nan")
        times[n // 3] = float("inf")
    keys = [maybe(int(rng.integers(2))) for _ in range(n)]
    kind = (Gaussian if value == "x" else Uniform).example().to_arrow().type
    table = pa.table(
        {"id": pa.array(np.arange(n)), "t": times, "key": pa.array(keys, pa.int64()), value: pa.array(values, kind)}
    )
    arrives = t + rng.uniform(0, long, n)
    return table, arrives


def random_case(seed, timing):
    rng = np.random.default_rng(seed)
    value, window, delay, n = ("when" if timing else "x"), float(rng.choice([2, 6])), float(rng.choice([0.0, 5.0])), 70
    sides, batches, count = [], [], int(rng.choice([4, 9]))
    for _ in SIDES:
        table, arrives = random_side(rng, n, value, delay)
        sides.append(table)
        cuts = np.sort(rng.integers(0, n + 1, count - 1))
        batches.append(np.split(np.argsort(arrives, kind="stable"), cuts))
    if timing:
        make = partial(TimingJoin, window, P, max_delay=ANY_DELAY)
    else:
        make = partial(PairJoin, Difference("x", "x", Region(-BAND, BAND)), P, window=window)
    return SimpleNamespace(
        timing=timing, stamps=False, value=value, window=window, delay=delay, sides=sides, make=make,
        batches=list(zip(*batches, strict=True)), cells=int(rng.choice([1, 3, 5])),
    )  # fmt: skip


def from_tables(case, answer, left_out=(frozenset(), frozenset())):
    """The answer of tables, as ids."""
    on = "left.id % 9 != 0 AND right.id % 9 != 1 AND left.key = right.key AND left.id % 5 != right.id % 5"
    options = {"time": "t"} if not case.timing else {"time": "when"}
    if not case.timing:
        on += f" AND abs(left.x - right.x) <= {BAND}"
    tables = [
        table.filter(pa.array([one not in gone for one in table["id"].to_pylist()]))
        for table, gone in zip(case.sides, left_out, strict=True)
    ]
    found = hp.join(
        *tables, on, P, **options, window=case.window, how=answer.how, keep=answer.keep, k=answer.k,
        order_by=answer.order_by, ties=answer.ties,
    )  # fmt: skip
    names = ("id", "id") if answer.left_only else ("id_left", "id_right")
    return Counter((row[names[0]], None if answer.left_only else row[names[1]]) for row in found.to_pylist())


def ids_of(rows, answer):
    return Counter((left, None if answer.left_only else right) for left, right, _ in rows if 1000 not in (left, right))


def clock_row(case, time):
    """A row that meets none: far away, or with a key of its own."""
    far = Gaussian([9e5], [0.1]) if not case.timing else Uniform([time - 1.0], [time])
    columns = {"id": [1000], "t": [time], "key": pa.array([0]), case.value: far.to_arrow()}
    return pa.table(columns)


def run(case, answer, disturb=None, seed=0, clock=float):
    """All batches, and then rows that only move the clock; returns what came out, batch by batch."""
    stream = AnsweredCells(answer, case, case.cells, seed)
    RowNumbers.of_task = classmethod(lambda cls: RowNumbers(stream.number, 0))
    out = []

    def push(rows):
        if disturb:
            disturb(stream, rows)
        out.append(stream.batch(*rows))

    for chosen in case.batches:
        push([(side, case.sides[side].take(pa.array(chosen[side]))) for side in (0, 1)])
    for time in (1000.0, 2000.0):
        push([(side, clock_row(case, clock(time + 400.0 * case.timing * side))) for side in (0, 1)])
    push([])
    return stream, out


@pytest.fixture(autouse=True)
def own_numbers(monkeypatch):
    monkeypatch.setattr(RowNumbers, "of_task", RowNumbers.of_task)  # put back after the test
    for module in (stream_worker, stream_settling):
        module._cached_states.clear()
    yield
    for module in (stream_worker, stream_settling):
        module._cached_states.clear()


def forget(stream, rows):
    stream_worker._cached_states.clear()
    stream_settling._cached_states.clear()


def fail(stream, rows):
    stream.batch(*rows, fail=True)


def restart(stream, rows):
    stream.restart()


def check(case, answer, out):
    wanted, found = from_tables(case, answer), ids_of(itertools.chain(*out), answer)
    assert found == wanted, (answer, found - wanted, wanted - found)
    return wanted


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("timing", [False, True], ids=["certain times", "uncertain times"])
@pytest.mark.parametrize("seed", range(5))
def test_streams_answer_as_tables_do(seed, timing, part):
    case = random_case(seed, timing)
    for answer in ANSWERS[part::6]:
        stream, out = run(case, answer, seed=seed)
        wanted = check(case, answer, out)
        assert len(wanted) > 3
        assert stream.counted["late_left"] == stream.counted["late_right"] == 0
        held = [cell for name, cell in stream.handle.cells.items() if isinstance(name, tuple)]
        assert not any(cell["index"] or cell["pieces"] for cell in held), "buckets are empty when all is settled"


def test_streams_of_timestamps():
    """The clock of timestamps counts milliseconds; times are microseconds."""
    case, begin = random_case(2, False), 1.7e15
    case.stamps, case.window, case.delay = True, case.window * 1e6, case.delay * 1e6
    for side, table in enumerate(case.sides):
        times = [None if t is None else begin + 1e6 * t for t in table["t"].to_pylist()]
        case.sides[side] = table.set_column(1, "t", pa.array(times))
    case.make = partial(PairJoin, Difference("x", "x", Region(-BAND, BAND)), P, window=case.window)
    for answer in (Answer("outer"), Answer("right", "best_left", 2, "id")):
        _, out = run(case, answer, clock=lambda time: begin + 1e6 * time)
        check(case, answer, out)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("disturb", [forget, fail, restart])
@pytest.mark.parametrize("timing", [False, True], ids=["certain times", "uncertain times"])
def test_exactly_once_whatever_fails(timing, disturb, monkeypatch):
    monkeypatch.setattr(stream_settling, "_FEW", 1)  # pieces stay apart, as if they were large
    case = random_case(11, timing)
    for answer in (
        Answer("outer"),
        Answer("semi"),
        Answer("left", "mutual", None, "id"),
        Answer("right", "best_left", 2, "id"),
    ):
        _, out = run(case, answer)
        forget(None, None)
        _, again = run(case, answer, disturb)
        check(case, answer, again)
        assert [Counter(batch) for batch in again] == [Counter(batch) for batch in out]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("timing", [False, True], ids=["certain times", "uncertain times"])
def test_late_rows_are_in_no_answer(timing):
    """Rows that come in the last batches, long after their time: usable ones, and such that take no part."""
    case = random_case(21, timing)
    late = []
    for table, ids in zip(case.sides, (range(0, 70, 7), range(3, 70, 9)), strict=True):
        times = table["t"].to_numpy(zero_copy_only=False)
        timed = table["when" if timing else "t"].is_valid().to_pylist()  # rows without a time are never late
        late.append({k for k in ids if timed[k] and times[k] < 40.0})
    batches = [
        [[k for k in chosen if k not in gone] for chosen, gone in zip(both, late, strict=True)] for both in case.batches
    ]
    for answer in (Answer("outer"), Answer("anti"), Answer("left", "mutual", None, "id")):
        stream = AnsweredCells(answer, case, case.cells)
        RowNumbers.of_task = classmethod(lambda cls, stream=stream: RowNumbers(stream.number, 0))

        def push(chosen, stream=stream):
            given = [table.take(pa.array(ids, pa.int64())) for table, ids in zip(case.sides, chosen, strict=True)]
            return stream.batch(*enumerate(given))

        out = [push(chosen) for chosen in batches]
        out.append(stream.batch(*((side, clock_row(case, 1000.0 + 400.0 * side)) for side in (0, 1))))
        out.append(push([sorted(ids) for ids in late]))
        out.append(stream.batch())
        found = ids_of(itertools.chain(*out), answer)
        assert found == from_tables(case, answer, late)
        counted = [stream.counted[f"late_{side}"] for side in SIDES]
        for side, count, gone in zip(SIDES, counted, late, strict=True):
            if side in answer.preserved:
                assert count == len(gone), "those that take no part as well"
        assert all(map(len, late))


@pytest.mark.long
def test_a_row_is_alone_or_has_pairs_also_if_times_grow_longer_and_longer():
    """Times that reach further back than any before them come too late for rows that have been told to be alone."""
    case, lost = random_case(31, True), 0
    case.delay = 0.0
    for side, table in enumerate(case.sides):
        ends = table["t"].to_numpy()
        lengths = np.where(ends < 60.0, 0.1, 4.0 * case.window)
        case.sides[side] = table.set_column(3, "when", Uniform(ends - lengths, ends).to_arrow())
    case.batches = [(rows, rows) for rows in np.array_split(np.arange(70), 24)]
    for answer in (Answer("outer"), Answer("left"), Answer("right", "mutual", None, "id")):
        stream, out = run(case, answer)
        rows = [row[:2] for row in itertools.chain(*out) if 1000 not in row]
        assert len(rows) == len(set(rows))
        for side, name in enumerate(SIDES):
            ids = [row[side] for row in rows if row[side] is not None]
            alone = {row[side] for row in rows if row[1 - side] is None}
            assert not alone & {row[side] for row in rows if row[1 - side] is not None}
            if name in answer.preserved:
                assert set(ids) == set(range(70)), "each row is told"
        lost += stream.counted["late_left"] + stream.counted["late_right"]
    assert lost


def test_a_row_that_was_told_to_be_alone_gets_no_partner_later():
    """The fourth batch tells that row 2 is alone. It also has a longer time than any before it, so that the row is
    kept again; and in the fifth comes one that would be its partner."""
    times = np.array([46.0, 50.0, 55.0, 60.0, 62.0])
    left, right = ([2, 3, 4, 5, 6], [0] * 5, [0.1] * 5), ([2, 3, 4, 5, 8], [1, 1, 1, 1, 0], [0.1] * 3 + [24.0] * 2)
    sides = []
    for ids, keys, lengths in (left, right):
        when = Uniform(times - np.array(lengths), times).to_arrow()
        sides.append(pa.table({"id": ids, "t": times, "key": pa.array(keys, pa.int64()), "when": when}))
    case = random_case(31, True)
    case.sides, case.window, case.delay, case.cells = sides, 6.0, 0.0, 3
    case.make = partial(TimingJoin, 6.0, P, max_delay=ANY_DELAY)
    case.batches = [([k], [k]) for k in range(5)]
    assert from_tables(case, Answer("outer"))[(2, 8)], "on tables they are a pair"
    for answer in (Answer("outer"), Answer("left", "mutual", None, "id")):
        stream, out = run(case, answer)
        assert [k for k, batch in enumerate(out) for row in batch if row[0] == 2] == [3], "once, and before row 8"
        assert (2, None) in ids_of(itertools.chain(*out), answer)
        assert stream.counted["late_right"] == 1
