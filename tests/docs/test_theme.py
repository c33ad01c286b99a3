"""What `make docs` has made has the theme, and the menu of the index on each page."""

import os
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MADE = ROOT / os.environ.get("BS_BUILD", "build") / "docs" / "docs"


@pytest.mark.parametrize("name", ["index", "user/pytorch", "reference/python", "design/scale"])
def test_a_page_has_the_theme_and_the_parts_of_the_menu(name: str) -> None:
    page = (MADE / f"{name}.html").read_text()
    assert "styles/furo.css" in page
    assert "_static/style.css" in page
    captions = re.findall(r"^:caption: (.+)$", (ROOT / "docs/index.md").read_text(), re.M)
    menu = page[page.index('class="sidebar-tree"') :]
    shown = re.findall(r'<span class="caption-text">([^<]+)</span>', menu)
    assert [caption for caption in captions if caption not in shown] == []


def test_decisions_are_below_their_list_in_the_menu() -> None:
    page = (MADE / "design" / "decisions" / "README.html").read_text()
    below = page[page.index("toctree-l1 current") :]
    assert re.search(r'toctree-l2"><a class="reference internal" href="0001-', below)
