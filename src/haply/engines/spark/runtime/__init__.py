"""Spark itself: sessions, the parent of Python workers, and failures as readable errors."""
