"""The demo's part on streams: unconfirmed alarms, reported as soon as nothing can confirm them.

The story goes on with the night of ``timing``: seismic alarms and acoustic detections arrive as two streams, each event
when it is detected. An alarm that no noise has confirmed must be looked at by a person. It can be reported only when no
further noise can confirm it: an anti join of streams waits for that, and reports each alarm once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from haply.demo.timing import THRESHOLD, WINDOW, Night

if TYPE_CHECKING:
    pass

MAX_DELAY = 5.0
"""Seconds that an event may arrive after newer ones of its side."""
_ARRIVALS = 2
"""Files in which the events of each stream arrive, one in each micro-batch."""

HEADING = "Alarms that nobody confirmed"
HEADER = ("method", "alarms reported", "nothing had passed", "still open at the end")


@dataclass(frozen=True)
class UnconfirmedScore:
    """What an anti join reported: how many alarms, how many of them are not a passage, and how many are undecided."""

    method: str
    reported: int
    rightly: int
    still_open: int

    def cells(self) -> list[str]:
        """Return the line of the comparison."""
        return [self.method, f"{self.reported}", f"{self.rightly}", f"{self.still_open}"]


@dataclass
class UnconfirmedResult:
    """What this part found."""

    haply: UnconfirmedScore
    detections: UnconfirmedScore
    equals_tables: bool
    """Whether the stream reported the alarms that an anti join of the tables returns, but for those still open."""
    alone: int
    """Alarms of the night for which there is no noise in truth."""


def find_unconfirmed(spark: Any, night: Night, confirmed: np.ndarray, detected: np.ndarray) -> UnconfirmedResult:
    """Run the anti join on two streams.

    ``confirmed`` and ``detected`` are flags for each pair of events of the night: whether it happened within the window
    with the wanted probability, and whether it was detected within it.
    """
    with tempfile.TemporaryDirectory(prefix="haply-demo-") as folder, _small_stream(spark):
        reported = _run(spark, night, Path(folder))
    alone = np.logical_not(night.true_pairs.any(axis=1))
    expected = np.flatnonzero(~confirmed.any(axis=1))
    still_open = np.setdiff1d(expected, reported)
    naive = np.flatnonzero(~detected.any(axis=1))
    return UnconfirmedResult(
        UnconfirmedScore("haply, anti join of streams", len(reported), int(alone[reported].sum()), len(still_open)),
        UnconfirmedScore(f"no detection within {WINDOW:g} s", len(naive), int(alone[naive].sum()), 0),
        len(np.unique(reported)) == len(reported) and np.isin(reported, expected).all().item(),
        int(alone.sum()),
    )


@contextmanager
def _small_stream(spark: Any) -> Iterator[None]:
    """Use few tasks and cells for a stream of a few rows: each micro-batch waits for all of them."""
    wanted = {"spark.sql.shuffle.partitions": "1", "spark.haply.cells": "2"}
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def _run(spark: Any, night: Night, folder: Path) -> np.ndarray:
    """Return the numbers of the alarms that the stream reported."""
    from haply.api import join
    from haply.engines.spark.columns import latency

    sides = []
    for name, table in (("seismic", night.seismic), ("acoustic", night.acoustic)):
        table = table.select(["event", "detected", "edges", "probs"])
        (folder / name).mkdir()
        for k, rows in enumerate(np.array_split(np.arange(table.num_rows), _ARRIVALS)):
            file = folder / name / f"{k}.parquet"
            pq.write_table(table.take(pa.array(rows)), file)
            # Spark reads files by their age, in any order if two are equally old, as these could be.
            os.utime(file, (1e9 + k, 1e9 + k))
        schema = spark.read.parquet(str(folder / name)).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        sides.append(stream.select("event", latency("detected", "edges", "probs").alias("happened")))
    alone = join(
        sides[0], sides[1], time="happened", window=WINDOW, threshold=THRESHOLD, max_delay=MAX_DELAY, how="anti"
    )
    query = (
        alone.select("event")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "alone"))
    )
    query.awaitTermination()
    return np.sort(spark.read.schema("event long").parquet(str(folder / "alone")).toArrow()["event"].to_numpy())


# -- telling it --------------------------------------------------------------------------------------------------------


def _scene() -> str:
    return (
        "The events of the same night arrive as two streams. Which seismic alarms did no acoustic event confirm? An "
        f"alarm is confirmed if some noise happened within {WINDOW:g} s of it with a probability of at least "
        f"{THRESHOLD:g}. A noise may be noticed seconds late and arrive out of order, so that an alarm is "
        "reported when no noise can confirm it any more: not earlier, once, and also if the query is stopped and "
        "restarted between."
    )


def verdict(result: UnconfirmedResult) -> str:
    """Say what the scores say."""
    ours, other = result.haply, result.detections
    waiting = f" {ours.still_open} more were still open when the data ended." if ours.still_open else ""
    same = " They are those of an anti join of the whole tables." if result.equals_tables else ""
    return (
        f"The stream reported {ours.reported} alarms; in {ours.rightly} of these cases nothing had passed."
        f"{waiting}{same} By times of detection {other.reported} alarms would seem unconfirmed, and "
        f"{other.reported - other.rightly} of them were real passages that a sensor heard; with haply "
        f"{ours.reported - ours.rightly}."
    )


def in_short(result: UnconfirmedResult) -> tuple[str, str]:
    """Say how many alarms are reported that somebody had heard, by haply and by times of detection."""
    ours, other = (
        f"{score.reported} reported, {score.reported - score.rightly} wrongly"
        for score in (result.haply, result.detections)
    )
    return f"{ours}, as a stream", f"{other} ({result.detections.method})"


def add_section(page: Any, result: UnconfirmedResult) -> None:
    """Add the alarms that nobody confirmed to the report."""
    page.section(HEADING)
    page.prose(_scene())
    page.code(
        f'alone = hp.join(seismic_stream, acoustic_stream, time="happened", window={WINDOW:g},\n'
        f'                threshold={THRESHOLD:g}, max_delay={MAX_DELAY:g}, how="anti")'
    )
    page.table(
        HEADER, [result.haply.cells(), result.detections.cells()],
        caption=f"{result.alone} of the alarms are not passages.", strong=[0],
    )  # fmt: skip
    page.prose(verdict(result))
