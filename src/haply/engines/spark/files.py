"""Tables and streams from files, and results into files, for the command line."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.runtime.failures import refused_by_spark
from haply.engines.spark.runtime.session import INTERPRETED, SHORT_RUN, is_connect, local_session
from haply.engines.spark.streaming.reports import batches_of
from haply.errors import HaplyError
from haply.outputs import ON_SPARK, check_output, checkpoint_of, files_of, kind_of, there, value_text
from haply.planning.frames import quoted

_SMALL = 64 << 20
"""Bytes of input. Plans for less are interpreted, not compiled."""


def quiet_session(name: str, paths: Iterable[str] = ()) -> SparkSession:
    """Start an embedded session for one query over these files; Spark itself prints nothing."""
    small = sum(_bytes_in(Path(one)) for path in paths for one in files_of(path)) < _SMALL
    with _silenced_jvm():
        spark = local_session(name, extra_conf=SHORT_RUN | INTERPRETED if small else None)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if not is_connect(spark):
        spark.sparkContext.setLogLevel("OFF")  # errors come as exceptions, and are printed once
    return spark


@contextmanager
def _silenced_jvm() -> Iterator[None]:
    """Let a JVM started in the ``with`` block, and its Python workers, write to a file instead of standard error.

    PySpark's streaming workers print what they do. If the JVM does not start, what it wrote is in the error.
    """
    with tempfile.TemporaryFile() as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except PySparkException as refusal:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise HaplyError("Spark does not start", found=" ".join(lines[-3:]) or refused_by_spark(refusal)) from None
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _bytes_in(place: Path) -> int:
    """Return the size of a file, or of all files in a folder; 0 if there is none: reading it then raises the error."""
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())


def read_table(spark: SparkSession, path: str) -> DataFrame:
    """Return a table from a file, a folder or a pattern: Parquet, CSV with a header, or a JSON object in each line."""
    kind, reader = kind_of(path), spark.read
    if kind == "csv":
        reader = reader.option("header", True).option("inferSchema", True)
        if path.lower().endswith(".tsv"):
            reader = reader.option("sep", "\t")
    try:
        return reader.format(kind).load(path)
    except PySparkException as refusal:
        raise HaplyError(f"The table {path} cannot be read: {refused_by_spark(refusal)}") from None


def read_stream(spark: SparkSession, path: str) -> DataFrame:
    """Return a folder of Parquet files as a stream; existing files define its columns."""
    place = there(path)
    if not place.is_dir() or not any(place.glob("*.parquet")):
        raise HaplyError(f"The stream {path} has no files", expected="a folder with one Parquet file or more")
    try:
        return spark.readStream.schema(spark.read.parquet(str(place)).schema).parquet(str(place))
    except PySparkException as refusal:
        raise HaplyError(f"The stream {path} cannot be read: {refused_by_spark(refusal)}") from None


def write_table(frame: DataFrame, path: str) -> int:
    """Write a result, a folder of Parquet files or one file of CSV or JSON; the number of its rows."""
    kind = check_output(path, stream=False, kinds=ON_SPARK)
    observation = Observation()
    observed = frame.observe(observation, F.count(F.lit(1)).alias("rows"))
    try:
        if kind == "parquet":
            observed.write.parquet(path)
        else:
            _write_text(observed, Path(path), kind)
    except PySparkException as refusal:
        raise HaplyError(refused_by_spark(refusal)) from None
    return int(observation.get["rows"])


def _write_text(frame: DataFrame, path: Path, kind: str) -> None:
    """Write one file: Spark's parts in their order, CSV behind a header. There structs and arrays become JSON."""
    if kind == "csv":
        columns = [
            F.to_json(F.col(quoted(field.name))).alias(field.name)
            if isinstance(field.dataType, (T.StructType, T.ArrayType, T.MapType))
            else F.col(quoted(field.name))
            for field in frame.schema.fields
        ]
        frame = frame.select(*columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".haply-") as folder:
        parts = Path(folder) / "parts"
        frame.write.format(kind).option("escape", '"').save(str(parts))
        whole = Path(folder) / "whole"
        with whole.open("wb") as out:
            if kind == "csv":
                out.write((",".join(_csv_name(name) for name in frame.columns) + "\n").encode())
            for part in sorted(parts.glob(f"part-*.{kind}")):
                with part.open("rb") as lines:
                    shutil.copyfileobj(lines, out)
        whole.rename(path)


def _csv_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in ',"\n') else name


def write_stream(frame: DataFrame, path: str) -> Iterator[str]:
    """Follow a stream to the end of what is there, into Parquet files; yields a line for each micro-batch.

    A later call continues where this one ended.
    """
    check_output(path, stream=True)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint_of(Path(path))))
    try:
        for new in batches_of(writer.trigger(availableNow=True).start(path)):
            yield from map(str, new)
    except PySparkException as refusal:
        raise HaplyError(refused_by_spark(refusal)) from None


def first_rows(frame: DataFrame, count: int) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns and the first rows, as texts."""
    try:
        rows = frame.limit(count).collect()
    except PySparkException as refusal:
        raise HaplyError(refused_by_spark(refusal)) from None
    return frame.columns, [[value_text(value) for value in row.asDict(recursive=True).values()] for row in rows]
