"""``bench peng-planning``: Tables 2 and 3 of Peng, Diao and Liu (2011): one order for all rows, or one for each.

``static`` computes the conditions one after the other, in the order of their selectivity, for all rows that are still
open; ``per row`` computes bounds first and then goes by rank; ``optimal`` is the best plan of each row in hindsight. It
has the same values and bounds as per-row planning, knows their results and their cost in this batch, and takes for each
row those that decide it at the least cost. The same code computes them, and planning takes no time. So "within 5% of
optimal" limits the cost of planning itself. All three keep the same rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks import peng_data as data
from benchmarks.measure import OURS, Claim, Figure, Report, Result, Tell, circumstances
from haply.errors import HaplyError
from haply.models import Gaussian
from haply.pruning.threshold import Threshold
from haply.selection.conditions import RowValues
from haply.selection.costs import Costs
from haply.selection.hindsight import Hindsight
from haply.selection.select import PLANNINGS, Effort, Selection

STATIC, OPTIMAL = "static", "optimal"
NEAR_OPTIMAL = 0.95
"""The share of the optimal plan's speed that per-row planning should reach in every cell."""


@dataclass(frozen=True)
class Settings:
    """Numbers of rows, pairs and repetitions; the cells are the paper's."""

    rows: int = 20_000
    window: int = 500
    threshold: float = 0.7
    repetitions: int = 3
    seed: int = 5


QUICK = Settings(rows=4_000, window=60, repetitions=3)


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), data, tell)


def measure(settings: Settings, folder: str | None, tell: Tell) -> Report:
    """Measure both tables, on generated data and, if there is any, on real photometry."""
    stars = data.generated(settings.rows, settings.seed)
    tables = [selections(stars, settings, tell), joins(settings, tell)]
    figures = [*(table for table, _ in tables), selectivities([row for _, rows in tables for row in rows])]
    planned = [table for table, _ in tables]
    for catalogue in data.real(folder):
        planned.append(colours(catalogue, settings, tell))
        figures.append(planned[-1])
    results = [result for figure in planned for result in _results(figure)]
    config = {
        **settings.__dict__,
        "formulations": {
            OURS: "per-row planning: conditions on one value, bounds, then by (1 - s) / cost with residual thresholds",
            STATIC: "one order for all rows, by selectivity in a sample; no bounds",
            OPTIMAL: "in hindsight: for each row the bounds and values that decide it for the least cost, of all that "
            "per-row planning has; the choice itself is not timed",
        },
        "targets": {STATIC: 1.0, OPTIMAL: NEAR_OPTIMAL},
        "notes": [_overall(figure) for figure in planned],
        **circumstances(),
    }
    title = f"Planning by row, {settings.rows:,} rows and {settings.window:,} x {settings.window:,} pairs, one thread"
    return Report("peng-planning", title, config, results, figures=figures)


Shares = list[dict[str, Any]]
"""The selectivity of each condition, ours beside the paper's."""


def selections(stars: data.Stars, settings: Settings, tell: Tell) -> tuple[Figure, Shares]:
    """Make Table 2: ``r < d1`` and ``q_r^2 + u_r^2 > d2^2``."""
    batch, rows = stars.batch(), []
    for d1, d2, order, static, dynamic, gain, optimal in data.TABLE_2:
        tell(f"Table 2: d1 = {d1}, d2 = {d2:g}")
        groups: data.Conditions = [
            [data.below("r", d1)], [data.radius([("q_r", None), ("u_r", None)], d2, beyond=True)],
        ]  # fmt: skip
        cell = _cell(groups, batch, settings)
        over = round(100.0 * (dynamic / optimal - 1.0), 1)
        paper = {"their static ms": static, "their gain %": gain, "their over optimal %": over}
        rows.append({"cell": f"{d1}, {d2:g}", **cell, "their order": order, **paper})
    shares = _shares("Table 2", "d1", "d2", data.TABLE_2, rows)
    return _figure("Table 2", "selection: r < d1 and q_r^2 + u_r^2 > d2^2", rows, ["times are per row"]), shares


