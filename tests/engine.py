"""Turns the oracle's single values into haply's columnar models: the one bridge between referee and engine."""

from __future__ import annotations

from collections.abc import Sequence

import oracle
from haply.models import (
    Certain,
    Gaussian,
    Histogram,
    Mixture,
    OneDimensional,
    Samples,
    TruncatedGaussian,
    Uniform,
)


def model_of(values: Sequence[object]) -> OneDimensional:
    """A model whose rows are the given oracle values, all of one kind."""

    def column(name: str) -> list[float]:
        return [float(getattr(value, name)) for value in values]

    def lists(name: str) -> list[list[float]]:
        return [[float(number) for number in getattr(value, name)] for value in values]

    kind = type(values[0])
    assert all(type(value) is kind for value in values)
    if kind is oracle.Point:
        return Certain(column("v"))
    if kind is oracle.Uniform:
        return Uniform(column("lo"), column("hi"))
    if kind is oracle.Normal:
        return Gaussian(column("mean"), column("sd"))
    if kind is oracle.Truncated:
        return TruncatedGaussian(column("mean"), column("sd"), column("lo"), column("hi"))
    if kind is oracle.NormalMixture:
        return Mixture(lists("weights"), lists("means"), lists("sds"))
    if kind is oracle.Hist:
        return Histogram(lists("edges"), lists("probs"))
    assert kind is oracle.Discrete
    if all(value.probs is None for value in values):
        return Samples(lists("points"))
    weights = [
        [1.0 / len(value.points)] * len(value.points) if value.probs is None else [float(p) for p in value.probs]
        for value in values
    ]
    return Samples(lists("points"), weights)
