"""The experiments B1 to B7 of the bench ``wjoin`` (Hammad, Aref, Elmagarmid, SSDBM 2003, and our own).

The numbers of the paper's figures are not known to us, so its claims are about shapes. Each claim says how its words
are read as numbers. Windows are a hundredth of the paper's, and so is the number of keys: an operator has to fill a
window before it can be measured, which at the highest rate takes as long as the window. All times are processor time of
this one thread, without that of other programs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Claim, Figure, Tell, in_seconds
from haply.errors import HaplyError
from haply.joins import WindowJoin
from haply.joins.operators.window import Algorithm, uniform_windows
from haply.pruning.candidates.windows import POLICIES

NAMES = tuple("abcdefgh")
"""How many streams there are."""
BEW, FEW = "BEW", "FEW"
ALGORITHM_OF: dict[str, Algorithm] = {BEW: "backward", FEW: "forward"}
PAPERS_NAME = {"global": "GCA", "local": "LCA", "exact": "exact"}


@dataclass(frozen=True)
class Scale:
    """The sizes of the experiments; seconds are seconds of the streams."""

    minute: float = 0.6  # the window of B1, B3 and B5, a minute in the paper
    ten_seconds: float = 0.1  # the window of B2
    keys: int = 100
    timed: float = 0.6  # how much of a stream is timed, after a window has been filled
    hash_streams: tuple[int, ...] = (2, 3, 4, 5, 6)
    scan_streams: tuple[int, ...] = (2, 3, 4, 5)
    trials: int = 8
    shares: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2)
    response_events: int = 6_000
    items: int = 20_000
    sales: int = 30_000  # of each stream
    faster: tuple[int, ...] = (1, 4, 16)
    policy_streams: tuple[int, ...] = (3, 4, 5)
    policy_events: int = 20_000
    stalls: tuple[int, ...] = (0, 5, 10)  # in windows
    stall_windows: int = 40
    repetitions: int = 3
    seed: int = 13


QUICK = Scale(
    minute=0.1, ten_seconds=0.02, timed=0.1, hash_streams=(2, 3, 4), scan_streams=(2, 3), trials=5,
    shares=(0.05, 0.2, 0.8, 1.2), response_events=1_000, sales=3_000, faster=(1, 8), policy_streams=(3, 4),
    policy_events=2_000, stalls=(0, 10), repetitions=1,
)  # fmt: skip


# -- arrivals ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrivals:
    """Events of all streams in the order of their arrival; an id is the place of an event in its stream."""

    stream: np.ndarray
    id: np.ndarray
    time: np.ndarray
    key: np.ndarray

    @classmethod
    def merged(cls, streams: Sequence[tuple[np.ndarray, np.ndarray]]) -> Arrivals:
        """Merge streams of times and keys, which arrive in the order of time."""
        lengths = [len(times) for times, _ in streams]
        times = np.concatenate([times for times, _ in streams])
        order = np.argsort(times, kind="stable")  # merges runs that are in order
        ids = np.concatenate([np.arange(length) for length in lengths])
        keys = np.concatenate([keys for _, keys in streams])
        return cls(np.repeat(np.arange(len(streams)), lengths)[order], ids[order], times[order], keys[order])

    def __len__(self) -> int:
        return len(self.time)

    def part(self, begin: int, end: int) -> Arrivals:
        """Return some of the events."""
        some = slice(begin, end)
        return Arrivals(self.stream[some], self.id[some], self.time[some], self.key[some])

    def batch(self) -> dict[str, np.ndarray]:
        """Return the events as the operator takes them."""
        return dict(self.__dict__)


def poisson(rates: Sequence[float], duration: float, keys: int, seed: int) -> Arrivals:
    """Make streams with exponential times between events, and equally likely keys."""
    random = np.random.default_rng(seed)
    streams = []
    for rate in rates:
        times = np.sort(random.uniform(0.0, duration, random.poisson(rate * duration)))
        streams.append((times, random.integers(0, keys, len(times))))
    return Arrivals.merged(streams)


def operator(name: str, streams: int, window: float, **options: Any) -> WindowJoin:
    """Return the join of this many streams by one window, by the paper's name of it."""
    return WindowJoin(uniform_windows(NAMES[:streams], window), algorithm=ALGORITHM_OF[name], **options)


def end(join: WindowJoin) -> int:
    """Close all streams; return how many combinations this completes."""
    return sum(len(join.close(name)) for name in join.streams)


