"""Thin regions between borders, which nodes of integrals may not see: against formulas, and in any order of the values.

Values are uniform, so that a probability is a volume.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import both_kit as hp
from trees_kit import stated_error

WIDE = ("uniform(-3.0, 3.0)", "uniform(-3.0, 3.1)", "uniform(-3.0, 3.2)")
TABLE = pa.table({"id": [1]})


def chance(engine, text):
    found = hp.where(hp.Table(engine, TABLE), text, 1e-15).collect()
    return found[0]["probability"] if found else 0.0


def ball(centre, radii, op="<"):
    """What is within an ellipsoid, as text."""
    squares = (f"{r**-2:.6f} * ({x} - {m}) * ({x} - {m})" for x, m, r in zip(WIDE, centre, radii, strict=False))
    return " + ".join(squares) + f" {op} 1"


def real(radius):
    """The radius that is meant by the factor that is written."""
    return float(f"{radius**-2:.6f}") ** -0.5


def random_direction(random, size):
    found = random.normal(size=size)
    return found / np.linalg.norm(found)


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("seed", range(200))
def test_lenses_of_two_discs(engine, seed):
    """One integral finds where borders cross."""
    random = np.random.default_rng([seed, 1])
    radii = random.uniform(0.3, 1.2, 2).round(3)
    centre = random.uniform(-0.5, 0.5, 2).round(3)
    apart = radii.sum() - 10 ** random.uniform(-4, -1)
    other = (centre + apart * random_direction(random, 2)).round(6)
    r, s, d = *map(real, radii), math.dist(centre, other)
    wanted = 0.0
    if d < r + s:
        for one, two in ((r, s), (s, r)):
            half = math.acos((d * d + one * one - two * two) / (2 * d * one))
            # a segment of a circle: for small angles its terms cancel, and a series takes their place
            double = 2 * half
            series = double**3 / 6 - double**5 / 120 + double**7 / 5040 - double**9 / 362880 + double**11 / 39916800
            wanted += one * one / 2 * (series if double < 0.5 else double - math.sin(double))
    text = f"{ball(centre, [radii[0]] * 2)} AND {ball(other, [radii[1]] * 2)}"
    assert chance(engine, text) == pytest.approx(wanted / (6 * 6.1), abs=1e-11), text
    assert "(error below 1e-10)" in hp.haply.plan_where(TABLE, text, 0.5).explain()


def volume_of_cap(radius, height):
    return math.pi * height**2 * (3 * radius - height) / 3


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("seed", range(150))
@pytest.mark.parametrize("kind", ["ball", "plane"])
def test_lenses_of_a_ball(engine, kind, seed):
    """Two integrals find what a ball has in common with another, or with what is beyond a plane."""
    random = np.random.default_rng([seed, 2])
    radii, centre = random.uniform(0.3, 0.9, 2).round(3), random.uniform(-0.5, 0.5, 3).round(3)
    direction, height = random_direction(random, 3), 10 ** random.uniform(-2.5, -0.3)
    r, s = map(real, radii)
    text = ball(centre, [radii[0]] * 3)
    if kind == "plane":
        factors = direction.round(6)
        length, limit = float(np.linalg.norm(factors)), round(float(centre @ factors) + r - height, 6)
        height = min(2 * r, r - (limit - float(centre @ factors)) / length)
        text += " AND " + " + ".join(f"{k} * {x}" for k, x in zip(factors, WIDE, strict=True)) + f" > {limit}"
        wanted = volume_of_cap(r, max(0.0, height))
    else:
        other = (centre + direction * (r + s - min(height, r, s))).round(6)
        d = math.dist(centre, other)
        text += " AND " + ball(other, [radii[1]] * 3)
        wanted = volume_of_cap(r, r - (d * d + r * r - s * s) / (2 * d))
        wanted += volume_of_cap(s, s - (d * d + s * s - r * r) / (2 * d))
    assert chance(engine, text) == pytest.approx(wanted / (6 * 6.1 * 6.2), abs=1e-10), text


@pytest.mark.long(keep=3)
@pytest.mark.parametrize("seed", range(60))
def test_lenses_of_other_solids(engine, seed):
    """What is curved in different ways: whatever value is integrated first, the error is below what is stated."""
    random = np.random.default_rng([seed, 3])
    radius, radii = float(random.uniform(0.3, 1.2)), random.uniform(0.3, 1.2, 3).round(3)
    centre, direction = random.uniform(-0.5, 0.5, 3).round(3), random_direction(random, 3)
    touching = centre + (radius - 10 ** random.uniform(-3, -0.5)) * direction
    other = (touching + radii**2 * direction / np.linalg.norm(radii * direction)).round(6)
    text = f"{ball(centre, [radius] * 3)} AND {ball(other, radii)}"
    error = stated_error(hp.haply.plan_where(TABLE, text, 0.5).explain())
    assert error == 1e-6
    found = [chance(engine, f"{first} > -4 AND {text}") for first in WIDE]
    assert max(found) - min(found) <= error, text
