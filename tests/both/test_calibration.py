"""``hp.calibration``, ``hp.shifted`` and ``hp.calibrate`` against the oracle, goldens and simulated worlds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import both_kit as hp
import haply
import oracle_answers as referee
from haply.errors import HaplyError, HaplyWarning

GAUSSIAN = "id long, x struct<mean:double,sd:double>"
PLACE = "id long, xy struct<mean:array<double>,cov:array<double>>"
SKY = "id long, pos struct<ra:double,dec:double,ra_error:double,dec_error:double,corr:double>"


# -- calibration -------------------------------------------------------------------------------------------------------


def judged(engine, p, y, **options):
    rows = [(float(a), None if b is None else bool(b)) for a, b in zip(p, y, strict=True)]
    table = engine.createDataFrame(rows, "p_match double, truth boolean")
    return haply.calibration(table.asked, label="truth", **options)


def test_golden_f1(engine):
    report = judged(engine, [0.9, 0.6, 0.3, 0.2], [1, 1, 0, 1])
    assert report.brier == pytest.approx(0.225, abs=1e-15)
    assert report.log_loss == pytest.approx(0.645574748949162, rel=1e-14)
    assert report.table()["n"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_scores_are_those_of_the_oracle(engine, bins):
    rng = np.random.default_rng(5)
    p = np.round(rng.random(400) ** 2, 2)  # edges of bins are among them
    p[:3] = 0.0, 1.0, 0.5
    y = rng.random(400) < p
    report = judged(engine, p, y, bins=bins)
    expected = referee.reliability_table(p.tolist(), y.tolist(), bins)
    table = report.table()
    for k, one in enumerate(expected):
        row = table.iloc[k]
        assert (row["low"], row["high"], row["n"]) == (one.low, one.high, one.n)
        assert [row["mean_probability"], row["share_true"], row["share_low"], row["share_high"]] == pytest.approx(
            [float(one.mean), float(one.share), max(0.0, one.wilson_low), min(1.0, one.wilson_high)], abs=1e-14
        )
    assert len(table) == len(expected)
    assert report.brier == pytest.approx(referee.brier(p.tolist(), y.tolist()), rel=1e-13)
    assert report.log_loss == pytest.approx(referee.log_loss(p.tolist(), y.tolist()), rel=1e-12)
    terms = referee.brier_decomposition(p.tolist(), y.tolist(), bins)
    assert list(report.decomposition) == pytest.approx([float(x) for x in terms], abs=1e-14)
    assert report.decomposition.total == pytest.approx(report.brier, abs=1e-14)


def test_rows_without_a_probability_or_a_label_are_left_out(engine):
    table = engine.createDataFrame(
        [(0.5, 1), (None, 1), (0.5, None), (1.0, 0)], "probability double, truth int"
    )  # fmt: skip
    report = haply.calibration(table.asked, probability="probability", label="truth")
    assert (report.pairs, report.skipped) == (2, 2)
    assert report.log_loss == math.inf
    assert "not right" in report.sentences()[0]


def test_a_report_without_labels_says_so(engine):
    report = haply.calibration(engine.createDataFrame([(0.5,)], "p_match double").asked)
    assert "It is not known whether the probabilities are right" in str(report)
    for value in ("brier", "log_loss", "decomposition"):
        with pytest.raises(HaplyError, match="needs to know which pairs are true"):
            getattr(report, value)
    with pytest.raises(HaplyError, match="Residuals need the two compared columns"):
        report.residuals_table()
    assert report.table().columns.tolist() == ["low", "high", "mean_probability", "n"]


def test_words_of_errors(engine):
    table = engine.createDataFrame(
        [(0.5, "a", (0.0, 1.0))], "p_match double, kind string, x struct<mean:double,sd:double>"
    )
    for options, words in (
        ({"probability": "kind"}, "Column 'kind' is not a column of numbers"),
        ({"probability": "p_mach"}, "no column in the given table called 'p_mach'"),
        ({"bins": 0}, "bins is not a number of bins"),
        ({"fakes": []}, "no column in the given table called 'p_any'"),
        ({"same": ("x", "kind")}, "cannot be compared with their errors"),
    ):
        with pytest.raises(HaplyError) as caught:
            haply.calibration(table.asked, **options)
        assert words in str(caught.value)
    with pytest.raises((HaplyError, engine.failure), match="holds what is no probability"):
        haply.calibration(engine.createDataFrame([(1.5,)], "p_match double").asked)
    with pytest.raises((HaplyError, engine.failure), match="holds no labels"):
        haply.calibration(table.asked, label="kind")


# -- residuals ---------------------------------------------------------------------------------------------------------


def test_residuals_on_a_line_and_on_a_plane(engine):
    """Each pair is in the tenth that the oracle puts it into, with its weight."""
    rng = np.random.default_rng(3)
    rows, tenths = [], np.zeros(10)
    for k in range(60):
        delta, p = rng.normal(size=2), float(rng.random())
        cov = np.array([[1.0, 0.3], [0.3, 0.5]])
        u = referee.position_pit(delta.tolist(), (cov + np.eye(2) * 0.25).tolist())
        tenths[int(10 * u)] += p
        rows.append((k, p, (delta.tolist(), cov.ravel().tolist()), ([0.0, 0.0], [0.25, 0.0, 0.0, 0.25])))
    place = "struct<mean:array<double>,cov:array<double>>"
    table = engine.createDataFrame(rows, f"id long, p_match double, xy_left {place}, xy_right {place}")
    report = haply.calibration(table.asked, same="xy")
    assert report.residuals_table()["share"].tolist() == pytest.approx((tenths / tenths.sum()).tolist(), rel=1e-12)
    line = engine.createDataFrame(
        [
            (1.0, (0.0, 3.0), (8.0, 4.0)),
            (1.0, (8.0, 3.0), (0.0, 4.0)),
            (0.5, (0.0, 3.0), (0.1, 4.0)),
            (None, None, None),
        ],
        "p_match double, a struct<mean:double,sd:double>, b struct<mean:double,sd:double>",
    )
    shares = haply.calibration(line.asked, same=("a", "b")).residuals_table()["share"].tolist()
    # P(X - Y <= 0) is Phi(1.6) = .945, Phi(-1.6) = .055, Phi(.02) = .508
    assert shares == pytest.approx([0.4, 0, 0, 0, 0, 0.2, 0, 0, 0, 0.4])


def test_residuals_on_the_sky_are_those_of_the_plane():
    """Also at the pole, and where right ascension begins again."""
    rng = np.random.default_rng(4)
    delta = rng.normal(size=(50, 2)) * 1.5
    for ra, dec in ((10.0, 20.0), (0.0, -5.0), (77.0, 89.99999)):
        start = sky([(ra, dec)] * 50, [(0.5, 0.7, 0.3)] * 50)
        moved = [haply.shifted(start.slice(k, 1), "pos", by=[delta[k].tolist()])[0]["pos"] for k in range(50)]
        other = pa.concat_arrays([one.chunk(0) for one in moved])
        struct = other.type
        names = [struct.field(k).name for k in range(struct.num_fields)]
        ones = dict.fromkeys(("ra_error", "dec_error"), pa.array(np.ones(50))) | {"corr": pa.array(np.zeros(50))}
        other = pa.StructArray.from_arrays([ones.get(name, other.field(name)) for name in names], names)
        pairs = pa.table({"pos_left": start["pos"], "pos_right": other, "p_match": np.ones(50)})
        cov = [[0.25 + 1, 0.3 * 0.35], [0.3 * 0.35, 0.49 + 1]]
        expected = np.bincount([int(10 * referee.position_pit(one.tolist(), cov)) for one in delta], minlength=10) / 50
        found = haply.calibration(pairs, same="pos").residuals_table()["share"].to_numpy()
        assert found == pytest.approx(expected)


# -- fakes -------------------------------------------------------------------------------------------------------------


def world(seed=1, left_count=2500, completeness=0.6, **options):
    given = {"side": 220.0, "background": 0.05, "left_sds": (0.3, 1.0), "right_sds": (0.2, 0.8), "margin": 70.0}
    return referee.simulate_world(seed, left_count=left_count, completeness=completeness, **(given | options))


def places(means, sds):
    cov = np.zeros((len(sds), 4))
    cov[:, 0] = cov[:, 3] = sds**2
    structs = pa.StructArray.from_arrays([pa.array(means.tolist()), pa.array(cov.tolist())], ["mean", "cov"])
    return pa.table({"id": np.arange(len(sds)), "xy": structs})


def matched(simulated, *, density=1.0, completeness=0.6, sizes=1.0, **options):
    """The pairs of a world with what is true of them, and those of four shifts."""
    left = places(simulated.left, sizes * simulated.left_sds)
    right = places(simulated.right, simulated.right_sds)
    given = {"density": density * simulated.field, "completeness": completeness, **options}
    pairs = haply.match(left, right, "xy", **given)
    truth = simulated.truth[pairs["id_left"].to_numpy()] == pairs["id_right"].to_numpy()
    shifted = haply.shifted(left, "xy", by=[(40, 0), (0, 55), (-40, 0), (0, -55)])
    return pairs.append_column("truth", pa.array(truth)), [haply.match(one, right, "xy", **given) for one in shifted]


@pytest.fixture(scope="module")
def right_pairs():
    simulated = world()
    return (simulated, *matched(simulated))


def test_right_probabilities_pass_with_labels_and_without(right_pairs):
    simulated, pairs, fakes = right_pairs
    labelled = haply.calibration(pairs, label="truth", same="xy")
    assert "The probabilities are right" in labelled.sentences()[0]
    assert "The errors are right" in labelled.sentences()[1]
    report = haply.calibration(pairs, fakes=fakes, same="xy")
    assert report.completeness == pytest.approx(0.6, rel=1e-9)
    assert "They agree at every threshold" in report.sentences()[0]
    assert np.abs(report.residuals_table()["share"] - 0.1).max() < 0.02
    p, some = pairs["p_match"].to_numpy(), pairs["p_any"].to_numpy()
    alone = simulated.truth[pairs["id_left"].to_numpy()] < 0
    for one in report.fakes:
        kept = p >= one.threshold
        sums = referee.doubt(p[kept].tolist(), some[kept].tolist())
        assert one.kept == kept.sum()
        assert [one.without_partner, one.other_partner] == pytest.approx(list(sums), abs=1e-8)
        assert one.expected_false == pytest.approx(float((1 - p[kept]).sum()), abs=1e-8)
        assert one.fakes == sum(int((fake["p_match"].to_numpy() >= one.threshold).sum()) for fake in fakes) / 4
        assert one.by_fakes == pytest.approx(0.4 * one.fakes)
        # and it is true, but for how many rows have a partner by chance
        lone = float((simulated.truth < 0).mean()) * one.fakes
        assert abs(lone - (kept & alone).sum()) < 4 * one.standard_error


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"completeness": 0.93}, "too sure"),
        ({"completeness": 0.2}, "too cautious"),
        ({"density": 0.5}, "too sure"),
        ({"density": 2.0}, "too cautious"),
    ],
)
def test_wrong_probabilities_are_told_without_labels(wrong, words):
    pairs, fakes = matched(world(), **wrong)
    report = haply.calibration(pairs, fakes=fakes, label="truth")
    assert "not right" in report.sentences()[0]
    assert f"The probabilities are {words}" in report.sentences()[1]


def test_wrong_errors_are_told():
    for sizes, words in ((1 / 1.6, "The errors are too small"), (1.6, "The errors are too large")):
        pairs, _ = matched(world(), sizes=sizes)
        assert words in haply.calibration(pairs, label="truth", same="xy").sentences()[1]
        assert words in haply.calibration(pairs, same="xy").sentences()[0]


def test_completeness_that_cannot_be_read(right_pairs):
    _, pairs, fakes = right_pairs
    with pytest.raises(HaplyError, match="The completeness of the match cannot be read from its pairs"):
        haply.calibration(pairs.drop_columns("bayes_factor"), fakes=fakes)
    report = haply.calibration(pairs.drop_columns("bayes_factor"), fakes=fakes, completeness=0.6)
    assert report.excess is None
    assert "They agree" in report.sentences()[0]
    with pytest.raises(HaplyError, match="fakes has no tables"):
        haply.calibration(pairs, fakes=[])


# -- shifts ------------------------------------------------------------------------------------------------------------


def shifts(table, column, by):
    return [hp.Table(table.engine, one) for one in haply.shifted(table.asked, column, by=by)]


def test_numbers_and_models_are_shifted(engine):
    types = (
        "id long, n int, g struct<mean:double,sd:double>, u struct<lo:double,hi:double>, "
        "h struct<edges:array<double>,probs:array<double>>, "
        "s struct<points:array<double>,probs:array<double>,dim:int>, "
        "t struct<mean:double,sd:double,lo:double,hi:double>, "
        "m struct<weights:array<double>,means:array<double>,sds:array<double>>"
    )
    rows = [
        (0, 1, (1.0, 0.5), (0.0, 2.0), ([0.0, 1.0], [1.0]), ([1.0, 2.0], None, 1), (0.0, 1.0, -1.0, 2.0),
         ([0.5, 0.5], [1.0, 2.0], [1.0, 1.0])),
        (1, None, None, None, None, None, None, None),
    ]  # fmt: skip
    table = engine.createDataFrame(rows, types)
    moved = {
        "n": 6.0, "g": (6.0, 0.5), "u": (5.0, 7.0), "h": ([5.0, 6.0], [1.0]), "s": ([6.0, 7.0], None, 1),
        "t": (5.0, 1.0, 4.0, 7.0), "m": ([0.5, 0.5], [6.0, 7.0], [1.0, 1.0]),
    }  # fmt: skip
    for column, value in moved.items():
        up, down = shifts(table, column, [5, (-5,)])
        assert up.columns == table.columns
        found = sorted(up.collect(), key=lambda row: row["id"])
        assert found[1][column] is None
        assert (tuple(found[0][column]) if isinstance(value, tuple) else found[0][column]) == value
        assert found[0]["id"] == 0
        assert down.count() == 2


def test_positions_are_shifted(engine):
    table = engine.createDataFrame([(0, ([1.0, 2.0], [1.0, 0.0, 0.0, 1.0])), (1, None)], PLACE)
    one, other = shifts(table, "xy", [(40, 0), (0, 55)])
    assert next(row["xy"]["mean"] for row in one.collect() if row["id"] == 0) == [41.0, 2.0]
    assert next(row["xy"]["mean"] for row in other.collect() if row["id"] == 0) == [1.0, 57.0]
    with pytest.raises((HaplyError, engine.failure), match="vector of another dimension"):
        shifts(table, "xy", [(1, 2, 3)])[0].collect()


def sky(positions, errors):
    names = ["ra", "dec", "ra_error", "dec_error", "corr"]
    rows = [dict(zip(names, (*place, *error), strict=True)) for place, error in zip(positions, errors, strict=True)]
    return pa.table({"id": list(range(len(rows))), "pos": rows})


def test_the_sky_is_shifted(engine):
    starts = [(0.0, 0.0), (359.9999, 60.0), (10.0, 89.9999), (200.0, -90.0), (0.001, -45.0)]
    rows = [(k, (*place, 1.0, 2.0, 0.5)) for k, place in enumerate(starts)]
    table = engine.createDataFrame(rows, SKY)
    for east, north in ((40.0, 0.0), (0.0, 55.0), (-30.0, -40.0)):
        (moved,) = shifts(table, "pos", [(east, north)])
        for row in moved.collect():
            pos = row["pos"]
            far = 3600.0 * float(referee.sky_separation(*starts[row["id"]], pos["ra"], pos["dec"]))
            assert far == pytest.approx(math.hypot(east, north), rel=1e-7)
            assert 0.0 <= pos["ra"] < 360.0
            assert -90.0 <= pos["dec"] <= 90.0
            assert (pos["ra_error"], pos["dec_error"], pos["corr"]) == (1.0, 2.0, 0.5)
    east = {row["id"]: row["pos"] for row in shifts(table, "pos", [(40, 0)])[0].collect()}
    assert (east[0]["ra"] * 3600, east[0]["dec"]) == pytest.approx((40.0, 0.0), abs=1e-9)
    assert (east[1]["ra"] + 0.0001) * 3600 == pytest.approx(40.0 / math.cos(math.radians(60)), rel=1e-6)


def test_shifts_come_in_the_kind_of_the_table(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    (moved,) = haply.shifted(frame, "x", by=[3])
    assert isinstance(moved, pd.DataFrame)
    assert moved["x"].tolist() == [4.0, 5.0]
    frame.to_parquet(tmp_path / "x.parquet")
    assert haply.shifted(str(tmp_path / "x.parquet"), "x", by=[3])[0]["x"].to_pylist() == [4.0, 5.0]
    for by, words in (
        (5, "by is not a list of shifts"),
        ([], "by is not a list of shifts"),
        ([("a",)], "not a vector of numbers"),
    ):
        with pytest.raises(HaplyError, match=words):
            haply.shifted(frame, "x", by=by)
    with pytest.raises(HaplyError, match="Column 'name' cannot be moved"):
        haply.shifted(pa.table({"name": ["a"]}), "name", by=[1])


# -- learned errors ----------------------------------------------------------------------------------------------------


def learned(simulated, *, scale=1.0, extra=0.0, offset=(0.4, -0.25), **options):
    """What is learned of a world whose left errors are stated too small, and whose left places are off."""
    stated = np.sqrt(simulated.left_sds**2 - extra**2) / scale
    left = places(simulated.left - np.array(offset), stated)
    right = places(simulated.right, simulated.right_sds)
    return haply.calibrate(left, right, "xy", radius=9.0, density=simulated.field, **options), left, right


def check(fit, truth, within=4.0):
    table = fit.table()
    assert table["name"].tolist() == list(truth)
    for name, estimate, error in table.itertuples(index=False):
        assert 0.0 < error < 0.4, name
        assert abs(estimate - truth[name]) <= within * error, name
    assert fit.converged
    gains = np.diff(fit.fitted.likelihoods)
    assert (gains >= 0.0).all()


@pytest.mark.parametrize(
    ("learn", "truth"),
    [
        (("share", "offset", "scale"), {"scale": 1.3}),
        (("share", "offset", "extra"), {"extra": 0.5}),
        (("share", "offset", "scale", "extra"), {"scale": 1.3, "extra": 0.5}),
    ],
    ids=["scale", "extra", "both"],
)
def test_errors_and_offset_of_a_world_are_learned(learn, truth):
    # few rows share candidates: in crowded fields the standard error of the share is too small
    simulated = world(seed=7, left_count=1000, completeness=0.7, side=300.0, background=0.003, left_sds=(0.6, 2.0))
    fit, left, right = learned(simulated, learn=learn, **truth)
    check(fit, {"share": 0.7, "offset_1": 0.4, "offset_2": -0.25, **truth})
    assert fit.pairs > 1000
    assert fit.rounds < 250
    better = fit.apply(left)
    cov, stated = better["xy"][0].as_py()["cov"], left["xy"][0].as_py()["cov"]
    assert cov[0] == pytest.approx(fit.scale**2 * stated[0] + fit.extra**2)
    assert cov[1] == 0.0
    pairs = haply.match(better, right, "xy", density=simulated.field, completeness=fit.share)
    truth_of = simulated.truth[pairs["id_left"].to_numpy()] == pairs["id_right"].to_numpy()
    report = haply.calibration(pairs.append_column("truth", pa.array(truth_of)), label="truth", same="xy")
    assert "The errors are right" in report.sentences()[1]


def test_golden_e1():
    from haply.joins.calibration.fit import Candidates, Guess, RoundSums, em_step, responsibilities, sum_up

    delta = np.array([[0.3, 0.1], [-2.0, 1.0], [0.5, -0.2]])
    given = Candidates(np.array([0, 0, 1]), 3, delta, np.full(3, 0.5), np.zeros(3), np.full(3, 0.05))
    start = Guess(0.5, np.zeros(2))
    sums = RoundSums.of(sum_up(given, start))
    assert sums.log_likelihood == pytest.approx(1.5895228996537605, rel=1e-14)
    assert responsibilities(given, start).tolist() == pytest.approx(
        [0.8467067668902298, 0.006305072276361868, 0.8264971420399287], rel=1e-13
    )
    step = em_step(start, sums, ("share", "offset", "scale"), 3)
    assert step.share == pytest.approx(0.5598363270688401, rel=1e-14)
    assert step.offset.tolist() == pytest.approx([0.38978681499161966, -0.044253219407739325], rel=1e-13)
    assert step.scale == pytest.approx(0.24083870254899245, rel=1e-13)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_rounds_are_those_of_the_oracle(dimension):
    from haply.joins.calibration.fit import Candidates, Guess, RoundSums, em_step, sum_up

    rng = np.random.default_rng(dimension)
    row = np.sort(rng.integers(0, 12, 40))
    delta, stated = rng.normal(size=(40, dimension)), rng.uniform(0.2, 2.0, 40)
    given = Candidates(row, 12, delta, stated, np.zeros(40), np.full(40, 0.3))
    rows = [[(tuple(delta[k]), float(stated[k])) for k in np.flatnonzero(row == i)] for i in range(12)]
    for learn in (("share", "offset", "scale"), ("offset", "extra"), ("share", "offset", "scale", "extra")):
        ours = Guess(0.4, np.full(dimension, 0.1), 1.2, 0.6)
        theirs = referee.Fit(0.4, (0.1,) * dimension, 1.2, 0.6)
        for _ in range(3):
            sums = RoundSums.of(sum_up(given, ours))
            assert sums.log_likelihood == pytest.approx(referee.log_likelihood(rows, theirs, 0.3), rel=1e-12)
            ours, theirs = em_step(ours, sums, learn, 12), referee.em_step(rows, theirs, 0.3, learn)
            assert [ours.share, ours.scale, ours.extra, *ours.offset] == pytest.approx(
                [theirs.share, theirs.scale, theirs.extra, *theirs.offset], rel=1e-12
            )


def line(means, sds):
    return pa.table({"id": np.arange(len(means)), "x": [{"mean": m, "sd": s} for m, s in zip(means, sds, strict=True)]})


def on_a_line(seed=2, count=800):
    """Values ten apart, a share of .75 with a counterpart; few strangers."""
    rng = np.random.default_rng(seed)
    true = 10.0 * np.arange(count)
    has = rng.random(count) < 0.75
    sds = rng.uniform(0.3, 0.9, count)
    right = np.concatenate(
        [true[has] + 0.4 + 0.2 * rng.normal(size=has.sum()), rng.uniform(0, 10.0 * count, count // 3)]
    )
    return true + 1.4 * sds * rng.normal(size=count), sds, right


def test_numbers_are_calibrated_and_applied(engine):
    means, sds, right = on_a_line()
    density = 1 / 30  # of strangers: counterparts of other rows are out of reach
    tables = [hp.Table(engine, line(means, sds)), hp.Table(engine, line(right, np.full(len(right), 0.2)))]
    fit = haply.calibrate(tables[0].asked, tables[1].asked, "x", radius=6, density=density)
    check(fit, {"share": 0.75, "offset": 0.4, "scale": 1.4})
    assert isinstance(fit.offset, float)
    by_area = haply.calibrate(
        *(one.asked for one in tables), "x", radius=6, density=haply.density(area=30.0 * len(right))
    )
    assert by_area.share == pytest.approx(fit.share, abs=1e-9)
    found = {row["id"]: row["x"] for row in hp.Table(engine, fit.apply(tables[0].asked)).collect()}
    assert found[3]["mean"] == pytest.approx(means[3] + fit.offset)
    assert found[3]["sd"] == pytest.approx(fit.scale * sds[3])


def test_sides_and_shares_of_a_table():
    means, sds, right = on_a_line()
    density = 1 / 30
    left, other = line(means, sds), line(right, np.full(len(right), 0.2))
    mirrored = haply.calibrate(other, left, "x", radius=6, density=0.1, assign="right")
    assert mirrored.offset == pytest.approx(-0.4, abs=0.15)
    better = mirrored.apply(left)["x"][0].as_py()
    assert better["mean"] == pytest.approx(means[0] - mirrored.offset)
    with pytest.raises(HaplyError, match="The left table was taken as correct"):
        mirrored.apply(other, side="left")
    both = haply.calibrate(
        left, other, "x", radius=6, density=density, assign="both", learn=("share", "offset", "scale")
    )
    assert both.apply(other, side="right")["x"][0].as_py()["mean"] == right[0]
    assert both.apply(other, side="right")["x"][0].as_py()["sd"] == pytest.approx(0.2 * both.scale)
    half = haply.calibrate(left, other, "x", radius=6, density=density, sample=0.5)
    assert 200 < half.matches < 400
    assert half.scale == pytest.approx(1.4, abs=0.3)


def test_the_sky_is_calibrated(engine):
    """At a high declination, and across the beginning of right ascension."""
    rng = np.random.default_rng(9)
    count = 300
    north, east = 60.0 * (np.arange(count) // 20), 60.0 * (np.arange(count) % 20) - 600.0
    dec = 75.0 + north / 3600.0
    off = rng.normal(size=(count, 2)) * 0.8
    seen_dec = dec + (off[:, 1] + 0.3) / 3600.0
    ra, seen_ra = (
        (shift / 3600.0 / np.cos(np.radians(at)) + 360.0) % 360.0
        for shift, at in ((east, dec), (east + off[:, 0] - 0.5, seen_dec))
    )
    left = engine.createDataFrame([(k, (ra[k], dec[k], 0.5, 0.5, 0.0)) for k in range(count)], SKY)
    right = engine.createDataFrame([(k, (seen_ra[k], seen_dec[k], 0.0, 0.0, 0.0)) for k in range(count)], SKY)
    fit = haply.calibrate(left.asked, right.asked, "pos", radius=8, density=1 / 3600)
    assert fit.scale == pytest.approx(1.6, abs=0.2)
    assert fit.offset == pytest.approx((-0.5, 0.3), abs=0.2)
    assert fit.share > 0.95
    found = {row["id"]: row["pos"] for row in hp.Table(engine, fit.apply(left.asked)).collect()}
    assert found[7]["ra_error"] == pytest.approx(0.5 * fit.scale)
    assert (found[7]["dec"] - dec[7]) * 3600 == pytest.approx(fit.offset[1], abs=1e-3)


def test_other_models_have_an_offset_only():
    means, _, right = on_a_line()
    boxes = pa.table({"x": [{"lo": m - 1.0, "hi": m + 1.0} for m in means]})
    other = line(right, np.full(len(right), 0.2))
    with pytest.raises(HaplyError, match=r"learn='scale': the errors of 'x' are not Gaussian"):
        haply.calibrate(boxes, other, "x", radius=6, density=0.1)
    fit = haply.calibrate(boxes, other, "x", radius=6, density=0.1, learn=("share", "offset"))
    assert fit.offset == pytest.approx(0.4, abs=0.2)
    moved = fit.apply(boxes)["x"][0].as_py()
    assert (moved["lo"], moved["hi"]) == pytest.approx((means[0] - 1 + fit.offset, means[0] + 1 + fit.offset))


def test_certain_values_get_an_error():
    means, _, right = on_a_line()
    points = pa.table({"x": means})
    fit = haply.calibrate(
        points, line(right, np.full(len(right), 0.2)), "x", radius=6, density=0.1, learn=("share", "extra")
    )
    assert fit.apply(points)["x"][0].as_py() == {"mean": means[0], "sd": pytest.approx(fit.extra)}
    assert 0.7 < fit.extra < 1.2
    with pytest.raises(HaplyError, match="the stated errors are 0, and have no scale"):
        haply.calibrate(points, points, "x", radius=6, density=0.1)


def test_what_cannot_be_learned():
    means, sds, right = on_a_line()
    left, other = line(means, np.full(len(means), 0.5)), line(right, np.full(len(right), 0.2))
    given = {"radius": 6, "density": 0.1}
    with pytest.raises(HaplyError) as caught:
        haply.calibrate(left, other, "x", learn=("scale", "extra"), **given)
    assert str(caught.value).startswith(
        "learn=('scale','extra'): the stated errors are (nearly) equal, so the two cannot be told apart"
    )
    with pytest.raises(HaplyError, match=r"Only \d.* of the candidates are expected to be matches: too few"):
        haply.calibrate(line(means, sds).slice(0, 12), other, "x", **given)
    with pytest.raises(HaplyError, match="No right row is near any left row"):
        haply.calibrate(line(means + 1e6, sds), other, "x", **given)
    for options, words in (
        ({"learn": ("size",)}, "no value that can be learned, called 'size'"),
        ({"learn": ()}, "has nothing to learn"),
        ({"radius": 0}, "The radius is not a distance"),
        ({"density": -1}, "The density is not a positive number"),
        ({"assign": "none"}, "assign names no table"),
        ({"sample": 2}, "sample is not a share of the left rows"),
    ):
        with pytest.raises(HaplyError) as caught:
            haply.calibrate(left, other, "x", **(given | options))
        assert words in str(caught.value)
    with pytest.warns(HaplyWarning, match="The radius 1.5 leaves out matches"):
        haply.calibrate(left, other, "x", radius=1.5, density=0.1)


def test_equal_errors_have_one_likelihood_along_a_curve():
    """Why scale and extra are refused there."""
    from haply.joins.calibration.fit import Candidates, Guess, log_likelihoods

    rng = np.random.default_rng(0)
    given = Candidates(np.arange(50), 50, rng.normal(size=(50, 2)), np.full(50, 0.5), np.zeros(50), np.full(50, 0.05))
    whole = 1.3**2 * 0.5 + 0.25
    guesses = [Guess(0.7, np.zeros(2), scale, math.sqrt(whole - scale**2 * 0.5)) for scale in (0.8, 1, 1.3)]
    values = log_likelihoods(given, guesses)[1:].tolist()
    assert values == pytest.approx([values[0]] * 3, rel=1e-14)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("line", {"learn": ("share", "offset", "scale")}),
        ("line", {"learn": ("share", "offset", "extra"), "assign": "both"}),
        ("line", {"learn": ("share", "scale", "extra"), "density": "field", "max_rounds": 60}),
        ("plane", {"learn": ("share", "offset", "scale"), "assign": "right"}),
        ("sky", {"learn": ("share", "offset", "scale")}),
    ],
)
@pytest.mark.long(keep=2)
def test_both_engines_learn_the_same(engine, kind, options, monkeypatch):
    """Spark adds up on its workers: no row of a table comes into this process, and nothing stays behind."""
    if engine.name == "local":
        pytest.skip("it is what Spark is compared with")
    tables = two_tables(kind)
    given = {"density": 1 / 30, "radius": 6} | options
    expected = haply.calibrate(*tables, "x", **given)
    asked = [hp.Table(engine, one).asked for one in tables]
    kept = type(asked[0])
    for name in ("toPandas", "toArrow", "toLocalIterator", "take", "head"):
        monkeypatch.setattr(kept, name, refuse_to_gather)
    found = haply.calibrate(*asked, "x", **given)
    assert (found.pairs, found.rounds, found.converged) == (expected.pairs, expected.rounds, expected.converged)
    assert found.fitted.estimates.tolist() == pytest.approx(expected.fitted.estimates.tolist(), rel=1e-9, abs=1e-9)
    assert found.fitted.standard_errors.tolist() == pytest.approx(expected.fitted.standard_errors.tolist(), rel=1e-5)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
    assert found.after.shares.tolist() == pytest.approx(expected.after.shares.tolist(), abs=1e-9)


def refuse_to_gather(*_, **__):
    raise AssertionError("rows are brought into this process")


def two_tables(kind):
    """Two tables with a column ``x``, whose rows are each a few units from their counterparts."""
    means, sds, right = on_a_line(count=300)
    if kind == "line":
        return line(means, sds).append_column("field", pa.array(np.full(300, 1 / 30))), line(right, right * 0 + 0.2)
    rng = np.random.default_rng(8)
    grid = 60.0 * np.column_stack([np.arange(225) // 15, np.arange(225) % 15])
    seen = grid + rng.normal(size=(225, 2)) * 0.7 + [0.4, -0.3]
    if kind == "plane":
        one, other = (places(at, np.full(225, 0.5)).rename_columns(["id", "x"]) for at in (grid, seen))
        return one, other
    dec = 75.0 + grid[:, 0] / 3600.0, 75.0 + seen[:, 0] / 3600.0
    ra = [(x[:, 1] / 3600.0 / np.cos(np.radians(at)) + 359.95) % 360.0 for x, at in zip((grid, seen), dec, strict=True)]
    errors = [(0.5, 0.5, 0.0)] * 225
    one, other = (
        sky(list(zip(a, d, strict=True)), errors).rename_columns(["id", "x"]) for a, d in zip(ra, dec, strict=True)
    )
    return one, other


def test_densities_that_are_no_positive_numbers(engine):
    means, sds, right = on_a_line(count=200)
    for bad in (0.0, None, math.nan, math.inf):
        left = line(means, sds).append_column("field", pa.array([bad, *[0.1] * 199], pa.float64()))
        tables = [hp.Table(engine, left), hp.Table(engine, line(right, np.full(len(right), 0.2)))]
        with pytest.raises(HaplyError, match="The density of left rows is no positive number"):
            haply.calibrate(*(one.asked for one in tables), "x", radius=60, density="field")
