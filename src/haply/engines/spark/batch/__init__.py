"""Joins and selections of tables."""
