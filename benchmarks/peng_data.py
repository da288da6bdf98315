"""Data for the experiments of Peng, Diao and Liu (2011): generated for their selectivities, or real photometry.

Their catalogue is not public in that form. Brightness, polarisation, colours and positions are drawn so that their
conditions keep about as many rows as in their Table 5; errors grow with faintness, as in real data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pyarrow.parquet as pq

from haply.models import Gaussian, GaussianND, Model
from haply.probability.multivariate import disc_probability
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
    """Make the condition ``value < limit``."""
    return Polynomial((((value, None), 1.0),), (), (Range(-np.inf, limit, True, False),), f"{value} < {limit:g}")


def radius(values: list[tuple[str, int | None]], limit: float, *, beyond: bool = False) -> Polynomial:
    """Make the condition that the sum of squares is below the limit's square, or beyond it."""
    reach = Range(limit * limit, np.inf, False) if beyond else Range(-np.inf, limit * limit, True, False)
    text = " + ".join(f"{name}{'' if k is None else f'[{k}]'}^2" for name, k in values)
    return Polynomial((), tuple((v, v, 1.0) for v in values), (reach,), f"{text} {'>' if beyond else '<'} {limit:g}^2")


def apart(pairs: list[tuple[str, str]], limit: float, text: str) -> Polynomial:
    """Make the condition that the sum of the squared differences is below the limit's square."""
    squares: list[tuple[tuple[str, None], tuple[str, None], float]] = []
    for one, two in pairs:
        squares += [((one, None), (one, None), 1.0), ((two, None), (two, None), 1.0), ((one, None), (two, None), -2.0)]
    return Polynomial((), tuple(squares), (Range(-np.inf, limit * limit, True, False),), text)


def near(one: tuple[str, str], two: tuple[str, str], limit: float) -> Polynomial:
    """Make the condition ``|(a - b) - (c - d)| < limit``."""
    terms = tuple(((name, None), sign) for name, sign in zip((*one, *two), (1.0, -1.0, -1.0, 1.0), strict=True))
    text = f"|({one[0]} - {one[1]}) - ({two[0]} - {two[1]})| < {limit:g}"
    return Polynomial(terms, (), (Range(-limit, limit, False, False),), text)


@dataclass(frozen=True)
class Stars:
    """Means and standard deviations by column, with a row for each object."""

    name: str
    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(next(iter(self.mean.values())))

    def batch(self) -> RowValues:
        """Return all rows."""
        return RowValues({name: Gaussian(self.mean[name], self.sd[name]) for name in self.mean}, {}, len(self))

    def beside(self, other: Stars, columns: list[str]) -> RowValues:
        """Return all pairs of these objects with others; names of columns get the side's number."""
        i, j = (grid.ravel() for grid in np.meshgrid(np.arange(len(self)), np.arange(len(other)), indexing="ij"))
        models: dict[str, Model] = {}
        for name in columns:
            for side, of, rows in ((1, self, i), (2, other, j)):
                models[f"{name}{side}"] = Gaussian(of.mean[name][rows], of.sd[name][rows])
        return RowValues(models, {}, len(i))


THRESHOLD = 0.7
"""The threshold of the paper's experiments, for which the selectivities hold."""


def generated(rows: int, seed: int) -> Stars:
    """Draw objects whose conditions hold with probability 0.7 or more as often as Table 5 says.

    Draws are spread evenly over their quantiles, so that the shares do not depend on the number of rows.
    """
    random = np.random.default_rng(seed)
    mean, sd = {}, {}
    # r: the quantile for the share of a limit is the brightness that is just likely enough to be below it
    edges = [_brightest(limit) for limit in TABLE_5["d1"]]
    shares = [0.01 * share for share in TABLE_5["d1"].values()]
    r = np.interp(_even(random, rows), [0.0, *shares, 1.0], [17.0, *edges, 27.0])
    mean["r"], sd["r"] = r, _error_of_r(r)
    # polarisation: an amplitude with the shares of 0.2, 0.5 and 1, in any direction; errors grow with faintness
    base = np.minimum((0.02 + 0.05 * random.random(rows)) * 10.0 ** (0.25 * (r - 22.0)), _MOST_ERROR)
    amplitude = _amplitudes(_even(random, rows), base)
    turn = random.uniform(0.0, 2.0 * np.pi, rows)
    mean["q_r"], mean["u_r"] = amplitude * np.cos(turn), amplitude * np.sin(turn)
    sd["q_r"] = sd["u_r"] = base + _ERROR_OF_AMPLITUDE * amplitude
    # colours and positions: differences of pairs with about the shares of Table 5
    faint = np.minimum(10.0 ** (0.25 * (r - 22.0)), 4.0)
    mean["g"] = r + 0.6 + _heavy(random, rows, _COLOUR)
    mean["u"] = mean["g"] + 1.2 + _heavy(random, rows, _COLOUR)
    sd["g"], sd["u"] = 0.005 * faint + 0.005, 0.01 * faint + 0.005
    for name in ("rowc", "colc"):
        mean[name] = 1000.0 + _heavy(random, rows, _PLACE)
        sd[name] = random.uniform(0.1, 20.0, rows)
    return Stars("generated", mean, sd)


