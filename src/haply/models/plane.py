"""Uncertain positions on a plane, for charts; positions on the sky are projected to the east and north."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from haply.errors import HaplyError
from haply.numerics.multivariate.sphere import ARCSECONDS

OUTLINED = 0.68
"""The share of a position that its ellipse holds."""
_RADIUS = float(np.sqrt(-2.0 * np.log1p(-OUTLINED)))
_CORNERS = 48
_FAR = 0.5
"""A field whose corners are farther than the angle of this cosine from its middle is drawn as a map of the sky."""
_UNITS = ((300.0, 1.0, "arcseconds"), (300.0 * 60.0, 60.0, "arcminutes"), (np.inf, 3600.0, "degrees"))


class NormalParts(NamedTuple):
    """Rows as mixtures of normals: row ``i`` has the parts from ``start[i]`` to ``start[i + 1]``.

    Points have no spread. On the sky means are right ascension and declination in degrees, and covariances lie in the
    plane that touches the sky: to the east and north, in arcseconds.
    """

    start: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    cov: np.ndarray


class Positions(Protocol):
    """A model of positions."""

    @property
    def on_sky(self) -> bool:
        """Return whether its positions are on the sky."""

    def normal_parts(self) -> NormalParts:
        """Return its rows as mixtures of normals."""


@dataclass(frozen=True)
class Placed:
    """Places on a plane with their covariances, one for each row or part."""

    x: np.ndarray
    y: np.ndarray
    cov: np.ndarray
    """Of shape (n, 2, 2)."""

    def outline(self, row: int) -> np.ndarray | None:
        """Return the corners (n, 2) of the ellipse that holds ``OUTLINED`` of a position; none of a certain one."""
        size, axes = np.linalg.eigh(self.cov[row])
        if not size[-1] > 0.0:
            return None
        turn = np.linspace(0.0, 2.0 * np.pi, _CORNERS + 1)
        reach = _RADIUS * np.sqrt(np.maximum(size, 0.0))
        corners = axes @ (reach[:, None] * np.stack([np.cos(turn), np.sin(turn)]))
        return corners.T + np.array([self.x[row], self.y[row]])


@dataclass(frozen=True)
class Plane:
    """The projection of positions onto a chart."""

    titles: tuple[str, str]
    centre: np.ndarray | None = None
    """On the sky, the unit vector of the chart's centre; None for a map of the whole sky."""
    unit: float = 1.0
    """How many arcseconds a unit of the chart has."""
    on_sky: bool = False

    @classmethod
    def of(cls, models: Sequence[Positions]) -> Plane:
        """Choose a plane on which the positions of all models can be drawn."""
        if len({model.on_sky for model in models}) > 1:
            raise HaplyError("Some positions are on the sky, others are not", expected="positions of one kind")
        found = [model.normal_parts() for model in models]
        if not models[0].on_sky:
            dim = max(parts.mean.shape[1] for parts in found)
            return cls(("x", "y") if dim <= 2 else ("first coordinate", "second coordinate"))
        places = np.concatenate([_vectors(parts.mean) for parts in found])
        middle = places.sum(axis=0)
        length = np.linalg.norm(middle)
        if not len(places) or not length > 0.0 or (places @ middle / length).min() < _FAR:
            return cls(("right ascension (degrees)", "declination (degrees)"), None, 3600.0, True)
        middle /= length
        extent = ARCSECONDS * float(np.arccos(np.clip(places @ middle, -1.0, 1.0)).max())
        _, unit, name = next(one for one in _UNITS if extent <= one[0])
        ra, dec = np.degrees(np.arctan2(middle[1], middle[0])) % 360.0, np.degrees(np.arcsin(middle[2]))
        titles = f"{name} to the east of ra {ra:.5f}°", f"{name} to the north of dec {dec:.5f}°"
        return cls(titles, middle, unit, True)

    def parts(self, model: Positions) -> tuple[np.ndarray, np.ndarray, Placed]:
        """Return where the parts of each row begin, their weights, and their places."""
        found = model.normal_parts()
        if not self.on_sky:
            return found.start, found.weight, _first_two(found)
        if self.centre is not None:
            return found.start, found.weight, self._touching(found, self.centre)
        ra = (found.mean[:, 0] + 180.0) % 360.0 - 180.0  # the sky from -180 to 180
        wide = 1.0 / np.maximum(np.cos(np.radians(found.mean[:, 1])), 1e-6)
        turn = np.zeros((len(ra), 2, 2))
        turn[:, 0, 0], turn[:, 1, 1] = wide / self.unit, 1.0 / self.unit
        return found.start, found.weight, Placed(ra, found.mean[:, 1], _turned(found.cov, turn))

    def place(self, model: Positions) -> Placed:
        """Return the mean and the covariance of each row."""
        start, weight, found = self.parts(model)
        if len(start) - 1 == len(weight):
            return found
        begin = np.asarray(start[:-1], np.int64)
        points = np.column_stack([found.x, found.y])
        mean = np.add.reduceat(weight[:, None] * points, begin, axis=0)
        apart = points - np.repeat(mean, np.diff(start), axis=0)
        spread = found.cov + apart[:, :, None] * apart[:, None, :]
        return Placed(mean[:, 0], mean[:, 1], np.add.reduceat(weight[:, None, None] * spread, begin, axis=0))

    def _touching(self, found: NormalParts, centre: np.ndarray) -> Placed:
        """Project onto the plane that touches the sky at the centre: poles need no special case."""
        east, north = (one[0] for one in _directions(centre[None, :]))
        places = _vectors(found.mean)
        # errors are to the east and north at the position itself, which differ from those at the centre
        turn = np.stack([np.stack([own @ east, own @ north], axis=-1) for own in _directions(places)], axis=-1)
        scale = ARCSECONDS / self.unit
        return Placed(scale * places @ east, scale * places @ north, _turned(found.cov, turn / self.unit))


def one_dimension(dims: np.ndarray) -> int:
    """Return how many coordinates all positions have; refuses positions of different dimensions."""
    found = np.unique(dims)
    if len(found) > 1:
        shown = ", ".join(str(int(dim)) for dim in found)
        raise HaplyError("Points differ in dimension", expected="one dimension", found=shown)
    return int(found[0]) if len(found) else 2


def _first_two(found: NormalParts) -> Placed:
    """Return the first two coordinates; a number lies on a line."""
    mean = found.mean if found.mean.shape[1] > 1 else np.pad(found.mean, ((0, 0), (0, 1)))
    cov = found.cov if found.mean.shape[1] > 1 else np.pad(found.cov, ((0, 0), (0, 1), (0, 1)))
    return Placed(mean[:, 0], mean[:, 1], np.ascontiguousarray(cov[:, :2, :2]))


def _turned(cov: np.ndarray, turn: np.ndarray) -> np.ndarray:
    return np.einsum("nij,njk,nlk->nil", turn, cov, turn)


def _vectors(places: np.ndarray) -> np.ndarray:
    """Unit vectors of right ascensions and declinations in degrees."""
    ra, dec = np.radians(places[:, 0]), np.radians(places[:, 1])
    return np.column_stack([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])


def _directions(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors to the east and north of unit vectors."""
    around = np.hypot(places[:, 0], places[:, 1])
    # at a pole any right ascension will do: take 0
    cos = np.divide(places[:, 0], around, out=np.ones(len(places)), where=around > 0.0)
    sin = np.divide(places[:, 1], around, out=np.zeros(len(places)), where=around > 0.0)
    east = np.column_stack([-sin, cos, np.zeros(len(places))])
    north = np.column_stack([-places[:, 2] * cos, -places[:, 2] * sin, around])
    return east, north