def seconds_of(work: Callable[[], Any]) -> float:
    """Return how much processor time some work takes."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


# -- the highest rate --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """A load: streams whose rates have these shares of a total, for an operator with these settings."""

    name: str
    shares: tuple[float, ...]
    window: float
    scale: Scale
    lookup: str = "hash"

    def taken(self, total: float) -> float:
        """Return the seconds that the operator needs for a second of the streams at a total rate, with full windows.

        Events are pushed in batches of a hundredth of a window, and combinations are dropped: at a rate that is far too
        high they would fill the memory. Such a trial also ends early.
        """
        rates = [total * share for share in self.shares]
        length = self.window + self.scale.timed
        arrivals = poisson(rates, length, self.scale.keys, self.scale.seed)
        join = operator(self.name, len(self.shares), self.window, lookup=self.lookup)
        moments = np.append(np.arange(0.0, length, 0.01 * self.window), length)
        filling, spent = 0.0, 0.0
        for moment, cut in zip(moments[:-1], itertools.pairwise(np.searchsorted(arrivals.time, moments)), strict=True):
            batch = arrivals.part(*cut).batch()
            seconds = seconds_of(partial(join.push_many, batch))
            if moment < self.window:
                filling += seconds
            else:
                spent += seconds
            if filling + spent > 3.0 * length:
                return (filling + spent) / (moment + 0.01 * self.window)
        return spent / self.scale.timed

    def highest_rate(self) -> float:
        """Find the events per second, in all streams together, that the operator keeps up with.

        Each trial is a rate; the next rate is where a power law through the last puts the limit, or the middle of the
        remaining range. A rate is too high if the operator falls behind twice: another program may have caused the
        first time.
        """
        self.taken(100.0)  # compiles
        kept, behind, rate = 0.0, np.inf, 2_000.0
        for _ in range(self.scale.trials):
            taken = self.taken(rate)
            if 1.0 < taken < 2.0:
                taken = min(taken, self.taken(rate))
            if taken <= 1.0:
                kept = max(kept, rate)
            else:
                behind = min(behind, rate)
            if behind < 1.02 * kept:
                break
            rate = max(rate * min(0.98 / taken, 30.0) ** (1.0 / len(self.shares)), 1.01 * kept)
            if kept and rate >= behind:
                rate = float(np.sqrt(kept * behind))
        return kept or rate  # if all rates were too high, on a busy machine: the rate of the power law


def throughput_rows(streams: Sequence[int], window: float, lookup: str, scale: Scale, tell: Tell, what: str) -> Any:
    """Measure the highest rates of both algorithms over the number of streams."""
    rows = []
    for count in streams:
        row: dict[str, Any] = {"streams": count}
        for name in (BEW, FEW):
            tell(f"{what}: {name}, {count} streams")
            row[name] = round(Load(name, (1.0 / count,) * count, window, scale, lookup).highest_rate())
        rows.append(row | {"FEW over BEW": row[FEW] / row[BEW]})
    return rows


def throughput_claims(rows: Sequence[dict[str, Any]], what: str) -> list[Claim]:
    """Claim that FEW is ahead, and less so with more streams."""
    ratios = [row["FEW over BEW"] for row in rows]
    first, last = ratios[0], ratios[-1]
    return [
        Claim(
            f"FEW keeps up with higher rates than BEW for every number of streams ({what})",
            f"FEW over BEW {min(ratios):.2f} to {max(ratios):.2f}", min(ratios) > 1.0,
        ),
        Claim(
            f"the lead of FEW shrinks with more streams ({what}; ahead with the fewest, less so with the most)",
            f"FEW over BEW {first:.2f} with {rows[0]['streams']}, {last:.2f} with {rows[-1]['streams']} streams",
            first > 1.0 and last < first,
        ),
    ]  # fmt: skip


def hash_throughput(scale: Scale, tell: Tell) -> Figure:
    """Measure B1: the events per second that hash joins keep up with."""
    rows = throughput_rows(scale.hash_streams, scale.minute, "hash", scale, tell, "B1")
    return Figure(
        "B1", f"hash join: events per second that each keeps up with, window {scale.minute:g} s, {scale.keys} keys",
        rows, x="streams", lines=(BEW, FEW), y_title="events per second (logarithmic)",
        claims=throughput_claims(rows, "B1"),
    )  # fmt: skip


def scan_throughput(scale: Scale, tell: Tell) -> Figure:
    """Measure B2: the events per second that nested loops keep up with, and the hash join at the same window."""
    rows = throughput_rows(scale.scan_streams, scale.ten_seconds, "scan", scale, tell, "B2")
    for row in rows:
        count = row["streams"]
        tell(f"B2: hash join, {count} streams")
        load = Load(BEW, (1.0 / count,) * count, scale.ten_seconds, scale)
        row["BEW by hash"] = round(load.highest_rate())
    slower = [row["BEW by hash"] / row[BEW] for row in rows]
    claims = [
        *throughput_claims(rows, "B2"),
        Claim(
            "nested loops keep up with lower rates than hash joins (B2; BEW with the same window)",
            f"the hash join with {min(slower):.1f} to {max(slower):.1f} times as many events", min(slower) > 1.0,
        ),
    ]  # fmt: skip
    return Figure(
        "B2", f"nested loops: events per second that each keeps up with, window {scale.ten_seconds:g} s", rows,
        x="streams", lines=(BEW, FEW, "BEW by hash"), y_title="events per second (logarithmic)", claims=claims,
    )  # fmt: skip


# -- response ----------------------------------------------------------------------------------------------------------


def response(name: str, rate: float, streams: int, scale: Scale) -> float:
    """Return the mean seconds from the arrival of a combination's last event to the end of the push that returns it.

    The clock is that of the streams, advanced by the real time of each push: the operator takes all events that have
    arrived in the meantime, and waits if there are none.
    """
    duration = scale.minute + max(scale.response_events / rate, scale.timed)
    arrivals = poisson([rate / streams] * streams, duration, scale.keys, scale.seed)
    times = [arrivals.time[arrivals.stream == number] for number in range(streams)]
    join = operator(name, streams, scale.minute)
    at = int(np.searchsorted(arrivals.time, scale.minute))
    join.push_many(arrivals.part(0, at).batch())
    clock, total, count = scale.minute, 0.0, 0
    while at < len(arrivals):
        clock = max(clock, float(arrivals.time[at]))
        until = int(np.searchsorted(arrivals.time, clock, side="right"))
        batch = arrivals.part(at, until).batch()
        begun = time.thread_time()
        found = join.push_many(batch)
        clock += time.thread_time() - begun
        at = until
        if len(found):
            last = np.max([own[ids] for own, ids in zip(times, found.ids.values(), strict=True)], axis=0)
            total, count = total + float((clock - last).sum()), count + len(found)
    return total / max(count, 1)


def response_times(scale: Scale, tell: Tell) -> Figure:
    """Measure B3: how soon combinations are returned."""
    streams = 3
    tell("B3: the highest rate")
    highest = Load(BEW, (1.0 / streams,) * streams, scale.minute, scale).highest_rate()
    rows = []
    for share in scale.shares:
        tell(f"B3: {share:g} of the highest rate")
        rate = share * highest
        rows.append(
            {
                "share of BEW's highest rate": share, "events per second": round(rate),
                **{name: response(name, rate, streams, scale) for name in (BEW, FEW)},
            }
        )  # fmt: skip
    x = "share of BEW's highest rate"
    low, high = rows[0], rows[-1]
    crossed = next((row[x] for row in rows if row[FEW] <= row[BEW]), None)
    below = [row for row in rows if row[x] <= 1.0]
    least = min(below, key=lambda row: float(row[FEW]))
    claims = [
        Claim(
            "BEW responds sooner at low rates, and later as the rate rises (B3)",
            f"BEW {in_seconds(low[BEW])} and FEW {in_seconds(low[FEW])} at {low[x]:g} of the highest rate, "
            f"BEW {in_seconds(high[BEW])} at {high[x]:g}",
            low[BEW] < low[FEW] and high[BEW] > low[BEW],
        ),
        Claim(
            "FEW responds sooner as the rate rises (B3; up to BEW's highest rate, twice as soon at least)",
            f"{in_seconds(low[FEW])} at {low[x]:g}, least {in_seconds(least[FEW])} at {least[x]:g}",
            least[FEW] <= 0.5 * low[FEW] and least[x] > low[x],
        ),
        Claim(
            "the curves cross near BEW's highest rate (B3; between 0.7 and 1.2 of it)",
            f"first at {crossed:g}" if crossed is not None else f"not up to {high[x]:g}",
            crossed is not None and 0.7 <= crossed <= 1.2,
        ),
    ]  # fmt: skip
    return Figure(
        "B3", f"mean seconds until a combination is returned, hash, {streams} streams, window {scale.minute:g} s", rows,
        x=x, lines=(BEW, FEW), y_title="seconds (logarithmic)", log_x=True, seconds=(BEW, FEW), claims=claims,
        notes=["above 1 the queue grows for as long as the run lasts"],
    )  # fmt: skip


# -- sales -------------------------------------------------------------------------------------------------------------


def sales(scale: Scale, streams: int = 3) -> Arrivals:
    """Make sales: baskets at the tills of shops, all items of a basket at one time, items popular by Zipf's law."""
    random = np.random.default_rng(scale.seed)
    popular = np.arange(1, scale.items + 1) ** -0.6
    made = []
    for _ in range(streams):
        sizes = random.geometric(0.1, scale.sales)
        baskets = int(np.searchsorted(np.cumsum(sizes), scale.sales)) + 1
        moments = np.cumsum(random.exponential(20.0, baskets))
        times = np.repeat(moments, sizes[:baskets])[: scale.sales]
        made.append((times, random.choice(scale.items, scale.sales, p=popular / popular.sum())))
    return Arrivals.merged(made)


