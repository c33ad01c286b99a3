"""Renders the pages and the API reference to HTML; `make docs` runs it over the repository.

The sources are the whole tree, so the relative links of a page hold here as they do in a clone.
"""

import pathlib
import re
import sys
from typing import List

from sphinx.application import Sphinx

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

project = "bytescheduler"
author = "The bytescheduler authors"
# CMakeLists.txt names the version, and no other place does.
release = re.findall(r"^project\(\S+ VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[0]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "c_header"]
root_doc = "docs/index"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("docs/**.md", "example/**.md", "3rdparty/ps-lite/*.md"),
]
exclude_patterns = [".*", "build*", "dist"]  # large, and not looked into
# Every link to a heading is checked; GitHub names the anchors of headings in the same way.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = False

html_theme = "furo"
html_title = project
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_show_copyright = False


def add_decisions(app: Sphinx, page: str, source: List[str]) -> None:
    """Put the decisions below their list in the menu; a clone shows the list alone."""
    if page == "docs/design/decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n0*\n```\n"


def setup(app: Sphinx) -> None:
    """Let Sphinx call what pages need beside their text."""
    app.connect("source-read", add_decisions)
