"""Joins of streams: rows travel to cells in parcels, and cells keep what may still match in Spark's state store."""
