"""Draw the charts of the page on performance: ``python docs/charts.py`` writes ``docs/performance/charts``.

They come from the JSON that ``python -m benchmarks NAME --json docs/performance/NAME.json`` writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from pictures import darkened, svg_of  # noqa: E402

from benchmarks.measure import Growth, Report, Result, chart  # noqa: E402

RESULTS = HERE / "performance"
TARGET = RESULTS / "charts"


def drawn(path: Path) -> str:
    """Return the chart of a file of results as SVG."""
    found = json.loads(path.read_text(encoding="utf-8"))
    config = found["config"]
    machine = f"{found['bench']}, on {config['machine']}, Python {config['python']}"
    growth = [Growth(**point) for point in config.get("growth", ())]
    return svg_of(chart(Report(found["bench"], machine, config, [Result(**row) for row in found["results"]], growth)))


def charts() -> dict[str, str]:
    """Return all charts by the names of their files, each for a light and for a dark page."""
    light = {path.stem: drawn(path) for path in sorted(RESULTS.glob("*.json"))}
    dark = {f"{name}-dark": darkened(svg) for name, svg in light.items()}
    return {f"{name}.svg": svg for name, svg in (light | dark).items()}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name, svg in charts().items():
        (TARGET / name).write_text(svg, encoding="utf-8")
