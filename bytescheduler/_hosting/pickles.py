"""Reads pickled optimizers without running anything that the operator has not named.

Python's own unpickler calls whatever a pickle names.  This one knows the few dozen operations of
pickles of plain objects.  It makes instances of MXNet's optimizers and learning-rate schedulers
without calling them, and refuses all else.
"""

import importlib
import pickletools
import re
import sys
from typing import Callable, Dict, List, NoReturn, Sequence, Tuple

__all__ = ["Refused", "load"]

_CLASSES_OF = (
    "mxnet.optimizer",
    "mxnet.optimizer.optimizer",
    "mxnet.optimizer.contrib",
    "mxnet.lr_scheduler",
)
# Python 2's names, which old protocols use.
_RENAMED = {"copy_reg": "copyreg", "__builtin__": "builtins"}
_PLAIN_KEYS = (str, bytes, int, float, bool, type(None))
# A pickle may make objects in proportion to its size only: a few of its bytes can name an earlier
# value, and each object made from that takes memory of its own.
_MOST_OPERATIONS = 1 << 20
_MADE_PER_BYTE = 4
_MADE_BESIDES = 1 << 20
_DTYPE = re.compile(r"[<=|]?[biufc]\d{1,2}|\?")


class Refused(Exception):
    """The pickle has content that is not accepted."""


class _Name:
    """A class or function that the pickle names; no value, it can only be used to make one."""

    def __init__(self, path: str, target: object, trusted: bool) -> None:
        self.path = path
        self.target = target
        self.trusted = trusted


class _Arguments(tuple):  # type: ignore[type-arg]
    """A tuple with names in it: no value either."""


def _refuse(path: str) -> NoReturn:
    raise Refused(
        f"the pickled optimizer names {path}, which servers do not load: they take classes of "
        "mxnet.optimizer and mxnet.lr_scheduler, plain values and numpy arrays. Where you trust "
        "the module, name it in BYTESCHEDULER_TRUSTED_MODULES on the servers; or update on the "
        "workers: ScheduledKVS over dist_sync does, and a stock store with "
        "MXNET_UPDATE_ON_KVSTORE=0"
    )


def _wrong(fault: str) -> NoReturn:
    raise Refused(f"the pickled optimizer is damaged or forged: {fault}")


# -- what may be called ----------------------------------------------------------------------------


def _plain_set(items: Sequence[object] = ()) -> "set[object]":
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, _PLAIN_KEYS) for i in items):
        _wrong("a set of something that is not plain")
    return set(items)


def _plain_dict() -> Dict[object, object]:
    return {}


