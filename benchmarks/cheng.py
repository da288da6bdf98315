"""``bench cheng``: joins by x-bound pages and the tree over them, Figures 11 to 17 of Cheng et al. 2005, section 5.

Both sides are uniform values: R begins anywhere in [0, 10000] with lengths N(5, 1), S in [5000, 15000] with lengths
N(10, 2), 50 rows to a page. The paper does not give the sizes of its tables, its tolerance, threshold, levels or
fan-out, nor the order in which pages are filled; the assumptions are in ``Settings`` and in the report. Where the order
or the size decide the outcome, several are shown. Counts are those of the paper's own tests and of Theorem 1 on items,
for its strict ``P > p``, with ours beside them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import (
    OURS,
    Answer,
    Claim,
    Figure,
    Report,
    Tell,
    circumstances,
    compare,
)
from haply.joins.match import Matches, match_all
from haply.joins.paged import ALGORITHMS, Algorithm, PagedJoin, PagedWork, PageSettings
from haply.models import Uniform
from haply.probability.region import Region
from haply.pruning.candidates.intervals import row_intervals
from haply.pruning.candidates.xbounds import PAPER_LEVELS
from haply.pruning.threshold import Pairing, Threshold

GREATER = Region(0.0, math.inf, low_closed=False)


@dataclass(frozen=True)
class Settings:
    """Values that the paper does not give, and the repetitions of timed runs."""

    rows: int = 2_000
    dense_rows: int = 100_000
    rows_per_page: int = 50
    fan_out: int = 50
    levels: tuple[float, ...] = PAPER_LEVELS
    within: float = 1.0
    p_of_pairs: tuple[float, ...] = (0.05, 0.15, 0.35, 0.55, 0.75, 0.95)
    p_of_values: tuple[float, ...] = (0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.9)
    p_of_tolerances: tuple[float, ...] = (0.1, 0.3, 0.5)
    tolerances: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0)
    offsets: tuple[float, ...] = (0.0, 2_500.0, 5_000.0, 7_500.0, 9_000.0, 9_900.0)
    repetitions: int = 2
    seed: int = 1


QUICK = Settings(
    rows=400, dense_rows=8_000, p_of_pairs=(0.05, 0.55, 0.95), p_of_values=(0.05, 0.2, 0.5),
    tolerances=(0.5, 1.0, 3.0, 5.0, 10.0, 20.0), offsets=(0.0, 5_000.0, 9_000.0), repetitions=1,
)  # fmt: skip


def run(quick: bool, data: str | None, tell: Tell) -> Report:
    """Run the benchmark as the command line does."""
    return measure(QUICK if quick else Settings(), tell)


def measure(settings: Settings, tell: Tell) -> Report:
    """Time the four algorithms beside the engine's sweep, then make the figures."""
    bench = Experiments(settings, tell)
    job = f"|a - b| <= {settings.within:g}, P > 0.1, {settings.rows:,} rows a side"
    results = compare(job, bench.engines(), settings.repetitions, tell)
    figures = [
        bench.pages(), bench.trees(), bench.evaluations(), *bench.tolerances(), bench.selectivity(), bench.greater(),
    ]  # fmt: skip
    config = {
        **settings.__dict__,
        "declared": "left ends are placed uniformly, lengths are floored at 0.01, sorted means by the middle",
        "formulations": {
            OURS: "the sweep over core regions and the whole cascade",
            **{str(name): "the paper's tests and Theorem 1, pages filled in sorted order" for name in ALGORITHMS},
        },
        "notes": ["page reads count pages and leaves whose rows are needed: tables of x-bounds are kept in memory"],
        **circumstances(),
    }
    title = f"Uniform intervals of Cheng et al. 2005, {settings.rows:,} rows a side, one thread"
    return Report("cheng", title, config, results, figures=figures)


def make_sides(rows: int, seed: int, offset: float = 5_000.0) -> tuple[Uniform, Uniform]:
    """Make R and S of section 5; S begins at the offset."""
    rng = np.random.default_rng(seed)
    left, right = rng.uniform(0.0, 10_000.0, rows), rng.uniform(0.0, 10_000.0, rows) + offset
    lengths = rng.normal(5.0, 1.0, rows), rng.normal(10.0, 2.0, rows)
    return (
        Uniform(left, left + np.maximum(lengths[0], 0.01)),
        Uniform(right, right + np.maximum(lengths[1], 0.01)),
    )


def by(side: Uniform, key: str) -> Uniform:
    """Return the rows in the order of their left ends, middles or right ends."""
    keys = {"left ends": side.lo, "middle": side.lo + side.hi, "right ends": side.hi}
    return side.take(np.argsort(keys[key]))


