"""The streams of the bench ``usj``: generated or measured centres, and clouds of samples around them.

As in the paper an object is a ball around a centre, filled evenly with samples. Radii are uniform on a range (``rU``)
or Gaussian around its middle, cut to the range (``rG``); the paper prints the variance as ``(r_min + r_max) / 5``,
which has the unit of a deviation, so the deviation is taken as ``(r_max - r_min) / 5``. ``rUrG`` names the radii of the
left and of the right stream. The paper's data and its table of ranges are lost: the units here are our own choice, so
that the distance is between 1 and 2 for the generated streams in three dimensions.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Tell, needs

PAIRS = ("rUrU", "rUrG", "rGrU", "rGrG")

GPS, SENSOR = "GPS", "sensor"
BOX = 20.0
"""The edge of the box in which the generated positions move."""
STEP = 1.0
"""The standard deviation of one of their steps, on each axis."""
CHANNEL_SD, CHANNEL_MEMORY = 6.0, 0.95
"""The standard deviation of a generated channel, and the correlation of successive readings."""
WIDEST = 2.0
"""The largest radius of generated objects, unless an experiment sets another."""

EARTH_M = 6_371_000.0
FOOT_M = 0.3048
SENSOR_ERROR_C, SENSOR_ERROR_RH = 0.5, 3.5
"""The errors in data sheets of such climate sensors; readings are divided by them, so that both axes compare."""


@dataclass(frozen=True)
class Source:
    """The centres of two streams, in the order of time, and the largest radius that belongs to them."""

    name: str
    left: np.ndarray
    right: np.ndarray
    widest: float
    about: str

    @property
    def rows(self) -> int:
        """How many timestamps there are."""
        return min(len(self.left), len(self.right))


@dataclass(frozen=True)
class Streams:
    """Two streams of clouds: object, sample, coordinate."""

    left: np.ndarray
    right: np.ndarray

    @property
    def dim(self) -> int:
        """How many coordinates a sample has."""
        return int(self.left.shape[2])


# -- generated ---------------------------------------------------------------------------------------------------------


def gps(rows: int, seed: int, *, dim: int = 3, box: float = BOX) -> Source:
    """Generate two positions that move in a box and are turned back at its walls."""
    random = np.random.default_rng([seed, 1])
    sides = []
    for _ in range(2):
        path = random.uniform(0.0, box, dim) + np.cumsum(random.normal(0.0, STEP, (rows, dim)), axis=0)
        folded = np.mod(path, 2.0 * box)
        sides.append(np.where(folded > box, 2.0 * box - folded, folded))
    about = f"random walk, steps of sd {STEP:g} on each axis, in a box of edge {box:g} that it cannot leave"
    return Source(GPS, sides[0], sides[1], WIDEST, about)


def sensor(rows: int, seed: int, *, dim: int = 3) -> Source:
    """Generate two sets of channels, each a stationary autoregression of order one."""
    random = np.random.default_rng([seed, 2])
    innovation = CHANNEL_SD * math.sqrt(1.0 - CHANNEL_MEMORY**2)
    sides = []
    for _ in range(2):
        noise = random.normal(0.0, innovation, (rows, dim))
        noise[0] *= CHANNEL_SD / innovation
        sides.append(needs("scipy.signal").lfilter([1.0], [1.0, -CHANNEL_MEMORY], noise, axis=0))
    about = f"channels x[t] = {CHANNEL_MEMORY:g} x[t - 1] + noise, of sd {CHANNEL_SD:g} in the long run"
    return Source(SENSOR, sides[0], sides[1], WIDEST, about)


def draw_radii(kind: str, low: float, high: float, rows: int, random: np.random.Generator) -> np.ndarray:
    """Draw radii of a kind, ``rU`` or ``rG``."""
    if kind == "rU":
        return random.uniform(low, high, rows)
    special = needs("scipy.special")
    end = special.ndtr(-2.5)  # the range is five deviations wide
    return 0.5 * (low + high) + 0.2 * (high - low) * special.ndtri(random.uniform(end, 1.0 - end, rows))


def fill_balls(centres: np.ndarray, radii: np.ndarray, samples: int, random: np.random.Generator) -> np.ndarray:
    """Draw samples spread evenly in the ball around each centre."""
    rows, dim = centres.shape
    points = random.normal(size=(rows, samples, dim))
    length = np.sqrt(np.einsum("nkc,nkc->nk", points, points))
    points *= (radii[:, None] * random.random((rows, samples)) ** (1.0 / dim) / length)[:, :, None]
    points += centres[:, None, :]
    return points


def make_streams(
    source: Source,
    pair: str,
    rows: int,
    samples: int,
    seed: int,
    radii: tuple[float, float] | None = None,
) -> Streams:
    """Make the first objects of a source with radii of the named kinds; the same call gives the same streams."""
    low, high = radii or (0.0, source.widest)
    random = np.random.default_rng([seed, zlib.crc32(f"{source.name} {pair} {low} {high}".encode())])
    sides = []
    for centres, kind in ((source.left, pair[:2]), (source.right, pair[2:])):
        chosen = centres[:rows]
        sides.append(fill_balls(chosen, draw_radii(kind, low, high, len(chosen), random), samples, random))
    return Streams(sides[0], sides[1])


# -- measured ----------------------------------------------------------------------------------------------------------


def real_sources(folder: str | Path, rows: int, tell: Tell) -> list[Source]:
    """Return the known data that the folder has; data that it lacks are reported and left out."""
    return list(_found(Path(folder), rows, tell))


def _found(folder: Path, rows: int, tell: Tell) -> Iterator[Source]:
    for name, load in LOADERS.items():
        path = folder / f"{name}.parquet"
        if not path.is_file():
            tell(f"{name}: no {path}, left out")
            continue
        tell(f"{name}: reading {path}")
        yield load(path, rows)


def _columns(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Read columns without the rows in which one of them is null; times as milliseconds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(names)).drop_null()
    times = {name: table[name].cast(pa.int64()) for name in names if pa.types.is_timestamp(table[name].type)}
    return {name: np.asarray(times.get(name, table[name])) for name in names}


def _spread(centres: np.ndarray, rows: int) -> np.ndarray:
    """Choose this many rows, evenly over all of them, so that a short stream still covers the whole record."""
    if len(centres) <= rows:
        return centres
    return centres[np.linspace(0, len(centres) - 1, rows).astype(np.int64)]


def _metres(lat_deg: np.ndarray, lon_deg: np.ndarray, height_m: np.ndarray) -> np.ndarray:
    """Return metres east, north and up of the middle; exact to a few parts in ten thousand over 100 kilometres."""
    lat, lon = np.radians(lat_deg), np.radians(lon_deg)
    middle_lat, middle_lon = np.median(lat), np.median(lon)
    east = EARTH_M * math.cos(middle_lat) * (lon - middle_lon)
    return np.column_stack([east, EARTH_M * (lat - middle_lat), height_m])


def geolife(path: Path, rows: int) -> Source:
    """Return the track of the person with most fixes: its first half as one stream, its second half as the other."""
    read = _columns(path, "user_id", "t_utc", "lat_deg", "lon_deg", "alt_m")
    height = read["alt_m"].astype(np.float64)
    usable = (height != 0.0) & (height > -50.0) & (height < 1000.0)  # zero: the receiver gave none
    users, counts = np.unique(read["user_id"][usable], return_counts=True)
    mine = np.flatnonzero(usable & (read["user_id"] == users[counts.argmax()]))
    mine = mine[np.argsort(read["t_utc"][mine], kind="stable")]
    track = _metres(read["lat_deg"][mine], read["lon_deg"][mine], height[mine])
    half = len(track) // 2
    return Source(
        "geolife_3d", _spread(track[:half], rows), _spread(track[half:], rows), 30.0,
        "metres; no error in the source, radii up to 30 m assumed: three deviations of 10 m; first half of one "
        "person's track beside the second, thinned evenly",
    )  # fmt: skip


def adsb(path: Path, rows: int) -> Source:
    """Return every second aircraft as one stream and the others as the other, in the order of time."""
    read = _columns(path, "icao24", "t_utc", "lat_deg", "lon_deg", "alt_ft")
    height = FOOT_M * read["alt_ft"].astype(np.float64)
    order = np.argsort(read["t_utc"], kind="stable")
    order = order[height[order] < 15_000.0]  # a few heights are corrupt
    aircraft = np.unique(read["icao24"][order], return_inverse=True)[1]
    place = _metres(read["lat_deg"][order], read["lon_deg"][order], height[order])
    left, right = (_spread(place[aircraft % 2 == part], rows) for part in (0, 1))
    return Source(
        "adsb_europe", left, right, 500.0,
        "metres; no error in the source, radii up to 500 m assumed: a position two seconds old at 250 m/s; every "
        "second aircraft beside the others, thinned evenly",
    )  # fmt: skip


def room_climate(path: Path, rows: int) -> Source:
    """Return two of the four nodes of room A as one stream and the other two as the other."""
    read = _columns(path, "location", "node_id", "t_utc", "temp_c", "rh_pct")
    order = np.argsort(read["t_utc"], kind="stable")
    order = order[read["location"][order] == "A"]
    climate = _climate(read, order)
    left, right = (_spread(climate[read["node_id"][order] % 2 == part], rows) for part in (1, 0))
    return Source("room_climate", left, right, 1.0, f"{_CLIMATE}; odd nodes of room A beside even ones, thinned evenly")


def intel_lab(path: Path, rows: int) -> Source:
    """Return every second mote as one stream and the others as the other."""
    read = _columns(path, "sensor_row", "step", "temp_c", "rh_pct")
    order = np.lexsort((read["sensor_row"], read["step"]))
    climate = _climate(read, order)
    left, right = (_spread(climate[read["sensor_row"][order] % 2 == part], rows) for part in (0, 1))
    return Source("intel_lab_30min", left, right, 1.0, f"{_CLIMATE}; even motes beside odd ones, half-hourly")


_CLIMATE = (
    f"temperature in units of {SENSOR_ERROR_C:g} °C and humidity in units of {SENSOR_ERROR_RH:g} %, the errors that "
    "data sheets state; no error in the source, radii up to 1 assumed"
)


def _climate(read: dict[str, np.ndarray], order: np.ndarray) -> np.ndarray:
    return np.column_stack(
        [read["temp_c"][order] / np.float64(SENSOR_ERROR_C), read["rh_pct"][order] / np.float64(SENSOR_ERROR_RH)]
    )


def ulb_library(path: Path, rows: int, dim: int = 3) -> Source:
    """Return temperatures in one minute of some nodes and of others: as in the paper, a dimension is a sensor."""
    read = _columns(path, "t_utc", "node_id", "temp_c")
    nodes, column = np.unique(read["node_id"], return_inverse=True)
    minutes, row = np.unique(read["t_utc"] // 60_000, return_inverse=True)
    readings = np.full((len(minutes), len(nodes)), np.nan)
    readings[row, column] = read["temp_c"]
    chosen = readings[:, : 2 * dim]
    chosen = chosen[~np.isnan(chosen).any(axis=1)]
    return Source(
        "ulb_library", _spread(chosen[:, 0::2], rows), _spread(chosen[:, 1::2], rows), SENSOR_ERROR_C,
        f"°C; radii up to {SENSOR_ERROR_C:g}, the error of the sensor type; a dimension is a node, a row a minute in "
        "which all of them were heard",
    )  # fmt: skip


LOADERS: dict[str, Callable[..., Source]] = {
    "geolife_3d": geolife,
    "room_climate": room_climate,
    "ulb_library": ulb_library,
    "intel_lab_30min": intel_lab,
    "adsb_europe": adsb,
}
"""Functions that read a source from a file, up to a number of rows."""


def describe_sources(sources: list[Source]) -> dict[str, Any]:
    """Describe where the centres come from, for the JSON."""
    return {
        source.name: {"about": source.about, "dim": int(source.left.shape[1]), "largest_radius": source.widest}
        for source in sources
    }
