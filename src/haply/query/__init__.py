"""Conditions as people write them, and their normal form for a join. Independent of any engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haply.query.columns import columns_of, owner_of, points_of, respelled, to_sql, with_columns
from haply.query.conditions import JoinCondition, split_join
from haply.query.expressions import Column, Expression, Literal, TableColumns, between, col, distance, left, right

if TYPE_CHECKING:
    from haply.query.text import as_condition, located, parse

__all__ = [
    "Column",
    "Expression",
    "JoinCondition",
    "Literal",
    "TableColumns",
    "as_condition",
    "between",
    "col",
    "columns_of",
    "distance",
    "left",
    "located",
    "owner_of",
    "parse",
    "points_of",
    "respelled",
    "right",
    "split_join",
    "to_sql",
    "with_columns",
]


def __getattr__(name: str) -> Any:
    """Import the parser on first use: it brings a whole dialect of SQL."""
    if name not in __all__:
        raise AttributeError(f"module 'haply.query' has no attribute '{name}'")
    import importlib

    found = getattr(importlib.import_module("haply.query.text"), name)
    globals()[name] = found
    return found