def joins(settings: Settings, tell: Tell) -> tuple[Figure, Shares]:
    """Make Table 3: two colours that agree within d3, and places within d4."""
    one, other = (data.generated(settings.window, settings.seed + side) for side in (1, 2))
    batch, rows = one.beside(other, ["u", "g", "r", "rowc", "colc"]), []
    for d3, d4, order, static, _, gain in data.TABLE_3:
        tell(f"Table 3: d3 = {d3:g}, d4 = {d4}")
        places = data.apart([("rowc1", "rowc2"), ("colc1", "colc2")], float(d4), f"distance of places < {d4}")
        colour = [data.near(("u1", "g1"), ("u2", "g2"), d3), data.near(("g1", "r1"), ("g2", "r2"), d3)]
        cell = _cell([list(colour), [places]], batch, settings)
        rows.append({"cell": f"{d3:g}, {d4}", **cell, "their order": order, "their static s": static,
                     "their gain %": gain})  # fmt: skip
    title = "join: |d(u - g)| < d3 and |d(g - r)| < d3, places within d4"
    shares = _shares("Table 3", "d3", "d4", data.TABLE_3, rows)
    return _figure("Table 3", title, rows, ["times are per pair"]), shares


def selectivities(shares: Shares) -> Figure:
    """Make Table 5: how many rows pass each condition, beside the paper's shares."""
    claims = []
    for table in ("Table 2", "Table 3"):
        worst = max(abs(row["difference"]) for row in shares if row["of"] == table)
        claims.append(
            Claim(
                f"the selectivities of {table} are within {NEAR_SHARES:g} points of the paper's",
                f"at most {worst:.1f} points off",
                worst <= NEAR_SHARES,
                any_size=True,
            )
        )
    notes = ["data are drawn to the paper's selectivities: its catalogue is not public in that form"]
    return Figure(
        "Table 5", "rows in percent that pass a condition with probability 0.7", shares, x="condition",
        lines=("paper", "ours"), y_title="percent", log_y=False, claims=claims, notes=notes,
    )  # fmt: skip


NEAR_SHARES = 2.0
"""Points by which a selectivity may differ from the paper's."""


def colours(stars: data.Stars, settings: Settings, tell: Tell) -> Figure:
    """Measure the same kind of selection on real photometry: bright objects with a colour far from the median."""
    rows = []
    middle = {
        name: float(np.median(stars.mean[a] - stars.mean[b])) for name, a, b in (("ug", "u", "g"), ("gr", "g", "r"))
    }
    values = {
        "r": (stars.mean["r"], stars.sd["r"]),
        "ug": (stars.mean["u"] - stars.mean["g"] - middle["ug"], np.hypot(stars.sd["u"], stars.sd["g"])),
        "gr": (stars.mean["g"] - stars.mean["r"] - middle["gr"], np.hypot(stars.sd["g"], stars.sd["r"])),
    }
    batch = RowValues({name: Gaussian(*value) for name, value in values.items()}, {}, len(stars))
    for share in (0.2, 0.5, 0.8):
        limit = float(np.quantile(stars.mean["r"], share))
        for reach in (0.2, 0.5, 1.0):
            tell(f"{stars.name}: r < {limit:.1f}, colours beyond {reach:g}")
            groups: data.Conditions = [
                [data.below("r", limit)], [data.radius([("ug", None), ("gr", None)], reach, beyond=True)],
            ]  # fmt: skip
            rows.append({"cell": f"{limit:.1f}, {reach:g}", **_cell(groups, batch, settings)})
    notes = ["colours as columns of their own, as if independent of r and of each other", "times are per row"]
    return _figure(stars.name, f"{stars.name}: r < d1 and colours beyond d2 of the median", rows, notes)


