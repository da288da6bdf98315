"""The demo's third and fourth part: alarms whose times are uncertain, and vehicles followed by four cameras.

The alarms. Seismic and acoustic sensors watch a piece of land. Steps and noises that occur within ``WINDOW`` seconds of
each other are taken for one passage. A sensor notices late, and how late is known as a distribution: the acoustic ones
sleep to save power and need seconds to wake up. The naive method takes the time of detection as the time of the event.

The cameras. Four cameras stand along a road, and each sees who passes it. A drive along the whole road is one sighting
by each camera, in their order, and none longer after the one before than the road there takes at most.

Both are made up, so the truth is known; no method sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    pass

# -- planted alarms ----------------------------------------------------------------------------------------------------

WINDOW, THRESHOLD, STRICTER = 2.0, 0.6, 0.8
"""Seconds between what two sensors notice, and how sure we want to be of it: Example 2 of the paper on timing joins."""

_SEED = 1
_NIGHT_SECONDS, _PASSAGES, _STRANGERS, _ASLEEP = 9_000.0, 200, 120, 0.6
_STEP_TO_NOISE = 1.0  # the most seconds between the two events of a passage

LATENCIES = {
    "seismic": ((0.0, 0.5, 1.0, 2.0), (0.6, 0.3, 0.1)),
    "acoustic, awake": ((0.0, 0.5, 1.0, 2.0), (0.5, 0.35, 0.15)),
    "acoustic, asleep": ((2.0, 3.0, 4.0, 5.0, 7.0), (0.15, 0.4, 0.3, 0.15)),
}
"""Edges in seconds and probabilities of the latency of each kind of sensor."""


@dataclass(frozen=True)
class Night:
    """The events that both kinds of sensors noticed.

    Both tables have ``event`` (a number), ``sensor``, the time ``detected``, ``edges`` and ``probs`` of the latency,
    and ``truth``: the number of what was noticed, which the two events of a passage share.
    """

    seismic: pa.Table
    acoustic: pa.Table

    @property
    def true_pairs(self) -> np.ndarray:
        """Return a flag for each event of each side: whether they are of one passage."""
        return np.equal.outer(self.seismic["truth"].to_numpy(), self.acoustic["truth"].to_numpy())

    @property
    def detected_apart(self) -> np.ndarray:
        """Return how many seconds the acoustic detection is after the seismic one, for each event of each side."""
        return np.subtract.outer(self.seismic["detected"].to_numpy(), self.acoustic["detected"].to_numpy()) * -1.0


def plant_night(seed: int = _SEED) -> Night:
    """Make up a night: passages that both sides notice, and on each side events that have nothing to do with them."""
    random = np.random.default_rng(seed)
    passages = random.uniform(0.0, _NIGHT_SECONDS, _PASSAGES)

    def noticed(sensors: tuple[str, ...], shares: tuple[float, ...], happened: np.ndarray, first: int) -> pa.Table:
        happened = np.concatenate([happened, random.uniform(0.0, _NIGHT_SECONDS, _STRANGERS)])
        truth = np.concatenate([np.arange(_PASSAGES), first + np.arange(_STRANGERS)])
        sensor = random.choice(sensors, len(happened), p=shares)
        detected = happened + [_draw(random, *LATENCIES[name]) for name in sensor]
        order = detected.argsort()
        return pa.table(
            {
                "event": np.arange(len(order)),
                "sensor": sensor[order].tolist(),
                "detected": detected[order],
                "edges": [LATENCIES[name][0] for name in sensor[order]],
                "probs": [LATENCIES[name][1] for name in sensor[order]],
                "truth": truth[order],
            }
        )

    noises = passages + random.uniform(-_STEP_TO_NOISE, _STEP_TO_NOISE, _PASSAGES)
    return Night(
        noticed(("seismic",), (1.0,), passages, _PASSAGES),
        noticed(("acoustic, awake", "acoustic, asleep"), (1.0 - _ASLEEP, _ASLEEP), noises, _PASSAGES + _STRANGERS),
    )


def _draw(random: np.random.Generator, edges: tuple[float, ...], probs: tuple[float, ...]) -> float:
    bucket = random.choice(len(probs), p=probs)
    return float(random.uniform(edges[bucket], edges[bucket + 1]))


# -- ways to match alarms ----------------------------------------------------------------------------------------------


def match_occurrences(spark: Any, night: Night) -> np.ndarray:
    """Return the probability of each pair that haply keeps, 0 for all others: a row for each seismic event."""
    from haply.api import join
    from haply.engines.spark.columns import latency

    seismic, acoustic = (
        _frame(spark, table.select(["event", "detected", "edges", "probs"])).select(
            "event", latency("detected", "edges", "probs").alias("happened")
        )
        for table in (night.seismic, night.acoustic)
    )
    pairs = join(seismic, acoustic, time="happened", window=WINDOW, threshold=THRESHOLD)
    found = pairs.select("event_left", "event_right", "probability").toArrow()
    probability = np.zeros((night.seismic.num_rows, night.acoustic.num_rows))
    probability[found["event_left"].to_numpy(), found["event_right"].to_numpy()] = found["probability"].to_numpy()
    return probability


def _frame(spark: Any, table: pa.Table) -> Any:
    """Return a table of Spark. For some hundred rows one task is quicker than one for each core."""
    return spark.createDataFrame(table).coalesce(1)


def match_detections(night: Night, window: float = WINDOW) -> np.ndarray:
    """Return which pairs were detected within the window, as if nothing were noticed late."""
    return np.abs(night.detected_apart) <= window


def match_means(night: Night) -> np.ndarray:
    """Return which pairs are within the window when each event is put back by the mean latency of its sensor."""
    means = {
        name: sum(p * (low + high) / 2.0 for p, (low, high) in zip(probs, pairwise(edges), strict=True))
        for name, (edges, probs) in LATENCIES.items()
    }
    seismic, acoustic = (
        np.array([means[name] for name in table["sensor"].to_pylist()]) for table in (night.seismic, night.acoustic)
    )
    return np.abs(night.detected_apart + seismic[:, None] - acoustic) <= WINDOW


@dataclass(frozen=True)
class AlarmScore:
    """The score of one method: passages found and missed, and alarms for pairs that are not a passage."""

    method: str
    found: int
    missed: int
    false_alarms: int

    @property
    def errors(self) -> int:
        """Missed passages and false alarms together."""
        return self.missed + self.false_alarms


def score_alarms(method: str, matched: np.ndarray, night: Night) -> AlarmScore:
    """Compare an answer, a flag for each pair, with the known passages."""
    true = night.true_pairs
    return AlarmScore(method, int((matched & true).sum()), int((~matched & true).sum()), int((matched & ~true).sum()))


def best_window(night: Night) -> AlarmScore:
    """Detection times with the window that fits the truth best, which is not known in practice."""
    tried = [
        score_alarms(f"detection times, {window:g} s (tuned on the truth)", match_detections(night, window), night)
        for window in np.arange(0.5, 10.0, 0.25)
    ]
    return min(tried, key=lambda score: score.errors)


@dataclass
class AlarmResult:
    """What the alarms' part found."""

    night: Night = field(repr=False)
    probability: np.ndarray = field(repr=False)
    detected: np.ndarray = field(repr=False)
    haply: AlarmScore
    stricter: AlarmScore
    naive: AlarmScore
    tuned: AlarmScore
    means: AlarmScore

    @property
    def rescued(self) -> int:
        """Passages that haply finds and detection times miss."""
        return int(((self.probability > 0.0) & ~self.detected & self.night.true_pairs).sum())


