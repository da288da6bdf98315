"""The engine on Spark: DataFrames in and out, tables and streams, classic and Connect."""
