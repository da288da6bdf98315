"""The bench of the similarity join on tiny sizes: engines agree with brute force, counters add up, claims follow from
the numbers, and real data are read as their description says. Nothing here looks at a clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import main_bench, measure, usj, usj_data, usj_figures, usj_ours, usj_runs
from benchmarks.measure import Claim, Figure, Report, Result
from benchmarks.usj_data import PAIRS, Streams
from benchmarks.usj_figures import Scale
from benchmarks.usj_runs import RULES_OF, Cloud, FullWindows, Query, Sliding, SlidingTree, TreeProgram
from haply import HaplyError
from haply.report.charts import sweep_chart

pytest.importorskip("scipy")

TINY = usj.Settings(
    selectivities=(0.01, 0.03),
    refined_pairs=40,
    steps=6,
    repetitions=1,
    scale=Scale(
        window=60, samples=12, selectivity=0.01, thresholds=(0.1, 0.5, 0.9), dims=(2, 3), windows=(30, 60),
        batches=(1, 4), ranges=((0.0, 2.0), (0.0, 5.0)), cascade_window=40, growth_windows=(30, 60),
        growth_samples=(5, 12), growth_dims=(2, 4), steps=12, slow_steps=4, repetitions=1,
    ),
)  # fmt: skip
FIGURES = [
    "U-F7", "U-F8", "U-F9", "U-F10", "U-F11", "U-B1", "U-B2", "U-B2-rules", "rules", "growth-w", "growth-l", "growth-d",
]  # fmt: skip


def quiet(text: str) -> None:
    pass


def near_share(left: np.ndarray, right: np.ndarray, within: float) -> np.ndarray:
    """For every pair of objects the share of their sample pairs that are near."""
    apart = np.sqrt(((left[:, None, :, None] - right[None, :, None, :]) ** 2).sum(axis=-1))
    return (apart <= within).mean(axis=(2, 3))


def tiny_streams(rows: int = 80, samples: int = 9, pair: str = "rUrG") -> Streams:
    return usj_data.make_streams(usj_data.gps(rows, 3, box=8.0), pair, rows, samples, 3)


def as_set(answer: measure.Answer) -> set[tuple[int, int]]:
    pairs = list(zip(answer.left.tolist(), answer.right.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(said: list[str]) -> Report:
    return usj.measure(TINY, None, said.append)


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_report_has_its_shape(report: Report, said: list[str]) -> None:
    out = json.loads(json.dumps(report.to_dict()))
    assert set(out) == {"bench", "config", "results"}
    for result in out["results"]:
        assert set(result) == {"job", "engine", "seconds", "pairs", "ratio"}
        assert result["seconds"] > 0.0
        assert (result["ratio"] == 1.0) == (result["engine"] == "haply")
    whole = ["haply", "OP+SP", "WoP", "cKDTree+cdist", "cKDTree+cdist own radii"]
    assert [(result["job"], result["engine"]) for result in out["results"]] == [
        ("refine", "haply"),
        ("refine", "cdist"),
        *((job, engine) for job in ("stream 1%", "stream 3%", "stream 1%, steps") for engine in whole),
    ]
    assert set(out["config"]["targets"]) == {"cdist", "WoP", "cKDTree+cdist", "OP+SP"}
    assert out["config"]["within"]["stream 1%"] < out["config"]["within"]["stream 3%"]
    assert set(out["config"]["data"]) == {"GPS", "sensor"}
    assert "no folder of data is given: made-up streams only" in said


@pytest.mark.long
def test_jobs_have_the_wanted_selectivity(report: Report) -> None:
    pairs = {result.job: result.pairs for result in report.results}
    assert abs(pairs["stream 1%"] - 36) <= 1
    assert abs(pairs["stream 3%"] - 108) <= 2
    assert pairs["refine"] == TINY.refined_pairs


@pytest.mark.long
def test_every_figure_has_rows_and_judged_claims(report: Report) -> None:
    written = json.loads(json.dumps(report.to_dict()))["config"]["figures"]
    assert [figure["name"] for figure in written] == FIGURES
    for figure, drawn in zip(written, report.figures, strict=True):
        fields = set(figure["rows"][0])
        assert all(set(row) == fields for row in figure["rows"])
        assert {drawn.x, *drawn.lines, *drawn.seconds} <= fields
        assert drawn.panel in fields
        for claim in figure["claims"]:
            assert set(claim) == {"claim", "measured", "holds", "any_size"}
            assert isinstance(claim["holds"], bool)
            assert claim["measured"]
    claimed = {figure["name"] for figure in written if figure["claims"]}
    assert claimed == {*FIGURES[:8], "growth-w"}
    rows = {figure["name"]: figure["rows"] for figure in written}
    assert len(rows["U-F7"]) == 4 * len(TINY.scale.thresholds)
    assert [(row["data"], row["radii"]) for row in rows["U-F8"]] == [
        (name, pair) for name in ("GPS", "sensor") for pair in PAIRS
    ]
    assert [row["d"] for row in rows["U-F10"]] == [2, 3]
    assert [row["batch"] for row in rows["U-B1"]] == [1, 4, 1, 4]


@pytest.mark.long
def test_targets_are_judged_for_each_job(report: Report) -> None:
    lines = measure.targets(report)
    assert len(lines) == 6
    assert lines[0].startswith("target: 10 times as fast as cdist in 'refine'; ")
    made_up = Report(
        "x", "x", {"targets": {"peer": {"a": 3.0, "b": 3.0}}},
        [Result("a", "peer", 1.0, 1, 5.0), Result("b", "peer", 1.0, 1, 2.0)],
    )  # fmt: skip
    assert measure.targets(made_up) == [
        "target: 3 times as fast as peer in 'a'; reached with 5.00",
        "target: 3 times as fast as peer in 'b'; missed with 2.00",
    ]


@pytest.mark.long
def test_power_adds_up(report: Report) -> None:
    (power,) = (figure for figure in report.figures if figure.name == "U-F7")
    for row in power.rows:
        assert row["left by OP %"] == pytest.approx(100.0 - row["OP %"])
        # what OP accepts is neither pruned nor left
        assert row["left by OP+SP %"] <= 100.0 - row["OP %"] - row["SP %"] + 1e-9
    (rules,) = (figure for figure in report.figures if figure.name == "U-B2-rules")
    for row in rules.rows:
        decided = [value for name, value in row.items() if name[-2:] in (" -", " +")]
        assert sum(decided) + row["in full"] == pytest.approx(100.0)


# -- engines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS)
def test_windows_agree_with_brute_force(pair: str) -> None:
    streams = tiny_streams(pair=pair)
    share = near_share(streams.left, streams.right, 1.6)
    for threshold in (0.3, 0.5, 1.0):
        expected = set(zip(*(side.tolist() for side in np.nonzero(share >= threshold)), strict=True))
        assert expected
        for rules in (*RULES_OF.values(), *usj_ours.VARIANTS.values(), *usj_ours.GROWING.values()):
            windows = FullWindows(streams.left, streams.right, Query(1.6, threshold, rules))
            assert as_set(windows.answer()) == expected
            assert as_set(windows.answer()) == expected  # it can be asked again
        for own_radii in (False, True):
            tree = TreeProgram(1.6, threshold, streams.left.shape[1], own_radii)
            assert as_set(tree.windows(Cloud(streams.left), Cloud(streams.right))) == expected


@pytest.mark.parametrize("rules", [*RULES_OF.values(), *usj_ours.VARIANTS.values()])
def test_counters_add_up(rules: str | tuple[str, ...]) -> None:
    streams = tiny_streams()
    windows = FullWindows(streams.left, streams.right, Query(1.6, 0.5, rules))
    counts = windows.counted()
    assert counts.candidates == windows.pairs == 6400
    assert sum(counts.rejected.values()) + sum(counts.accepted.values()) + counts.evaluated == windows.pairs
    assert counts.kept == len(windows.match())
    assert counts.evaluated <= usj_runs.undecided(counts) <= windows.pairs


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("rules", RULES_OF.values())
def test_steps_agree_with_brute_force(rules: str, batch: int) -> None:
    streams, window, steps = tiny_streams(100), 20, 50 // batch
    i, j = np.nonzero(near_share(streams.left, streams.right, 1.6) >= 0.5)
    fresh = (np.maximum(i, j) >= window) & (np.maximum(i, j) < window + steps * batch) & (np.abs(i - j) < window)
    sliding = Sliding(streams, window, Query(1.6, 0.5, rules), batch)
    ran = sliding.run(steps)
    expected = set(zip(i[fresh].tolist(), j[fresh].tolist(), strict=True))
    assert expected
    assert as_set(ran.answer) == expected
    early = {pair for pair in expected if max(pair) < window + 3 * batch}
    assert as_set(ran.first(3)) == early
    assert set(ran.parts) == {"samples", "arrival", "index", "match"}
    assert all(0.0 < seconds < ran.seconds for seconds in ran.parts.values())
    assert max(sliding.join.stored.values()) <= window


@pytest.mark.parametrize("own_radii", [False, True])
def test_the_tree_program_steps_as_brute_force_does(own_radii: bool) -> None:
    streams, window = tiny_streams(110), 20
    i, j = np.nonzero(near_share(streams.left, streams.right, 1.6) >= 0.5)
    tree = SlidingTree(streams, window, 1.6, 0.5, own_radii)
    for first, steps in ((window, 40), (window + 40, 50)):  # more than the tree lives
        fresh = (np.maximum(i, j) >= first) & (np.maximum(i, j) < first + steps) & (np.abs(i - j) < window)
        assert as_set(tree.run(steps)) == set(zip(i[fresh].tolist(), j[fresh].tolist(), strict=True))


def test_objects_that_come_too_late_are_searched_for_and_not_found() -> None:
    streams = tiny_streams()
    late = FullWindows(streams.left, streams.right[:10], Query(1.6, 0.5), window=80, too_late=True)
    assert len(late.match()) == 0
    in_time = FullWindows(streams.left, streams.right[:10], Query(1.6, 0.5), window=80)
    assert len(in_time.match()) > 0


@pytest.mark.parametrize("share", [0.002, 0.05])
def test_the_distance_gives_the_wanted_share(share: float) -> None:
    streams = tiny_streams()
    within = usj_runs.distance_for(streams.left, streams.right, 0.5, share)
    found = (near_share(streams.left, streams.right, within) >= 0.5).sum()
    assert abs(found - share * 6400) <= 1 + 0.01 * share * 6400


# -- data --------------------------------------------------------------------------------------------------------------


def test_radii_keep_to_their_range() -> None:
    random = np.random.default_rng(1)
    for kind, spread in (("rU", 4.0 / 12.0**0.5), ("rG", 0.9546 * 4.0 / 5.0)):  # cut at 2.5 deviations
        radii = usj_data.draw_radii(kind, 1.0, 5.0, 20_000, random)
        assert radii.min() >= 1.0
        assert radii.max() <= 5.0
        assert radii.mean() == pytest.approx(3.0, abs=0.03)
        assert radii.std() == pytest.approx(spread, rel=0.02)


def test_balls_are_filled_evenly() -> None:
    centres, radii = np.array([[0.0, 0.0, 0.0], [5.0, -5.0, 1.0]]), np.array([2.0, 0.5])
    points = usj_data.fill_balls(centres, radii, 20_000, np.random.default_rng(1))
    apart = np.sqrt(((points - centres[:, None]) ** 2).sum(axis=2)) / radii[:, None]
    assert apart.max() <= 1.0 + 1e-12
    # half the radius holds an eighth of the volume
    assert (apart <= 0.5).mean(axis=1) == pytest.approx([0.125, 0.125], abs=0.01)


def test_made_up_streams_stay_where_they_belong() -> None:
    wander = usj_data.gps(5_000, 7)
    for side in (wander.left, wander.right):
        assert side.min() >= 0.0
        assert side.max() <= usj_data.BOX
        assert np.abs(np.diff(side, axis=0)).max() < 6.0
    channels = usj_data.sensor(50_000, 7, dim=4)
    assert channels.left.shape == (50_000, 4)
    assert channels.left.std() == pytest.approx(usj_data.CHANNEL_SD, rel=0.1)
    again = [usj_data.make_streams(wander, "rUrG", 10, 5, 7).right for _ in range(2)]
    assert np.array_equal(*again)


def write(folder: Path, name: str, **columns: Any) -> None:
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def times(seconds: np.ndarray) -> pa.Array:
    return pa.array((1_000 * seconds).astype(np.int64)).cast(pa.timestamp("ms"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files with the columns of the real ones, and with what is wrong in them."""
    path, random, rows = tmp_path_factory.mktemp("data"), np.random.default_rng(5), 600
    drift = np.cumsum(random.normal(0.0, 1e-4, (rows, 2)), axis=0)
    alt = random.normal(50.0, 5.0, rows).astype(np.float32)
    alt[::10], alt[5] = 0.0, 12_000.0
    write(
        path, "geolife_3d", user_id=pa.array(np.repeat([3, 4, 4], rows // 3), pa.int16()),
        traj_id=pa.array(np.zeros(rows), pa.int32()), t_utc=times(np.arange(rows)[::-1]), lat_deg=40.0 + drift[:, 0],
        lon_deg=116.0 + drift[:, 1], alt_m=pa.array(alt),
    )  # fmt: skip
    height = pa.array([None if k % 7 == 0 else 30_000.0 + k for k in range(rows)], pa.float32())
    write(
        path, "adsb_europe", icao24=[f"{k % 6:06x}" for k in range(rows)], callsign=["X"] * rows,
        t_utc=times(np.arange(rows)), lat_deg=48.0 + drift[:, 0], lon_deg=2.0 + drift[:, 1], alt_ft=height,
    )  # fmt: skip
    climate = {
        "temp_c": pa.array(random.normal(21.0, 1.0, rows), pa.float32()),
        "rh_pct": pa.array(random.normal(40.0, 5.0, rows), pa.float32()),
    }
    write(
        path, "room_climate", location=["A", "B"] * (rows // 2), measurement=pa.array(np.ones(rows), pa.int16()),
        node_id=pa.array(1 + np.arange(rows) // 2 % 4, pa.int16()), t_utc=times(np.arange(rows)), **climate,
    )  # fmt: skip
    write(
        path, "intel_lab_30min", sensor_row=pa.array(np.repeat(np.arange(50), 12), pa.int16()),
        step=pa.array(np.tile(np.arange(12), 50), pa.int16()), **climate,
    )  # fmt: skip
    heard = np.flatnonzero(np.arange(rows) % 47)  # now and then a node is not heard
    write(
        path, "ulb_library", t_utc=times(heard // 6 * 60 + heard % 6), node_id=pa.array(1 + heard % 6, pa.int16()),
        temp_c=pa.array(20.0 + (heard % 6) + 0.001 * (heard // 6), pa.float32()),
    )  # fmt: skip
    return path


def test_real_data_are_read(folder: Path) -> None:
    said: list[str] = []
    sources = {source.name: source for source in usj_data.real_sources(folder, 50, said.append)}
    assert list(sources) == list(usj_data.LOADERS)
    assert said == [f"{name}: reading {folder / name}.parquet" for name in usj_data.LOADERS]
    dims = {"geolife_3d": 3, "room_climate": 2, "ulb_library": 3, "intel_lab_30min": 2, "adsb_europe": 3}
    for name, source in sources.items():
        assert source.left.shape == source.right.shape == (50, dims[name])
        assert np.isfinite(source.left).all()
        assert np.isfinite(source.right).all()
        assert "assumed" in source.about or "error" in source.about


def test_tracks_are_in_metres_and_without_bad_heights(folder: Path) -> None:
    source = usj_data.geolife(folder / "geolife_3d.parquet", 1_000)
    read = pq.read_table(folder / "geolife_3d.parquet").to_pandas()
    mine = read[(read.user_id == 4) & (read.alt_m != 0) & (read.alt_m < 1_000)].sort_values("t_utc")
    track = np.concatenate([source.left, source.right])
    assert len(source.left) == len(mine) // 2
    assert len(track) == len(mine)
    assert track[:, 2] == pytest.approx(mine.alt_m.to_numpy())
    degree = np.pi / 180.0 * usj_data.EARTH_M
    assert np.diff(track[:, 1]) == pytest.approx(degree * np.diff(mine.lat_deg), abs=1e-6)
    east = degree * np.cos(np.radians(mine.lat_deg.median())) * np.diff(mine.lon_deg)
    assert np.diff(track[:, 0]) == pytest.approx(east, abs=1e-6)


def test_aircraft_without_a_height_are_left_out(folder: Path) -> None:
    source = usj_data.adsb(folder / "adsb_europe.parquet", 1_000)
    assert len(source.left) + len(source.right) == 600 - 86
    assert source.left[:, 2].min() >= usj_data.FOOT_M * 30_000.0
    assert set(np.round(source.left[:, 2] / usj_data.FOOT_M).astype(int) % 2) == {0}  # even aircraft, even rows


def test_climate_is_in_units_of_its_error(folder: Path) -> None:
    source = usj_data.room_climate(folder / "room_climate.parquet", 1_000)
    assert len(source.left) + len(source.right) == 300
    assert source.left[:, 0].mean() == pytest.approx(42.0, abs=0.5)
    assert source.left[:, 1].mean() == pytest.approx(40.0 / 3.5, abs=0.3)
    motes = usj_data.intel_lab(folder / "intel_lab_30min.parquet", 1_000)
    assert len(motes.left) == len(motes.right) == 300


def test_a_dimension_is_a_sensor(folder: Path) -> None:
    source = usj_data.ulb_library(folder / "ulb_library.parquet", 1_000, dim=2)
    assert source.left.shape == source.right.shape
    assert 80 < len(source.left) < 100  # minutes in which one of the four was missing are gone
    assert np.floor(source.left[0]).tolist() == [20.0, 22.0]
    assert np.floor(source.right[0]).tolist() == [21.0, 23.0]


def test_missing_and_short_data_are_left_out_and_named(folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert usj_figures.make_lab(TINY.scale, str(tmp_path), said.append).real == []
    assert said == [f"{name}: no {tmp_path / name}.parquet, left out" for name in usj_data.LOADERS]
    said.clear()
    lab = usj_figures.make_lab(Scale(window=150, windows=(150,), steps=10), str(folder), said.append)
    assert "ulb_library: fewer than 160 rows, left out" in said
    assert "ulb_library" not in {source.name for source in lab.real}


def test_figures_use_real_data(folder: Path) -> None:
    lab = usj_figures.make_lab(TINY.scale, str(folder), quiet)
    names = [source.name for source in lab.sources]
    assert names == ["GPS", "sensor", *usj_data.LOADERS]
    figure = usj_figures.time_by_data(lab)
    assert [row["data"] for row in figure.rows] == [name for name in names for _ in PAIRS]
    assert {claim.claim.partition(":")[0] for claim in figure.claims} == {"made-up data", "real data"}
    assert {row["data"] for row in usj_figures.time_by_dimension(lab).rows} == {"sensor", "ulb_library"}


# -- claims ------------------------------------------------------------------------------------------------------------


def power_row(op: float, sp: float, left: float, **more: Any) -> dict[str, Any]:
    rest = 100.0 - op - sp
    return {"data": "GPS", "OP %": op, "SP %": sp, "left by OP+SP %": rest, "left by haply %": left} | more


def test_claims_follow_from_the_numbers() -> None:
    good = [power_row(85.0, 6.0, 1.0), power_row(86.0, 9.0, 0.5)]
    assert [claim.holds for claim in usj_figures._claims_of_power(good)] == [True] * 5
    bad = [power_row(75.0, 11.0, 20.0), power_row(95.0, 4.0, 2.0)]
    claims = usj_figures._claims_of_power([*good, *({**row, "data": "sensor"} for row in bad)])
    assert [claim.holds for claim in claims] == [False] * 5
    assert claims[0].measured == "1 of 2 bear it out: GPS: 85 to 86%; sensor: 75 to 95%"
    fast = [{"OP+SP": 1.0, "WoP": ratio, "OP+SP matching": 1.0, "WoP matching": 2 * ratio} for ratio in (40.0, 3000.0)]
    assert usj_figures._apart("x", fast, 2, 3).holds
    assert not usj_figures._apart("x", fast, 1, 2).holds
    assert usj_figures._apart("x", fast, 2, 3).measured == "40 to 3e+03 times (matching alone 80 to 6e+03 times)"


def test_batches_share_searches() -> None:
    streams = tiny_streams(200)
    single, together = (usj_ours._searches(streams, 80, 1.6, size, 100) for size in (1, 20))
    assert single[0] == 1.0
    assert together[0] < 1.0
    assert together[1] >= single[1]


# -- showing it --------------------------------------------------------------------------------------------------------


def figure(**changes: Any) -> Figure:
    rows = [{"data": "GPS", "w": w, "haply": 1e-5 * w, "WoP": 0.0 if w == 10 else 1.0, "n": w} for w in (10, 1_000)]
    given: dict[str, Any] = {
        "name": "F-1", "title": "a title", "rows": rows, "x": "w", "lines": ("haply", "WoP"), "y_title": "seconds",
        "panel": "data", "seconds": ("haply", "WoP"), "claims": [Claim("it is fast", "10 µs", True)],
        "notes": ["a note"],
    }  # fmt: skip
    return Figure(**(given | changes))


def test_command_line_shows_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    results = [Result("job", "haply", 2e-5, 5, 1.0), Result("job", "WoP", 2e-3, 5, 100.0)]
    by_name = figure(name="F-2", x="data", panel=None, log_y=False, claims=[Claim("it is small", "huge", False)])
    made = Report("usj", "Made up", {}, results, figures=[figure(), by_name])
    monkeypatch.setattr(usj, "run", lambda quick, data, tell: made)
    path = tmp_path / "usj.json"
    assert main_bench("usj", str(path), False, None, str(tmp_path)) == 0
    out = capsys.readouterr().out
    for text in (
        "F-1: a title", "100 µs", "a note", "claim: it is fast; measured: 10 µs; holds", "chart: ", "1,000",
        "claim: it is small; measured: huge; does not hold",
    ):  # fmt: skip
        assert text in out
    assert sorted(file.name for file in (tmp_path / "usj").iterdir()) == ["F-1.svg", "F-2.svg"]
    assert "a title" in (tmp_path / "usj" / "F-1.svg").read_text()
    written = json.loads(path.read_text())["config"]["figures"]
    assert written[0]["claims"] == [{"claim": "it is fast", "measured": "10 µs", "holds": True, "any_size": False}]


def test_sweep_chart_leaves_out_what_a_logarithm_cannot_show() -> None:
    given = figure()
    spec = sweep_chart(given.rows, x="w", lines=given.lines, title="t", y_title="s", panel="data").to_dict()
    assert [row["value"] for row in spec["data"]["values"]] == pytest.approx([1e-4, 1e-2, 1.0])
    with pytest.raises(HaplyError, match="sweep"):
        sweep_chart([], x="w", lines=("haply",), title="t", y_title="s")
    with pytest.raises(HaplyError, match="lack d"):
        sweep_chart(given.rows, x="d", lines=("haply",), title="t", y_title="s")