def raise_alarms(spark: Any, seed: int = _SEED) -> AlarmResult:
    """Make the night, match the events by every method, and score the methods."""
    night = plant_night(seed)
    probability, detected = match_occurrences(spark, night), match_detections(night)
    return AlarmResult(
        night, probability, detected,
        score_alarms(f"haply, {WINDOW:g} s, P ≥ {THRESHOLD:g}", probability > 0.0, night),
        score_alarms(f"haply, {WINDOW:g} s, P ≥ {STRICTER:g}", probability >= STRICTER, night),
        score_alarms(f"detection times, {WINDOW:g} s", detected, night),
        best_window(night),
        score_alarms(f"mean latency taken off, {WINDOW:g} s", match_means(night), night),
    )  # fmt: skip


# -- planted drives ----------------------------------------------------------------------------------------------------

CAMERAS = ("gate", "bridge", "tunnel", "exit")
LEGS = {("gate", "bridge"): 120.0, ("bridge", "tunnel"): 180.0, ("tunnel", "exit"): 120.0}
"""The most seconds from one camera to the next."""

IN_ORDER = " AND ".join(f"{before}.time < {after}.time" for before, after in LEGS)

_HOUR = 3_600.0
_ALONG, _TURNS_OFF, _STOPS, _OTHER_WAY, _AGAIN = 22, 12, 7, 7, 6
_LATER = (1_000.0, 1_400.0)  # when a vehicle comes again: later than the whole road takes


