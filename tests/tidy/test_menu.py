"""The menu of the rendered pages: a question above each part, each page once, titles of a line."""

import pathlib
import re
from typing import List, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs" / "index.md"
# How many characters the theme shows in one line: in its menu, there in capitals, above a page.
MENU_TITLE = 27
MENU_CAPTION = 26
PAGE_TITLE = 62


class Part(NamedTuple):
    """A part of the menu: its caption, and lines such as ``Title <page>``."""

    caption: str
    lines: List[str]


def parts() -> List[Part]:
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", INDEX.read_text(), re.M | re.S)
    found = []
    for block in blocks:
        options = dict(re.findall(r"^:(\w+): *(.*)$", block, re.M))
        lines = [line for line in block.splitlines() if line and not line.startswith(":")]
        found.append(Part(options["caption"], lines))
    return found


def page_of(line: str) -> str:
    """Return the page of a line, from the top of the repository, without .md."""
    named = re.fullmatch(r".+ <(.+)>", line)
    assert named is not None, f"{line} has no title of its own"
    place = named.group(1)
    return place[3:] if place.startswith("../") else f"docs/{place}"


def pages() -> List[str]:
    """Return the pages that docs/conf.py renders, but the index and the single decisions."""
    found = [
        *ROOT.glob("[A-Z]*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("example/**/*.md"),
        *ROOT.glob("3rdparty/ps-lite/*.md"),
    ]
    names = (str(path.relative_to(ROOT))[: -len(".md")] for path in found if path != INDEX)
    return [name for name in names if not re.match(r"docs/design/decisions/\d", name)]


def test_each_page_is_in_the_menu_once() -> None:
    assert sorted(page_of(line) for part in parts() for line in part.lines) == sorted(pages())


def test_parts_are_questions() -> None:
    assert len(parts()) > 5
    captions = [part.caption for part in parts()]
    assert [caption for caption in captions if not caption.endswith("?")] == []
    assert [caption for caption in captions if len(caption) > MENU_CAPTION] == []


def test_titles_fit_in_a_line() -> None:
    titles = [line.partition(" <")[0] for part in parts() for line in part.lines]
    assert len(titles) > 20
    assert len(set(titles)) == len(titles)
    assert [title for title in titles if len(title) > MENU_TITLE] == []


def test_titles_of_pages_fit_in_a_line() -> None:
    titles = [(ROOT / f"{page}.md").read_text().partition("\n")[0][2:] for page in pages()]
    assert [title for title in titles if len(title) > PAGE_TITLE] == []
