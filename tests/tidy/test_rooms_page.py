"""The pages on the architecture and on membership repeat tables that tests or sources have."""

import pathlib
import re
from typing import Dict, Iterable, List, Mapping, Set

import test_python_rooms
import test_tidy

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/design/architecture.md"
MEMBERSHIP_PAGE = ROOT / "docs/design/membership.md"
COORDINATOR = ROOT / "3rdparty/ps-lite/src/membership/coordinator"
CPP_SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("src", "3rdparty/ps-lite/src", "bytescheduler")
    for path in sorted((ROOT / folder).rglob("*.*"))
    if path.suffix in (".h", ".cc")
}
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


CLASS = re.compile(r"^(?:class|struct) (\w+)[^;{]*\{", re.M)
LOCK = re.compile(r"^ +(?:mutable )?(?:bs::Mutex|Mutex|std::mutex) \w+;", re.M)
THREAD = re.compile(r"\"(bs-[a-z-]*[a-z])-?\"")
EVENT = re.compile(r"PeerEvent::k(\w+)")


def classes_with_locks(sources: Mapping[str, str]) -> Set[str]:
    """Return the classes above base that have a mutex."""
    return {
        [name.group(1) for name in CLASS.finditer(text, 0, lock.start())][-1]
        for path, text in sources.items()
        if not path.startswith("src/base/")
        for lock in LOCK.finditer(text)
    }


def threads_of(sources: Mapping[str, str]) -> Set[str]:
    """Return the names of threads in strings outside comments."""
    code = (re.sub(r"//.*", "", text) for text in sources.values())
    return {name for text in code for name in THREAD.findall(text)}


def section_of(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def event_texts(header: str) -> Dict[str, str]:
    """Return the text of each event of the scheduler node's table, by its name."""
    names = header.split("enum class PeerEvent", 1)[1].split("};", 1)[0]
    texts = header.split("kEvents = {", 1)[1].split("};", 1)[0]
    pairs = zip(re.findall(r"^ +k(\w+),", names, re.M), re.findall(r'"([^"]+)"', texts))
    return dict(pairs)


def events_by_part(sources: Mapping[str, str], texts: Mapping[str, str]) -> Dict[str, Set[str]]:
    """Return the events that each part, a source, applies."""
    parts = {
        stem.title(): {texts[name] for name in EVENT.findall(text)}
        for stem, text in sources.items()
        if stem != "peer_table"
    }
    return {part: events for part, events in parts.items() if events}


def events_on_page(section: str, events: Set[str]) -> Dict[str, Set[str]]:
    """Return the events of each part's row."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", section, re.M)
    cells = {part: set(cell.split(", ")) for part, cell in rows}
    listed = {event for cell in cells.values() for event in cell}
    return {
        part: events - listed if cell == {"every other event"} else cell
        for part, cell in cells.items()
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


def test_the_page_has_the_classes_with_locks() -> None:
    sentence = section_of(PAGE.read_text(), "Threads").split("have locks", 1)[1].split(". ", 1)[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == classes_with_locks(CPP_SOURCES)


def test_the_page_has_the_threads() -> None:
    cells = re.findall(r"^\| ([^|]+) \|", section_of(PAGE.read_text(), "Threads"), re.M)
    on_page = {name for cell in cells for name in re.findall(r"`(bs-[a-z-]*[a-z])", cell)}
    assert on_page == threads_of(CPP_SOURCES)


def test_the_page_on_membership_has_the_events_of_each_part() -> None:
    texts = event_texts((COORDINATOR / "peer_table.h").read_text())
    sources = {path.stem: path.read_text() for path in COORDINATOR.glob("*.cc")}
    section = section_of(MEMBERSHIP_PAGE.read_text(), "The parts of the scheduler node")
    assert events_on_page(section, set(texts.values())) == events_by_part(sources, texts)


def test_classes_with_locks_and_threads_are_found() -> None:
    source = "struct B;\nclass A : C {\n  struct D {\n  };\n  mutable bs::Mutex mutex_;\n};\n"
    source += 'class E {\n  // "bs-c"\n  LoopThread b("bs-b-" + n);\n};\n'
    assert classes_with_locks({"src/base/a.h": source}) == set()
    assert classes_with_locks({"src/a.h": source}) == {"A"}
    assert threads_of({"a.cc": source}) == {"bs-b"}


def test_events_of_a_part_are_found() -> None:
    header = 'enum class PeerEvent {\n  kA,  // a\n  kB,\n};\nkEvents = {\n  "x", "y, z"};\n'
    texts = event_texts(header)
    assert texts == {"A": "x", "B": "y, z"}
    sources = {"peer_table": "PeerEvent::kB", "inbox": "f(PeerEvent::kA)", "outbox": ""}
    assert events_by_part(sources, texts) == {"Inbox": {"x"}}
    section = "| part | applies |\n|---|---|\n| `In` | x |\n| `Out` | %s |\n"
    on_page = events_on_page(section % "every other event", {"x", "y"})
    assert on_page == {"In": {"x"}, "Out": {"y"}}
    assert events_on_page(section % "z", {"x", "y"}) == {"In": {"x"}, "Out": {"z"}}


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