@dataclass(frozen=True)
class Traffic:
    """The sightings of each camera, with ``sighting`` (a number), ``time`` in seconds and ``plate``; and the drives.

    A drive is the numbers of its four sightings, in the order of the cameras.
    """

    sightings: dict[str, pa.Table]
    drives: set[tuple[int, ...]]


def plant_traffic(seed: int = _SEED) -> Traffic:
    """Make up an hour: drives along the whole road, some of them repeated, and other trips.

    Some turn off on the way and are not seen by all cameras, some stop for longer than a leg may take, and some drive
    in the opposite direction.
    """
    random = np.random.default_rng(seed)
    seen: dict[str, list[tuple[float, str]]] = {camera: [] for camera in CAMERAS}
    drives: list[list[tuple[float, str]]] = []
    longest = np.array(list(LEGS.values()))
    letters = list("ABCDEFGHKLMNPRSTUVWXYZ")
    plates: list[str] = []

    def plate() -> str:
        name = ""
        while not name or name in plates:
            name = f"{''.join(random.choice(letters, 2))} {random.integers(100, 1000)}"
        plates.append(name)
        return name

    def trip(name: str, start: float, kind: str) -> None:
        legs = longest * random.uniform(0.4, 0.95, 3)
        if kind == "stops":
            stop = random.integers(3)
            legs[stop] = longest[stop] * random.uniform(1.3, 2.5)
        passed = start + np.concatenate([[0.0], np.cumsum(legs)])
        cameras = list(CAMERAS[::-1] if kind == "other way" else CAMERAS)
        marks = [(round(float(time), 1), name) for time in passed]
        if kind == "turns off":
            marks = marks[: random.integers(1, len(CAMERAS))]
        for camera, mark in zip(cameras, marks, strict=False):
            seen[camera].append(mark)
        if kind == "along":
            drives.append(marks)

    counts = {"along": _ALONG, "turns off": _TURNS_OFF, "stops": _STOPS, "other way": _OTHER_WAY}
    for kind, count in counts.items():
        for number in range(count):
            name, start = plate(), random.uniform(0.0, 0.9 * _HOUR)
            # A vehicle may come again on any kind of trip: the plate alone does not identify a drive.
            if kind == "along" and number < _AGAIN:
                start = random.uniform(0.0, 0.5 * _HOUR)
                trip(name, start + random.uniform(*_LATER), ("along", "turns off", "other way")[number % 3])
            trip(name, start, kind)
    sightings, number_of = {}, {}
    for camera, marks in seen.items():
        marks.sort()
        number_of[camera] = {mark: number for number, mark in enumerate(marks)}
        times, names = zip(*marks, strict=True)
        sightings[camera] = pa.table({"sighting": np.arange(len(marks)), "time": list(times), "plate": list(names)})
    numbered = (zip(CAMERAS, drive, strict=True) for drive in drives)
    return Traffic(sightings, {tuple(number_of[camera][mark] for camera, mark in drive) for drive in numbered})


# -- ways to follow vehicles -------------------------------------------------------------------------------------------


def follow_windows(spark: Any, traffic: Traffic) -> set[tuple[int, ...]]:
    """Return the drives that haply finds: the same plate, in the order of the cameras, within a path of windows."""
    from haply.api import window_join

    frames = {camera: _frame(spark, table) for camera, table in traffic.sightings.items()}
    drives = window_join(frames, LEGS, key="plate", on=IN_ORDER).toArrow()
    columns = (drives[f"{camera}_sighting"].to_pylist() for camera in CAMERAS)
    return set(zip(*columns, strict=True))


