"""Joins of a stream with a table on Spark: a function of Arrow batches; the first row of a partition has the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from haply.engines.spark.exchange.parcels import PARCEL, in_blocks, to_buffer
from haply.engines.spark.exchange.worker import COUNTERS
from haply.engines.spark.frame import SparkFrame
from haply.engines.spark.streaming.join import StreamObserving
from haply.engines.spark.versions import arrow_schema
from haply.planning.frames import quoted

_SENT = "__sent"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 17, 1 << 28
_KINDS: dict[str, T.DataType] = {"double": T.DoubleType(), "array<double>": T.ArrayType(T.DoubleType())}
_Batches = Iterator[pa.RecordBatch]


def answered_beside(plan: Any, counted: Sequence[str], funnel: Any) -> DataFrame:
    """Return the answers to a stream, as a streaming DataFrame; ``plan`` is a ``BesideTable``."""
    stream, table = plan.stream, plan.table
    assert isinstance(stream, SparkFrame)
    assert isinstance(table, SparkFrame)
    events = stream.df
    frames = {True: stream.df, False: table.df}
    schema = T.StructType()
    for one in plan.result:
        of_stream = (one.side == "left") == plan.answering.stream_is_left
        schema.add(one.name, frames[of_stream].schema[one.column].dataType)
    for name, kind in plan.added.items():
        schema.add(name, _KINDS[kind])
    schema.add(COUNTERS, T.ArrayType(T.LongType()))
    parcels = events.mapInArrow(_packed, f"{PARCEL} binary")
    if plan.answering.index is None:
        # a subquery, which is computed once; every parcel carries the table, so there are few parcels
        whole = table.df.mapInArrow(_packed, f"{PARCEL} binary").selectExpr(f"listagg({PARCEL})")
        parcels = parcels.withColumn(_SENT, whole.scalar())
        nothing = arrow_schema(table.df.schema)
    else:
        nothing = None
    found = parcels.mapInArrow(_answering(plan.answering, arrow_schema(schema), nothing), schema)
    observing = StreamObserving(funnel)
    if funnel is not None:
        funnel.start_over()
        metrics = {name: f"sum(get({COUNTERS}, {k}))" for k, name in enumerate(counted)}
        found = observing.watch(found, metrics)
    names = [one.name for one in plan.result]
    return found.where(F.col(COUNTERS).isNull()).select(*map(quoted, [*names, *plan.added]))


def _packed(batches: _Batches) -> _Batches:
    """Put the rows of a partition into large parcels: each is answered separately."""
    for held in in_blocks(batches, _ROWS_AT_ONCE, _BYTES_AT_ONCE):
        parcel = pa.array([to_buffer(pa.Table.from_batches(held)).to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([parcel], [PARCEL])


def _answering(
    answer: Callable[[pa.Table, pa.Table | None], tuple[pa.Table, list[int]]],
    schema: pa.Schema,
    nothing: pa.Schema | None,
) -> Callable[[_Batches], _Batches]:
    """Return what answers parcels of events; ``nothing`` are the columns of a table that comes with them."""

    def answered(batches: _Batches) -> _Batches:
        table = None
        for batch in batches:
            for row in range(batch.num_rows):
                if nothing is not None:
                    here = batch.column(_SENT)[row]
                    table = _opened(here.as_buffer() if here.is_valid else pa.py_buffer(b""), nothing)
                found, counts = answer(_opened(batch.column(PARCEL)[row].as_buffer(), schema), table)
                found = found.append_column(COUNTERS, pa.nulls(found.num_rows, schema.field(COUNTERS).type))
                yield from found.select(schema.names).cast(schema).to_batches()
                told = [pa.nulls(1, field.type) for field in schema]
                told[schema.get_field_index(COUNTERS)] = pa.array([counts], schema.field(COUNTERS).type)
                yield pa.RecordBatch.from_arrays(told, schema=schema)

    return answered


def _opened(sent: pa.Buffer, nothing: pa.Schema) -> pa.Table:
    """Return all rows of parcels that follow one another; a table without rows if there are none."""
    source, tables = pa.BufferReader(sent), []
    while source.tell() < source.size():
        tables.append(pa.ipc.open_stream(source).read_all())
    if not tables:
        return pa.Table.from_arrays([pa.nulls(0, field.type) for field in nothing], schema=nothing)
    return pa.concat_tables(tables)
