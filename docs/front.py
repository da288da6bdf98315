"""The picture at the head of the README, drawn from haply itself: ``python docs/front.py`` writes ``docs/front.svg``.

It is plain SVG: a reader's browser then chooses its colours by whether the page is light or dark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from haply.models import Gaussian, OneDimensional
from haply.probability import difference_cdf, equal_within

WIDTH, HEIGHT = 760, 250
WITHIN, THRESHOLD = 0.05, 0.5
SHOP, DEPOT = (2.00, 0.02), (2.03, 0.03)
TARGET = Path(__file__).with_name("front.svg")

LIGHT = """
  text { font: 14px Helvetica, Arial, sans-serif; fill: #22262b }
  .small { font-size: 13px; fill: #59616a }
  .strong { font-weight: bold }
  .axis { stroke: #8a9097; fill: none }
  .one { stroke: #0072b2; fill: #0072b2; fill-opacity: .25; stroke-width: 2 }
  .other { stroke: #d55e00; fill: #d55e00; fill-opacity: .25; stroke-width: 2 }
  .rest { stroke: #8a9097; fill: #8a9097; fill-opacity: .15; stroke-width: 2 }
  .yes { fill: #009e73; fill-opacity: .55; stroke: none }
  .no { fill: #8a9097; fill-opacity: .35 }
  .mark { stroke: #22262b; stroke-dasharray: 4 3 }
"""
DARK = """
    text { fill: #e6edf3 }
    .small { fill: #9aa4ae }
    .one { stroke: #58a6ff; fill: #58a6ff }
    .other { stroke: #ff9e57; fill: #ff9e57 }
    .yes { fill: #2bc48f }
    .mark { stroke: #e6edf3 }
"""
STYLES = {
    "auto": f"{LIGHT.rstrip()}\n  @media (prefers-color-scheme: dark) {{{DARK}  }}\n",
    "light": LIGHT,
    "dark": LIGHT + DARK,
}
"""Colours that follow the reader's system, and those of one kind: the site has a switch of its own."""


def _slope(cdf: Callable[[np.ndarray], np.ndarray], at: np.ndarray) -> np.ndarray:
    step = 1e-4
    return (cdf(at + step) - cdf(at - step)) / (2.0 * step)


def _area(x: np.ndarray, y: np.ndarray, name: str, low: float) -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<polygon class="{name}" points="{x[0]:.1f},{low:.1f} {points} {x[-1]:.1f},{low:.1f}"/>'


def _text(x: float, y: float, words: str, name: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{name}" text-anchor="{anchor}">{words}</text>'


def _two_curves(one: OneDimensional, other: OneDimensional) -> list[str]:
    """Both weighings over one axis."""
    left, right, low, high = 20.0, 310.0, 190.0, 70.0
    ends = (1.92, 2.14)
    at = np.linspace(*ends, 161)
    x = left + (at - ends[0]) / (ends[1] - ends[0]) * (right - left)
    curves = [_slope(model.take(np.zeros(len(at), np.int64)).cdf, at) for model in (one, other)]
    most = max(curve.max() for curve in curves)
    drawn = [
        _area(x, low - curve / most * (low - high), name, low)
        for curve, name in zip(curves, ("one", "other"), strict=True)
    ]
    labels = []
    for value in (1.95, 2.00, 2.05, 2.10):
        place = left + (value - ends[0]) / (ends[1] - ends[0]) * (right - left)
        labels.append(f'<path class="axis" d="M{place:.1f} {low:g}v5"/>')
        labels.append(_text(round(place, 1), low + 20, f"{value:.2f}", "small", "middle"))
    return [
        _text(left, 28, "Two weighings, each with its error", "strong"),
        *drawn,
        f'<path class="axis" d="M{left:g} {low:g}H{right:g}"/>',
        *labels,
        _text(left + 20, 62, f"shop: {SHOP[0]:.2f} ± {SHOP[1]:.2f} kg", "small"),
        _text(right - 115, 105, f"depot: {DEPOT[0]:.2f} ± {DEPOT[1]:.2f} kg", "small"),
    ]


def _difference(one: OneDimensional, other: OneDimensional) -> list[str]:
    """Where the difference of the two may lie, and how much of that is within the tolerance."""
    left, right, low, high = 380.0, 620.0, 190.0, 70.0
    ends = (-0.16, 0.10)
    at = np.linspace(*ends, 261)
    curve = _slope(lambda t: difference_cdf(one, other, t), at)

    def place(value: np.ndarray | float) -> np.ndarray:
        return np.asarray(left + (value - ends[0]) / (ends[1] - ends[0]) * (right - left))

    y = low - curve / curve.max() * (low - high)
    inside = np.abs(at) <= WITHIN + 1e-9
    probability = float(equal_within(one, other, WITHIN)[0])
    labels = []
    for value in (-WITHIN, WITHIN):
        labels.append(f'<path class="mark" d="M{place(value):.1f} {low:g}V{high - 8:g}"/>')
        labels.append(
            _text(round(float(place(value)), 1), low + 20, f"{value:+.2f}".replace("-", "−"), "small", "middle")
        )
    bar, top, bottom = 690.0, 70.0, 190.0
    level = bottom - probability * (bottom - top)
    mark = bottom - THRESHOLD * (bottom - top)
    return [
        _text(left, 28, f"Are they within {WITHIN:g} kg of each other?", "strong"),
        _area(place(at), y, "rest", low),
        _area(place(at[inside]), y[inside], "yes", low),
        f'<path class="axis" d="M{left:g} {low:g}H{right:g}"/>',
        *labels,
        _text((left + right) / 2, 232, "difference of the true weights in kg", "small", "middle"),
        f'<rect class="no" x="{bar:g}" y="{top:g}" width="26" height="{bottom - top:g}"/>',
        f'<rect class="yes" x="{bar:g}" y="{level:.1f}" width="26" height="{bottom - level:.1f}"/>',
        f'<path class="mark" d="M{bar - 12:g} {mark:g}H{bar + 38:g}"/>',
        _text(bar - 16, mark + 5, f"{THRESHOLD:g}", "small", "end"),
        _text(bar + 13, 60, f"P = {probability:.3f}", "strong", "middle"),
        _text(bar + 13, 210, "kept: above", "small", "middle"),
        _text(bar + 13, 228, "the threshold", "small", "middle"),
    ]


def drawing(scheme: Literal["auto", "light", "dark"] = "auto") -> str:
    """Return the picture as SVG."""
    one, other = Gaussian(*SHOP), Gaussian(*DEPOT)
    words = (
        "Two bell curves of two weighings with errors; the density of their difference with the part within 0.05 kg "
        f"filled; a bar that shows the probability {float(equal_within(one, other, WITHIN)[0]):.3f} above the "
        f"threshold {THRESHOLD:g}."
    )
    parts = "\n".join([*_two_curves(one, other), _text(20, 232, "weight in kg", "small"), *_difference(one, other)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{words}">\n<style>{STYLES[scheme]}</style>\n{parts}\n</svg>\n'
    )


if __name__ == "__main__":
    TARGET.write_text(drawing(), encoding="utf-8")
