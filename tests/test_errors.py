"""Messages: the hint of an unknown name is there for a slip of the pen, and not for another word."""

from __future__ import annotations

import pytest

from haply.errors import unknown_name


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("windw", ["threshold", "window"], "window"),
        ("Temp", ["time", "temp"], "temp"),
        ("TEMP", ["temp"], "temp"),
        ("probabilty", ["probability"], "probability"),
        ("probabillity", ["prob", "probability"], "probability"),
        ("hsah", ["scan", "hash"], "hash"),
        ("per-row", ["per_row", "static"], "per_row"),
        ("tresholds", ["threshold"], "threshold"),
        ("idd", ["id", "x"], "id"),
        ("bb", ["a", "b"], "b"),
        ("kg", ["kg_left", "id"], "kg_left"),
        ("temp", ["sensor_temp", "sensor_id"], "sensor_temp"),
        ("left_kg", ["kg", "id"], "kg"),
        ("gaussian_3d", ["gaussian", "gaussian_nd"], "gaussian_nd"),
        ("mean", ["means", "means_x"], "means"),
    ],
)
def test_a_near_name_is_suggested(name, known, meant):
    assert str(unknown_name("column", name, known)).endswith(f"Hint: did you mean '{meant}'?")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("arcmin", ["arcsec", "deg"]),
        ("mean", ["median"]),
        ("left", ["right"]),
        ("local", ["global"]),
        ("inner", ["outer"]),
        ("min_x", ["max_x"]),
        ("x", ["y", "z"]),
        ("ra", ["id"]),
        ("kg", ["kg_left", "kg_right"]),
        ("forward", ["backward"]),
        ("temp", []),
    ],
)
def test_another_name_is_not(name, known):
    message = str(unknown_name("column", name, known))
    assert "Hint" not in message
    assert all(one in message for one in known)
