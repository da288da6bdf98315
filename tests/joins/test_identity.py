"""Rows that are left out as too far apart have a negligible density: the bound behind candidates of ``hp.match``."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from engine import model_of
from haply.joins.cells.identity import IdentityMethod
from haply.joins.cells.method import Setting
from haply.joins.cells.rows import CellRows
from haply.models import GaussianND, MixtureND
from haply.probability.density import PairDensity
from join_kit import values

KINDS = ("normal", "uniform", "truncated", "mixture", "hist")
SETTING = Setting(True, True, False, True)


def sides(left, right, method):
    found = []
    for model, is_left in ((left, True), (right, False)):
        placed = method.place(is_left)(model)
        found.append(CellRows(model, placed.start, placed.end, None))
    return found


def check(left, right, log_cut):
    """Every pair above the cut is found, with its density; what is not found is below it."""
    method = IdentityMethod((type(left), type(right)), log_cut)
    mine, theirs = sides(left, right, method)
    found = method.match(SETTING)(mine, theirs)
    i, j = (axis.ravel() for axis in np.indices((len(left), len(right))))
    density = PairDensity(left, right).evaluate(i, j).reshape(len(left), len(right))
    wanted = {(a, b) for a, b in zip(*np.nonzero(density >= math.exp(-log_cut)), strict=True)}
    assert set(zip(found.left, found.right, strict=True)) == wanted
    assert found.probability == pytest.approx(density[found.left, found.right], rel=1e-12)
    apart = (mine.start[:, None] > theirs.end[None, :]) | (theirs.start[None, :] > mine.end[:, None])
    assert (density[apart] < math.exp(-log_cut)).all()
    return len(wanted), int(apart.sum())


@pytest.mark.parametrize(("one", "other"), itertools.product(KINDS, KINDS))
def test_numbers(one, other):
    counts = np.zeros(2, int)
    for seed, log_cut in enumerate((-1.0, 2.0, 10.0, 40.0)):
        left, right = model_of(values(one, 30, seed)), model_of(values(other, 30, 100 + seed))
        counts += check(left, right, log_cut)
    assert counts.all(), "some pairs are found, and some rows are apart"


def test_positions():
    rng = np.random.default_rng(1)

    def covariance():
        root = rng.normal(size=(2, 2)) * rng.uniform(0.05, 1.0)
        return (root @ root.T + 1e-3 * np.eye(2)).ravel().tolist()

    def means(count):
        return [rng.uniform(-8, 8, 2).tolist() for _ in range(count)]

    plain = [GaussianND(means(40), [covariance() for _ in range(40)]) for _ in range(2)]
    mixed = MixtureND(
        [[0.3, 0.7]] * 40,
        [rng.uniform(-8, 8, 4).tolist() for _ in range(40)],
        [covariance() + covariance() for _ in range(40)],
    )
    for left, right in ((plain[0], plain[1]), (plain[0], mixed), (mixed, mixed)):
        counts = np.zeros(2, int)
        for log_cut in (-1.0, 3.0, 20.0):
            counts += check(left, right, log_cut)
        assert counts.all(), "some pairs are found, and some rows are apart"
