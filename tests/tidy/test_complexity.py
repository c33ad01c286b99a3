"""No function of a room with a bound has more branches, and no file of its own bound more lines."""

import pathlib
from typing import Dict, List

import lizard
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The most cyclomatic complexity of a function, by folder.
BOUNDS: Dict[str, int] = {"3rdparty/ps-lite/src/membership": 12}
# The most lines of a file, where that is less than other files may have.
LINES: Dict[str, int] = {"3rdparty/ps-lite/src/membership/coordinator/coordinator.cc": 250}


def too_complex(path: pathlib.Path, source: str, bound: int) -> "List[str]":
    """Return "file:line: name has complexity n" of each function beyond the bound."""
    functions = lizard.analyze_file.analyze_source_code(str(path), source).function_list
    return [
        f"{path}:{function.start_line}: {function.long_name} has complexity "
        f"{function.cyclomatic_complexity}"
        for function in functions
        if function.cyclomatic_complexity > bound
    ]


@pytest.mark.parametrize(("folder", "bound"), BOUNDS.items())
def test_no_function_has_more_branches_than_its_room_allows(folder: str, bound: int) -> None:
    paths = sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".cc", ".h"})
    assert len(paths) > 10
    wrong = [
        line
        for path in paths
        for line in too_complex(path.relative_to(ROOT), path.read_text(), bound)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_function_with_many_branches_is_found() -> None:
    branches = "\n".join(f"  if (x == {i}) return {i};" for i in range(12))
    source = f"int Choose(int x) {{\n{branches}\n  return 0;\n}}\n"
    assert too_complex(pathlib.Path("x.cc"), source, 12) == [
        "x.cc:1: Choose( int x) has complexity 13"
    ]
    assert not too_complex(pathlib.Path("x.cc"), source, 13)


@pytest.mark.parametrize(("file", "bound"), LINES.items())
def test_no_file_is_longer_than_its_bound(file: str, bound: int) -> None:
    assert len((ROOT / file).read_text().splitlines()) <= bound
