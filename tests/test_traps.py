"""Natural mistakes: each is an error or a warning that says how to mend it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import haply as hp
from haply.errors import HaplyError, HaplyWarning
from haply.query import Literal

SHOP = pd.DataFrame({"id": [1, 2], "kg": [1.0, 2.0], "err": [0.1, 0.1]})
DEPOT = pd.DataFrame({"id": [1, 2], "weight": [1.0, 2.1], "weight_err": [0.1, 0.1]})
PLACES = pa.table(
    {
        "id": [1],
        "pos": [{"mean": [0.0, 0.0], "cov": [1.0, 0.0, 0.0, 1.0]}],
        "pair": [{"a": 1.0, "b": 2.0}],
        "x": [{"mean": 1.0, "sd": 0.1}],
    }
)
KG, WEIGHT = hp.gaussian(hp.left.kg, hp.left.err), hp.gaussian(hp.right.weight, hp.right.weight_err)
NEAR = abs(KG - WEIGHT) <= 0.2


def refused(*arguments, ask=hp.join, **options) -> str:
    with pytest.raises(HaplyError) as caught:
        ask(*arguments, **{"threshold": 0.5, **options})
    return str(caught.value)


def warned(*arguments, ask=hp.join, **options) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask(*arguments, **{"threshold": 0.5, **options})
    return [str(one.message) for one in caught if issubclass(one.category, HaplyWarning)]


def test_equality_of_continuous_values_names_a_tolerance_and_match() -> None:
    said = refused(SHOP, DEPOT, KG == WEIGHT)
    assert "`gaussian(left.kg, left.err) = gaussian(right.weight, right.weight_err)` never holds" in said
    assert "abs(gaussian(left.kg, left.err) - gaussian(right.weight, right.weight_err)) <= c" in said
    assert "hp.match" in said


def test_a_query_in_which_nothing_is_uncertain_names_the_error_beside_it() -> None:
    (said,) = warned(SHOP, DEPOT, "abs(left.kg - right.weight) <= 0.2")
    assert "No column of the condition" in said
    assert "write gaussian(left.kg, left.err) in the condition" in said
    (said,) = warned(SHOP[["id", "kg"]], DEPOT[["id", "weight"]], "abs(left.kg - right.weight) <= 0.2")
    assert "hp.gaussian(mean, sd), hp.uniform(lo, hi) or another constructor" in said


def test_a_certain_value_with_an_error_beside_it_is_told() -> None:
    (said,) = warned(SHOP, DEPOT, abs(KG - hp.right.weight) <= 0.2)
    assert "`right.weight` is compared as a certain value, but `right.weight_err` looks like its error" in said
    assert "write gaussian(right.weight, right.weight_err) in the condition" in said
    assert warned(SHOP, DEPOT, NEAR & (hp.left.id == hp.right.id)) == []
    assert warned(SHOP, DEPOT[["weight"]], abs(KG - hp.right.weight) <= 0.2) == []


def test_a_table_joined_with_itself() -> None:
    (said,) = warned(PLACES, PLACES, "abs(left.x - right.x) <= 1")
    assert 'hp.table(frame, key="id"), or FROM t KEY id in SQL' in said
    assert warned(PLACES, PLACES, "abs(left.x - right.x) <= 1", self_key="id") == []


@pytest.mark.parametrize("ask", [hp.join, hp.match])
def test_a_name_that_the_other_table_has(ask) -> None:
    same = hp.gaussian(hp.right.kg, hp.right.weight_err) == KG
    on = same if ask is hp.match else abs(same.left - same.right) <= 1
    more = {"density": 1.0, "completeness": 0.5} if ask is hp.match else {}
    said = refused(SHOP, DEPOT, on, ask=ask, **more)
    assert "There is no column in the right table called 'kg'" in said
    assert "the left table has such a column: did you mean left.kg?" in said


def test_computing_with_positions_and_with_structs() -> None:
    said = refused(PLACES, PLACES, "abs(left.pos - right.pos) <= 1", self_key="id")
    assert "computes with `left.pos`, which is a position" in said
    assert "distance(left.pos, right.pos) <= 1" in said
    said = refused(PLACES, PLACES, "abs(left.pair - right.pair) <= 1", self_key="id")
    assert "computes with `left.pair`, a struct that is not an uncertain value" in said
    assert "mean, sd (hp.gaussian)" in said
    assert "hp.gaussian(hp.left.value, hp.left.error)" in said
    assert "a struct that is not an uncertain value" in refused(PLACES, "pair > 1", ask=hp.where)
    tables = {"a": PLACES.append_column("time", [[0.0]]), "b": PLACES.append_column("time", [[0.0]])}
    said = refused(tables, {("a", "b"): 1}, on="abs(a.pair - b.x) < 1", ask=hp.window_join)
    assert "a struct that is not an uncertain value" in said
    with pytest.raises(HaplyError, match="which is a position"):
        hp.sql("SELECT * FROM a WHERE pos < 1 WITH THRESHOLD 0.5", a=PLACES)


def test_values_of_a_list() -> None:
    on = NEAR & hp.left.id.isin([1, 7])
    assert hp.join(SHOP, DEPOT, on, threshold=0.5)["id_left"].tolist() == [1]
    assert hp.join(SHOP, DEPOT, NEAR & hp.left.id.isin(2), threshold=0.5)["id_left"].tolist() == [2]
    with pytest.raises(HaplyError, match="no value at all"):
        hp.left.id.isin()


def test_choices_that_are_no_names() -> None:
    assert "Expected one of left, right. Found True" in refused(SHOP, DEPOT, NEAR, broadcast=True)
    said = refused(SHOP, DEPOT, NEAR, how="leftouter")
    assert "one of inner, left, right, outer, semi, anti" in said
    said = refused(SHOP, DEPOT, NEAR, strategy="fast")
    assert "did you mean" not in said
    assert "did you mean 'sweep'" in refused(SHOP, DEPOT, NEAR, strategy="sweeep")


def test_units_that_differ() -> None:
    def in_unit(unit: str) -> pa.Table:
        kind = pa.float64()
        schema = pa.schema([pa.field("x", kind, metadata={"unit": unit}), pa.field("err", kind)])
        return pa.table([[1.0], [0.1]], schema=schema)

    on = abs(hp.gaussian(hp.left.x, hp.left.err) - hp.gaussian(hp.right.x, hp.right.err)) <= 1
    said = refused(in_unit("km"), in_unit("m"), on)
    assert "mixes units: `left.x` is in km, `right.x` in m" in said
    assert "convert one of the columns" in said
    assert hp.join(in_unit("m"), in_unit("m"), on, threshold=0.5).num_rows == 1
    assert "mixes units" in refused(in_unit("km"), in_unit("m"), "left.x > right.x")
    twice = in_unit("km").append_column(pa.field("y", pa.float64(), metadata={"unit": "m"}), [[1.0]])
    assert "mixes units" in refused(twice, "gaussian(x, err) - y < 1", ask=hp.where)


def test_columns_of_spark_in_a_condition(spark) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame(SHOP)
    said = refused(frame, frame, F.abs(F.col("kg") - F.col("kg")) <= 1)
    assert "made of Spark columns" in said
    assert "hp.left.kg and hp.right.kg" in said


def test_units_on_spark(spark) -> None:
    one = spark.createDataFrame(SHOP)
    left, right = (one.withMetadata("kg", {"unit": unit}) for unit in ("kg", "g"))
    said = refused(left, right, abs(KG - hp.gaussian(hp.right.kg, hp.right.err)) <= 1)
    assert "`left.kg` is in kg, `right.kg` in g" in said


def test_constant_parameters_are_checked_where_they_are_written() -> None:
    with pytest.raises(HaplyError, match=r"gaussian\(\).*sd < 0"):
        hp.gaussian(hp.left.kg, -1)
    with pytest.raises(HaplyError, match=r"uniform\(\).*lo > hi"):
        hp.uniform(Literal(3), Literal(2))
    assert str(hp.gaussian(hp.left.kg, 0.5)) == "gaussian(left.kg, 0.5)"


def test_a_negative_sd_of_a_position_is_a_bad_row() -> None:
    table = pa.table({"x": [0.0, 1.0], "sd": [-1.0, 1.0]})
    pos = [hp.gaussian_nd([side.x, side.x], sd=[side.sd, 1.0]) for side in (hp.left, hp.right)]
    on = hp.distance(*pos) <= 3
    assert "has a row that is not a distribution" in refused(table, table, on)
    assert hp.join(table, table, on, threshold=0.1, invalid="drop").num_rows == 1


def test_a_spark_column_without_a_session_says_so() -> None:
    program = "import haply as hp\ntry:\n    hp.gaussian('kg', 'err')\nexcept hp.HaplyError as error:\n    print(error)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert "there is no Spark session" in said
    assert "hp.gaussian(hp.left.value, ...)" in said


def test_a_module_that_numba_imports_may_ask_while_it_is_imported(tmp_path) -> None:
    (tmp_path / "yaml.py").write_text("import haply as hp\nhp.join\n")
    asked = subprocess.run([sys.executable, "-c", "import yaml; print('imported')"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=60)  # fmt: skip
    assert asked.stdout == "imported\n", asked.stderr


def test_other_threads_make_columns_too(spark) -> None:
    with ThreadPoolExecutor(1) as threads:
        made = threads.submit(lambda: hp.gaussian("kg", "err")).result()
    assert spark.createDataFrame(SHOP).select(made.alias("x")).first()["x"]["sd"] == 0.1


TEXTS = pa.table({"id": [1, 2], "mass": ["12.3 ± 0.4", "about 5"], "x": [1.0, 2.0], "y": [3.0, 4.0], "sd": [0.1, -0.1]})


def test_a_text_that_cannot_be_read_is_told() -> None:
    found = "mean and sd are NaN (as hp.parse makes them of a text that it cannot read)"
    said = refused(TEXTS, TEXTS, "abs(parse(left.mass) - parse(right.mass)) <= 1", self_key="id")
    assert f"Column 'parse(mass)' of the left table has a row that is not a distribution. Found {found}" in said
    assert found in refused(TEXTS, "parse(mass) > 3", ask=hp.where)
    assert "mean is NaN or infinite" in refused(
        pa.table({"x": [float("nan")], "sd": [1.0]}), "gaussian(x, sd) > 3", ask=hp.where
    )
    column = pa.StructArray.from_arrays([pa.array([1.0, float("nan")]), pa.array([1.0, float("nan")])], ["mean", "sd"])
    (bad,) = hp.check(TEXTS.append_column("made", column), "made").to_pylist()
    assert (bad["mass"], bad["reason"]) == ("about 5", found)  # beside the text itself


def test_a_made_column_is_quoted_once() -> None:
    with pytest.raises(HaplyError) as caught:
        hp.sql("SELECT * FROM t WHERE GAUSSIAN(x, sd) > 1 WITH THRESHOLD 0.5", t=TEXTS)
    assert "Column 'gaussian(x, sd)' has a row that is not a distribution" in str(caught.value)


def test_a_coordinate_of_a_made_position() -> None:
    place = "gaussian_nd(array(x, y), array(1, 1))[{}]"
    asked = f"{place.format(1)} > 3.5"
    assert hp.where(TEXTS, asked, threshold=0.5)["id"].to_pylist() == [2]
    assert hp.where(TEXTS, hp.gaussian_nd([hp.col("x"), hp.col("y")], [1, 1])[1] > 3.5, threshold=0.5)[
        "id"
    ].to_pylist() == [2]
    assert hp.sql(f"SELECT id FROM t WHERE {asked} WITH THRESHOLD 0.5", t=TEXTS)["id"].to_pylist() == [2]
    said = refused(TEXTS, f"{place.format(2)} > 3.5", ask=hp.where)
    assert "asks for a component that is not there" in said
    said = refused(TEXTS, "gaussian(x, 0.1)[1] > 3.5", ask=hp.where)
    assert "Expected a column made by hp.gaussian_nd or hp.mixture_nd. Found gaussian" in said


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"how": "full"}, "how='outer' is a full join"),
        ({"keep": "best"}, "keep='best_left' keeps the best right row of each left row"),
        ({"broadcast": True}, "broadcast='right' sends the whole right table to every worker"),
        ({"threshold": 50}, "50 % is 0.5"),
    ],
)
def test_a_choice_that_is_none_names_the_one_that_is_meant(options: dict[str, Any], hint: str) -> None:
    assert f"Hint: {hint}" in refused(SHOP, DEPOT, NEAR, **options)


@pytest.mark.parametrize(
    ("on", "hint"),
    [
        ("kg", "write left.kg for the column of the left table"),
        (["kg"], "write abs(hp.left.kg - hp.right.kg) <= 0.5"),
    ],
)
def test_a_condition_of_names_alone_shows_how_one_is_written(on: Any, hint: str) -> None:
    assert f"Hint: {hint}" in refused(SHOP, DEPOT, on)


def test_texts_are_no_numbers_of_a_model() -> None:
    said = refused(SHOP.assign(kg=["1.0", "2.0"]), DEPOT, NEAR)
    assert "gaussian() is made of something that is not a number" in said
    assert "double(column) makes numbers of texts; hp.parse reads texts such as 12.3 ± 0.4" in said
    found = hp.where(SHOP.assign(kg=["1.0", "2.0"]), "gaussian(double(kg), err) > 1.5", 0.5)
    assert found["id"].tolist() == [2]


def test_numbers_and_the_absolute_value_of_numpy_are_taken_and_arrays_are_not() -> None:
    assert str(np.abs(hp.left.x - hp.right.x) < np.int64(3)) == "abs(left.x - right.x) < 3"
    assert str(np.float64(2) * hp.left.x <= np.float64(3)) == "2.0 * left.x <= 3.0"
    for make in (lambda: np.sqrt(hp.left.x), lambda: np.array([1.0, 2.0]) * hp.left.x):
        with pytest.raises(HaplyError, match="functions are written in text: 'sqrt"):
            make()


def test_a_table_that_sql_does_not_know_says_how_it_is_given() -> None:
    with pytest.raises(HaplyError, match=r"There is no table 'depot'.*Hint: hp.sql\(query, depot=frame\)"):
        hp.sql("SELECT * FROM depot", shop=SHOP)


def test_numbers_that_are_compared_for_identity_name_the_errors_they_lack() -> None:
    said = refused(SHOP, DEPOT, hp.left.kg == hp.right.weight, ask=hp.match, density=1.0, completeness=0.5)
    assert "Hint: numbers have no density without their errors: write hp.gaussian(hp.left.value, hp.left.error)" in said


def test_a_map_of_numbers_says_which_column_holds_no_positions() -> None:
    with pytest.raises(HaplyError, match="Column 'kg' holds no positions"):
        hp.map(SHOP, "kg", "err")


@pytest.mark.parametrize("ask", [hp.ship, hp.doctor, lambda given: hp.progress(given).__enter__()])
def test_what_needs_a_spark_session_says_so_of_a_table(ask: Callable[[Any], Any]) -> None:
    with pytest.raises(HaplyError, match=r"a Spark session.*Expected a SparkSession. Found DataFrame"):
        ask(SHOP)
