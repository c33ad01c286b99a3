"""Rooms of the Python package: imports point down a table, and one room alone knows MXNet."""

import ast
import pathlib
import re
from typing import Dict, Iterator, List, Optional, Set

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "bytescheduler"
Graph = Dict[str, Set[str]]

# Each room of the package, below those that it may import: a room names only rooms above it, so
# there is no circle.  The package itself stands as ".".
_BASE = "errors _native _process _settings"
ROOMS = {
    "errors": "",
    "_native": "",
    ".": "errors _native",
    "_process": "errors",
    "_settings": "_native _process",
    "_hosting": "",
    "_started": _BASE,
    "_launch": f"{_BASE} _started",
    "_timeline": _BASE,
    "_metrics": _BASE,
    "_tuning": _BASE,
    "_compression": "errors _native",
    "_advise": f"{_BASE} _launch _timeline _compression",
    "_doctor": f". {_BASE} _tuning",
    "_session": f"{_BASE} _started _metrics _tuning",
    "config": f"{_BASE} _metrics",
    "server": f"{_BASE} _hosting _metrics",
    "launch": f". {_BASE} _started _advise _launch config server",
    "timeline": f"{_BASE} _timeline",
    "commands": f"{_BASE} _advise _doctor _metrics config",
    "advise": "_process commands",
    "bench": "_process commands",
    "doctor": "_process commands",
    "top": "_process commands",
    "cli": ". _process commands config launch timeline",
    "__main__": "cli",
    "mxnet._types": "_session",
    "mxnet._functions": "_native mxnet._types",
    "mxnet._arrays": f"{_BASE} _compression mxnet._types",
    "mxnet._optimizer": "_process mxnet._arrays mxnet._types",
    "mxnet._sessions": f"{_BASE} _session mxnet._types mxnet._functions mxnet._arrays",
    "mxnet._stores": f"{_BASE} _compression _session mxnet._types mxnet._functions mxnet._arrays"
    " mxnet._optimizer mxnet._sessions",
    "mxnet._choice": f"{_BASE} _session mxnet._types mxnet._functions mxnet._sessions"
    " mxnet._stores",
    "mxnet.kvstore": f"{_BASE} _started mxnet._types mxnet._stores mxnet._choice",
    "mxnet.trainer": "mxnet._types mxnet.kvstore",
    "mxnet._byteps": "errors mxnet._types mxnet._arrays mxnet._stores mxnet.kvstore mxnet.trainer",
    "mxnet": "mxnet._byteps mxnet.kvstore mxnet.trainer",
    "torch._engine": "errors _native _session",
    "torch._device": "errors _native _session torch._engine",
    "torch._sums": f"{_BASE} _compression _session torch._engine torch._device",
    "torch._job": f"{_BASE} _session torch._engine torch._device torch._sums",
    "torch._api": "errors _process _settings _session torch._job torch._sums",
    "torch._gradients": f"{_BASE} _compression _session torch._engine torch._device torch._sums"
    " torch._job",
    "torch._crossing": "errors _session torch._gradients",
    "torch._backend": f"{_BASE} _session torch._engine torch._device torch._job torch._crossing",
    "torch._optimizer": f"{_BASE} _compression torch._job torch._sums torch._api torch._gradients"
    " torch._crossing",
    "torch.optimizer": "torch._sums torch._api torch._optimizer",
    "torch._ddp": "errors _compression _process _session torch._engine torch._job torch._sums"
    " torch._gradients",
    "torch._lightning": "errors torch._sums torch._api torch._optimizer",
    "torch.cross_barrier": "torch._sums torch._api torch.optimizer",
    "torch.parallel": "torch._api torch._ddp",
    "torch": "torch._api torch._backend torch._sums torch._optimizer torch.optimizer"
    " torch.parallel",
    "lightning": "torch._lightning",
    "tensorflow._library": _BASE,
    "tensorflow._engine": "errors _native _session tensorflow._library",
    "tensorflow._sums": "errors _session tensorflow._library tensorflow._engine",
    "tensorflow._job": f"{_BASE} _session tensorflow._engine tensorflow._sums",
    "tensorflow._api": "errors _session tensorflow._engine tensorflow._sums tensorflow._job",
    "tensorflow._gradients": "errors _session tensorflow._engine tensorflow._sums tensorflow._job"
    " tensorflow._api",
    "tensorflow._strategies": "errors tensorflow._engine tensorflow._sums tensorflow._job"
    " tensorflow._api tensorflow._gradients",
    "tensorflow._crossing": "errors _process _session tensorflow._library tensorflow._engine"
    " tensorflow._job tensorflow._gradients",
    "tensorflow.build": "tensorflow._library",
    "tensorflow": "errors tensorflow._library tensorflow._sums tensorflow._api"
    " tensorflow._gradients tensorflow._strategies",
    "tensorflow.keras.callbacks": "errors tensorflow",
    "tensorflow.keras": "tensorflow tensorflow._crossing tensorflow.keras.callbacks",
    "keras.callbacks": "tensorflow.keras.callbacks",
    "keras": "tensorflow.keras keras.callbacks",
}
# Rooms that serve every framework, so they name none.
FOR_ALL_FRAMEWORKS = ("_metrics", "_process", "_session", "_timeline", "_tuning")


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


