"""The page on the architecture repeats the tables of rooms that the tests have."""

import pathlib
import re
from typing import Dict, Iterable, List, Mapping, Set

import test_python_rooms
import test_tidy

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/design/architecture.md"
# The page describes their headers, which others include.
HEADERS = {"c_api", "ps"}
BASE = set(test_python_rooms._BASE.split())
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|(?: ([^|]*))?\|$", re.M)
# Each table of the page stands below its heading.
CPP = ("The engine: src", "The network: 3rdparty/ps-lite/src")
PYTHON = "Python: bytescheduler, and its Cython in python"


def rows_below(page: str, heading: str) -> Dict[str, str]:
    """Return the cell "may include" of each room in the table below a heading.

    A row may name several rooms, with commas between.
    """
    section = page.split(f"\n### {heading}\n", 1)[1].split("\n### ", 1)[0].split("\n## ", 1)[0]
    rows = ROW.findall(section)
    cells = {room: may.strip() for rooms, _, may in rows for room in rooms.split(", ")}
    return {room: may for room, may in cells.items() if room != "room" and set(room) != {"-"}}


def together(names: List[str]) -> str:
    """Return names with the rooms of one folder in braces: a/{b,c}."""
    folders: Dict[str, List[str]] = {}
    for name in names:
        folder, _, room = name.rpartition("/")
        folders.setdefault(folder if folder else name, []).append(room)
    texts = []
    for folder, rooms in folders.items():
        inside = [room for room in rooms if room != folder]
        texts += [folder] if folder in rooms else []
        texts += [f"{folder}/{inside[0]}"] if len(inside) == 1 else []
        texts += [f"{folder}/{{{','.join(inside)}}}"] if len(inside) > 1 else []
    return ", ".join(texts)


def cpp_cell(rooms: Set[str], order: Iterable[str]) -> str:
    """Return what the page says of a room of C++ that may include `rooms`."""
    if not rooms:
        return "nothing of ours"
    names = ["`c_api.h`" if room == "c_api" else room for room in order if room in rooms - {"base"}]
    if "base" not in rooms:
        return f"{together(names)} alone"
    return together(names) or "nothing else"


def cpp_cells(table: Mapping[str, Set[str]]) -> Dict[str, str]:
    return {room: cpp_cell(may, table) for room, may in table.items() if room not in HEADERS}


def python_cell(rooms: Set[str], order: Iterable[str]) -> str:
    """Return what the page says of a room of Python that may import `rooms`."""
    names = ["the base"] if rooms >= BASE else []
    for room in order:
        if room in rooms and not (names[:1] == ["the base"] and room in BASE):
            is_private = room.startswith("_") or room in BASE
            public = "the package itself" if room == "." else f"`{room}`"
            names.append(room if is_private else public)
    return ", ".join(names) or "nothing of ours"


def python_cells(table: Mapping[str, str]) -> Dict[str, str]:
    """Return the cells of private rooms, of the commands, and of each framework as a whole."""
    rooms: Dict[str, Set[str]] = {}
    for name, may in table.items():
        whole = name.split(".")[0]
        if whole.startswith("_") and whole not in ("__main__", "_native", "_settings"):
            rooms[whole] = set(may.split())
        elif whole in ("commands", "mxnet", "torch", "lightning", "tensorflow", "keras"):
            rooms.setdefault(whole, set()).update(may.split())
    return {
        room: python_cell({each for each in may if each.split(".")[0] != room}, table)
        for room, may in rooms.items()
    }


def differences(said: Mapping[str, str], wanted: Mapping[str, str]) -> List[str]:
    """Return the rows that the page should have, and the rooms that it should not."""
    wrong = [f"{room}: {may}" for room, may in wanted.items() if said.get(room) != may]
    return wrong + [f"{room}: there is no such room" for room in said.keys() - wanted.keys()]


def test_the_page_has_the_rooms_of_cpp() -> None:
    page = PAGE.read_text()
    said: Dict[str, str] = {}
    for heading in CPP:
        said.update(rows_below(page, heading))
    assert differences(said, cpp_cells(test_tidy.MAY_INCLUDE)) == []


def test_the_page_has_the_rooms_of_python() -> None:
    said = rows_below(PAGE.read_text(), PYTHON)
    assert differences(said, python_cells(test_python_rooms.ROOMS)) == []


def test_the_rules_on_the_page_can_fail() -> None:
    page = "\n### The engine: src\n\n| room | does | may include |\n|---|---|---|\n"
    page += (
        "| base | Holds. | nothing of ours |\n| core, job | Decide. | nothing else |\n\n### Next\n"
    )
    table: Dict[str, Set[str]] = {"base": set(), "core": {"base"}, "job": {"base"}}
    table["trace"] = {"base", "core"}
    said = rows_below(page, CPP[0])
    assert said == {"base": "nothing of ours", "core": "nothing else", "job": "nothing else"}
    assert differences(said, cpp_cells(table)) == ["trace: core"]
    del table["core"], table["trace"]
    assert differences(said, cpp_cells(table)) == ["core: there is no such room"]
    assert cpp_cell({"c_api"}, ["c_api"]) == "`c_api.h` alone"
    assert together(["a", "b", "b/c", "b/d", "e/f"]) == "a, b, b/{c,d}, e/f"
    base = test_python_rooms._BASE
    rooms = {"_process": "errors", "_a": base, "config": "", "mxnet._b": f"{base} _a config"}
    assert python_cells({**dict.fromkeys(base.split(), ""), **rooms}) == {
        "_process": "errors",
        "_a": "the base",
        "mxnet": "the base, _a, `config`",
    }
