"""How many partners rows have (see ``planning.answers.counts``), on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from haply.engines.spark.batch.answers import fingerprints
from haply.engines.spark.exchange.prepare import state_function
from haply.engines.spark.frame import SparkFrame
from haply.joins.cells.rows import BAD
from haply.joins.counting import ANY, DISTRIBUTION, EXPECTED, OWN, VARIANCE, Counting
from haply.joins.worlds import WorldCounting
from haply.planning.answers.counts import SD, CountPlan
from haply.planning.answers.join import ROW_IDS
from haply.planning.frames import quoted

_PRINTS = ("__first", "__second")
_KEY, _OF_GROUP = "__key", "__of_group"
_Batches = Iterator[pa.RecordBatch]


class SparkCounts:
    """Runs a count of partners."""

    def __init__(self, plan: CountPlan, engine: Any, funnel: Any) -> None:
        self.plan, self.engine, self.funnel = plan, engine, funnel

    def run(self) -> DataFrame:
        """Return the result, as a lazy DataFrame."""
        plan = self.plan
        rows = self._with_numbers()
        if plan.by:
            return self._groups(rows)
        if plan.threshold is not None:
            rows = rows.where(F.col(ANY) >= plan.threshold.keeps_from())
        shown = [F.col(quoted(name)) for name in plan.shown]
        numbers = [F.sqrt(VARIANCE).alias(SD) if name == SD else F.col(name) for name in plan.numbers]
        more = [F.col(DISTRIBUTION)] if plan.options.distribution else []
        return rows.select(*shown, *numbers, *more)

    def _pairs(self, funnel: Any) -> DataFrame:
        frame = self.plan.found_pairs(self.engine, funnel)
        assert isinstance(frame, SparkFrame)
        return frame.df

    def _with_numbers(self) -> DataFrame:
        """Return the left rows with their numbers; equal rows have equal ones, so fingerprints are enough."""
        plan, counting = self.plan, self.plan.counting
        frame = plan.node.left
        assert isinstance(frame, SparkFrame)
        rows = frame.df
        if plan.options.invalid == "drop":
            for name in plan.node.uncertain_columns("left"):
                rows = rows.where(state_function(None)(F.col(quoted(name))) != BAD)
        rows = rows.withColumns(fingerprints("left"))
        pairs = self._pairs(self.funnel).withColumns({_KEY: F.col(f"{ROW_IDS['left']}.row"), **fingerprints("left")})
        if counting is None:  # every pair is a match
            counted = pairs.groupBy(_KEY, *_PRINTS).agg(F.count("*").cast("double").alias(EXPECTED))
            same = {name: F.col(EXPECTED) for name in plan.numbers if name not in (EXPECTED, SD, ANY)}
            counted = counted.withColumns({VARIANCE: F.lit(0.0), OWN: F.lit(0.0), ANY: F.lit(1.0), **same})
            if plan.options.distribution:
                zeros = F.array_repeat(F.lit(0.0), F.col(EXPECTED).cast("int"))
                counted = counted.withColumn(DISTRIBUTION, F.concat(zeros, F.array(F.lit(1.0))))
        else:
            counted = _counted(pairs, counting, [_KEY], _PRINTS)
        names = [name for name in counted.columns if name not in (_KEY, *_PRINTS)]
        rows = rows.join(counted.dropDuplicates(list(_PRINTS)).drop(_KEY), list(_PRINTS), "left")
        none = {name: F.coalesce(F.col(name), F.lit(0.0)) for name in names if name != DISTRIBUTION}
        if DISTRIBUTION in names:
            none[DISTRIBUTION] = F.coalesce(F.col(DISTRIBUTION), F.array(F.lit(1.0)))
        return rows.withColumns(none)

    def _groups(self, rows: DataFrame) -> DataFrame:
        """Return the numbers of groups of left rows: those that share right rows are not independent."""
        plan = self.plan
        by = [f"__haply_by_{k}" for k in range(len(plan.by))]
        rows = rows.withColumns({name: F.col(quoted(column)) for name, column in zip(by, plan.by, strict=True)})
        whole = rows.groupBy(*by).agg(
            F.sum(EXPECTED).alias(EXPECTED), F.sum(F.col(VARIANCE) - F.col(OWN)).alias(VARIANCE)
        )
        if plan.counting is not None:
            # right rows again, each with the left rows of one group
            same = F.xxhash64(*(part for name in by for part in (F.isnull(name), F.col(name))))
            pairs = self._pairs(None).withColumns({_KEY: F.col(f"{ROW_IDS['right']}.row"), _OF_GROUP: same})
            shared = _counted(pairs, plan.counting.mirrored, [_KEY, _OF_GROUP], by)
            shared = shared.groupBy(*by).agg(F.sum(VARIANCE).alias("__shared"))
            shared = shared.toDF(*(f"{name}_too" for name in by), "__shared")
            equal = [whole[name].eqNullSafe(shared[f"{name}_too"]) for name in by]
            whole = whole.join(shared, equal, "left")
        else:
            whole = whole.withColumn("__shared", F.lit(0.0))
        variance = F.greatest(F.col(VARIANCE) + F.coalesce(F.col("__shared"), F.lit(0.0)), F.lit(0.0))
        shown = [F.col(name).alias(column) for name, column in zip(by, plan.by, strict=True)]
        return whole.select(*shown, F.col(EXPECTED), F.sqrt(variance).alias(SD))


def _counted(
    pairs: DataFrame, counting: Counting | WorldCounting, keys: Sequence[str], along: Sequence[str]
) -> DataFrame:
    """Return the numbers of what has one key each, with columns that are equal in all its pairs."""
    columns = [*map(quoted, counting.columns), *keys, *along]
    sorted_pairs = pairs.select(*columns).repartition(*keys).sortWithinPartitions(*keys)
    kinds = {field.name: field.dataType.simpleString() for field in sorted_pairs.schema}
    numbers = [f"{quoted(name)} double" for name in counting.names]
    if counting.distribution:
        numbers.append(f"{DISTRIBUTION} array<double>")
    schema = ", ".join([*(f"{quoted(name)} {kinds[name]}" for name in (*keys, *along)), *numbers])
    return sorted_pairs.mapInArrow(_counting_in_groups(counting, tuple(keys), tuple(along)), schema)


def _counting_in_groups(
    counting: Counting | WorldCounting, keys: tuple[str, ...], along: tuple[str, ...]
) -> Callable[[_Batches], _Batches]:
    """Return what counts pairs that come sorted by their keys."""

    def count(batches: _Batches) -> _Batches:
        held: pa.Table | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            table = pa.Table.from_batches([batch])
            held = table if held is None else pa.concat_tables([held, table])
            begins = _begins(held)
            if len(begins) > 1:  # the last group may go on in the next batch
                yield from numbers(held.slice(0, int(begins[-1])), begins)
                held = held.slice(int(begins[-1]))
        if held is not None:
            yield from numbers(held, np.append(_begins(held), held.num_rows))

    def _begins(table: pa.Table) -> np.ndarray:
        new = np.zeros(table.num_rows, bool)
        new[0] = True
        for key in keys:
            values = table[key].to_numpy()
            new[1:] |= values[1:] != values[:-1]
        return np.flatnonzero(new)

    def numbers(table: pa.Table, start: np.ndarray) -> _Batches:
        found = counting.rows(table.combine_chunks(), start)
        first = table.take(pa.array(start[:-1])).select([*keys, *along])
        for name in [*counting.names, *([DISTRIBUTION] if counting.distribution else [])]:
            first = first.append_column(name, found[name])
        yield from first.to_batches()

    return count