class Experiments:
    """Makes the figures, on shared data."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        self.settings, self.tell = settings, tell
        self.sides = make_sides(settings.rows, settings.seed)
        self.dense = make_sides(settings.dense_rows, settings.seed)

    def _join(
        self,
        inner: Uniform,
        algorithm: Algorithm,
        region: Region,
        p: float,
        *,
        exact: bool = True,
        **changes: Any,
    ) -> PagedJoin:
        settings = self.settings
        layout: dict[str, Any] = {
            "tests": "paper",
            "item": "theorem 1",
            "levels": settings.levels,
            "rows_per_page": settings.rows_per_page,
            "fan_out": settings.fan_out,
        }
        return PagedJoin(inner, region, Threshold(p, strict=True), exact, algorithm, PageSettings(**layout | changes))

    def _equal(self, within: float | None = None) -> Region:
        c = self.settings.within if within is None else within
        return Region(-c, c)

    def engines(self) -> dict[str, Any]:
        """Return the sweep and the four algorithms on one join."""
        left, right = self.sides
        region, threshold = self._equal(), Threshold(0.1, strict=True)

        def ours() -> Answer:
            intervals = [
                row_intervals(side, side is left, region, threshold, True, Pairing.UNIFORM) for side in (left, right)
            ]
            found = match_all(left, right, intervals[0], intervals[1], region, threshold, True)
            return _answer(found)

        def theirs(algorithm: Algorithm) -> Answer:
            return _answer(self._join(right, algorithm, region, 0.1).match(left))

        return {OURS: ours} | {name: lambda name=name: theirs(name) for name in ALGORITHMS}

    def _panels(self) -> list[tuple[str, tuple[Uniform, Uniform], dict[str, Any]]]:
        """Return data and layout of the figures that count pairs, with a name."""
        small, large = f"{self.settings.rows:,} rows", f"{self.settings.dense_rows:,} rows"
        return [
            (f"sorted, {small}", self.sides, {}),
            (f"random, {small}", self.sides, {"in_order": False}),
            (f"sorted, {large}", self.dense, {}),
        ]

    def _counts(
        self,
        columns: dict[str, tuple[Algorithm, dict[str, Any]]],
        panels: Sequence[tuple[str, tuple[Uniform, Uniform], dict[str, Any]]],
        region: Region,
        exact: bool = True,
    ) -> tuple[list[dict[str, Any]], dict[tuple[str, str], list[PagedWork]]]:
        """Return N_pair of each column, for every panel and threshold: rows for the table, and the work of joins."""
        rows: list[dict[str, Any]] = []
        works: dict[tuple[str, str], list[PagedWork]] = {}
        for panel, (left, right), layout in panels:
            for p in self.settings.p_of_pairs:
                self.tell(f"pairs: {panel}, p = {p:g}")
                row: dict[str, Any] = {"pages": panel, "p": p}
                for name, (algorithm, changes) in columns.items():
                    join = self._join(right, algorithm, region, p, exact=exact, **layout | changes)
                    work = join.count(left)
                    works.setdefault((panel, name), []).append(work)
                    row[name] = work.pairs
                rows.append(row)
        return rows, works

    def pages(self) -> Figure:
        """Make Figure 11."""
        columns: dict[str, tuple[Algorithm, dict[str, Any]]] = {
            "BNLJ": ("BNLJ", {}),
            "boxes only": ("U-BNLJ", {"tests": "box"}),
            "U-BNLJ": ("U-BNLJ", {}),
            "U-BNLJ, our tests": ("U-BNLJ", {"tests": "strong", "levels": None}),
        }
        panels = self._panels()
        rows, works = self._counts(columns, panels, self._equal())
        claims = []
        for (panel, _, _), far in zip(panels, ("U-BNLJ is far below BNLJ",) * 3, strict=True):
            of = [[work.pairs for work in works[panel, name]] for name in ("BNLJ", "U-BNLJ")]
            factor = of[0][0] / max(1, max(of[1]))
            claims.append(Claim(f"{far} ({panel})", f"at least {factor:,.1f} times fewer pairs", factor > 5.0))
            drop = 1.0 - of[1][-1] / of[1][0]
            low, high = self.settings.p_of_pairs[0], self.settings.p_of_pairs[-1]
            text = f"{of[1][0]:,} pairs at p = {low:g}, {of[1][-1]:,} at p = {high:g}"
            claims.append(Claim(f"U-BNLJ hardly depends on p ({panel})", text, abs(drop) < 0.1))
        sorted_panel = panels[0][0]
        by_box = works[sorted_panel, "boxes only"][0].pairs
        note = (
            f"in sorted order boxes alone leave {by_box:,} pairs, x-bounds {works[sorted_panel, 'U-BNLJ'][0].pairs:,} "
            f"at the lowest p and {works[sorted_panel, 'U-BNLJ'][-1].pairs:,} at the highest: the order of the rows "
            "does the work"
        )
        return Figure(
            "Figure 11", "pairs that reach the item level, nested loops over pages", rows, "p", tuple(columns),
            "N_pair", panel="pages", claims=claims, notes=[note],
        )  # fmt: skip

    def trees(self) -> Figure:
        """Make Figure 12."""
        columns: dict[str, tuple[Algorithm, dict[str, Any]]] = {
            "U-BNLJ": ("U-BNLJ", {}),
            "INLJ": ("INLJ", {}),
            "U-INLJ": ("U-INLJ", {}),
            "U-INLJ, our tests": ("U-INLJ", {"tests": "strong", "levels": None}),
        }
        panels = self._panels()
        panels.insert(2, (f"one row at a time, {self.settings.rows:,} rows", self.sides, {"rows_per_page": 1}))
        rows, works = self._counts(columns, panels, self._equal())
        claims = []
        for panel, _, _ in panels:
            of = {name: [work.pairs for work in works[panel, name]] for name in columns}
            by_pages = works[panels[0][0] if panel.startswith("one row") else panel, "U-BNLJ"][0].pairs
            factor = by_pages / max(1, of["INLJ"][0])
            text = f"INLJ has {factor:.1f} times fewer pairs than U-BNLJ by sorted or random pages at the lowest p"
            claims.append(Claim(f"both are far below Figure 11 ({panel})", text, factor > 5.0))
            drop = 1.0 - of["U-INLJ"][-1] / max(1, of["U-INLJ"][0])
            text = f"U-INLJ falls by {100.0 * drop:.1f} % from the lowest to the highest p"
            flat = len(set(of["INLJ"])) == 1
            claims.append(Claim(f"U-INLJ drops with p, INLJ is flat ({panel})", text, drop > 0.1 and flat))
        notes = [
            "order and size of pages are those of the outer side; the tree is loaded in sorted order",
            "one row at a time: pages of one row, for U-BNLJ on both sides",
        ]
        return Figure(
            "Figure 12", "pairs that reach the item level, with the index", rows, "p", tuple(columns), "N_pair",
            panel="pages", claims=claims, notes=notes,
        )  # fmt: skip

    def evaluations(self) -> Figure:
        """Make Figure 13."""
        left, right = self.sides
        rows = []
        for p in self.settings.p_of_values:
            self.tell(f"exact values: p = {p:g}")
            row: dict[str, Any] = {"p": p}
            for name in ALGORITHMS:
                found = self._join(right, name, self._equal(), p).match(left)
                row[name] = found.work.evaluated
            whole = self._join(right, "U-INLJ", self._equal(), p, tests="strong", item="cascade", levels=None)
            found = whole.match(left)
            rows.append(row | {"cascade": found.work.evaluated, "answers": len(found.left)})
        apart = max(len({row[name] for name in ALGORITHMS}) for row in rows)
        spared = min(rows, key=lambda row: row["cascade"] / max(1, row["U-INLJ"]))
        text = "all four are equal at every p" if apart == 1 else f"up to {apart} different counts at one p"
        claims = [
            Claim("the four curves coincide", text, apart == 1),
            Claim(
                "(ours) the concentration spares values that Theorem 1 asks for",
                f"{spared['U-INLJ']:,} exact values become {spared['cascade']:,} at p = {spared['p']:g}",
                all(row["cascade"] <= row["U-INLJ"] for row in rows),
            ),
        ]
        lines = (*ALGORITHMS, "cascade", "answers")
        return Figure("Figure 13", "exact probabilities over p", rows, "p", lines, "N_prob", claims=claims)

    def tolerances(self) -> list[Figure]:
        """Make Figures 14 and 15."""
        left, right = self.sides
        values, answers = [], []
        columns = {p: f"p = {p:g}" for p in self.settings.p_of_tolerances}
        for c in self.settings.tolerances:
            self.tell(f"tolerance {c:g}")
            row, kept = {"c": c}, {"c": c}
            for p, name in columns.items():
                found = self._join(right, "U-INLJ", self._equal(c), p).match(left)
                row[name], kept[name] = found.work.evaluated, len(found.left)
            values.append(row)
            answers.append(kept)
        lines = tuple(columns.values())

        def rises(rows: list[dict[str, Any]]) -> bool:
            return all((np.diff([row[name] for row in rows]) >= 0).all() for name in lines)

        beyond = [row for row in answers if row["c"] >= 3.0]
        growth = {name: beyond[-1][name] / max(1, beyond[0][name]) for name in lines}
        text = ", ".join(f"{name}: {beyond[0][name]:,} to {beyond[-1][name]:,}" for name in lines)
        grows = f"answers from c = {beyond[0]['c']:g} to {beyond[-1]['c']:g}: {text}"
        first, last = values[0], values[-1]
        return [
            Figure(
                "Figure 14", "exact probabilities over the tolerance", values, "c", lines, "N_prob", log_x=True,
                claims=[
                    Claim(
                        "N_prob increases with c",
                        ", ".join(f"{name}: {first[name]:,} to {last[name]:,}" for name in lines),
                        rises(values),
                    )
                ],
            ),
            Figure(
                "Figure 15", "answers over the tolerance", answers, "c", lines, "answers", log_x=True, log_y=False,
                claims=[
                    Claim("the answers increase with c", grows, rises(answers)),
                    Claim("they saturate for c > 3", grows, all(factor < 1.1 for factor in growth.values())),
                ],
                notes=["for large c a value meets all that begin within c of it: the answers grow as c does"],
            ),
        ]  # fmt: skip

    def selectivity(self) -> Figure:
        """Make Figure 16: S moves away from R, so that fewer and fewer pairs are answers."""
        rows = []
        for offset in self.settings.offsets:
            self.tell(f"selectivity: S from {offset:g}")
            left, right = make_sides(self.settings.rows, self.settings.seed, offset)
            join = self._join(right, "U-INLJ", self._equal(), 0.1)
            spent = math.inf
            for _ in range(max(2, self.settings.repetitions)):
                begun = time.perf_counter()
                found = join.match(left)
                spent = min(spent, time.perf_counter() - begun)
            work = found.work
            rows.append(
                {
                    "S from": offset,
                    "answers per million pairs": 1e6 * len(found.left) / self.settings.rows**2,
                    "N_pair": work.pairs,
                    "N_prob": work.evaluated,
                    "page reads": work.reads,
                    "visited": work.visited,
                    "seconds": spent,
                }
            )
        rows.reverse()  # the fewest answers first
        measures = ("N_pair", "N_prob", "page reads", "visited")
        falls = all((np.diff([row[name] for row in rows]) >= 0).all() for name in measures)
        one, other = rows[0], rows[-1]
        text = (
            f"from {other['answers per million pairs']:.0f} to {one['answers per million pairs']:.0f} answers in a "
            f"million pairs N_pair falls from {other['N_pair']:,} to {one['N_pair']:,}, page reads from "
            f"{other['page reads']:,} to {one['page reads']:,}"
        )
        return Figure(
            "Figure 16", "the cost of U-INLJ over the share of answers", rows, "answers per million pairs", measures,
            "count", seconds=("seconds",), claims=[Claim("cheaper when fewer pairs are answers", text, falls)],
        )  # fmt: skip

    def greater(self) -> Figure:
        """Make Figure 17; the pages of U-BNLJ replace leaves that are filled in the order of the panel."""
        columns: dict[str, tuple[Algorithm, dict[str, Any]]] = {
            "U-BNLJ": ("U-BNLJ", {}),
            "INLJ": ("INLJ", {}),
            "U-INLJ": ("U-INLJ", {}),
            "U-INLJ, our tests": ("U-INLJ", {"tests": "strong", "levels": None}),
        }
        panels = [self._panels()[0]]
        for key in ("left ends", "middle", "right ends"):
            sides = (by(side, key) for side in self.dense)
            name = f"by {key}, {self.settings.dense_rows:,} rows"
            panels.append((name, (next(sides), next(sides)), {"in_order": False}))
        rows, works = self._counts(columns, panels, GREATER, exact=False)
        kept = min(min(work.pairs for work in of) / of[0].pairs for of in works.values())
        claims = [Claim("no sharp drop with p", f"never less than {kept:.0%} of the pairs at the lowest p", kept > 0.5)]
        notes = ["the key is that of the pages; the tree is loaded by the middle"]
        for panel, _, _ in panels:
            for name in ("U-INLJ", "U-BNLJ"):
                of = [work.pairs for work in works[panel, name]]
                text = f"{of[0]:,} pairs at the lowest p, {min(of):,} at least, {of[-1]:,} at the highest"
                low = of[0] == min(of) and of[0] < 0.95 * of[-1]
                claims.append(Claim(f"low at low p thanks to INCLUDE ({name}, {panel})", text, low))
            included = works[panel, "U-INLJ"][0].included
            notes.append(f"{panel}: {included:,} pairs are included by whole subtrees or entries at the lowest p")
        return Figure(
            "Figure 17", "pairs that reach the item level for a > b", rows, "p", tuple(columns), "N_pair",
            panel="pages", claims=claims, notes=notes,
        )  # fmt: skip


def _answer(found: Matches) -> Answer:
    return Answer(found.left, found.right, found.probability)
