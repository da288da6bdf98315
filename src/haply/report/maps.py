"""Pairs of positions on a map, with their errors and lines between partners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from haply.models import Model
from haply.models.plane import OUTLINED, Plane

if TYPE_CHECKING:
    import altair


def pair_map(sides: Sequence[Model], names: Sequence[str], count: int) -> altair.LayerChart:
    """Draw pairs: row by row of the two sides. ``count`` is how many pairs there are in all."""
    from haply.drawing.shapes import position_chart

    plane = Plane.of(sides)
    placed = [plane.place(side) for side in sides]
    shapes: list[dict[str, Any]] = []
    outlined = False
    for row in range(len(sides[0])):
        ends = [(float(side.x[row]), float(side.y[row])) for side in placed]
        shapes.append({"kind": "", "points": ends, "closed": False})
        for side, name, end in zip(placed, names, ends, strict=True):
            outline = side.outline(row)
            outlined = outlined or outline is not None
            shapes += [
                {"kind": name, "points": points, "closed": True}
                for points in ([end], *([outline] if outline is not None else []))
            ]
    subtitle = f"Ellipses hold {OUTLINED:.0%} of a position; lines join partners" if outlined else "Lines join partners"
    return position_chart(
        shapes, plane.titles, title=_title(len(sides[0]), count), subtitle=subtitle, east_left=plane.on_sky
    )


def _title(shown: int, count: int) -> str:
    if shown < count:
        return f"{shown:,} of {count:,} pairs of positions"
    return f"{count:,} pair{'' if count == 1 else 's'} of positions"
