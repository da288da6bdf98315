"""A join of two streams in a process of its own, from files to files: ``test_stream_kill.py`` starts and kills it.

    python stream_victim.py FOLDER

FOLDER holds the streams ``l`` and ``r`` and ``join.json``, the arguments of the join. The pairs go to ``out``, the
checkpoint is ``checkpoint``, and a file ``done`` is made when everything has been read. Started again after a kill, it
goes on where the checkpoint says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import haply as hp


def main(folder: Path) -> None:
    """Run the join until all files are read."""
    arguments = json.loads((folder / "join.json").read_text())
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
    schema = spark.read.parquet(str(folder / "l")).schema
    left, right = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side)) for side in "lr"
    )
    writer = hp.join(left, right, **arguments).writeStream.format("parquet").outputMode("append")
    query = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    spark.stop()
    (folder / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
