"""What differs between the versions of PySpark that haply runs on: 4.0 and newer.

The rest of haply is written for the newest version. Only this module replaces what an older one lacks.
"""

from __future__ import annotations

import inspect
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas import types as converters

from haply.engines.spark.runtime.failures import translate_failures
from haply.errors import HaplyError

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import Column

ArrayFunction = Callable[..., pa.Array]


def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the same schema for Arrow, with times in UTC.

    PySpark has no public function for it. Up to 4.1 its own one has no argument for the time zone: it takes UTC.
    """
    convert: Any = converters.to_arrow_schema
    return convert(schema, **({"timezone": "UTC"} if "timezone" in inspect.signature(convert).parameters else {}))


def check_stateful(spark: Any) -> None:
    """Refuse a session that has no stateful functions in Python: PySpark 4.0 has them only without Connect."""
    if not hasattr(spark.range(0).groupBy("id"), "transformWithStateInPandas"):
        raise HaplyError(
            "A join of streams over Spark Connect needs a newer PySpark",
            expected="PySpark 4.1 or newer, or a classic session",
            found=f"PySpark {pyspark.__version__} with a Spark Connect session",
        )


def arrow_function(function: ArrayFunction, returns: str) -> Any:
    """Make a Spark function of columns from a function of whole Arrow arrays.

    Spark chooses how to call it by its annotations, which must be types and not text.
    """
    translate_failures()
    if not hasattr(F, "arrow_udf"):
        return TextFunction(function, returns)
    names = inspect.signature(function).parameters
    function.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    return F.arrow_udf(function, returns)  # type: ignore[call-overload]


class TextFunction:
    """Calls a function of Arrow arrays in PySpark 4.0, which can call functions of columns with pandas only.

    pandas has no null other than NaN, and no type for a column without values. So columns go to the function, and its
    result comes back, as JSON: one text a row, which loses nothing. The types go with them, as ``typeof`` writes them.
    This is several times slower than Arrow.

    Parameters
    ----------
    function
        The function of Arrow arrays.
    returns
        The Spark type of what it returns, or the fields of a struct.
    """

    def __init__(self, function: ArrayFunction, returns: str) -> None:
        self._schema = T.StructType([T.StructField("value", T.DataType.fromDDL(returns))])
        self._call = F.pandas_udf(_on_texts(function), "string")  # type: ignore[call-overload]

    def asNondeterministic(self) -> TextFunction:  # noqa: N802 (the name that Spark's own functions have)
        """Make Spark call the function no more often than written; returns this function."""
        self._call = self._call.asNondeterministic()
        return self

    def __call__(self, *columns: Column | str) -> Column:
        """Return the column that the function makes of others."""
        given = [F.col(column) if isinstance(column, str) else column for column in columns]
        texts = [F.to_json(F.struct(column.alias("value"))) for column in given]
        made = self._call(*texts, *map(F.typeof, given))
        return F.from_json(made, self._schema)["value"]


def _on_texts(function: ArrayFunction) -> Callable[..., pandas.Series]:
    """Make a function of series of JSON, followed by the series of their types, from one of arrays."""
    import pandas as pd

    def call(*given: pd.Series) -> pd.Series:
        texts, types = given[: len(given) // 2], given[len(given) // 2 :]
        found = function(*map(_array, texts, types)).to_pylist()
        return pd.Series([json.dumps({"value": value}, default=_as_text) for value in found], dtype=object)

    names = [f"column{k}" for k in range(2 * len(inspect.signature(function).parameters))]
    kinds = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=pd.Series) for name in names]
    call.__signature__ = inspect.Signature(kinds, return_annotation=pd.Series)  # type: ignore[attr-defined]
    call.__annotations__ = {**dict.fromkeys(names, pd.Series), "return": pd.Series}
    return call


def _array(texts: pandas.Series, types: pandas.Series) -> pa.Array:
    if not len(texts):
        return pa.nulls(0, pa.null())
    kind = arrow_type(types.iloc[0])
    return pa.array([_value(json.loads(text).get("value"), kind) for text in texts], kind)


def _as_text(value: bytes) -> str:
    return b64encode(value).decode()


def _value(value: Any, kind: pa.DataType) -> Any:
    """Read a value of JSON as one of a type: Spark writes bytes in base 64, and NaN and infinities as texts."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return list(map(partial(_value, kind=kind.value_type), value))
    if pa.types.is_binary(kind):
        return b64decode(value)
    return float(value) if pa.types.is_floating(kind) else value


_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.float64(),  # JSON has no other numbers, and models are of doubles
    "BINARY": pa.binary(),
}


@cache
def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type for a type as Spark's SQL writes it; all but numbers, arrays and structs are text.

    >>> arrow_type("struct<points:array<array<double>>,dim:int>")
    StructType(struct<points: list<item: list<item: double>>, dim: int32>)
    """
    from sqlglot import exp

    def convert(kind: exp.DataType) -> pa.DataType:
        parts = kind.expressions
        if kind.is_type("array"):
            return pa.list_(convert(parts[0]))
        if kind.is_type("struct"):
            return pa.struct([(part.this.name, convert(part.args["kind"])) for part in parts])
        return _PLAIN.get(kind.this.value, pa.string())

    # sqlglot does not know Spark's name for the type of nulls; any other type has them as well.
    return convert(exp.DataType.build(re.sub(r"(?<![^:<])void\b", "double", text), dialect="spark"))
