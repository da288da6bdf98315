"""What ``hp.progress`` and ``hp.watch`` show, from recorded reports; the real ones are in ``tests/spark``."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest
from pyspark.sql import Row
from rich.console import Console

import haply as hp
from haply.drawing.live import shown
from haply.engines.spark.runtime.following import StagesSeen, StagesTold, Work
from haply.engines.spark.streaming import reports
from haply.engines.spark.streaming.reports import BatchReport, batches_of
from haply.looking.watching import BatchTable, TaskBar


def progress_of(number, rows=600, observed=True):
    """What Spark reports of a batch, as recorded; the parts that nobody reads are left out."""
    counts = {"candidates": 1527, "evaluated": 882, "rejected:tails": 645, "stored_left": 300, "stored_right": 300}
    return {
        "batchId": number, "batchDuration": 2500, "numInputRows": rows, "name": None,
        "stateOperators": [
            {"operatorName": "transformWithStateInPandasExec", "numRowsTotal": 14, "memoryUsedBytes": 1_097_796},
            {"operatorName": "transformWithStateInPandasExec", "numRowsTotal": 7, "memoryUsedBytes": 2_204},
        ],
        "observedMetrics": {
            "haply-14ba": Row(**counts), "mine": Row(kept=9),
            "haply-90e5": Row(values=[605], schema={"type": "struct", "fields": [{"name": "kept"}]}),  # over Connect
        } if observed else {},
    }  # fmt: skip


class FakeQuery:
    """A query that tells of one batch more at each look, and then ends."""

    def __init__(self, batches, failure=None, ends=True):
        self.batches, self.failure, self.ends, self.looks = batches, failure, ends, 0

    @property
    def isActive(self):  # noqa: N802
        self.looks += 1
        return self.looks < len(self.batches) or not self.ends

    @property
    def recentProgress(self):  # noqa: N802
        return self.batches[: self.looks]

    def awaitTermination(self):  # noqa: N802
        if self.failure is not None:
            raise self.failure


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(reports, "_SECONDS_BETWEEN_LOOKS", 0.001)


def on_terminal(picture, width=60):
    text = io.StringIO()
    Console(file=text, width=width).print(picture)
    return text.getvalue()


def test_a_report_of_spark_is_read():
    found = BatchReport.of(progress_of(3))
    assert (found.number, found.rows, found.seconds, found.rate) == (3, 600, 2.5, 240.0)
    assert (found.state_rows, found.state_bytes) == (21, 1_100_000)
    assert found.counters["candidates"] == 1527
    assert found.counters["kept"] == 605  # and not what others observe
    line = "micro-batch 3: 600 rows in 2.5 s; state 21 rows, 1.1 MB; 605 kept of 1,527 candidates"
    assert str(found) == line
    assert str(BatchReport.of(progress_of(4, rows=1, observed=False))) == (
        "micro-batch 4: 1 row in 2.5 s; state 21 rows, 1.1 MB"
    )


def test_over_connect_the_sources_tell_how_many_rows_came():
    told = progress_of(3) | {"numInputRows": None, "sources": [{"numInputRows": 200}, {"numInputRows": 50}]}
    assert BatchReport.of(told).rows == 250


def test_a_batch_without_rows_has_no_number_of_them_over_connect():
    assert BatchReport.of(progress_of(5, rows=None)).rows == 0


def test_batches_are_told_once_each():
    query = FakeQuery([progress_of(k) for k in range(4)])
    assert [[one.number for one in new] for new in batches_of(query)] == [[0], [1], [2], [3]]


def test_a_table_of_batches():
    table = BatchTable([BatchReport.of(progress_of(k)) for k in (8, 9)])
    lines = on_terminal(table, 80).splitlines()
    assert lines[0].split() == list(table.columns())
    assert lines[2].split() == ["9", "600", "240", "2.5", "s", "21", "1.1", "MB", "1,527", "882", "605"]
    assert max(len(line.rstrip()) for line in on_terminal(table).splitlines()) <= 60
    html = table._repr_html_()
    assert html.count("<tr>") == 3
    assert "<th>kept</th>" in html
    assert "<td>605</td>" in html


def test_without_a_funnel_there_are_no_columns_for_it():
    table = BatchTable([BatchReport.of(progress_of(1, observed=False))])
    assert "kept" not in table.columns()
    assert "No micro-batch" in on_terminal(BatchTable([]))
    assert "No micro-batch" in BatchTable([])._repr_html_()


def test_watch_prints_a_line_for_each_batch_in_a_pipe(capsys):
    hp.watch(FakeQuery([progress_of(k) for k in range(3)]))
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "micro-batch 0", "micro-batch 1", "micro-batch 2",
    ]  # fmt: skip


def test_watch_ends_when_the_time_is_over():
    begun = time.monotonic()
    hp.watch(FakeQuery([progress_of(0)], ends=False), seconds=0.05)
    assert 0.05 <= time.monotonic() - begun < 5.0


def test_watch_raises_what_the_query_fails_with(capsys):
    with pytest.raises(hp.HaplyError, match="sd is negative"):
        hp.watch(FakeQuery([progress_of(0)], failure=hp.HaplyError("sd is negative")))
    assert "micro-batch 0" in capsys.readouterr().out


def test_ctrl_c_ends_the_watching_and_not_the_query(capsys):
    class Interrupted(FakeQuery):
        """Ctrl-C comes at the second look."""

        @property
        def isActive(self):  # noqa: N802
            self.looks += 1
            if self.looks == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return True

    before = signal.getsignal(signal.SIGINT)
    hp.watch(Interrupted([progress_of(0)], ends=False))
    assert signal.getsignal(signal.SIGINT) is before
    assert "The query goes on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hp.watch("query"), r"Expected a StreamingQuery, as writeStream.start\(\) returns it.*Found str"),
        (lambda: hp.watch(FakeQuery([]), seconds=0), "Expected seconds above 0.*Found 0"),
        (lambda: hp.progress("spark").__enter__(), "Expected a SparkSession.*Found str"),
    ],
)
def test_wrong_arguments_are_refused(call, words):
    with pytest.raises(hp.HaplyError, match=words):
        call()


# -- bars --------------------------------------------------------------------------------------------------------------


def test_a_bar():
    bar = TaskBar(Work(4, 3, 40, 31, 12_345), "<Spark>", time.perf_counter() - 67.0)
    text = on_terminal(bar, 120)
    assert "3 of 4 stages, 31 of 40 tasks, 12,345 pairs so far" in text
    assert "1:07" in text
    html = bar._repr_html_()
    assert '<progress value="31" max="40">' in html
    assert "&lt;Spark&gt;" in html
    assert "pairs" not in str(Work(1, 0, 1, 0))
    assert str(Work()) == "no stage yet"


def test_stages_of_a_classic_session_are_counted_from_their_start():
    def stage(tasks, done):
        return SimpleNamespace(numTasks=tasks, numCompletedTasks=done)

    active, infos = [7], {7: stage(99, 0)}  # a stage of somebody else
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(active), getStageInfo=lambda k: infos.get(k))
    seen = StagesSeen(tracker)
    assert seen.look(None) == Work()
    active[:], infos[8], infos[9] = [7, 8, 9], stage(4, 1), None  # of the last one Spark knows nothing yet
    assert seen.look(5) == Work(1, 0, 4, 1, 5)
    active[:], infos[8], infos[9] = [7, 9], stage(4, 4), stage(6, 2)
    assert seen.look(6) == Work(2, 1, 10, 6, 6)
    active[:] = [7]
    del infos[9]  # forgotten
    assert seen.look(7) == Work(2, 2, 10, 10, 7)


def test_stages_over_connect_are_those_of_all_actions():
    told = []
    actions = StagesTold(told.append)

    def stage(tasks, completed, done=False):
        return SimpleNamespace(num_tasks=tasks, num_completed_tasks=completed, done=done)

    actions.handle(stages=[stage(2, 2, True), stage(4, 1)], inflight_tasks=2, operation_id="a", done=False)
    actions.handle(stages=None, inflight_tasks=0, operation_id="b", done=False)
    actions.handle(stages=[stage(3, 0)], inflight_tasks=1, operation_id="b", done=False)
    assert told == [Work(2, 1, 6, 3), Work(3, 1, 9, 3)]


# -- where it is shown -------------------------------------------------------------------------------------------------


def test_a_pipe_shows_nothing():
    text = io.StringIO()
    with shown(Console(file=text), keep=False) as show:
        assert show is None
    assert text.getvalue() == ""


@pytest.mark.parametrize("keep", [True, False])
def test_a_terminal_shows_the_last_picture(keep):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with shown(console, keep) as show:
        show(TaskBar(Work(2, 1, 4, 3), "Spark", time.perf_counter()))
    assert "1 of 2 stages" in text.getvalue()
    assert text.getvalue().endswith("\x1b[2K") != keep  # wiped away at the end


def test_a_notebook_shows_one_picture_that_changes(monkeypatch):
    pictures = []

    def display(picture, display_id):
        pictures.append([picture])
        return SimpleNamespace(update=pictures[-1].append)

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    bars = [TaskBar(Work(2, k, 4, k), "Spark", 0.0) for k in range(3)]
    with shown(Console(force_jupyter=True), keep=False) as show:
        for bar in bars:
            show(bar)
    assert pictures == [bars]
