"""The engine on Spark: DataFrames in and out, tables and streams, classic and Connect."""

from haply.errors import missing_package

try:
    import pandas  # noqa: F401 (PySpark calls stateful functions of streams with it)
    import pyspark  # noqa: F401
except ImportError as missing:
    raise missing_package("Queries on Spark", missing, "haply[spark]") from None