def follow_plates(traffic: Traffic, within: float = np.inf) -> set[tuple[int, ...]]:
    """Return combinations of sightings of one plate in the order of the cameras, all ``within`` so many seconds."""
    by_plate: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for camera, table in traffic.sightings.items():
        for row in table.to_pylist():
            by_plate.setdefault(row["plate"], {}).setdefault(camera, []).append((row["sighting"], row["time"]))
    found = set()
    for seen in by_plate.values():
        for together in product(*(seen.get(camera, []) for camera in CAMERAS)):
            times = [time for _, time in together]
            if times == sorted(times) and times[-1] - times[0] <= within:
                found.add(tuple(number for number, _ in together))
    return found


@dataclass(frozen=True)
class TrackScore:
    """The score of one method: drives found and missed, and combinations that are not a drive."""

    method: str
    found: int
    missed: int
    wrong: int


def score_tracks(method: str, tracks: set[tuple[int, ...]], traffic: Traffic) -> TrackScore:
    """Compare an answer with the known drives."""
    right = tracks & traffic.drives
    return TrackScore(method, len(right), len(traffic.drives) - len(right), len(tracks) - len(right))


@dataclass
class TrackResult:
    """What the cameras' part found."""

    traffic: Traffic = field(repr=False)
    tracks: set[tuple[int, ...]] = field(repr=False)
    haply: TrackScore
    whole_road: TrackScore
    plates: TrackScore


def follow_vehicles(spark: Any, seed: int = _SEED) -> TrackResult:
    """Make the traffic, follow the vehicles by every method, and score the methods."""
    traffic = plant_traffic(seed)
    tracks, road = follow_windows(spark, traffic), sum(LEGS.values())
    return TrackResult(
        traffic, tracks,
        score_tracks("haply, a window for each leg", tracks, traffic),
        score_tracks(f"same plate within {road / 60.0:g} minutes", follow_plates(traffic, road), traffic),
        score_tracks("same plate at any time", follow_plates(traffic), traffic),
    )  # fmt: skip


# -- telling it --------------------------------------------------------------------------------------------------------

ALARM_HEADING = "Alarms that come late"
ALARM_HEADER = ("method", "passages found", "missed", "false alarms")
TRACK_HEADING = "Followed across four cameras"
TRACK_HEADER = ("method", "drives found", "missed", "wrong")
_SHOWN_SECONDS, _SHOWN_LINKS = 120.0, 7


def alarm_rows(result: AlarmResult) -> list[list[str]]:
    """Return the lines of the comparison of alarms."""
    return [
        [score.method, str(score.found), str(score.missed), str(score.false_alarms)]
        for score in (result.haply, result.stricter, result.naive, result.tuned, result.means)
    ]


def _alarm_scene(night: Night) -> str:
    (_, *_, quick), (first, *_, last) = (LATENCIES[name][0] for name in ("seismic", "acoustic, asleep"))
    return (
        f"Seismic and acoustic sensors watch a piece of land for {_NIGHT_SECONDS / 3600.0:g} hours. Something that "
        f"passes is felt and heard at about the same time, {_PASSAGES} times in all; {_STRANGERS} more events on each "
        f"side have nothing to do with each other. Seismic sensors notice within {quick:g} s. Most of the acoustic "
        f"ones sleep to save power and notice {first:g} to {last:g} s late. How late is known as a histogram, so when "
        f"an event happened is one too. Alarm is given if two events happened within {WINDOW:g} s of each other with a "
        f"probability of at least {THRESHOLD:g}."
    )


