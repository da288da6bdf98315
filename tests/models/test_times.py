"""Values times a number: the distribution function is that of the scaled value, for each model."""

from __future__ import annotations

import numpy as np
import pytest

from haply.models import Histogram, Samples
from haply.models.one_dimensional import ONE_DIMENSIONAL


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.3, -1.0, -2.5])
@pytest.mark.parametrize("model", [kind.example() for kind in ONE_DIMENSIONAL], ids=lambda model: model.kind)
def test_the_distribution_function(model, factor):
    scaled = model.times(factor)
    assert type(scaled) is type(model)
    for x in np.linspace(-7.0, 7.0, 41):
        wanted = model.cdf(x / factor) if factor > 0.0 else 1.0 - model.cdf_left(x / factor)
        assert scaled.cdf(x) == pytest.approx(wanted, abs=1e-12)


def test_lists_of_different_lengths_are_reversed_by_row():
    found = Histogram([[0, 1, 3], [2, 5]], [[0.25, 0.75], [1.0]]).times(-2.0)
    assert found.show(0) == {"edges": [-6.0, -2.0, 0.0], "probs": [0.75, 0.25]}
    assert found.show(1) == {"edges": [-10.0, -4.0], "probs": [1.0]}
    assert Samples([[1, 2]], [[0.25, 0.75]]).times(-1.0).cdf(-2.0) == 0.75
