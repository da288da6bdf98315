"""What is asked: conditions as people write them, and their normal form for a join. Free of any engine."""

from __future__ import annotations

from haply.query.conditions import JoinCondition, columns_of, split_join, to_sql
from haply.query.expressions import Column, Expression, Literal, Side, between, col, distance, left, right
from haply.query.text import as_condition, located, parse

__all__ = [
    "Column",
    "Expression",
    "JoinCondition",
    "Literal",
    "Side",
    "as_condition",
    "between",
    "col",
    "columns_of",
    "distance",
    "left",
    "located",
    "parse",
    "right",
    "split_join",
    "to_sql",
]
