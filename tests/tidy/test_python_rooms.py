"""Rooms of the Python package: imports point down, and one room alone knows MXNet."""

import ast
import pathlib
import re
from typing import Dict, Iterator, List, Optional, Set

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "bytescheduler"
Graph = Dict[str, Set[str]]


def modules() -> Dict[str, pathlib.Path]:
    """Return the sources of the package by their dotted names."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(text: str) -> Iterator[str]:
    """Yield all names that a source imports, also in functions and for types alone."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide their room"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph_of(sources: Dict[str, str]) -> Graph:
    """Return the modules that each module imports; a name that is no module is its parent's."""
    graph: Graph = {}
    for name, text in sources.items():
        targets = (t if t in sources else t.rpartition(".")[0] for t in imported(text))
        graph[name] = {target for target in targets if target in sources}
    return graph


def circle_in(graph: Graph) -> Optional[List[str]]:
    """Return the nodes of one circle, or None."""
    done: Set[str] = set()

    def visit(node: str, path: List[str]) -> Optional[List[str]]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        for target in sorted(graph[node]):
            circle = visit(target, [*path, node])
            if circle is not None:
                return circle
        done.add(node)
        return None

    for node in sorted(graph):
        circle = visit(node, [])
        if circle is not None:
            return circle
    return None


def room_of(name: str) -> str:
    """Return the private folder that a module is in, or the module itself."""
    parts = name.split(".")
    last = max((i for i, part in enumerate(parts[:-1]) if part.startswith("_")), default=None)
    if last is None:
        return name
    return ".".join(parts[: last + 1])


def rooms_of(graph: Graph) -> Graph:
    rooms: Graph = {}
    for name, targets in graph.items():
        room = room_of(name)
        rooms.setdefault(room, set()).update({room_of(target) for target in targets} - {room})
    return rooms


def sources() -> Dict[str, str]:
    return {name: path.read_text() for name, path in modules().items()}


def test_there_are_modules_to_check() -> None:
    assert len(modules()) > 50


def test_no_module_imports_itself_through_others() -> None:
    assert circle_in(graph_of(sources())) is None


def test_no_room_imports_itself_through_others() -> None:
    assert circle_in(rooms_of(graph_of(sources()))) is None


def knows_mxnet(text: str) -> bool:
    names = ("mxnet", f"{PACKAGE}.mxnet")
    return any(f"{target}.".startswith(f"{name}.") for target in imported(text) for name in names)


def test_one_room_alone_imports_mxnet() -> None:
    inside = f"{PACKAGE}.mxnet"
    wrong = [
        name
        for name, text in sources().items()
        if not f"{name}.".startswith(f"{inside}.") and knows_mxnet(text)
    ]
    assert wrong == []


def class_changes(text: str) -> List[int]:
    """Return the lines that assign to `__class__`, which makes an object of another class."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        lines += [
            node.lineno
            for target in targets
            if isinstance(target, ast.Attribute) and target.attr == "__class__"
        ]
    return lines


def test_no_object_changes_its_class() -> None:
    assert {name: lines for name, text in sources().items() if (lines := class_changes(text))} == {}


def test_the_store_knows_no_back_end_by_its_class() -> None:
    stores = f"{PACKAGE}.mxnet._stores."
    for name in ("kvstore", "trainer"):
        text = sources()[f"{PACKAGE}.mxnet.{name}"]
        known = {target for target in imported(text) if target.startswith(stores)}
        allowed = {"backend.Backend", "opening.open_backend", "opening.passes_on"}
        assert known <= {stores + each for each in allowed}, name
        assert not asks_a_class(text), name


def asks_a_class(text: str) -> "list[str]":
    """Return calls of isinstance, issubclass or type on what a store calls its back end."""
    return re.findall(r"\b(?:isinstance|issubclass|type)\([^()]*\b_?backend\b", text)


def test_the_rules_on_rooms_can_fail() -> None:
    circle = {
        "bytescheduler._a.x": "from bytescheduler._b.y import f",
        "bytescheduler._b.y": "def f():\n    from bytescheduler._c import z",
        "bytescheduler._c.z": "import bytescheduler._a.x",
    }
    assert circle_in(graph_of(circle)) is not None
    rooms = {
        "bytescheduler._a.x": "from bytescheduler._b import y",
        "bytescheduler._a.w": "",
        "bytescheduler._b.y": "from bytescheduler._a import w",
    }
    assert circle_in(graph_of(rooms)) is None
    assert circle_in(rooms_of(graph_of(rooms))) is not None
    assert knows_mxnet("def f():\n    import mxnet as mx")
    assert knows_mxnet("from bytescheduler.mxnet._arrays import tensor")
    assert knows_mxnet("from bytescheduler import mxnet")
    assert not knows_mxnet("from bytescheduler._native import MXNetCopier")
    assert class_changes("self.x = 1\nself.__class__ = Other") == [2]
    assert asks_a_class("if isinstance(self._backend, NativeStore):")
    assert asks_a_class("type(kv._backend) is NativeStore")
    assert not asks_a_class("isinstance(value, int) and self._backend.barrier()")