def alarm_verdict(result: AlarmResult) -> str:
    """Return what the scores of the alarms say."""
    ours, naive, tuned, means = result.haply, result.naive, result.tuned, result.means
    return (
        f"Of {ours.found + ours.missed} passages haply finds {ours.found}, with {_falsely(ours)}; within the same "
        f"{WINDOW:g} s, times of detection find {naive.found}, with {_falsely(naive)}. {result.rescued} passages are "
        f"found only by when they happened. A wider window on detection times finds {tuned.found}, with "
        f"{_falsely(tuned)}. Putting each event back by the mean latency of its sensor makes {means.errors} "
        f"errors to haply's {ours.errors}; it needs to know the latencies too, but cannot say how sure an alarm is. "
        f"haply can: at P ≥ {STRICTER:g} there are {_falsely(result.stricter)}, and {result.stricter.found} passages "
        "found."
    )


def _falsely(score: AlarmScore) -> str:
    return _count(score.false_alarms, "false alarm")


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def track_rows(result: TrackResult) -> list[list[str]]:
    """Return the lines of the comparison of drives."""
    return [
        [score.method, str(score.found), str(score.missed), str(score.wrong)]
        for score in (result.haply, result.whole_road, result.plates)
    ]


def _track_scene(traffic: Traffic) -> str:
    sightings = sum(table.num_rows for table in traffic.sightings.values())
    legs = ", ".join(f"{longest / 60.0:g} minutes to the {after}" for (_, after), longest in LEGS.items())
    return (
        f"Four cameras stand along a road: {', '.join(CAMERAS[:-1])} and {CAMERAS[-1]}. In an hour they see somebody "
        f"pass {sightings} times. {len(traffic.drives)} drives go along the whole road and take at most {legs}. Others "
        "turn off, stop on the way or drive in the opposite direction, and some are back later in the hour."
    )


def track_verdict(result: TrackResult) -> str:
    """Return what the scores of the drives say."""
    ours, road, plates = result.haply, result.whole_road, result.plates
    return (
        f"A window for each leg finds {ours.found} of {ours.found + ours.missed} drives, and "
        f"{_count(ours.wrong, 'combination')} that {'is' if ours.wrong == 1 else 'are'} wrong. One window for the "
        f"whole road also takes {_count(road.wrong, 'trip')} with a stop for a drive. The plate and the order alone "
        f"give {_count(plates.wrong, 'wrong combination')}, as a vehicle that comes again is followed from one trip "
        "into the next."
    )


def alarms_in_short(result: AlarmResult) -> tuple[str, str]:
    """Say what haply answers, and what the best window on times of detection does."""
    ours, tuned = (f"{score.found} passages, {_falsely(score)}" for score in (result.haply, result.tuned))
    return ours, f"{tuned} ({result.tuned.method})"


def tracks_in_short(result: TrackResult) -> tuple[str, str]:
    """Say what haply answers, and what one window for the whole road does."""
    ours, road = (f"{score.found} drives, {score.wrong} wrong" for score in (result.haply, result.whole_road))
    return ours, f"{road} (one window for all)"


def add_alarms(page: Any, alarms: AlarmResult) -> None:
    """Add the alarms to the report."""
    from haply.report import charts

    page.section(ALARM_HEADING)
    page.prose(_alarm_scene(alarms.night))
    page.code(
        'seismic = seismic.withColumn("happened", hp.latency("detected", "edges", "probs"))\n'
        'acoustic = acoustic.withColumn("happened", hp.latency("detected", "edges", "probs"))\n'
        f'alarms = hp.join(seismic, acoustic, time="happened", window={WINDOW:g}, threshold={THRESHOLD:g})'
    )
    events, links = alarm_records(alarms)
    page.chart(
        charts.alarm_timeline(events, links),
        f"Timeline of {_SHOWN_SECONDS:g} seconds with the events of both kinds of sensors as bars over when they may "
        f"have happened, and lines between those that were matched. {alarm_verdict(alarms)}",
        caption=f"{_SHOWN_SECONDS:g} seconds whose outcomes are most like those of the whole night. The fuller the "
        "colour of a bar, the likelier the event happened then. Dashed lines join detections, all others when the "
        "events may have been. Crosses have the colour of their line.",
    )
    page.table(ALARM_HEADER, alarm_rows(alarms), caption="Against the planted passages.", strong=[0])
    page.prose(alarm_verdict(alarms))