def _cell(groups: data.Conditions, batch: RowValues, settings: Settings) -> dict[str, Any]:
    """Run the three plans on the same rows, check that they agree, and return best times and what they computed."""
    kinds = {name: type(model) for name, model in batch.values.items()}
    threshold, costs = Threshold(settings.threshold), Costs.of_this_machine()
    plans = {plan: Selection.of(groups, kinds, threshold, plan, True, costs) for plan in PLANNINGS}
    known = Hindsight.of(plans["optimal"].groups, batch, threshold)
    steps = known.steps(threshold, exact=True)
    best: dict[str, float] = dict.fromkeys(PLANNINGS, np.inf)
    planning, kept = 0.0, {}
    efforts: dict[str, Effort] = {}
    for _ in range(settings.repetitions + 1):  # the first run fills caches
        for plan, selection in plans.items():
            effort = Effort()
            begun = time.thread_time()
            found = selection.select(batch, effort, steps if plan == "optimal" else None)
            seconds = time.thread_time() - begun
            if seconds < best[plan] and plan == "per_row":
                planning = 1.0 - (effort.seconds["bounds"] + effort.seconds["exact"]) / seconds
            best[plan] = min(best[plan], seconds)
            kept[plan], efforts[plan] = found.rows, effort
    if not all(np.array_equal(kept["per_row"], rows) for rows in kept.values()):
        raise HaplyError("Plans keep different rows", found=str({plan: len(rows) for plan, rows in kept.items()}))
    passing = [float((chance >= settings.threshold).mean()) for chance in known.values]
    order = sorted(range(len(groups)), key=lambda g: passing[g])
    return {
        "order": " ".join(str(g + 1) for g in order),
        "static": best["static"] / batch.rows,
        "per row": best["per_row"] / batch.rows,
        "optimal": best["optimal"] / batch.rows,
        "gain %": round(100.0 * (1.0 - best["per_row"] / best["static"]), 1),
        "over optimal %": round(100.0 * (best["per_row"] / best["optimal"] - 1.0), 1),
        "planning %": round(100.0 * planning, 1),
        "bounds": _work(efforts, "bounded", batch.rows),
        "values": _work(efforts, "computed", batch.rows),
        "kept": len(kept["per_row"]),
        "passing %": [round(100.0 * share, 1) for share in passing],
    }


def _work(efforts: dict[str, Effort], what: Literal["bounded", "computed"], rows: int) -> str:
    """Return how many groups of a row were bounded or computed on average, by per-row and by optimal planning."""
    return " / ".join(f"{sum(getattr(efforts[plan], what).values()) / rows:.2f}" for plan in ("per_row", "optimal"))


def _shares(table: str, one: str, two: str, cells: tuple[Any, ...], rows: list[dict[str, Any]]) -> Shares:
    found = []
    for at, name in ((0, one), (1, two)):
        seen = {cell[at]: row["passing %"][at] for cell, row in zip(cells, rows, strict=True)}
        for limit, share in seen.items():
            theirs = data.TABLE_5[name][limit]
            found.append({"condition": f"{name} = {limit:g}", "of": table, "paper": theirs, "ours": share,
                          "difference": round(share - theirs, 1)})  # fmt: skip
    return found


def _figure(name: str, title: str, rows: list[dict[str, Any]], notes: list[str]) -> Figure:
    worst = min(row["gain %"] for row in rows)
    over = float(np.mean([row["over optimal %"] for row in rows]))
    share = float(np.mean([row["planning %"] for row in rows]))
    least, most = (pick(row["over optimal %"] for row in rows) for pick in (min, max))
    claims = [
        Claim("dynamic planning beats static in every cell", f"least gain {worst:.1f}%", worst > 0.0),
        Claim(
            "within 5% of optimal planning on average",
            f"{over:+.1f}% on average, {least:+.1f}% to {most:+.1f}%", over <= 5.0,
        ),
        Claim("(ours) the optimal plan is the faster one in every cell, within 5%", f"{least:+.1f}%", least >= -5.0),
        Claim("planning itself costs under 10% of the run", f"{share:.1f}% on average", share < 10.0),
    ]  # fmt: skip
    notes = [*notes, "bounds and values: how many a row has, on average, per row / optimal"]
    for row in rows:
        row["passing %"] = ", ".join(f"{value:g}" for value in row["passing %"])
    lines = ("static", "per row", "optimal")
    return Figure(
        name, title, rows, x="cell", lines=lines, y_title="seconds", seconds=lines, claims=claims, notes=notes
    )


def _results(figure: Figure) -> list[Result]:
    """Return each cell as a job, for the table of engines."""
    found = []
    for row in figure.rows:
        job = f"{figure.name}: {row['cell']}"
        ours = row["per row"]
        for engine, field in ((OURS, "per row"), (STATIC, "static"), (OPTIMAL, "optimal")):
            found.append(Result(job, engine, row[field], row["kept"], row[field] / ours))
    return found


def _overall(figure: Figure) -> str:
    gains = [row["gain %"] for row in figure.rows]
    measured = "; ".join(claim.measured for claim in figure.claims)
    return f"{figure.name}: gain {min(gains):g}% to {max(gains):g}%, {measured}"
