"""How Sphinx builds the book: ``make docs``, or ``sphinx-build -W docs FOLDER``. Nothing is fetched from a network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

import front  # noqa: E402
import pictures  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import haply  # noqa: E402

project = "haply"
author = "the haply authors"
version = release = haply.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_pictures"]

html_theme = "furo"
html_title = f"haply {release}"
html_show_copyright = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_google_docstring = False


def setup(app: Sphinx) -> None:
    """Draw the pictures before the pages that show them are read."""
    app.connect("builder-inited", lambda _: pictures.draw_all(HERE / "_pictures"))
    front.TARGET.write_text(front.drawing(), encoding="utf-8")
