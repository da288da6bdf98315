"""The SQL front end: a query in text becomes a plan. The function is ``hp.sql``, so the package has another name."""

from __future__ import annotations

from haply.statements.plan import plan_sql, sql

__all__ = ["plan_sql", "sql"]
