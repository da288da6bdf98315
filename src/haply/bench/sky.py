"""``bench sky``: two catalogues with an error ellipse for every source, matched where they are likely at one place.

Every source of one catalogue is in the other as well, each seen with its own error, among neighbours by chance. The
first job asks for pairs that may well be the same place, the second for pairs that are rather within an arcsecond. The
best program without haply is SciPy's k-d trees for the pairs within reach, then the sharpest cheap filter and the exact
probability in NumPy, with the same formula as ours, in blocks that fit the cache. Truth is planted, so that precision
and recall can be told, beside a match by the best fixed radius.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from haply.bench.measure import (
    OURS,
    TURN,
    Answer,
    Claim,
    Figure,
    Report,
    Result,
    Tell,
    check_same,
    circumstances,
    compare,
    needs,
    on_spark,
    ranked,
    take_turns,
)
from haply.errors import HaplyError
from haply.joins import join_positions
from haply.models import sky_ellipses
from haply.models.sky import ARCSECONDS
from haply.numerics.normal import normal_quantile
from haply.pruning.threshold import TOLERANCE

DataFrame: TypeAlias = Any
SparkSession: TypeAlias = Any

TREE = "cKDTree+numpy"
_BLOCK = 1 << 11
SAME_PLACE, NEAR = "the same place", "near"


@dataclass(frozen=True)
class Settings:
    """The workload; lengths are arcseconds."""

    rows: int = 1_000_000
    density: float = 0.05
    """Sources for each square arcsecond."""
    least_error: float = 0.1
    most_error: float = 0.6
    """Of the semi-major axis, evenly on a logarithmic scale; the minor is 0.3 to 1 of it."""
    same_place: tuple[float, float] = (0.2, 0.005)
    """Within, and with at least which probability: the same place as far as errors tell."""
    near: tuple[float, float] = (1.0, 0.5)
    fixed_radii: tuple[float, ...] = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
    large_rows: int = 0
    """For a run of this many rows a side on Spark as well; 0 for none."""
    stilts_rows: int = 100_000
    nway_rows: int = 2_000
    repetitions: int = 3
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 16
    seed: int = 11


QUICK = Settings(rows=20_000, stilts_rows=5_000, nway_rows=300, repetitions=1)


@dataclass(frozen=True)
class Catalogue:
    """Degrees, and semi-axes in arcseconds with their angle east of north; source i of one side is i of the other."""

    ra: np.ndarray
    dec: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    angle: np.ndarray

    def take(self, rows: np.ndarray) -> Catalogue:
        """Some rows."""
        return Catalogue(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def make_catalogues(settings: Settings, rows: int | None = None) -> tuple[Catalogue, Catalogue, np.ndarray]:
    """Two catalogues of the same sources on a stripe across right ascension 0, ten times as long as wide.

    The second is in another order: source ``i`` of the first is ``partner[i]`` of the second.
    """
    random = np.random.default_rng(settings.seed)
    count = settings.rows if rows is None else rows
    height = math.sqrt(count / settings.density / 10.0) / 3600.0
    dec = random.uniform(-0.5 * height, 0.5 * height, count)
    ra = random.uniform(-5.0 * height, 5.0 * height, count)
    sides = []
    for _ in range(2):
        span = math.log(settings.most_error / settings.least_error)
        major = settings.least_error * np.exp(random.uniform(0.0, span, count))
        minor, angle = major * random.uniform(0.3, 1.0, count), random.uniform(0.0, 180.0, count)
        long, short = major * random.normal(size=count), minor * random.normal(size=count)
        sine, cosine = np.sin(np.radians(angle)), np.cos(np.radians(angle))
        seen = dec + (long * cosine - short * sine) / 3600.0
        at = ra + (long * sine + short * cosine) / 3600.0 / np.cos(np.radians(dec))
        sides.append(Catalogue(at % 360.0, seen, major, minor, angle))
    order = random.permutation(count)
    partner = np.empty(count, np.int64)
    partner[order] = np.arange(count)
    return sides[0], sides[1].take(order), partner


def haply_match(left: Catalogue, right: Catalogue, within: float, threshold: float) -> Answer:
    """Ours: from the columns of the catalogues to arrays of pairs and probabilities."""
    mine, theirs = (sky_ellipses(side.ra, side.dec, side.major, side.minor, side.angle) for side in (left, right))
    found = join_positions(mine, theirs, within, threshold)
    return Answer(found.left, found.right, found.probability)


# -- the best program without haply ------------------------------------------------------------------------------------


class _Plane(NamedTuple):
    """What NumPy knows of a catalogue: points in space, and variances to the east and north with their product."""

    points: np.ndarray
    east: np.ndarray
    both: np.ndarray
    north: np.ndarray


def _plane(side: Catalogue) -> _Plane:
    ra, dec, angle = np.radians(side.ra), np.radians(side.dec), np.radians(side.angle)
    across = np.cos(dec)
    points = np.empty((len(ra), 3))
    points[:, 0], points[:, 1], points[:, 2] = across * np.cos(ra), across * np.sin(ra), np.sin(dec)
    points *= ARCSECONDS
    long, short = side.major * side.major, side.minor * side.minor
    sine, cosine = np.sin(angle), np.cos(angle)
    squares = sine * sine
    return _Plane(
        points, short + (long - short) * squares, (long - short) * sine * cosine, long - (long - short) * squares
    )


def tree_match(left: Catalogue, right: Catalogue, within: float, threshold: float) -> Answer:
    """k-d trees, then NumPy: the same pairs and probabilities, for catalogues away from the poles."""
    spatial = needs("scipy.spatial")
    mine, theirs = _plane(left), _plane(right)
    out = -normal_quantile(threshold)
    widest = math.sqrt(float(left.major.max()) ** 2 + float(right.major.max()) ** 2)
    # measured: leaves of 8, and pairs from two trees, are the fastest of its ways
    trees = [
        spatial.cKDTree(side.points, leafsize=8, balanced_tree=False, compact_nodes=False) for side in (mine, theirs)
    ]
    pairs = trees[0].sparse_distance_matrix(trees[1], within + max(0.0, out) * widest + 1e-9, output_type="ndarray")
    chosen, others, probabilities = [], [], []
    for begin in range(0, len(pairs), 1 << 16):
        block = pairs[begin : begin + (1 << 16)]
        i, j, x, y, xx, xy, yy = _reduced(left, mine, right, theirs, block, within, out)
        # as many nodes on the circle as the narrowest error needs, pairs alike together
        middle, apart = 0.5 * (xx + yy), np.hypot(0.5 * (xx - yy), xy)
        det = xx * yy - xy * xy
        nodes = 8 * np.ceil((16.0 + 8.5 * within * np.sqrt((middle + apart) / det)) / 8).astype(np.int64)
        order = np.argsort(nodes, kind="stable")
        i, j, x, y, xx, xy, yy, det, nodes = (each[order] for each in (i, j, x, y, xx, xy, yy, det, nodes))
        probability = np.empty(len(i))
        for count in np.unique(nodes):
            first, last = np.searchsorted(nodes, [count, count + 1])
            for at in range(first, last, _BLOCK):
                rows = slice(at, min(at + _BLOCK, last))
                probability[rows] = _discs(
                    x[rows], y[rows], xx[rows], xy[rows], yy[rows], det[rows], within, int(count)
                )
        kept = probability >= threshold - TOLERANCE
        chosen.append(i[kept])
        others.append(j[kept])
        probabilities.append(probability[kept])
    return Answer(np.concatenate(chosen), np.concatenate(others), np.concatenate(probabilities))


def _reduced(
    left: Catalogue, mine: _Plane, right: Catalogue, theirs: _Plane, block: np.ndarray, within: float, out: float
) -> tuple[np.ndarray, ...]:
    """Pairs that the half-plane along their difference leaves a chance, as a difference on the plane between them."""
    i, j = block["i"], block["j"]
    turn = (right.ra[j] - left.ra[i] + 180.0) % 360.0 - 180.0
    lean = np.radians(0.5 * (left.dec[i] + right.dec[j]))
    x = turn * (3600.0 * np.cos(lean))
    y = (right.dec[j] - left.dec[i]) * 3600.0
    # north of the one source is turned against that of the other
    twist = 2.0 * np.radians(turn) * np.sin(lean)
    gap, both = 0.5 * (theirs.east[j] - theirs.north[j]), theirs.both[j]
    middle = 0.5 * (theirs.east[j] + theirs.north[j])
    gap, both = gap - both * twist, both + gap * twist
    xx, xy, yy = mine.east[i] + middle + gap, mine.both[i] + both, mine.north[i] + middle - gap
    # half of the twist belongs to the direction of the difference itself
    half = 0.25 * twist
    x, y = x - half * y, y + half * x
    away = block["v"]
    along = (x * x * xx + 2.0 * x * y * xy + y * y * yy) / np.maximum(away * away, 1e-300)
    kept = np.flatnonzero(away - within <= out * np.sqrt(along) + 1e-9)
    return i[kept], j[kept], *(each[kept] for each in (x, y, xx, xy, yy))


def _discs(
    x: np.ndarray,
    y: np.ndarray,
    xx: np.ndarray,
    xy: np.ndarray,
    yy: np.ndarray,
    det: np.ndarray,
    radius: float,
    nodes: int,
) -> np.ndarray:
    """The integral along the circle (see ``numerics.disc``), one row of nodes for each pair."""
    angle = 2.0 * np.pi * (np.arange(nodes) + 0.5) / nodes
    basis = np.stack([np.ones(nodes), np.cos(angle), np.sin(angle), np.cos(2.0 * angle), np.sin(2.0 * angle)])
    square, scale = radius * radius, -0.5 / det
    terms = np.stack(
        [
            scale * (yy * x * x - 2.0 * xy * x * y + xx * y * y + 0.5 * square * (xx + yy)),
            scale * (-2.0 * radius) * (yy * x - xy * y),
            scale * (-2.0 * radius) * (xx * y - xy * x),
            scale * 0.5 * square * (yy - xx),
            scale * -square * xy,
        ],
        axis=1,
    )
    exponent = terms @ basis
    lean = np.stack([np.full(len(x), -radius), x, y], axis=1) @ basis[:3]
    np.minimum(exponent, -1e-300, out=exponent)
    lean /= exponent
    np.expm1(exponent, out=exponent)
    lean *= exponent
    return np.clip(lean.sum(axis=1) * (-0.5 * radius / nodes) / np.sqrt(det), 0.0, 1.0)