_COLOUR, _PLACE = (0.164, 0.57, 3.1), (149.0, 0.38, 2.85)
"""Normals with a wide part: the scale, the share of the wide part, and how much wider it is. They are fitted to the
shares of d3 and d4."""
_MOST_ERROR, _ERROR_OF_AMPLITUDE = 0.12, 0.05


def _error_of_r(r: np.ndarray) -> np.ndarray:
    return np.asarray(0.05 * 10.0 ** (0.25 * (r - 22.0)) + 0.01)


def _brightest(limit: float) -> float:
    """Return the r that is below the limit with the probability of the threshold."""
    z = NormalDist().inv_cdf(THRESHOLD)
    return _root(lambda r: r + z * _error_of_r(r) - limit, np.array([17.0]), np.array([float(limit)]))[0]


def _amplitudes(share: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Turn shares into amplitudes: at the share of a limit an amplitude is just likely enough to be beyond it."""
    grid = np.linspace(0.0, _MOST_ERROR, 40)
    knots = [np.zeros(len(base))]
    for limit in TABLE_5["d2"]:

        def beyond(at: np.ndarray, limit: float = limit) -> np.ndarray:
            sd = grid + _ERROR_OF_AMPLITUDE * at
            cov = np.zeros((len(at), 2, 2))
            cov[:, 0, 0] = cov[:, 1, 1] = sd * sd
            return 1.0 - disc_probability(np.column_stack([at, np.zeros(len(at))]), cov, limit) - THRESHOLD

        least = _root(beyond, np.full(len(grid), 1e-9), np.full(len(grid), 2.0 * limit))
        knots.append(np.interp(base, grid, least))
    knots.append(np.full(len(base), 3.0))
    at = [0.0, *(1.0 - 0.01 * passing for passing in TABLE_5["d2"].values()), 1.0]
    found = np.zeros(len(base))
    for (low, below), (high, above) in itertools.pairwise(zip(at, knots, strict=True)):
        inside = (share >= low) & (share < high)
        found = np.where(inside, below + (share - low) / (high - low) * (above - below), found)
    return found


def _root(function: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return where rising functions pass 0, by halving."""
    for _ in range(50):
        middle = 0.5 * (low + high)
        above = function(middle) > 0.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return 0.5 * (low + high)


def _even(random: np.random.Generator, rows: int) -> np.ndarray:
    """Draw ``rows`` numbers from 0 to 1, one from each of as many equal parts, in random order."""
    return (random.permutation(rows) + random.random(rows)) / rows


def _heavy(random: np.random.Generator, rows: int, law: tuple[float, float, float]) -> np.ndarray:
    """Draw normals, a share of which are wider."""
    scale, share, wider = law
    normal = np.array([NormalDist().inv_cdf(u) for u in _even(random, rows)])
    return scale * normal * np.where(_even(random, rows) < share, wider, 1.0)


def real(folder: str | None) -> list[Stars]:
    """Read photometry with errors from a folder of downloaded data, if it has any."""
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
    """Make the data of Expt 2: two independent coordinates, means up to 100, variances up to 10."""
    random = np.random.default_rng(seed)
    cov = np.zeros((rows, 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = random.uniform(0.0, 10.0, (2, rows))
    return GaussianND(random.uniform(0.0, 100.0, (rows, 2)), cov)


def fields(rows: int, seed: int) -> GaussianND:
    """Make the data of Expt 1: places on a chip of about 2,000 pixels a side, with correlated errors."""
    random = np.random.default_rng(seed)
    sds = random.uniform(0.5, 30.0, (rows, 2))
    corr = random.uniform(-0.9, 0.9, rows)
    cov = np.empty((rows, 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = (sds**2).T
    cov[:, 0, 1] = cov[:, 1, 0] = corr * sds[:, 0] * sds[:, 1]
    return GaussianND(random.uniform(0.0, 2100.0, (rows, 2)), cov)


Conditions = list[list[Condition]]
"""Groups of conditions that share no column."""
