"""Joins of streams in a process of its own, from files to files: ``test_stream_kill.py`` starts and kills it.

    python stream_victim.py FOLDER

FOLDER has a folder for each join, with ``join.json``, its arguments, and a folder of files for each stream. What it
finds goes to ``out`` there, the checkpoint is ``checkpoint``. It waits for further files until it is killed. Started
again, all joins go on where their checkpoints say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import haply as hp


def start_joins(spark: Any, folder: Path) -> Iterator[tuple[str, Any]]:
    """The joins of a folder, by name, each when it is asked for and after it has read all files.

    Not all at once: each start of a query starts a Python process, to which Spark gives ten seconds.
    """
    for path in sorted(folder.glob("*/join.json")):
        query = _start(spark, path.parent)
        query.processAllAvailable()
        yield path.parent.name, query


def _start(spark: Any, folder: Path) -> Any:
    arguments = json.loads((folder / "join.json").read_text())
    names = arguments.pop("streams")
    schema = spark.read.parquet(str(folder / names[0] / "000.parquet")).schema
    streams = [
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name)) for name in names
    ]
    if "windows" in arguments:
        windows = {(one, other): window for one, other, window in arguments.pop("windows")}
        found = hp.window_join(dict(zip(names, streams, strict=True)), windows, **arguments)
    else:
        found = hp.join(*streams, **arguments)
    writer = found.writeStream.format("parquet").outputMode("append").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def main(folder: Path) -> None:
    """Run the joins."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    spark = hp.local_session(
        "victim",
        # One task at a time: every Python worker more takes seconds to start. Two partitions, so that a kill can tear
        # a batch between them.
        cores=1,
        memory="1g",
        shuffle_partitions=2,
        extra_conf={
            # What a killed process leaves behind belongs to the test's own folder.
            "spark.local.dir": str(scratch),
            # Starting quickly counts here, as in `conftest.py`.
            "spark.sql.codegen.wholeStage": False,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={scratch}",
        },
    )
    queries = dict(start_joins(spark, folder))
    queries["window"].awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