def add_tracks(page: Any, tracks: TrackResult) -> None:
    """Add the cameras to the report."""
    from haply.report import charts

    page.section(TRACK_HEADING)
    page.prose(_track_scene(tracks.traffic))
    cameras = ", ".join(f'"{camera}": {camera}' for camera in CAMERAS)
    legs = ", ".join(f'("{before}", "{after}"): {longest:g}' for (before, after), longest in LEGS.items())
    page.code(
        f'drives = hp.window_join(\n    {{{cameras}}},\n    windows={{{legs}}},\n    key="plate",\n    on="{IN_ORDER}")'
    )
    page.chart(
        charts.track_timeline(track_records(tracks), lanes=CAMERAS),
        f"Timeline with a lane for each of {len(CAMERAS)} cameras; lines from lane to lane are drives. "
        f"{track_verdict(tracks)}",
        caption="Sightings that belong to no drive are hollow.",
    )
    page.table(TRACK_HEADER, track_rows(tracks), caption="Against the planted drives.", strong=[0])
    page.prose(track_verdict(tracks))


def alarm_records(result: AlarmResult) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what the timeline of alarms shows: events and links of the stretch that is most like the night."""
    from haply.report import charts

    night, ours = result.night, result.probability > 0.0
    sides = (night.seismic.to_pylist(), night.acoustic.to_pylist())
    # a link for each pair that any way matched, and for each that it should have
    names = (charts.NEITHER_WAY, charts.BY_OCCURRENCE, charts.BY_DETECTION, charts.BOTH_WAYS)
    left, right = np.nonzero(ours | result.detected | night.true_pairs)
    kind, true = (ours + 2 * result.detected)[left, right], night.true_pairs[left, right]
    begins, ends = (
        ([event["detected"] - event["edges"][-1] for event in side] for side in sides),
        ([event["detected"] for event in side] for side in sides),
    )
    low = np.minimum(*(np.array(times)[who] for times, who in zip(begins, (left, right), strict=True)))
    high = np.maximum(*(np.array(times)[who] for times, who in zip(ends, (left, right), strict=True)))

    def inside(start: float) -> np.ndarray:
        return (low >= start) & (high <= start + _SHOWN_SECONDS)

    def shares(these: np.ndarray) -> np.ndarray:
        return np.bincount(2 * kind[these] + true[these], minlength=2 * len(names)) / max(1, these.sum())

    def likeness(start: float) -> float:
        here = inside(start)
        if here.sum() < _SHOWN_LINKS:
            return -np.inf
        return -float(np.abs(shares(here) - shares(np.ones_like(here))).sum())

    # Neither the best nor the worst of the night, but the stretch that is most like all of it.
    start = max((float(np.floor(time)) for time in low), key=likeness)
    events = [
        {
            "event": f"{row} {event['event']}",
            "row": row,
            "detected": event["detected"] - start,
            "edges": [event["detected"] - start - edge for edge in reversed(event["edges"])],
            "probs": event["probs"][::-1],
        }
        for row, side in zip(("seismic", "acoustic"), sides, strict=True)
        for event in side
        if start <= event["detected"] - event["edges"][-1] and event["detected"] <= start + _SHOWN_SECONDS
    ]
    links = [
        {
            "kind": names[kind[k]],
            "left": f"seismic {left[k]}",
            "right": f"acoustic {right[k]}",
            "true": bool(true[k]),
        }
        for k in np.flatnonzero(inside(start))
    ]
    return events, links


def track_records(result: TrackResult) -> list[dict[str, Any]]:
    """Return what the timeline of cameras shows: every sighting, with the number of its drive if it has one."""
    rows = {camera: table.to_pylist() for camera, table in result.traffic.sightings.items()}
    ordered = sorted(result.tracks, key=lambda track: rows[CAMERAS[0]][track[0]]["time"])
    drive_of = {
        (camera, sighting): number
        for number, track in enumerate(ordered)
        for camera, sighting in zip(CAMERAS, track, strict=True)
    }
    return [
        {
            "lane": camera,
            "minute": row["time"] / 60.0,
            "name": row["plate"],
            "track": drive_of.get((camera, row["sighting"])),
        }
        for camera in CAMERAS
        for row in rows[camera]
    ]
