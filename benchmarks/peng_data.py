"""Data for the experiments of Peng, Diao and Liu (2011): generated to their selectivities, or real photometry.

The catalogue they used is not public in that form. Brightness, polarisation, colours and positions are drawn so that
their conditions keep about as many rows as their Table 5 says; errors grow with faintness, as real ones do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from haply.models import Gaussian, GaussianND, Model
from haply.selection.conditions import Condition, Polynomial, Range, RowValues

# (d1, d2, static order, static ms, dynamic ms, gain %, optimal ms)
TABLE_2 = (
    (20, 0.2, "1 2", 0.6, 0.181, 70, 0.177), (20, 0.5, "1 2", 0.6, 0.068, 89, 0.067),
    (20, 1.0, "2 1", 9.6, 0.050, 99, 0.048), (22, 0.2, "2 1", 18.2, 7.216, 60, 7.007),
    (22, 0.5, "2 1", 13.9, 1.515, 89, 1.482), (22, 1.0, "2 1", 9.6, 0.351, 96, 0.348),
    (24, 0.2, "2 1", 18.2, 15.613, 14, 15.287), (24, 0.5, "2 1", 14.4, 6.390, 56, 6.334),
    (24, 1.0, "2 1", 9.6, 2.264, 76, 2.236),
)  # fmt: skip
# (d3, d4, static order, static s, dynamic s, gain %)
TABLE_3 = (
    (0.5, 400, "3 4", 28.0, 4.25, 85), (0.5, 800, "3 4", 80.1, 12.1, 85), (0.5, 1600, "3 4", 142.0, 22.9, 84),
    (1.0, 400, "4 3", 149.0, 16.7, 89), (1.0, 800, "3 4", 105.0, 49.3, 53), (1.0, 1600, "3 4", 187.0, 97.2, 48),
    (2.0, 400, "4 3", 160.0, 72.1, 55), (2.0, 800, "4 3", 486.0, 217.0, 55), (2.0, 1600, "3 4", 487.0, 432.0, 11),
)  # fmt: skip
TABLE_5: dict[str, dict[float, float]] = {
    "d1": {20: 8.3, 22: 61.9, 24: 95.9},
    "d2": {0.2: 44.3, 0.5: 14.5, 1.0: 6.9},
    "d3": {0.5: 40.1, 1.0: 81.7, 2.0: 99.4},
    "d4": {400: 45.4, 800: 83.7, 1600: 100.0},
}
"""Selectivities of the four conditions, in percent."""


def below(value: str, limit: float) -> Polynomial:
    """``value < limit``."""
    return Polynomial((((value, None), 1.0),), (), (Range(-np.inf, limit, True, False),), f"{value} < {limit:g}")


def radius(values: list[tuple[str, int | None]], limit: float, *, beyond: bool = False) -> Polynomial:
    """The sum of squares is below the limit's square, or beyond it."""
    reach = Range(limit * limit, np.inf, False) if beyond else Range(-np.inf, limit * limit, True, False)
    text = " + ".join(f"{name}{'' if k is None else f'[{k}]'}^2" for name, k in values)
    return Polynomial((), tuple((v, v, 1.0) for v in values), (reach,), f"{text} {'>' if beyond else '<'} {limit:g}^2")


def apart(pairs: list[tuple[str, str]], limit: float, text: str) -> Polynomial:
    """The sum of the squared differences is below the limit's square."""
    squares: list[tuple[tuple[str, None], tuple[str, None], float]] = []
    for one, two in pairs:
        squares += [((one, None), (one, None), 1.0), ((two, None), (two, None), 1.0), ((one, None), (two, None), -2.0)]
    return Polynomial((), tuple(squares), (Range(-np.inf, limit * limit, True, False),), text)


def near(one: tuple[str, str], two: tuple[str, str], limit: float) -> Polynomial:
    """``|(a - b) - (c - d)| < limit``."""
    terms = tuple(((name, None), sign) for name, sign in zip((*one, *two), (1.0, -1.0, -1.0, 1.0), strict=True))
    text = f"|({one[0]} - {one[1]}) - ({two[0]} - {two[1]})| < {limit:g}"
    return Polynomial(terms, (), (Range(-limit, limit, False, False),), text)


