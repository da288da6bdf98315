"""How Sphinx builds the site: ``make docs``, or ``sphinx-build -W docs FOLDER``. Nothing is fetched from a network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent), str(HERE)]

import front  # noqa: E402
import generated  # noqa: E402
import pictures  # noqa: E402
from docutils import nodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.environment import BuildEnvironment  # noqa: E402
from sphinx.transforms import SphinxTransform  # noqa: E402

import haply  # noqa: E402

project = "haply"
author = "the haply authors"
version = release = haply.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_pictures"]

html_theme = "furo"
html_title = f"haply {release}"
html_show_copyright = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_param = False  # arguments that are told of together stay together


class LightAndDark(SphinxTransform):
    """Show a picture that was drawn for light and for dark pages in the colours that the reader has chosen.

    The theme hides one of the two by their classes, also when its own switch is used.
    """

    default_priority = 100

    def apply(self, **kwargs: object) -> None:
        for image in list(self.document.findall(nodes.image)):
            uri = Path(image["uri"])
            if {"_pictures", "charts"} & set(uri.parts):
                dark = image.deepcopy()
                dark["uri"] = str(uri.with_name(f"{uri.stem}-dark.svg"))
                dark["classes"].append("only-dark")
                image["classes"].append("only-light")
                image.parent.insert(image.parent.index(image) + 1, dark)


def draw_pictures(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Draw what the pages that are read show."""
    pages = [Path(env.doc2path(name)) for name in docnames]
    wanted = set().union(*(pictures.shown_on(page) for page in pages if page.suffix == ".md"))
    pictures.draw_all(HERE / "_pictures", wanted)


def setup(app: Sphinx) -> None:
    """Write the generated pages before any is looked for, and draw the pictures before pages are read."""
    app.add_transform(LightAndDark)
    app.connect("builder-inited", lambda _: generated.write_all())
    app.connect("env-before-read-docs", draw_pictures)
    front.TARGET.write_text(front.drawing(), encoding="utf-8")
