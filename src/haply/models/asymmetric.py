"""A value with two errors: the split normal, one sd below its mode and another above."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from haply.models.base import OneDimensional, Parameter
from haply.models.one_dimensional import weighted
from haply.models.ragged import Ragged
from haply.numerics.components import NORMAL, POINT
from haply.numerics.rows import Components

_FAR = 40.0
"""This many sds away the density is less than the least double."""


class Asymmetric(OneDimensional):
    """Represents values with two errors: a split normal, with one standard deviation below its mode and one above.

    The density has no jump, so that a value is below its mode with probability ``minus / (minus + plus)``. A value is
    certain where both errors are 0.

    Parameters
    ----------
    mode
        The most likely value.
    minus
        The standard deviation below ``mode``, 0 or more.
    plus
        The standard deviation above ``mode``, 0 or more.

    Examples
    --------
    >>> from haply.models import Asymmetric
    >>> Asymmetric(3.2, 0.1, 0.4).cdf(3.2).round(4)
    array([0.2])
    """

    kind: ClassVar[str] = "asymmetric"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("mode", moves=True),
        Parameter("minus", least=0.0),
        Parameter("plus", least=0.0),
    )
    arguments: ClassVar[tuple[str, ...] | None] = ("value", "minus", "plus")
    change_places: ClassVar[tuple[tuple[str, str], ...]] = (("minus", "plus"),)
    bounded: ClassVar[bool] = False

    def __init__(self, mode: ArrayLike, minus: ArrayLike, plus: ArrayLike) -> None:
        super().__init__(mode=mode, minus=minus, plus=plus)

    @classmethod
    def example(cls) -> Asymmetric:
        return cls([1.0, 2.0], [1.0, 0.5], [2.0, 0.5])

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the whole line, except for atoms and sides without an error."""
        return np.where(self.minus > 0.0, -np.inf, self.mode), np.where(self.plus > 0.0, np.inf, self.mode)

    def _make_components(self) -> Components:
        mode, sds = np.repeat(self.mode, 2), np.column_stack([self.minus, self.plus]).ravel()
        with np.errstate(invalid="ignore", over="ignore"):
            largest = np.repeat(np.maximum(self.minus, self.plus), 2)
            share = sds / largest  # scaled first: the sum of two very large errors is not a finite double
        share = np.where(largest > 0.0, share, 1.0)
        atom, below = sds == 0.0, np.tile([True, False], len(self))
        # Cut where the density is 0 in doubles: kernels take normals with both limits or with none.
        low = np.where(below, mode - _FAR * sds, mode)
        high = np.where(below, mode, mode + _FAR * sds)
        weights = Ragged(share, 2 * np.arange(len(self) + 1))
        return weighted(weights, np.where(atom, POINT, NORMAL), low, high, mode, sds, ordered=False)
