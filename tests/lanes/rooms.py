"""Adds up the seconds of tests by the folder that holds them."""

import collections
import pathlib
import re
import xml.etree.ElementTree
from typing import Dict

__all__ = ["seconds_by_room"]

TESTS = pathlib.Path(__file__).resolve().parents[1]


def _room_of_python(name: str) -> str:
    """Return the folder of ``tests.e2e.jobs.test_huge`` or of a class in it."""
    folders = []
    for word in name.split("."):
        if word.startswith("test_"):
            break
        folders.append(word)
    return "/".join(folders)


def _room_of_program(program: str) -> str:
    """Return the folder that has the source of a test program, else the program's own name."""
    program = re.sub(r"\.\d+$", "", program)  # a shard
    for source in sorted(TESTS.rglob(f"{program}.cc")):
        return str(pathlib.Path("tests", source.parent.relative_to(TESTS)))
    return program


def room_of(case: xml.etree.ElementTree.Element, program: str) -> str:
    """Return the folder of a test, such as ``tests/server/sync``.

    GoogleTest names the source since 1.12; before that, the program's name stands in for it.
    """
    source = case.get("file", "")
    if source.endswith(".cc"):
        path = pathlib.PurePath(source).parent
        names = path.parts
        if "tests" in names:
            last = len(names) - 1 - names[::-1].index("tests")
            return "/".join(names[last:])
        return str(path)
    name = case.get("classname") or case.get("name", "")
    return _room_of_python(name) if "." in name else _room_of_program(program)


def seconds_by_room(folder: pathlib.Path) -> "Dict[str, float]":
    """Return folder of tests -> seconds of its tests, over all XML files below `folder`.

    Tests that ran side by side add up; a test that ran in two builds counts in both.
    """
    seconds: Dict[str, float] = collections.defaultdict(float)
    for path in sorted(folder.rglob("*.xml")):
        try:
            root = xml.etree.ElementTree.parse(path).getroot()
        except xml.etree.ElementTree.ParseError:
            continue  # `read_results` counts it as a failure
        for case in root.iter("testcase"):
            seconds[room_of(case, path.stem)] += float(case.get("time") or 0)
    return dict(seconds)
