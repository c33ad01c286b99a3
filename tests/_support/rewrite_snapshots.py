"""Rewrites snapshots of C++ tests: ``rewrite_snapshots.py RESULTS``.

RESULTS is a folder of JUnit XML.  Each failure of EXPECT_SNAPSHOT there names the source's line and
ends with the text as a literal, which takes the place of the one in the source.
"""

import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree
from typing import Dict, Tuple

LITERAL = r'"(?:[^"\\]|\\.)*"'
FAILURE = re.compile(rf"^(\S+):(\d+)\n.* is not the snapshot\n.*\nbut\n  ({LITERAL})", re.S)
# Literals that follow each other are one.
LAST_ARGUMENT = re.compile(rf"(?:{LITERAL}\s*)+$")


def failures(folder: pathlib.Path) -> "Dict[Tuple[str, int], str]":
    """Return file and line -> the literal that belongs there."""
    found = {}
    for path in sorted(folder.rglob("*.xml")):
        for failure in xml.etree.ElementTree.parse(path).iter("failure"):
            match = FAILURE.match(failure.text or "")
            if match is not None:
                found[match.group(1), int(match.group(2))] = match.group(3)
    return found


def rewritten(source: str, line: int, literal: str) -> str:
    """Return the source with the snapshot of the call that begins in that line replaced."""
    begin = sum(len(text) for text in source.splitlines(keepends=True)[: line - 1])
    begin = source.index("EXPECT_SNAPSHOT(", begin)
    depth = 0
    for token in re.compile(rf"{LITERAL}|[()]").finditer(source, begin):
        depth += {"(": 1, ")": -1}.get(token.group(), 0)
        if depth == 0:
            match = LAST_ARGUMENT.search(source[begin : token.start()])
            if match is not None:
                return source[: begin + match.start()] + literal + source[token.start() :]
            break
    raise ValueError(f"no snapshot in line {line}")


def main() -> int:
    """Rewrite all sources that the failures name, and print their names."""
    by_file: Dict[str, Dict[int, str]] = {}
    for (name, line), literal in failures(pathlib.Path(sys.argv[1])).items():
        by_file.setdefault(name, {})[line] = literal
    for name, literals in sorted(by_file.items()):
        path = pathlib.Path(name)
        source = path.read_text()
        for line in sorted(literals, reverse=True):
            source = rewritten(source, line, literals[line])
        path.write_text(source)
        subprocess.run(["clang-format", "-i", name], check=True)
        print(f"{name}: {len(literals)} rewritten")
    return 0


if __name__ == "__main__":
    sys.exit(main())
