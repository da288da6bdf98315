"""The one-pass Gaussian join: its normal masses are exact, and it finds what the general path finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haply.models import Gaussian
from haply.probability import Region
from haply.probability.exact import PairProbability
from haply.pruning import gaussian
from haply.pruning.intervals import row_intervals
from haply.pruning.threshold import Pairing, Threshold


def test_mass_from_centre_is_half_the_error_function():
    for z in np.concatenate([np.linspace(-9, 9, 5001), [0.0, 8.4999, 8.5, 40.0, 1e300]]):
        assert abs(gaussian.mass_from_centre(z) - 0.5 * math.erf(z / math.sqrt(2))) < 2.5e-16


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.5, 0.7, 0.9, 1.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(1, 1), (3, 5), (7, 50), (1 << 12, 1 << 12)]),
    st.sampled_from([Pairing.ANY, Pairing.GAUSSIAN]),
)
def test_finds_every_pair_once(seed, level, strict, exact, room, together):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(0, 60, 2)
    sides = [Gaussian(rng.uniform(0, 10, k), rng.choice([0.0, 0.2, 1.0], k) * rng.uniform(0.5, 1, k)) for k in (n, m)]
    low, high = np.sort(rng.normal(0, 1.5, 2))
    region = Region(low, high, bool(rng.integers(2)), bool(rng.integers(2)))
    threshold = Threshold(level, strict)
    rows = [
        gaussian.sorted_rows(side.values["mean"], side.sd, row_intervals(side, left, region, threshold, exact, together))
        for side, left in zip(sides, (True, False), strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian, "_HELD", room[0])
        patch.setattr(gaussian, "_CAPACITY", room[1])
        found = gaussian.match_gaussians(*rows, -np.inf, region, threshold, exact)
    i, j = (index.astype(np.int32) for index in np.divmod(np.arange(n * m), max(1, m)))
    p = PairProbability(*sides, region).evaluate(i, j)
    kept = threshold.keep(p, False)
    pairs = list(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert sorted(pairs) == sorted(zip(i[kept].tolist(), j[kept].tolist(), strict=True))
    assert found.candidates == found.rejected + found.accepted + found.evaluated
    wanted = p.reshape(n, m)[found.left, found.right] if len(pairs) else np.empty(0)
    if exact:
        assert np.abs(found.probability - wanted).max(initial=0.0) < 1e-14
        assert found.accepted == 0
