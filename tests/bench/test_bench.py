"""The benchmarks on tiny sizes: engines must agree, reports must have their shape. Nothing here looks at a clock."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import amounts
from benchmarks import BENCHES, band, interval, main_bench, measure
from benchmarks import spark as bench_spark
from benchmarks.measure import Answer, Claim, Figure, Growth, Report, Result
from haply import HaplyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("duckdb")
pytest.importorskip("polars")
pytest.importorskip("scipy")

PEERS = [("duckdb", ""), ("duckdb", " same bound"), ("polars", " same bound"), ("numpy", ""), ("numpy", " same bound")]
TINY_BAND = band.Settings(rows=400, repetitions=1)
TINY_INTERVAL = interval.Settings(rows=2_000, stretch=500.0, right_from=200.0, repetitions=1)


def quiet(text: str) -> None:
    pass


def by_brute_force(left: band.Side, right: band.Side, within: float, threshold: float) -> set[tuple[int, int]]:
    from scipy.stats import norm

    d = left.mean[:, None] - right.mean[None, :]
    s = np.hypot(left.sd[:, None], right.sd[None, :])
    i, j = np.nonzero(norm.cdf((within - d) / s) - norm.cdf((-within - d) / s) >= threshold)
    return set(zip(left.id[i].tolist(), right.id[j].tolist(), strict=True))


def check_shape(report: Report) -> None:
    out = json.loads(json.dumps(report.to_dict()))
    assert set(out) == {"bench", "config", "results"}
    assert out["bench"] == report.bench
    for result in out["results"]:
        assert set(result) == {"job", "engine", "seconds", "pairs", "ratio"}
        assert result["seconds"] > 0.0
        assert (result["ratio"] == 1.0) == (result["engine"] == "haply")
    assert set(out["config"]["targets"]) < {result["engine"] for result in out["results"]}


@pytest.mark.parametrize("exact", [True, False])
def test_band_engines_agree(exact: bool) -> None:
    left, right = band.make_sides(TINY_BAND)
    answers = {name: run() for name, run in band.engines(left, right, TINY_BAND, exact).items()}
    expected = by_brute_force(left, right, TINY_BAND.within, TINY_BAND.threshold)
    assert len(expected) > 1_000
    for answer in answers.values():
        assert set(zip(answer.left.tolist(), answer.right.tolist(), strict=True)) == expected
        assert (answer.probability is not None) == exact
    measure.check_same("band", answers)


@pytest.mark.parametrize("threshold", [0.51, 0.99])
def test_the_peers_filter_of_the_band_is_sound(threshold: float) -> None:
    settings = band.Settings(rows=400, threshold=threshold, most_sd=0.6)
    left, right = band.make_sides(settings)
    expected = by_brute_force(left, right, settings.within, threshold)
    assert expected
    for run in band.engines(left, right, settings, True).values():
        answer = run()
        assert set(zip(answer.left.tolist(), answer.right.tolist(), strict=True)) == expected


def test_band_engines_agree_on_nothing() -> None:
    settings = band.Settings(rows=50, least_sd=5.0, most_sd=6.0)
    for run in band.engines(*band.make_sides(settings), settings, True).values():
        assert len(run().left) == 0


def test_the_peers_filter_refuses_low_thresholds() -> None:
    with pytest.raises(HaplyError, match=re.escape("between 0.5 and 1. Found 0.4")):
        band.Filter.of(1.0, 0.4)


@pytest.mark.long
def test_band_report() -> None:
    report = band.measure(TINY_BAND, quiet)
    check_shape(report)
    assert [(result.job, result.engine) for result in report.results] == [
        (f"P >= 0.7, probability {wanted}", engine)
        for wanted in ("exact", "none")
        for engine in ("haply", *(f"{peer}{bound}" for peer, bound in PEERS))
    ]


def test_interval_report() -> None:
    report = interval.measure(TINY_INTERVAL, quiet)
    check_shape(report)
    assert [result.engine for result in report.results] == ["haply", "duckdb", "duckdb same bound"]
    assert {result.pairs for result in report.results} == {report.results[0].pairs}
    assert report.results[0].pairs > 100
    candidates = report.config["candidates"]
    assert candidates["duckdb"] > candidates["duckdb same bound"] >= report.results[0].pairs


def test_interval_against_brute_force() -> None:
    settings = interval.Settings(rows=300, stretch=60.0, right_from=20.0)
    left, right = interval.make_sides(settings)
    # P(|a - b| <= c) as the mean over b of the share of a within c of it: exact at the corners of a fine grid
    grid = (np.arange(4_000) + 0.5) / 4_000
    expected = {}
    for j in range(settings.rows):
        b = right.lo[j] + grid * (right.hi[j] - right.lo[j])
        for i in np.flatnonzero((left.lo - 1.0 < right.hi[j]) & (left.hi + 1.0 > right.lo[j])):
            inside = np.minimum(left.hi[i], b + 1.0) - np.maximum(left.lo[i], b - 1.0)
            expected[int(left.id[i]), int(right.id[j])] = np.maximum(inside, 0.0).mean() / (left.hi[i] - left.lo[i])
    found = interval.haply_interval(left, right, settings)
    assert len(found.left) > 20
    probabilities = dict(
        zip(zip(found.left.tolist(), found.right.tolist(), strict=True), found.probability, strict=True)
    )
    for pair, value in expected.items():
        if abs(value - settings.threshold) > 1e-5:
            assert (pair in probabilities) == (value > settings.threshold)
    for pair, value in probabilities.items():
        assert abs(expected[pair] - value) < 1e-5


@pytest.mark.long
def test_spark_report(spark: SparkSession) -> None:
    settings = bench_spark.Settings(rows=2_000, growth_rows=(1_000,), repetitions=1)
    said: list[str] = []
    report = bench_spark.measure(spark, settings, said.append)  # raises unless both find the same pairs
    check_shape(report)
    assert [result.engine for result in report.results] == ["haply", "plain pyspark"]
    assert report.results[0].pairs > 1_000
    (point,) = report.to_dict()["config"]["growth"]
    assert point["rows"] == 1_000
    assert report.results[0].pairs > point["pairs"] > 500
    assert report.config["peak_memory_mib"]["haply"]["jvm"] > 50.0
    assert "2,000 x 2,000 rows: round 1 of 1" in said


def test_spark_notices_a_difference(spark: SparkSession) -> None:
    frames = {
        "haply": spark.createDataFrame([(1, 2, 0.5), (2, 3, 0.75)], "i long, j long, probability double"),
        "same": spark.createDataFrame([(2, 3, 0.75), (1, 2, 0.5)], "i long, j long, probability double"),
        "pair": spark.createDataFrame([(1, 2, 0.5), (2, 4, 0.75)], "i long, j long, probability double"),
        "value": spark.createDataFrame([(1, 2, 0.5), (2, 3, 0.76)], "i long, j long, probability double"),
    }

    def check(other: str) -> int:
        return bench_spark.check_equal("job", {name: lambda n=name: frames[n] for name in ("haply", other)}, 1, quiet)

    assert check("same") == 2
    with pytest.raises(HaplyError, match="pair and haply found different pairs"):
        check("pair")
    with pytest.raises(HaplyError, match="value and haply differ in a probability"):
        check("value")


def test_command_line_runs_one_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(interval, "QUICK", TINY_INTERVAL)
    path = tmp_path / "deep" / "interval.json"
    assert main_bench("interval", str(path), True, None, str(tmp_path / "out")) == 0
    assert json.loads(path.read_text())["bench"] == "interval"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "interval.html",
        "interval.png",
        "interval.svg",
    ]
    said = capsys.readouterr().out
    assert "duckdb same bound" in said
    assert "interval: |a - b| <= 1, P >= 0.3: round 1 of 1" in said


def test_command_line_runs_all_benches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def made_up(name: str):
        results = [Result("job", "haply", 0.01, 5, 1.0), Result("job", "duckdb", 0.06, 5, 6.0)]
        growth = [Growth(10, 1.0, 20.0, 3), Growth(100, 4.0, 50.0, 30)] if name == "spark" else []
        return lambda quick, data, tell: Report(
            name, f"The {name} bench", {"quick": quick, "data": data}, results, growth
        )

    for name in BENCHES:
        monkeypatch.setattr(f"benchmarks.{name.replace('-', '_')}.run", made_up(name))
    draw = measure.write_chart
    drawn: list[str] = []

    def draw_some(report: Report, folder: str) -> Path:
        """The charts differ by their names only: two of them are looked at, and the others drawn with ``--long``."""
        drawn.append(report.bench)
        looked_at = amounts.all_cases or report.bench in ("band", "spark")
        return draw(report, folder) if looked_at else Path(folder) / f"{report.bench}.svg"

    monkeypatch.setattr(measure, "write_chart", draw_some)
    path = tmp_path / "all.json"
    assert main_bench(None, str(path), True, "somewhere", str(tmp_path)) == 0
    written = json.loads(path.read_text())
    assert [part["bench"] for part in written] == list(BENCHES) == drawn
    assert written[0]["config"] == {"quick": True, "data": "somewhere"}
    assert written[BENCHES.index("spark")]["config"]["growth"][1] == {
        "rows": 100,
        "seconds": 4.0,
        "rows_per_second": 50.0,
        "pairs": 30,
    }
    assert "haply as the tables grow" in capsys.readouterr().out
    assert "60.0 ms, 6.0x" in (tmp_path / "band.svg").read_text()
    assert ">4.00 s<" in (tmp_path / "spark.svg").read_text()  # how long the larger tables take


def test_an_unknown_bench_names_the_nearest() -> None:
    with pytest.raises(HaplyError, match=r"There is no bench 'intervals'.*did you mean 'interval'\?"):
        main_bench("intervals", None, True, None, "out")


def test_a_missing_package_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(HaplyError, match=re.escape("need the package 'duckdb'. Hint: pip install \"haply[bench]\"")):
        interval.measure(TINY_INTERVAL, quiet)


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (Answer(np.array([1, 2]), np.array([5, 6]), np.array([0.5, 0.5])), "Found 2 pairs, 3 of them on one side only"),
        (Answer(np.array([3, 2, 1]), np.array([5, 7, 5]), np.full(3, 0.5)), "3 pairs. Found 3 pairs, 2 of them"),
        (Answer(np.array([2, 3, 1]), np.array([7, 6, 5]), np.array([0.5, 0.5, 0.6])), "a probability. Expected less"),
        (
            Answer(np.array([2, 3, 1]), np.array([7, 6, 5]), np.array([0.5, np.nan, 0.5])),
            "a probability. Expected less",
        ),
    ],
)
def test_other_answers_are_noticed(theirs: Answer, text: str) -> None:
    ours = Answer(np.array([1, 2, 3]), np.array([5, 7, 6]), np.full(3, 0.5))
    with pytest.raises(HaplyError, match=re.escape(text)):
        measure.check_same("job", {"haply": ours, "other": theirs})


def test_engines_take_turns_and_the_order_rotates() -> None:
    calls: list[str] = []
    engines = {name: lambda n=name: calls.append(n) for name in ("a", "b", "c")}
    best = measure.take_turns("job", engines, 3, quiet)
    assert calls == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert set(best) == {"a", "b", "c"}


def test_targets_are_judged_by_the_worst_job() -> None:
    results = [measure.Result(job, "peer", 1.0, 1, ratio) for job, ratio in (("a", 7.0), ("b", 5.5))]
    report = measure.Report("x", "x", {"targets": {"peer": 6.0}}, results)
    assert measure.targets(report) == ["target: 6 times as fast as peer; missed with 5.50"]


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_run_gives_figures_and_no_verdict(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = [Claim("it is faster", "twice as fast", True), Claim("by far", "7 times", False)]
    figure = Figure("E1", "An experiment", [{"n": 1, "ours": 0.5}], "n", ("ours",), "seconds", claims=claims)
    results = [Result("job", "haply", 0.01, 5, 1.0), Result("job", "peer", 0.06, 5, 5.5)]
    report = Report("band", "Bench", {"targets": {"peer": 6.0}}, results, figures=[figure])
    monkeypatch.setattr("benchmarks.band.run", lambda quick, data, tell: report)
    main_bench("band", str(tmp_path / "band.json"), quick, None, str(tmp_path))
    told = capsys.readouterr().out
    written = json.loads((tmp_path / "band.json").read_text())["config"]["figures"][0]["claims"]
    if quick:
        assert "claim: it is faster; measured: twice as fast; too small for a verdict" in told
        assert "target: 6 times as fast as peer; measured 5.50, too small for a verdict" in told
        assert not re.search("hold|reached|missed", told)
        assert [claim["holds"] for claim in written] == [None, None]
    else:
        assert "measured: twice as fast; holds" in told
        assert "measured: 7 times; does not hold" in told
        assert "target: 6 times as fast as peer; missed with 5.50" in told
        assert [claim["holds"] for claim in written] == [True, False]