@dataclass(frozen=True)
class Stars:
    """One row for each object, by column: means and standard deviations."""

    name: str
    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.mean.values())))

    def batch(self) -> RowValues:
        """All rows."""
        return RowValues({name: Gaussian(self.mean[name], self.sd[name]) for name in self.mean}, {}, len(self))

    def pairs(self, columns: list[str], count: int) -> RowValues:
        """All pairs of the first ``count`` objects with the next ones; columns get the side's number."""
        i, j = (grid.ravel() for grid in np.meshgrid(np.arange(count), count + np.arange(count), indexing="ij"))
        models: dict[str, Model] = {}
        for name in columns:
            for side, rows in ((1, i), (2, j)):
                models[f"{name}{side}"] = Gaussian(self.mean[name][rows], self.sd[name][rows])
        return RowValues(models, {}, len(i))


def generated(rows: int, seed: int) -> Stars:
    """Objects whose conditions keep about what Table 5 says."""
    random = np.random.default_rng(seed)
    mean, sd = {}, {}
    # r: the share of 20, 22 and 24 magnitudes at their normal quantiles
    r = np.interp(random.normal(size=rows), [-4.0, -1.385, 0.303, 1.739, 4.0], [17.0, 20.0, 22.0, 24.0, 27.0])
    faint = 10.0 ** (0.25 * (r - 22.0))
    mean["r"], sd["r"] = r, 0.05 * faint + 0.01
    # polarisation: an amplitude with the shares of 0.2, 0.5 and 1, in any direction
    amplitude = np.interp(random.random(rows), [0.0, 0.557, 0.855, 0.931, 1.0], [0.0, 0.2, 0.5, 1.0, 3.0])
    turn = random.uniform(0.0, 2.0 * np.pi, rows)
    mean["q_r"], mean["u_r"] = amplitude * np.cos(turn), amplitude * np.sin(turn)
    for name in ("q_r", "u_r"):
        sd[name] = (0.02 + 0.05 * random.random(rows)) * np.minimum(faint, 6.0) + 0.05 * amplitude
    # colours and positions: differences of pairs with the shares of Table 5, about
    mean["g"] = r + 0.6 + _heavy(random, rows, 0.36)
    mean["u"] = mean["g"] + 1.2 + _heavy(random, rows, 0.36)
    for name, error in (("g", 0.02), ("u", 0.05)):
        sd[name] = error * np.minimum(faint, 4.0) + 0.01
    for name in ("rowc", "colc"):
        mean[name] = 1000.0 + _heavy(random, rows, 255.0)
        sd[name] = random.uniform(0.1, 20.0, rows)
    return Stars("generated", mean, sd)


def _heavy(random: np.random.Generator, rows: int, scale: float) -> np.ndarray:
    """Normal, with a tenth three times as wide."""
    return scale * random.normal(size=rows) * np.where(random.random(rows) < 0.1, 3.0, 1.0)


def real(folder: str | None) -> list[Stars]:
    """Photometry with errors from a folder of downloaded data, as far as it is there."""
    found = []
    for name in ("sdss_quasars", "sdss_galaxies_ugriz") if folder else ():
        path = Path(str(folder)) / f"{name}.parquet"
        if not path.exists():
            continue
        table = pq.read_table(path).to_pandas()
        bands = {band: [c for c in (f"{band}_mag", f"{band}_err") if c in table] for band in "ugr"}
        if not all(len(columns) == 2 for columns in bands.values()):
            continue
        good = table[[column for columns in bands.values() for column in columns]].dropna()
        good = good[(good > 0.0).all(axis=1) & (good[[bands[b][0] for b in "ugr"]] < 30.0).all(axis=1)]
        good = good.sample(frac=1.0, random_state=1)
        mean = {band: good[columns[0]].to_numpy(float) for band, columns in bands.items()}
        found.append(Stars(name, mean, {band: good[columns[1]].to_numpy(float) for band, columns in bands.items()}))
    return found


def discs(rows: int, seed: int) -> GaussianND:
    """Expt 2: two independent coordinates, means up to 100, variances up to 10."""
    random = np.random.default_rng(seed)
    cov = np.zeros((rows, 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = random.uniform(0.0, 10.0, (2, rows))
    return GaussianND(random.uniform(0.0, 100.0, (rows, 2)), cov)


def fields(rows: int, seed: int) -> GaussianND:
    """Expt 1: places on a chip of about 2,000 pixels a side, with errors that are correlated."""
    random = np.random.default_rng(seed)
    sds = random.uniform(0.5, 30.0, (rows, 2))
    corr = random.uniform(-0.9, 0.9, rows)
    cov = np.empty((rows, 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = (sds**2).T
    cov[:, 0, 1] = cov[:, 1, 0] = corr * sds[:, 0] * sds[:, 1]
    return GaussianND(random.uniform(0.0, 2100.0, (rows, 2)), cov)


Conditions = list[list[Condition]]
"""Groups of conditions that share no column."""