def progress(name: str, arrivals: Arrivals, window: float, streams: int) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds and combinations after every hundredth of the arrivals, and after the end of the streams."""
    join = operator(name, streams, window)
    spent, found = [0.0], [0]
    cuts = np.linspace(0, len(arrivals), 101).astype(int)
    for begin, until in itertools.pairwise(cuts):
        batch = arrivals.part(begin, until).batch()
        begun = time.thread_time()
        made = len(join.push_many(batch))
        spent.append(spent[-1] + time.thread_time() - begun)
        found.append(found[-1] + made)
    begun = time.thread_time()
    made = end(join)
    return np.array([*spent, spent[-1] + time.thread_time() - begun]), np.array([*found, found[-1] + made])


def time_to_output(scale: Scale, tell: Tell) -> Figure:
    """Measure B4: the seconds until a number of combinations of sales is returned."""
    arrivals, window, streams = sales(scale), 3_600.0, 3
    runs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {BEW: [], FEW: []}
    for turn in range(scale.repetitions + 1):
        for name, done in runs.items():
            tell(f"B4: {name}, run {turn}")
            done.append(progress(name, arrivals, window, streams))
    best = {name: min(done[1:], key=lambda run: float(run[0][-1])) for name, done in runs.items()}
    total = int(best[BEW][1][-1])
    check_counts("B4", {name: int(found[-1]) for name, (_, found) in best.items()})
    rows = []
    for tenth in range(1, 11):
        wanted = total * tenth // 10
        at = {name: float(spent[np.searchsorted(found, wanted)]) for name, (spent, found) in best.items()}
        rows.append({"combinations": wanted, **at, "BEW over FEW": at[BEW] / at[FEW]})
    ratios = [row["BEW over FEW"] for row in rows]
    claim = Claim(
        "FEW reaches the same number of combinations in less time (B4; from the second tenth on)",
        f"BEW took {min(ratios[1:]):.2f} to {max(ratios[1:]):.2f} times as long", min(ratios[1:]) > 1.0,
    )  # fmt: skip
    return Figure(
        "B4", f"seconds until so many combinations: {streams} streams of {scale.sales:,} items in baskets, "
        f"{scale.items:,} items by Zipf's law, window an hour", rows, x="combinations", lines=(BEW, FEW),
        y_title="seconds", log_y=False, seconds=(BEW, FEW), claims=[claim],
    )  # fmt: skip


def check_counts(what: str, counts: dict[str, int]) -> None:
    """Raise unless all have found the same number of combinations."""
    if len(set(counts.values())) > 1:
        raise HaplyError(f"Experiment {what}: not all find the same combinations", found=str(counts))


# -- unequal rates -----------------------------------------------------------------------------------------------------


def unequal_rates(scale: Scale, tell: Tell) -> Figure:
    """Measure B5: one stream is faster than the others."""
    streams, rows = 3, []
    for factor in scale.faster:
        shares = tuple(np.array([factor, 1.0, 1.0]) / (factor + 2.0))
        row: dict[str, Any] = {"times as fast": factor}
        for name in (BEW, FEW):
            tell(f"B5: {name}, {factor} times as fast")
            row[name] = round(Load(name, shares, scale.minute, scale).highest_rate())
        rate = 0.5 * row[BEW]
        arrivals = poisson([rate * share for share in shares], 2.0 * scale.minute, scale.keys, scale.seed)
        counts = {}
        for name in (BEW, FEW):
            join = operator(name, streams, scale.minute)
            join.push_many(arrivals.batch())
            end(join)
            counts[name] = join.funnel.kept
            row[f"looked at, {name}"] = join.funnel.comparisons / max(join.funnel.kept, 1)
        check_counts("B5", counts)
        rows.append(row)
    ratios = [row[FEW] / row[BEW] for row in rows]
    looked = [(row[f"looked at, {BEW}"], row[f"looked at, {FEW}"]) for row in rows]
    claims = [
        Claim(
            "FEW keeps up with higher rates than BEW also where one stream is faster (B5)",
            f"FEW over BEW {min(ratios):.2f} to {max(ratios):.2f}", min(ratios) > 1.0,
        ),
        Claim(
            "BEW looks at more events for each combination than FEW (B5; by a tenth or more, at half of BEW's highest "
            "rate)",
            ", ".join(f"BEW {mine:.3f} and FEW {other:.3f}" for mine, other in looked),
            all(mine >= 1.1 * other for mine, other in looked),
        ),
    ]  # fmt: skip
    return Figure(
        "B5", f"one of {streams} streams faster: events per second that each keeps up with, and events looked at for "
        "each combination", rows, x="times as fast", lines=(BEW, FEW), y_title="events per second (logarithmic)",
        log_x=True, claims=claims,
    )  # fmt: skip


# -- windows that differ -----------------------------------------------------------------------------------------------


def forms(streams: int, short: float) -> dict[str, dict[tuple[str, str], float]]:
    """Make windows, some of which are ten times as long as others: between all streams, and along a path."""
    names = NAMES[:streams]
    clique = {
        pair: short if number % 2 == 0 else 10.0 * short
        for number, pair in enumerate(uniform_windows(names, short))
    }  # fmt: skip
    path = dict.fromkeys(itertools.pairwise(names), short)
    path[names[-2], names[-1]] = 10.0 * short
    return {"clique": clique, "path": path}


def policies(scale: Scale, tell: Tell) -> Figure:
    """Measure B6: candidates before refinement, and time, of the policies for windows that differ."""
    rows = []
    for streams in scale.policy_streams:
        # as many events within the long window as keys: each event has a few partners
        arrivals = poisson([1.0] * streams, float(scale.policy_events), scale.keys, scale.seed)
        for form, windows in forms(streams, 0.1 * scale.keys).items():
            for name, algorithm in ALGORITHM_OF.items():
                tell(f"B6: {form}, {streams} streams, {name}")
                row: dict[str, Any] = {"form": f"{form}, {name}", "streams": streams}
                counts: dict[str, int] = {}
                spent: dict[str, float] = {}
                for policy in reversed(POLICIES):
                    works = [PolicyRun(windows, algorithm, policy, arrivals) for _ in range(scale.repetitions + 1)]
                    spent[PAPERS_NAME[policy]] = min([seconds_of(work) for work in works][1:])
                    counts[policy] = works[0].join.funnel.kept
                    row[PAPERS_NAME[policy]] = works[0].join.funnel.candidates
                check_counts("B6", counts)
                row["combinations"] = counts["exact"]
                rows.append(row | {f"{policy} time": seconds for policy, seconds in spent.items()})
    slack = [(row["GCA"] / row["exact"], row["LCA"] / row["exact"]) for row in rows]
    slower = [min(row["GCA time"], row["LCA time"]) / row["exact time"] for row in rows]
    claims = [
        Claim(
            "candidates before refinement: GCA at least as many as LCA, LCA at least as many as exact (B6)",
            f"times those of exact: GCA {min(s[0] for s in slack):.2f} to {max(s[0] for s in slack):.2f}, "
            f"LCA {min(s[1] for s in slack):.2f} to {max(s[1] for s in slack):.2f}",
            all(row["GCA"] >= row["LCA"] >= row["exact"] for row in rows),
        ),
        Claim(
            "exact windows are also the fastest (B6, ours; or within a tenth of that)",
            f"the better of GCA and LCA took {min(slower):.2f} to {max(slower):.2f} times as long", min(slower) > 0.9,
        ),
    ]  # fmt: skip
    return Figure(
        "B6", "windows of 1 : 10: candidates before refinement, and time", rows, x="streams",
        lines=("GCA", "LCA", "exact"), y_title="candidates (logarithmic)", panel="form",
        seconds=("GCA time", "LCA time", "exact time"), claims=claims,
    )  # fmt: skip


class PolicyRun:
    """One join of all arrivals, to be called once."""

    def __init__(self, windows: dict[tuple[str, str], float], algorithm: Algorithm, policy: Any, all_: Arrivals):
        self.join = WindowJoin(windows, algorithm=algorithm, windows_policy=policy)
        self.names, self.arrivals = self.join.streams, all_

    def __call__(self) -> None:
        self.join.push_many(self.arrivals.batch())
        end(self.join)


# -- memory ------------------------------------------------------------------------------------------------------------


def stalled(arrivals: Arrivals, stream: int, begin: float, length: float) -> Arrivals:
    """Return the same events, but those of one stream that happen in a period all arrive at its end."""
    held = (arrivals.stream == stream) & (arrivals.time >= begin) & (arrivals.time < begin + length)
    order = np.argsort(np.where(held, begin + length, arrivals.time), kind="stable")
    return Arrivals(arrivals.stream[order], arrivals.id[order], arrivals.time[order], arrivals.key[order])


def memory(scale: Scale, tell: Tell) -> Figure:
    """Measure B7: the most events that are stored while one stream stands still."""
    streams, window = 3, 1.0
    kept: dict[str, Callable[[], WindowJoin]] = {
        "paper": partial(operator, BEW, streams, window, drop="paper"),
        "tight": partial(operator, BEW, streams, window, drop="tight"),
        FEW: partial(operator, FEW, streams, window),
    }
    rows = []
    for kind, partners in (("dense", 4.0), ("sparse", 0.4)):
        rate = partners * scale.keys / (2.0 * window)  # partners: events of one stream within the window of an event
        arrivals = poisson([rate] * streams, scale.stall_windows * window, scale.keys, scale.seed)
        for length in scale.stalls:
            tell(f"B7: {kind} streams, {length} windows")
            row: dict[str, Any] = {"streams": kind, "stall": length}
            counts = {}
            for name, make in kept.items():
                join = make()
                join.push_many(stalled(arrivals, streams - 1, 10.0 * window, length * window).batch())
                end(join)
                row[name], counts[name] = join.peak, join.funnel.kept
            check_counts("B7", counts)
            rows.append(row | {"combinations": counts["tight"]})
    by_kind = {kind: [row for row in rows if row["streams"] == kind] for kind in ("dense", "sparse")}
    most = {kind: own[-1] for kind, own in by_kind.items()}
    saved = {kind: 1.0 - row["tight"] / row["paper"] for kind, row in most.items()}
    grown = [own[-1][name] / own[0][name] for own in by_kind.values() for name in ("paper", "tight")]
    claims = [
        Claim(
            "no combination is lost by a stall (B7)",
            " and ".join(f"{row['combinations']:,} with {kind} streams" for kind, row in most.items()),
            all(len({row["combinations"] for row in own}) == 1 for own in by_kind.values()),
        ),
        Claim(
            "with both rules the events kept grow with the stall (B7)",
            f"{min(grown):.1f} to {max(grown):.1f} times as many for a stall of {scale.stalls[-1]} windows",
            min(grown) > 1.0,
        ),
        Claim(
            "the tight rule keeps fewer only where streams are sparse (B7; by a tenth or more there, else by less)",
            ", ".join(f"{100.0 * share:.1f}% fewer with {kind} streams" for kind, share in saved.items()),
            saved["sparse"] >= 0.1 > saved["dense"],
        ),
    ]  # fmt: skip
    return Figure(
        "B7", f"the most events kept while one of {streams} streams stands still for so many windows", rows, x="stall",
        lines=("paper", "tight", FEW), y_title="events (logarithmic)", panel="streams", claims=claims,
    )  # fmt: skip


EXPERIMENTS: tuple[Callable[[Scale, Tell], Figure], ...] = (
    hash_throughput, scan_throughput, response_times, time_to_output, unequal_rates, policies, memory,
)  # fmt: skip
