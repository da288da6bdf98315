"""Colours of charts on dark pages: CSS rules replace the light ones, without drawing again."""

from __future__ import annotations

GROUND = "#14181c"
"""The background of dark pages."""

DARK = {
    **dict.fromkeys(("white", "#fff", "#ffffff"), GROUND),
    **dict.fromkeys(("black", "#000", "#000000", "#222222"), "#e6edf3"),
    **dict.fromkeys(("#555555", "#666666", "#767676"), "#a9b1ba"),
    **dict.fromkeys(("#888", "#888888", "#999999"), "#7d8690"),
    **dict.fromkeys(("#ddd", "#dddddd", "#e4e4e4"), "#2c3138"),
    "#0072b2": "#58a6ff",
    **dict.fromkeys(("#d55e00", "#b34a00"), "#ff8f4a"),
    **dict.fromkeys(("#009e73", "#007a59"), "#2bc48f"),
    **dict.fromkeys(("#e69f00", "#7a5600"), "#f0b429"),
    "#56b4e9": "#a5dcf7",
    "#cc79a7": "#e39ac3",
    "#9fc9e3": "#31506a",
    "#dfe9f1": "#22303b",
    "#f0f0ec": "#262c32",
    "#d8d3cb": "#4a4b4c",
}
"""The dark colour for each light one that charts use. All others are readable on both backgrounds."""

_NOTEBOOKS = {"dark": ('[data-jp-theme-light="false"]', ".vscode-dark"),
              "light": ('[data-jp-theme-light="true"]', ".vscode-light")}  # fmt: skip
"""How notebooks mark a page as dark or light: JupyterLab, then VS Code. That overrides the preference of the system."""


def chart_colours(scope: str) -> str:
    """Return CSS with which charts inside a selector follow a dark system, or the theme of a notebook.

    An SVG has its colours as attributes, which any CSS rule overrides. Vega writes its background as a style.

    >>> print(chart_colours(".chart").splitlines()[0])
    .chart [fill="white" i] { fill: var(--chart-white, white) }
    """
    rules = [
        f'{scope} [{part}="{light}" i] {{ {part}: var({_variable(light)}, {light}) }}'
        for light in DARK
        for part in ("fill", "stroke")
    ]
    rules.append(f"{scope} svg {{ background-color: var({_variable('white')}, white) !important }}")
    values = " ".join(f"{_variable(light)}: {dark};" for light, dark in DARK.items())
    unless_light = f":root:not(:has({', '.join(_NOTEBOOKS['light'])}))"
    themes = ", ".join(f"{mark} {scope}" for mark in _NOTEBOOKS["dark"])
    rules.append(f"@media screen and (prefers-color-scheme: dark) {{ {unless_light} {scope} {{ {values} }} }}")
    rules.append(f"{themes} {{ {values} }}")
    return "\n".join(rules)


def _variable(light: str) -> str:
    return f"--chart-{light.removeprefix('#')}"