def _bytes(text: object = "", encoding: object = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        _wrong("bytes that are not Latin-1")
    return text.encode("latin1")


def _bytearray(value: object = b"") -> bytearray:
    if not isinstance(value, bytes):
        _wrong("a bytearray that is not made of bytes")
    return bytearray(value)


def _complex(real: float = 0.0, imaginary: float = 0.0) -> complex:
    if not isinstance(real, (int, float)) or not isinstance(imaginary, (int, float)):
        _wrong("a complex number that is not made of numbers")
    return complex(real, imaginary)


def _dtype(name: object, *_: object) -> object:
    import numpy as np

    if not isinstance(name, str) or not _DTYPE.fullmatch(name):
        _wrong(
            "numpy arrays of another dtype" + (f", {name[:20]!r}" if isinstance(name, str) else "")
        )
    return np.dtype(name)


def _empty_array(*_: object) -> object:
    import numpy as np

    return np.empty(0, np.int8)


def _scalar(dtype: object, value: object) -> object:
    import numpy as np

    if not isinstance(dtype, np.dtype) or not isinstance(value, bytes):
        _wrong("a numpy number that is not made of bytes")
    return np.frombuffer(value, dtype, 1)[0]


_Maker = Callable[..., object]
_MAKERS: Dict[str, _Maker] = {
    "_codecs.encode": _bytes,
    "builtins.bytes": lambda: b"",
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "builtins.frozenset": lambda items=(): frozenset(_plain_set(items)),
    "builtins.set": _plain_set,
    "collections.OrderedDict": _plain_dict,
    "numpy.dtype": _dtype,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy.core.multiarray._reconstruct": _empty_array,
    "numpy._core.multiarray._reconstruct": _empty_array,
}
# Only arguments of the above.
_INERT = ("builtins.object", "copyreg._reconstructor", "numpy.ndarray")


class _Reader:
    """One pickle on its way.  See pickletools for what the operations mean."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = trusted
        self._stack: List[object] = []
        self._below: List[List[object]] = []  # stacks below each mark
        self._memo: Dict[int, object] = {}
        self._made: Dict[int, object] = {}  # instances, by id; keeps them alive
        self._budget_bytes = 0  # left for objects

    def read(self, data: bytes) -> object:
        self._budget_bytes = _MADE_PER_BYTE * len(data) + _MADE_BESIDES
        for count, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if count == _MOST_OPERATIONS:
                _wrong(f"it has more than {_MOST_OPERATIONS} operations")
            name = operation.name
            if name == "STOP":
                return self._value(self._stack.pop())
            if name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _LITERALS:
                self._stack.append(argument)
            elif name in _OPERATIONS:
                _OPERATIONS[name](self, argument)
            elif name not in ("PROTO", "FRAME"):
                _wrong(f"operation {name}")
        return _wrong("it has no end")

    # -- helpers -------------------------------------------------------------------------------

    @staticmethod
    def _value(value: object) -> object:
        if isinstance(value, _Name):
            _refuse(f"{value.path} as a value")
        if isinstance(value, _Arguments):
            _wrong("a class as a value")
        return value

    @staticmethod
    def _key(value: object) -> object:
        if not isinstance(value, _PLAIN_KEYS):
            _wrong("a key that is not plain")
        return value

    def _charge(self, size_bytes: int) -> None:
        self._budget_bytes -= size_bytes
        if self._budget_bytes < 0:
            _wrong("what it makes has many times its own length")

    def _to_mark(self) -> List[object]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _tuple(self, items: Sequence[object]) -> None:
        named = any(isinstance(item, (_Name, _Arguments)) for item in items)
        self._stack.append(_Arguments(items) if named else tuple(items))

    def _items(self, pairs: Sequence[object]) -> "List[Tuple[object, object]]":
        if len(pairs) % 2 != 0:
            _wrong("a key without a value")
        return [(self._key(k), self._value(v)) for k, v in zip(pairs[::2], pairs[1::2])]

    def _top(self, kind: type) -> object:
        top = self._stack[-1]
        if type(top) is not kind:
            _wrong(f"something that is no {kind.__name__} is used as one")
        return top

    def _push_made(self, made: object) -> None:
        self._charge(sys.getsizeof(made))
        self._stack.append(made)

    # -- operations ----------------------------------------------------------------------------

    def mark(self, _: object) -> None:
        self._below.append(self._stack)
        self._stack = []

    def put(self, index: object) -> None:
        self._memo[int(index)] = self._stack[-1]  # type: ignore[call-overload]

    def memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, index: object) -> None:
        self._stack.append(self._memo[int(index)])  # type: ignore[call-overload]

    def make_tuple(self, _: object) -> None:
        self._tuple(self._to_mark())

    def tuple_of(self, count: int) -> None:
        items = self._stack[-count:]
        del self._stack[-count:]
        if len(items) != count:
            _wrong("a tuple of too little")
        self._tuple(items)

    def make_list(self, _: object) -> None:
        items = [self._value(item) for item in self._to_mark()]
        self._stack.append(items)

    def make_dict(self, _: object) -> None:
        pairs = self._items(self._to_mark())
        self._stack.append(dict(pairs))

    def make_frozenset(self, _: object) -> None:
        self._push_made(frozenset(_plain_set(self._to_mark())))

    def append(self, _: object) -> None:
        item = self._value(self._stack.pop())
        self._top(list).append(item)  # type: ignore[attr-defined]

    def appends(self, _: object) -> None:
        items = [self._value(item) for item in self._to_mark()]
        self._top(list).extend(items)  # type: ignore[attr-defined]

    def set_item(self, _: object) -> None:
        pairs = self._items(self._stack[-2:])
        del self._stack[-2:]
        self._top(dict).update(pairs)  # type: ignore[attr-defined]

    def set_items(self, _: object) -> None:
        pairs = self._items(self._to_mark())
        self._top(dict).update(pairs)  # type: ignore[attr-defined]

    def add_items(self, _: object) -> None:
        items = _plain_set(self._to_mark())
        self._top(set).update(items)  # type: ignore[attr-defined]

    def name(self, argument: object) -> None:
        module, _, name = str(argument).partition(" ")
        self._stack.append(self._find(_RENAMED.get(module, module), name))

    def stack_name(self, _: object) -> None:
        module, name = self._stack[-2:]
        del self._stack[-2:]
        if not isinstance(module, str) or not isinstance(name, str):
            _wrong("a name that is no text")
        self._stack.append(self._find(module, name))

    def _find(self, module: str, name: str) -> _Name:
        path = f"{module}.{name}"
        if path in _MAKERS or path in _INERT:
            return _Name(path, _MAKERS.get(path), False)
        if any(module == package or module.startswith(package + ".") for package in self._trusted):
            target: object = importlib.import_module(module)
            for part in name.split("."):
                target = getattr(target, part)
            return _Name(path, target, True)
        if module in _CLASSES_OF:
            kind = getattr(importlib.import_module(module), name, None)
            if isinstance(kind, type) and issubclass(kind, _kinds()) and _is_mxnets(kind):
                return _Name(path, kind, False)
        return _refuse(path)

    def call(self, _: object) -> None:
        maker, arguments = self._stack[-2:]
        del self._stack[-2:]
        if not isinstance(maker, _Name) or not isinstance(arguments, tuple):
            _wrong("a call of something that has no name")
        if maker.path == "copyreg._reconstructor":
            self._stack.append(self._reconstruct(arguments))
        elif maker.trusted:
            made = maker.target(*self._plain(arguments))  # type: ignore[operator]
            self._stack.append(self._keep(made))
        elif maker.path in _MAKERS:
            self._push_made(_MAKERS[maker.path](*arguments))
        else:
            _refuse(f"a call of {maker.path}")

    def _plain(self, arguments: "Tuple[object, ...]") -> "List[object]":
        return [
            a.target if isinstance(a, _Name) and a.trusted else self._value(a) for a in arguments
        ]

    def _reconstruct(self, arguments: "Tuple[object, ...]") -> object:
        if len(arguments) != 3 or arguments[2] is not None:
            _wrong("an object that is not made as objects are")
        base = arguments[1]
        if not isinstance(base, _Name) or base.path != "builtins.object":
            _wrong("an object with an unusual base")
        return self._instance(arguments[0])

    def _instance(self, kind: object) -> object:
        if not isinstance(kind, _Name) or not isinstance(kind.target, type):
            _wrong("an instance of something that is no class")
        return self._keep(kind.target.__new__(kind.target))  # type: ignore[call-overload]

    def _keep(self, made: object) -> object:
        self._made[id(made)] = made
        return made

    def new(self, _: object) -> None:
        kind, arguments = self._stack[-2:]
        del self._stack[-2:]
        if isinstance(kind, _Name) and kind.trusted and isinstance(kind.target, type):
            if not isinstance(arguments, tuple):
                _wrong("an instance made of no tuple")
            plain = self._plain(arguments)
            self._stack.append(self._keep(kind.target.__new__(kind.target, *plain)))
            return
        if arguments != ():
            _wrong("an instance made of arguments")
        self._stack.append(self._instance(kind))

    def build(self, _: object) -> None:
        state = self._value(self._stack.pop())
        target = self._stack[-1]
        if type(target).__module__ == "numpy":
            self._build_numpy(target, state)
            return
        if id(target) not in self._made:
            _wrong("a change of something that it did not make")
        if not isinstance(state, dict) or not all(isinstance(k, str) for k in state):
            _wrong("an object whose state is no dictionary")
        restore = getattr(target, "__setstate__", None)
        if restore is None:
            target.__dict__.update(state)
        else:
            restore(state)

    def _build_numpy(self, target: object, state: object) -> None:
        import numpy as np

        if not isinstance(state, tuple):
            _wrong("a numpy array whose state is no tuple")
        if isinstance(target, np.dtype):
            # A plain dtype has been made; only its order of bytes could differ.
            if len(state) < 2 or state[1] not in ("<", "|"):
                _wrong("numpy arrays of another order of bytes")
            return
        if not isinstance(target, np.ndarray) or len(state) != 5:
            _wrong("a numpy array with an unusual state")
        version, shape, dtype, fortran, content = state
        fits = (
            version == 1
            and isinstance(shape, tuple)
            and all(type(size) is int and size >= 0 for size in shape)
            and isinstance(dtype, np.dtype)
            and isinstance(content, bytes)
        )
        if not fits:
            _wrong("a numpy array with an unusual state")
        self._charge(len(content))
        target.__setstate__((version, shape, dtype, bool(fortran), content))


_CONSTANTS: Dict[str, object] = {
    "NONE": None,
    "NEWTRUE": True,
    "NEWFALSE": False,
    "EMPTY_TUPLE": (),
}
_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_OPERATIONS: Dict[str, Callable[[_Reader, object], None]] = {
    "MARK": _Reader.mark,
    "PUT": _Reader.put,
    "BINPUT": _Reader.put,
    "LONG_BINPUT": _Reader.put,
    "MEMOIZE": _Reader.memoize,
    "GET": _Reader.get,
    "BINGET": _Reader.get,
    "LONG_BINGET": _Reader.get,
    "EMPTY_LIST": lambda reader, _: reader._stack.append([]),
    "EMPTY_DICT": lambda reader, _: reader._stack.append({}),
    "EMPTY_SET": lambda reader, _: reader._push_made(set()),
    "TUPLE": _Reader.make_tuple,
    "TUPLE1": lambda reader, _: reader.tuple_of(1),
    "TUPLE2": lambda reader, _: reader.tuple_of(2),
    "TUPLE3": lambda reader, _: reader.tuple_of(3),
    "LIST": _Reader.make_list,
    "DICT": _Reader.make_dict,
    "FROZENSET": _Reader.make_frozenset,
    "APPEND": _Reader.append,
    "APPENDS": _Reader.appends,
    "SETITEM": _Reader.set_item,
    "SETITEMS": _Reader.set_items,
    "ADDITEMS": _Reader.add_items,
    "GLOBAL": _Reader.name,
    "STACK_GLOBAL": _Reader.stack_name,
    "REDUCE": _Reader.call,
    "NEWOBJ": _Reader.new,
    "BUILD": _Reader.build,
}


def _kinds() -> "Tuple[type, type]":
    optimizer = importlib.import_module("mxnet.optimizer").Optimizer
    return optimizer, importlib.import_module("mxnet.lr_scheduler").LRScheduler


def _is_mxnets(kind: type) -> bool:
    return kind.__module__ in _CLASSES_OF


def load(data: bytes, trusted: Sequence[str] = ()) -> object:
    """Return the optimizer in a pickle.

    Imports mxnet.

    Parameters
    ----------
    data : bytes
        A pickle of any protocol.
    trusted : sequence of str
        Modules whose classes and functions it may use too, those of their submodules included.

    Returns
    -------
    mxnet.optimizer.Optimizer
        Its state is what the pickle says.

    Raises
    ------
    Refused
        It is damaged, or needs something that is not allowed.
    """
    try:
        optimizer = _Reader(trusted).read(data)
    except Refused:
        raise
    except Exception as error:  # odd bytes can raise any kind
        raise Refused(f"the pickled optimizer cannot be read: {repr(error)[:200]}") from error
    if not isinstance(optimizer, _kinds()[0]):
        raise Refused(f"the pickle holds a {type(optimizer).__name__}, which is no optimizer")
    return optimizer
