"""``bench sky``: two catalogues with an error ellipse for every source, matched if they are likely at the same place.

Every source of one catalogue is in the other as well, each seen with its own error, among neighbours by chance. The
first job looks for pairs that may be at the same place, the second for pairs that are likely within an arcsecond. The
best program without haply uses SciPy's k-d trees for the pairs within reach, then the sharpest cheap filter and the
exact probability in NumPy, with the same formula as ours, in blocks that fit the cache. The true pairs are known, so
precision and recall are measured, beside a match by the best fixed radius.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from benchmarks.measure import (
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
from benchmarks.spark import FILES, unwatched, watched
from haply.errors import HaplyError
from haply.joins import join_positions
from haply.models import sky_ellipses
from haply.numerics.multivariate.sphere import ARCSECONDS
from haply.numerics.normal import normal_quantile
from haply.pruning.threshold import TOLERANCE

DataFrame: TypeAlias = Any
SparkSession: TypeAlias = Any

TREE = "cKDTree+numpy"
BY_CELLS = "haply by cells"
LARGE, STILTS, NWAY = "HAPLY_BENCH_SKY_ROWS", "HAPLY_STILTS", "HAPLY_NWAY"
"""Environment variables: the rows of a further run on Spark, and the places of two programs that are not on PATH."""
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
    """The range of the semi-major axis, even on a logarithmic scale; the minor axis is 0.3 to 1 of it."""
    same_place: tuple[float, float] = (0.2, 0.005)
    """Distance and threshold of the first job: the same place as far as errors tell."""
    near: tuple[float, float] = (1.0, 0.5)
    least_threshold: float = 1e-6
    """The threshold for comparisons without a threshold of their own."""
    fixed_radii: tuple[float, ...] = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
    large_rows: int = 0
    """Rows a side of a further run on Spark; 0 for none."""
    stilts_rows: int = 1_000_000
    nway_rows: int = 2_000
    repetitions: int = 3
    warm_repetitions: int = 12
    """Repetitions on Spark, whose JVM goes on compiling for several runs."""
    cores: str = "2"
    memory: str = "4g"
    shuffle_partitions: int = 16
    seed: int = 11


QUICK = Settings(rows=20_000, stilts_rows=5_000, nway_rows=300, repetitions=1, warm_repetitions=1)


@dataclass(frozen=True)
class Catalogue:
    """Degrees, and semi-axes in arcseconds with their angle east of north, for each source."""

    ra: np.ndarray
    dec: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    angle: np.ndarray

    def take(self, rows: np.ndarray) -> Catalogue:
        """Return some rows."""
        return Catalogue(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def make_catalogues(settings: Settings, rows: int | None = None) -> tuple[Catalogue, Catalogue, np.ndarray]:
    """Make two catalogues of the same sources on a stripe across right ascension 0, ten times as long as wide.

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


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does, in a new Spark session if none is running."""
    settings = QUICK if quick else replace(Settings(), large_rows=int(os.environ.get(LARGE, "0")))
    return on_spark(settings, measure, tell)


def measure(session: SparkSession, settings: Settings, tell: Tell) -> Report:
    """Measure in this process, on Spark, with programs that astronomers use if installed, and against the truth."""
    left, right, partner = make_catalogues(settings)
    results: list[Result] = []
    notes: list[str] = []
    for name, (within, threshold) in {SAME_PLACE: settings.same_place, NEAR: settings.near}.items():
        engines = {
            OURS: partial(haply_match, left, right, within, threshold),
            TREE: partial(tree_match, left, right, within, threshold),
        }
        results += compare(_job(name, settings.rows, within, threshold), engines, settings.repetitions, tell)
    results += spark_results(session, settings, left, right, notes, tell)
    truth = against_truth(settings, left, right, partner, tell)
    for peer in (stilts_result, nway_result):
        more, row, claims, note = peer(settings, tell)
        results += more
        truth.rows.extend(row)
        truth.claims.extend(claims)
        notes.append(note)
    stilts = [result for result in results if result.engine == "stilts"]
    targets: dict[str, dict[str, float]] = {}
    if stilts and settings.stilts_rows == settings.rows:
        ours = next(each for each in results if each.engine == OURS and each.job == _spark_job(settings))
        job = f"{stilts[0].job}, on Spark"
        seconds, pairs = (
            {OURS: ours.seconds, "stilts": stilts[0].seconds},
            {OURS: ours.pairs, "stilts": stilts[0].pairs},
        )
        results += ranked(job, seconds, pairs)
        targets["stilts"] = {job: 5.0}
    if settings.large_rows:
        notes.append(large_on_spark(session, settings, tell))
    config = {
        **settings.__dict__,
        "formulations": {
            OURS: "sky_ellipses and join_positions, one thread; on Spark hp.sky.ellipse and hp.join with the right "
            "table broadcast",
            BY_CELLS: "the same without broadcast, as it is done where no table fits into memory",
            TREE: "two trees and their pairs within reach; half-plane filter; the integral along the circle in NumPy, "
            "blocks of 2,048 pairs with as many nodes as they need; one thread",
        },
        "targets": targets
        | {
            TREE: {
                **{
                    _job(name, settings.rows, *asked): 3.0
                    for name, asked in ((SAME_PLACE, settings.same_place), (NEAR, settings.near))
                },
                _spark_job(settings): 1.0,
            }
        },
        "notes": notes,
        **circumstances("scipy", "pyspark", "pyarrow"),
    }
    title = f"Catalogues of the sky with error ellipses, {settings.rows:,} x {settings.rows:,}"
    return Report("sky", title, config, results, figures=[truth])


def _job(name: str, rows: int, within: float, threshold: float) -> str:
    return f'{name}: within {within:g}" with P >= {threshold:g}, {rows:,} a side'


def _spark_job(settings: Settings) -> str:
    return _job(SAME_PLACE, settings.rows, *settings.same_place) + ", on Spark"


# -- on Spark ----------------------------------------------------------------------------------------------------------


def spark_results(
    session: SparkSession, settings: Settings, left: Catalogue, right: Catalogue, notes: list[str], tell: Tell
) -> list[Result]:
    """Time the first job on Parquet files: haply on warm local Spark, and the program, which reads them by Arrow."""
    job = _spark_job(settings)
    memory: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        paths = [Path(folder) / name for name in ("left", "right")]
        for path, side in zip(paths, (left, right), strict=True):
            write_catalogue(path, side)
        queries: dict[str, Callable[[], DataFrame]] = {
            OURS: lambda: spark_match(session, paths, *settings.same_place, "right"),
            BY_CELLS: lambda: spark_match(session, paths, *settings.same_place),
        }
        engines: dict[str, Callable[[], Any]] = {
            OURS: unwatched(queries[OURS]),
            TREE: lambda: tree_match(read_catalogue(paths[0]), read_catalogue(paths[1]), *settings.same_place),
        }
        tell(f"{job}: first run of {TREE}")
        program = engines[TREE]()
        for name, query in queries.items():
            tell(f"{job}: first run of {name}")
            table = query().toArrow()
            ours = Answer(*(table[column].to_numpy() for column in ("i", "j", "probability")))
            check_same(job, {OURS: ours, TREE: program})
        pairs = dict.fromkeys((*engines, BY_CELLS), len(program.left))
        del program, ours, table
        seconds = take_turns(job, engines, settings.warm_repetitions, tell)
        # by itself: the JVM would compile shared code for both, which suits neither
        seconds |= take_turns(job, {BY_CELLS: unwatched(queries[BY_CELLS])}, settings.warm_repetitions, tell)
        for name, query in queries.items():
            tell(f"{job}: memory of {name}")
            watched(name, query, memory)()
    for name, peak in memory.items():
        notes.append(
            f"{name} on Spark with {settings.cores} cores: peak memory of JVM and Python workers "
            f"{peak['jvm']:,.0f} and {peak['python_workers']:,.0f} MiB"
        )
    return ranked(job, seconds, pairs)


def write_catalogue(path: Path, side: Catalogue, first: int = 0) -> None:
    """Write Parquet files with an id for each row, from ``first`` on, beside existing files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.mkdir(parents=True, exist_ok=True)
    columns = {name: getattr(side, name) for name in side.__dataclass_fields__}
    table = pa.table({"id": np.arange(first, first + len(side.ra)), **columns})
    size = -(-len(side.ra) // FILES)
    for part in range(FILES):
        pq.write_table(table.slice(part * size, size), path / f"part-{first}-{part}.parquet")


def read_catalogue(path: Path) -> Catalogue:
    """Read a catalogue in the order of its ids."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    order = np.argsort(table["id"].to_numpy(), kind="stable")
    return Catalogue(*(table[name].to_numpy()[order] for name in Catalogue.__dataclass_fields__))


_SCHEMA = "id bigint, " + ", ".join(f"{name} double" for name in Catalogue.__dataclass_fields__)


def spark_match(
    session: SparkSession, paths: list[Path], within: float, threshold: float, broadcast: Any = None
) -> DataFrame:
    """Join with haply on Spark: columns ``i, j, probability``."""
    from haply.api import join
    from haply.engines.spark.columns import sky_ellipse

    sides = [
        session.read.schema(_SCHEMA)
        .parquet(str(path))
        .select("id", sky_ellipse("ra", "dec", "major", "minor", "angle").alias("pos"))
        for path in paths
    ]
    on = f"distance(left.pos, right.pos) <= {within!r}"
    columns = ["id_left", "id_right"]
    pairs = join(sides[0], sides[1], on=on, threshold=threshold, columns=columns, broadcast=broadcast)
    return pairs.selectExpr("id_left AS i", "id_right AS j", "probability")


def large_on_spark(session: SparkSession, settings: Settings, tell: Tell) -> str:
    """Run with many rows, beside the program; return a note of the results."""
    tell(f"{settings.large_rows:,} rows a side on Spark")
    memory: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        left, right, _ = make_catalogues(settings, settings.large_rows)
        paths = [Path(folder) / name for name in ("left", "right")]
        for path, side in zip(paths, (left, right), strict=True):
            write_catalogue(path, side)
        del left, right
        ours = watched(OURS, lambda: spark_match(session, paths, *settings.same_place), memory)
        seconds, pairs = [], 0
        for _ in range(3):
            begun = time.perf_counter()
            pairs = ours()
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        program = tree_match(read_catalogue(paths[0]), read_catalogue(paths[1]), *settings.same_place)
        program_seconds = time.perf_counter() - begun
    if len(program.left) != pairs:
        raise HaplyError("Engines find different pairs", found=f"{OURS}: {pairs:,}, {TREE}: {len(program.left):,}")
    return (
        f"{settings.large_rows:,} x {settings.large_rows:,} on Spark: {seconds[0]:,.0f} s the first time, then "
        f"{min(seconds):,.0f} s ({TREE}: {program_seconds:,.0f} s), {pairs:,} pairs, peak memory of JVM and Python "
        f"workers {memory[OURS]['jvm']:,.0f} and {memory[OURS]['python_workers']:,.0f} MiB"
    )


# -- against the truth -------------------------------------------------------------------------------------------------


def scores(found: Answer, partner: np.ndarray) -> dict[str, float]:
    """Return precision and recall of pairs, and their harmonic mean."""
    true = int(np.count_nonzero(partner[found.left] == found.right))
    precision, recall = true / max(1, len(found.left)), true / len(partner)
    return {
        "precision": precision,
        "recall": recall,
        "F1": 2.0 * precision * recall / max(1e-300, precision + recall),
    }


def most_probable(found: Answer) -> Answer:
    """Return the most likely pair of each source on the left that has pairs."""
    assert found.probability is not None
    order = np.lexsort((-found.probability, found.left))
    best = order[np.flatnonzero(np.diff(found.left[order], prepend=-1))]
    return Answer(found.left[best], found.right[best], found.probability[best])


def at_recall(found: Answer, partner: np.ndarray, recall: float) -> Answer:
    """Return the likeliest pairs, as many as it takes to find this share of all partners."""
    assert found.probability is not None
    order = np.argsort(-found.probability, kind="stable")
    true = np.cumsum(partner[found.left[order]] == found.right[order])
    kept = order[: int(np.searchsorted(true, recall * len(partner) - 1e-6)) + 1]
    return Answer(found.left[kept], found.right[kept], found.probability[kept])


def against_truth(settings: Settings, left: Catalogue, right: Catalogue, partner: np.ndarray, tell: Tell) -> Figure:
    """Measure precision and recall of haply's pairs, beside those of fixed radii."""
    tell("against the truth")
    rows: list[dict[str, Any]] = []
    spatial = needs("scipy.spatial")
    trees = [spatial.cKDTree(_plane(side).points, leafsize=8) for side in (left, right)]
    pairs = trees[0].sparse_distance_matrix(trees[1], max(settings.fixed_radii), output_type="ndarray")
    for radius in settings.fixed_radii:
        near = pairs[pairs["v"] <= radius]
        found = Answer(near["i"], near["j"])
        rows.append({"match": f'within {radius:g}"', "pairs": len(found.left), **scores(found, partner)})
    best = max(row["F1"] for row in rows)
    for within, threshold in (settings.same_place, settings.near):
        found = haply_match(left, right, within, threshold)
        name = f'P(within {within:g}") >= {threshold:g}'
        rows.append({"match": name, "pairs": len(found.left), **scores(found, partner)})
    ours = max(row["F1"] for row in rows[-2:])
    claim = Claim(
        "a threshold on the probability tells partners better than any fixed radius",
        f"F1 {ours:.3f} against {best:.3f}", ours > best,
    )  # fmt: skip
    return Figure(
        "truth", "precision and recall of the pairs found", rows, "recall", ("precision",), "precision",
        log_y=False, claims=[claim],
    )  # fmt: skip


# -- programs that astronomers use, if installed -----------------------------------------------------------------------

Peer: TypeAlias = tuple[list[Result], list[dict[str, Any]], list[Claim], str]


def _command(name: str, variable: str) -> list[str] | None:
    """Return how a program is called: by the path in an environment variable (a jar by Java), or as found on PATH."""
    path = os.environ.get(variable) or shutil.which(name)
    if path is None:
        return None
    if path.endswith(".jar"):
        java = os.environ.get("JAVA_HOME")
        return [str(Path(java) / "bin" / "java") if java else "java", "-jar", path]
    return [path] if os.access(path, os.X_OK) else [sys.executable, path]


def _beside(
    engine: str,
    question: str,
    rows: int,
    settings: Settings,
    find: Callable[[Path, Catalogue, Catalogue], Answer],
    tell: Tell,
    *,
    one_each: bool,
) -> Peer:
    """Measure a program with another match condition: its time, from files, and its pairs against the truth."""
    left, right, partner = make_catalogues(settings, rows)
    job = f"{question}, {rows:,} a side"
    tell(f"{job}: {engine}")
    with tempfile.TemporaryDirectory(prefix="haply-bench-") as folder:
        begun = time.perf_counter()
        found = find(Path(folder), left, right)
        seconds = time.perf_counter() - begun
    ours = haply_match(left, right, *settings.same_place)
    spent = take_turns(job, {OURS: lambda: haply_match(left, right, *settings.same_place)}, 1, tell, TURN)[OURS]
    results = ranked(job, {OURS: spent, engine: seconds}, {OURS: len(ours.left), engine: len(found.left)})
    # in the program's terms: the likeliest pair of each source, or as many pairs as give its recall
    all_near = haply_match(left, right, settings.same_place[0], settings.least_threshold)
    theirs = scores(found, partner)
    alike = most_probable(all_near) if one_each else at_recall(all_near, partner, theirs["recall"])
    named = f"{OURS}, the most probable of each source" if one_each else f"{OURS}, at that recall"
    answers = {engine: found, OURS: ours, named: alike}
    table = [
        {"match": f"{name}, {rows:,} a side", "pairs": len(answer.left), **scores(answer, partner)}
        for name, answer in answers.items()
    ]
    mine = scores(alike, partner)
    claim = Claim(
        f"precision and recall are no worse than those of {engine}, {rows:,} a side, where as much is asked",
        " against ".join(f"{one['precision']:.4f} and {one['recall']:.4f}" for one in (mine, theirs)),
        mine["precision"] >= theirs["precision"] and mine["recall"] >= theirs["recall"],
    )
    return results, table, [claim], f"{engine} answers another question ({question}): its pairs are its own"


def stilts_result(settings: Settings, tell: Tell) -> Peer:
    """Measure STILTS' match of ellipses that overlap, all pairs."""
    command = _command("stilts", STILTS)
    if command is None:
        return [], [], [], f"STILTS is absent (skyellipse): put it on PATH, or its jar's path into {STILTS}"

    def find(folder: Path, left: Catalogue, right: Catalogue) -> Answer:
        for name, side in (("left", left), ("right", right)):
            columns = np.stack([getattr(side, each) for each in side.__dataclass_fields__], axis=1)
            rows = np.column_stack([np.arange(len(columns)), columns])
            header = "id,ra,dec,major,minor,angle"
            np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=header, comments="", fmt="%.17g")
        # ellipses of three standard errors that touch
        values = "ra dec 3*major 3*minor angle"
        out = folder / "out.csv"
        subprocess.run(
            [
                *command, "tmatch2", f"in1={folder / 'left.csv'}", f"in2={folder / 'right.csv'}", "ifmt1=csv",
                "ifmt2=csv", "matcher=skyellipse", "params=5", f"values1={values}", f"values2={values}", "find=all",
                "join=1and2", f"out={out}", "ofmt=csv", "ocmd=keepcols 'id_1 id_2'",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        found = np.loadtxt(out, delimiter=",", skiprows=1).astype(np.int64).reshape(-1, 2)
        return Answer(found[:, 0], found[:, 1])

    return _beside("stilts", "ellipses that touch", settings.stilts_rows, settings, find, tell, one_each=False)


def nway_result(settings: Settings, tell: Tell) -> Peer:
    """Measure NWAY's most probable counterparts, at a size that it can handle."""
    command = _command("nway.py", NWAY)
    if command is None:
        return [], [], [], f"NWAY is absent: pip install nway, or put the path of nway.py into {NWAY}"
    from importlib import import_module

    try:
        fits = import_module("astropy.io.fits")
    except ImportError:
        return [], [], [], "NWAY is left out: its tables need the package 'astropy'"

    def find(folder: Path, left: Catalogue, right: Catalogue) -> Answer:
        area = len(left.ra) / settings.density / 3600.0**2
        for name, side in (("LEFT", left), ("RIGHT", right)):
            columns = [("ID", np.arange(len(side.ra))), ("RA", side.ra), ("DEC", side.dec), ("MAJ", side.major)]
            columns += [("MIN", side.minor), ("ANG", side.angle)]
            table = fits.BinTableHDU.from_columns(
                [fits.Column(key, "K" if key == "ID" else "D", array=values) for key, values in columns]
            )
            table.name, table.header["SKYAREA"] = name, area
            table.writeto(folder / f"{name}.fits")
        subprocess.run(
            [
                *command, str(folder / "LEFT.fits"), ":MAJ:MIN:ANG", str(folder / "RIGHT.fits"), ":MAJ:MIN:ANG",
                "--out", str(folder / "out.fits"), "--radius", "5", "--prior-completeness", "1.0",
            ],
            check=True, capture_output=True, cwd=folder,
        )  # fmt: skip
        with fits.open(folder / "out.fits") as opened:
            found = opened[1].data
            kept = (found["match_flag"] == 1) & (found["RIGHT_ID"] >= 0)
            return Answer(found["LEFT_ID"][kept].astype(np.int64), found["RIGHT_ID"][kept].astype(np.int64))

    return _beside("nway", "the most probable counterpart", settings.nway_rows, settings, find, tell, one_each=True)


# -- in this process ---------------------------------------------------------------------------------------------------


def haply_match(left: Catalogue, right: Catalogue, within: float, threshold: float) -> Answer:
    """Join with haply, from the columns of the catalogues to arrays of pairs and probabilities."""
    mine, theirs = (sky_ellipses(side.ra, side.dec, side.major, side.minor, side.angle) for side in (left, right))
    found = join_positions(mine, theirs, within, threshold)
    return Answer(found.left, found.right, found.probability)


# -- the best program without haply ------------------------------------------------------------------------------------


class _Plane(NamedTuple):
    """A catalogue for NumPy: points in space, and variances to the east and north with their covariance."""

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
    """Join with k-d trees, then NumPy: the same pairs and probabilities, for catalogues away from the poles."""
    spatial = needs("scipy.spatial")
    mine, theirs = _plane(left), _plane(right)
    out = -normal_quantile(threshold)
    widest = math.sqrt(float(left.major.max()) ** 2 + float(right.major.max()) ** 2)
    # measured: leaves of 8, and pairs from two trees, are fastest
    trees = [
        spatial.cKDTree(side.points, leafsize=8, balanced_tree=False, compact_nodes=False) for side in (mine, theirs)
    ]
    pairs = trees[0].sparse_distance_matrix(trees[1], within + max(0.0, out) * widest + 1e-9, output_type="ndarray")
    chosen, others, probabilities = [], [], []
    for begin in range(0, len(pairs), 1 << 16):
        block = pairs[begin : begin + (1 << 16)]
        i, j, x, y, xx, xy, yy = _reduced(left, mine, right, theirs, block, within, out)
        # as many nodes on the circle as the narrowest error needs, in blocks of similar pairs
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
    """Return pairs that the half-plane along their difference does not reject, as differences on a plane."""
    i, j = block["i"], block["j"]
    turn = (right.ra[j] - left.ra[i] + 180.0) % 360.0 - 180.0
    lean = np.radians(0.5 * (left.dec[i] + right.dec[j]))
    x = turn * (3600.0 * np.cos(lean))
    y = (right.dec[j] - left.dec[i]) * 3600.0
    # north at one source is turned against north at the other
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
    """Integrate along the circle (see ``numerics.multivariate.disc``), with one row of nodes for each pair."""
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
