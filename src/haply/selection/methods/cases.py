"""Combinations of conditions, by cases that exclude one another or by parts that are independent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from haply.pruning.bounds.region import Bounds
from haply.selection.cases import AllOf, AnyOf
from haply.selection.conditions import RowValues
from haply.selection.group import CASE_BY_CASE, CaseOfGroups, Group

_ROUNDING = 1e-15
"""How far the bounds of a case may be off."""


class CaseRows:
    """Cases that exclude one another: the probabilities of their groups multiply, and those of cases add up."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        self.group, self.rows = group, batch.rows
        self.inner = [each.prepare(batch) for each in group.inner]
        self.sure = {number: batch.numbers[number] for case in group.cases for number in _numbers(case)}

    def take(self, rows: np.ndarray) -> CaseRows:
        taken = object.__new__(CaseRows)
        taken.group, taken.rows = self.group, len(rows)
        taken.inner = [each.take(rows) for each in self.inner]
        taken.sure = {number: of[rows] for number, of in self.sure.items()}
        return taken

    def _factor(self, case: CaseOfGroups) -> np.ndarray:
        """Return the sign of a case, or 0 in rows where a certain condition excludes it."""
        found = np.full(self.rows, case.sign)
        for sure in case.sure:
            found = np.where(np.isin(self.sure[sure.number], sure.values), found, 0.0)
        return found

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> Bounds | None:
        known = []
        for group, prepared in zip(self.group.inner, self.inner, strict=True):
            found = prepared.bounds(0.0, math.inf) if group.has_bounds else None
            if found is not None:
                known.append((np.clip(found.lower, 0.0, 1.0), np.clip(found.upper, 0.0, 1.0)))
            elif group.is_nearly_free:
                known.append((prepared.exact()[0],) * 2)
            else:
                known.append((np.zeros(self.rows), np.ones(self.rows)))
        lower, upper = np.zeros(self.rows), np.zeros(self.rows)
        for case in self.group.cases:
            factor = self._factor(case)
            least = factor * np.prod([known[number][0] for number in case.groups], axis=0)
            most = factor * np.prod([known[number][1] for number in case.groups], axis=0)
            lower, upper = lower + np.minimum(least, most), upper + np.maximum(least, most)
        slack = _ROUNDING * len(self.group.cases)
        code = np.full(self.rows, CASE_BY_CASE, np.int8)
        return Bounds(np.clip(lower - slack, 0.0, 1.0), np.clip(upper + slack, 0.0, 1.0), code)

    def exact(self) -> tuple[np.ndarray, bool]:
        known: dict[int, np.ndarray] = {}
        found = np.zeros(self.rows)
        for case in self.group.cases:
            chance = self._factor(case)
            for number in case.groups:
                if not chance.any():
                    break
                if number not in known:
                    known[number] = self.inner[number].exact()[0]
                chance = chance * known[number]
            found = found + chance
        return np.clip(found, 0.0, 1.0), False


class PartRows:
    """Independent parts, of which all hold, or any, or an odd number."""

    def __init__(self, group: Group, batch: RowValues) -> None:
        assert group.either is not None
        self.tree, self.rows = group.either.tree, batch.rows
        self.inner = [each.prepare(batch) for each in group.inner]

    def take(self, rows: np.ndarray) -> PartRows:
        taken = object.__new__(PartRows)
        taken.tree, taken.rows = self.tree, len(rows)
        taken.inner = [each.take(rows) for each in self.inner]
        return taken

    def bounds(self, enough_below: Any, enough_from: Any, most: int | None = None) -> None:
        return None

    def exact(self) -> tuple[np.ndarray, bool]:
        chances = [each.exact()[0] for each in self.inner]
        if isinstance(self.tree, AllOf):
            return np.prod(chances, axis=0), False
        if isinstance(self.tree, AnyOf):
            return 1.0 - np.prod([1.0 - chance for chance in chances], axis=0), False
        odd, even = np.zeros(self.rows), np.ones(self.rows)
        for holds, fails in zip(chances[::2], chances[1::2], strict=True):
            odd, even = odd * fails + even * holds, odd * holds + even * fails
        return odd, False


def _numbers(case: CaseOfGroups) -> list[str]:
    return [sure.number for sure in case.sure]
