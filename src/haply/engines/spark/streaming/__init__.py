"""Joins of streams: rows go to cells in parcels, and cells keep rows that may still match in Spark's state store."""