def row_of(room: str) -> str:
    """Return the name of a room in the table."""
    name = room[len(PACKAGE) + 1 :] or "."
    return "commands" if name.startswith("commands.") else name


def outside_the_table(rooms: Graph, table: Dict[str, str]) -> List[str]:
    """Return the imports between rooms that the table does not allow."""
    wrong = []
    for room, targets in rooms.items():
        allowed = {row_of(room), *table.get(row_of(room), "").split()}
        wrong += [f"{room} imports {target}" for target in targets if row_of(target) not in allowed]
    return sorted(wrong)


def rows_that_point_up(table: Dict[str, str]) -> List[str]:
    """Return the rows that name a room that is not above them."""
    order = list(table)
    return [
        f"{row}: {other}"
        for row, others in table.items()
        for other in others.split()
        if other not in order[: order.index(row)]
    ]


def frameworks_in(text: str) -> List[str]:
    """Return the framework's words in a source; a text may give one as an example."""
    return re.findall(r"(?<!such as )\b(?:mxnet|gluon|torch|tensorflow)\w*", text, re.I)


def sources() -> Dict[str, str]:
    return {name: path.read_text() for name, path in modules().items()}


def test_there_are_modules_to_check() -> None:
    assert len(modules()) > 50


def test_no_module_imports_itself_through_other_modules() -> None:
    assert circle_in(graph_of(sources())) is None


def test_no_room_imports_itself_through_other_rooms() -> None:
    assert circle_in(rooms_of(graph_of(sources()))) is None


def test_the_table_has_every_room_and_no_other() -> None:
    assert {row_of(room) for room in rooms_of(graph_of(sources()))} == set(ROOMS)


def test_rooms_import_only_rooms_that_the_table_names() -> None:
    assert outside_the_table(rooms_of(graph_of(sources())), ROOMS) == []


def test_the_table_points_up_nowhere() -> None:
    assert rows_that_point_up(ROOMS) == []


def test_rooms_for_all_frameworks_name_none() -> None:
    rooms = [f"{PACKAGE}.{room}" for room in FOR_ALL_FRAMEWORKS]
    found = {name: words for name, text in sources().items() if (words := frameworks_in(text))}
    assert {name for name in sources() if room_of(name) in rooms} & set(found) == set()


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


# A weight that waits for its update has a class that sees its first use, as nothing else does.
CHANGES_CLASSES = f"{PACKAGE}.torch._crossing.waiting"


def test_no_object_changes_its_class() -> None:
    changes = {name for name, text in sources().items() if class_changes(text)}
    assert changes == {CHANGES_CLASSES}


def test_the_store_knows_no_back_end_by_its_class() -> None:
    rooms = tuple(f"{PACKAGE}.mxnet.{room}." for room in ("_choice", "_sessions", "_stores"))
    for name in ("kvstore", "trainer"):
        text = sources()[f"{PACKAGE}.mxnet.{name}"]
        known = {target for target in imported(text) if target.startswith(rooms)}
        allowed = {"_stores.backend.Backend", "_choice.dist_names.take_names"}
        allowed |= {f"_choice.opening.{name}" for name in ("open_backend", "passes_on")}
        assert known <= {f"{PACKAGE}.mxnet.{target}" for target in allowed}, name
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
    table = {"_a": "", "_b": "_a"}
    assert outside_the_table(rooms_of(graph_of(rooms)), table) == [
        "bytescheduler._a imports bytescheduler._b"
    ]
    assert outside_the_table({"bytescheduler._c": {"bytescheduler._a"}}, table) != []
    assert outside_the_table({"bytescheduler._b": {"bytescheduler._a"}}, table) == []
    assert rows_that_point_up({"_a": "_b", "_b": "_b"}) == ["_a: _b", "_b: _b"]
    assert rows_that_point_up(table) == []
    assert frameworks_in("# MXNet's own.\nimport torch") == ["MXNet", "torch"]
    assert frameworks_in("# A framework, such as MXNet.") == []
    assert knows_mxnet("def f():\n    import mxnet as mx")
    assert knows_mxnet("from bytescheduler.mxnet._arrays import tensor")
    assert knows_mxnet("from bytescheduler import mxnet")
    assert not knows_mxnet("from bytescheduler._native import MXNetCopier")
    assert class_changes("self.x = 1\nself.__class__ = Other") == [2]
    assert asks_a_class("if isinstance(self._backend, NativeStore):")
    assert asks_a_class("type(kv._backend) is NativeStore")
    assert not asks_a_class("isinstance(value, int) and self._backend.barrier()")
