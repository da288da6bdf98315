"""The uncertain columns of a group as one vector of normals, or a mixture of such, and polynomials of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haply.errors import HaplyError
from haply.models.ragged import Ragged
from haply.probability.multivariate import Parts, parts
from haply.selection.conditions import Condition, Polynomial, RowValues, Value

_FLAT = 1e-12
"""What is below this share of the numbers that it is the rest of is nothing."""


class Coordinates:
    """All coordinates of the columns of a group, side by side, as mixtures of normals."""

    def __init__(self, names: Sequence[str], batch: RowValues) -> None:
        found: list[Parts] = []
        self.at: dict[str, int] = {}
        self.size = 0
        for name in names:
            one = parts(batch.values[name])
            assert one is not None
            self.at[name] = self.size
            self.size += one.mean.shape[1]
            found.append(one)
        self.sizes = {name: one.mean.shape[1] for name, one in zip(names, found, strict=True)}
        self.means = np.empty((batch.rows, self.size))
        self.covs: list[tuple[int, np.ndarray]] = []
        if all(len(one.weight) == len(one.start) - 1 for one in found):  # no mixtures
            self.start, self.owner = np.arange(batch.rows + 1), np.arange(batch.rows)
            self.weight = np.ones(batch.rows)
            for name, one in zip(names, found, strict=True):
                at = self.at[name]
                self.means[:, at : at + one.mean.shape[1]] = one.mean
                self.covs.append((at, one.cov))
            return
        counts = [np.broadcast_to(np.diff(one.start), (batch.rows,)) for one in found]
        total = np.prod(counts, axis=0)
        self.start = np.concatenate([[0], np.cumsum(total)]).astype(np.int64)
        self.owner = np.repeat(np.arange(batch.rows), total)
        left = np.arange(self.start[-1]) - self.start[self.owner]
        self.weight = np.ones(len(self.owner))
        self.means = np.empty((len(self.owner), self.size))
        for name, one, count in zip(names, found, counts, strict=True):
            row = self.owner if len(one.start) > 2 or batch.rows == 1 else np.zeros_like(self.owner)
            part = one.start[:-1][row] + left % count[self.owner]
            left = left // count[self.owner]
            self.weight *= one.weight[part]
            at, dim = self.at[name], one.mean.shape[1]
            self.means[:, at : at + dim] = one.mean[part]
            self.covs.append((at, one.cov[part if len(one.cov) > 1 else np.zeros_like(part)]))

    def place(self, condition: Condition, value: Value) -> int:
        """Return the number of the coordinate that a value of a condition is."""
        name, index = value
        if index is not None and index >= self.sizes[name]:
            raise HaplyError(
                f"The condition `{condition.text}` asks for a component that is not there",
                expected=f"{name}[0] to {name}[{self.sizes[name] - 1}]",
                found=f"{name}[{index}]",
            )
        return self.at[name] + (index or 0)

    def form(self, condition: Polynomial, batch: RowValues) -> tuple[np.ndarray, np.ndarray]:
        """Return ``A`` and ``b`` of ``x' A x + b' x``: for all rows, or for each if a column is a factor."""
        numbers = [factor for _, factor in condition.linear] + [factor for _, _, factor in condition.squares]
        rows = (batch.rows,) if any(isinstance(factor, str) for factor in numbers) else ()
        matrix, line = np.zeros((*rows, self.size, self.size)), np.zeros((*rows, self.size))
        for one, two, factor in condition.squares:
            i, j = self.place(condition, one), self.place(condition, two)
            share = np.multiply(0.5, batch.number(factor))
            matrix[..., i, j] += share
            matrix[..., j, i] += share
        for value, factor in condition.linear:
            line[..., self.place(condition, value)] += batch.number(factor)
        return matrix, line

    def transformed(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and covariances of ``rows @ x``: (l, k) for all rows, or (n, l, k) for each."""
        if rows.ndim == 2:
            means = self.means @ rows.T
        else:
            rows = rows[self.owner]
            means = np.matmul(rows, self.means[:, :, None])[:, :, 0]
        count = rows.shape[-2]
        covs = np.zeros((len(means), count, count))
        for at, cov in self.covs:
            dim = cov.shape[-1]
            mine = rows[..., at : at + dim]
            if dim == 1 and mine.ndim == 2:
                covs += cov * (mine @ mine.T)
            else:
                covs += mine @ cov @ np.swapaxes(mine, -1, -2)
        return means, covs


def take_parts(start: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and the numbers of the parts of some rows."""
    if start[-1] == len(start) - 1:  # one part each
        return np.arange(len(rows) + 1), rows
    taken = Ragged(np.arange(start[-1]), start).take(rows)
    return taken.start, taken.values


def fewer_dimensions(matrix: np.ndarray, line: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the directions in which ``x' A x + b' x`` changes, as rows, and the form in these fewer variables.

    Squares are completed one after the other, which leaves the numbers of ``(x - y)^2`` as they are; a form without any
    square, as ``x y``, is turned instead. Whether something is left is asked of each factor beside what it was computed
    from: a small one may belong to a column of large numbers.
    """
    left, size = matrix.copy(), np.abs(matrix)
    rows: list[np.ndarray] = []
    curves: list[float] = []
    while len(rows) < len(matrix):
        squares = np.where(_is_left(left, size).diagonal(), np.abs(left.diagonal()), 0.0)
        i = int(squares.argmax())
        if not squares[i] > 0.0:
            break
        rows.append(left[i] / left[i, i])
        curves.append(float(left[i, i]))
        taken = curves[-1] * np.outer(rows[-1], rows[-1])
        left, size = left - taken, size + np.abs(taken)
        left[i] = left[:, i] = 0.0
    directions = np.array(rows)
    if _is_left(left, size).any():
        directions, curves = _turned(matrix)
    if len(directions) == len(matrix):
        return np.eye(len(matrix)), matrix, line
    along = np.linalg.lstsq(directions.T, line, rcond=None)[0]
    known = directions.T @ along
    rest = np.where(_is_left(line - known, np.abs(line) + np.abs(known)), line - known, 0.0)
    if rest.any():
        directions, curves, along = np.vstack([directions, rest]), [*curves, 0.0], np.append(along, 1.0)
    return directions, np.diag(curves), along


def _is_left(left: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return which differences are more than the rounding error of their terms."""
    return np.abs(left) > _FLAT * size


def _turned(matrix: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Return the directions of a form and its curvatures along them, by eigenvectors; columns have their own units."""
    size = np.abs(matrix).max(axis=1)
    unit = np.where(size > 0.0, 1.0 / np.sqrt(np.where(size > 0.0, size, 1.0)), 1.0)
    value, vector = np.linalg.eigh(unit[:, None] * matrix * unit)
    kept = np.abs(value) > _FLAT * np.abs(value).max()
    return (vector / unit[:, None])[:, kept].T, value[kept].tolist()
