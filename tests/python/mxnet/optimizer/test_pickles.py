"""What pickled optimizers may hold: everything an optimizer needs, and nothing that runs."""

import builtins
import collections
import functools
import os
import pathlib
import pickle
import pickletools
import subprocess
import sys
import tracemalloc
from typing import Any, Tuple

import hypothesis
import hypothesis.strategies as st
import mxnet as mx
import numpy as np
import pytest

from bytescheduler._hosting.pickles import Refused, load

O = mx.optimizer  # noqa: E741
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
# Other tests register classes of their own.
OF_MXNET = [n for n, c in O.Optimizer.opt_registry.items() if c.__module__.startswith("mxnet.")]


def state_of(optimizer: O.Optimizer) -> "dict[str, Any]":
    state = dict(vars(optimizer))
    scheduler = state.pop("lr_scheduler")
    return {**state, "scheduler": scheduler and (type(scheduler), vars(scheduler))}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", sorted(OF_MXNET))
def test_every_optimizer_of_mxnet_arrives_as_it_was(name: str, protocol: int) -> None:
    optimizer = O.create(name)
    optimizer.idx2name = {0: "weight", 7: "b\xfcas \N{SNOWMAN}"}
    optimizer.set_lr_mult({"weight": 0.5})
    optimizer.rescale_grad, optimizer.begin_num_update = 1 / 3, 2**70
    optimizer._update_count(7)
    loaded = load(pickle.dumps(optimizer, protocol))
    assert type(loaded) is type(optimizer)
    assert state_of(loaded) == state_of(optimizer)
    assert loaded._index_update_count is loaded._all_index_update_counts[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_schedulers_and_values_of_all_plain_kinds_arrive(protocol: int) -> None:
    lrs = mx.lr_scheduler
    for scheduler in (
        lrs.FactorScheduler(5),
        lrs.MultiFactorScheduler([3, 9]),
        lrs.PolyScheduler(10),
        lrs.CosineScheduler(10),
    ):
        optimizer = O.SGD(lr_scheduler=scheduler)
        loaded = load(pickle.dumps(optimizer, protocol))
        assert state_of(loaded) == state_of(optimizer)
        assert loaded.lr_scheduler(4) == scheduler(4)
    optimizer = O.SGD()
    optimizer.values = [
        (1, -(2**40), True, None, 1e-300, float("inf"), "text", b"b\xff", 1 + 2j, ()),
        {1: {2, 3}, "x": frozenset({4}), None: [[]], b"k": bytearray(b"ab")},
        collections.OrderedDict(a=1),
        *(np.float32(0.1), np.float64(0.2), np.int64(-3), np.bool_(True)),
    ]
    optimizer.array = np.arange(6, dtype=np.float32).reshape(2, 3)
    optimizer.turned = np.arange(6, dtype=np.float16).reshape(2, 3).T
    loaded = load(pickle.dumps(optimizer, min(protocol, 4)))
    assert loaded.values == optimizer.values
    for name in ("array", "turned"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(optimizer, name))
        assert getattr(loaded, name).dtype == getattr(optimizer, name).dtype


class Call:
    """What it is pickled to calls something."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> "Tuple[object, Tuple[object, ...]]":
        return self.call


def with_value(value: object) -> O.Optimizer:
    optimizer = O.SGD()
    optimizer.value = value
    return optimizer


ATTACKS = {
    "os.system": lambda file: Call(os.system, f"touch {file}"),
    "builtins.eval": lambda file: Call(eval, f"open({str(file)!r}, 'w')"),
    "builtins.exec": lambda file: Call(exec, f"open({str(file)!r}, 'w')"),
    "builtins.getattr": lambda file: Call(getattr, "x", "upper"),
    "builtins.open": lambda file: Call(open, str(file), "w"),
    "builtins.print": lambda file: Call(builtins.print, "x"),
    "functools.partial": lambda file: Call(functools.partial, os.system, f"touch {file}"),
    "subprocess.Popen": lambda file: Call(subprocess.Popen, ["touch", str(file)]),
    "nested": lambda file: [{"a": (Call(os.system, f"touch {file}"),)}],
    "a file of its own": lambda file: Call(pathlib.Path, str(file)),
    "an optimizer's class called": lambda file: Call(O.SGD, 0.1),
    "registration": lambda file: Call(O.Optimizer.create_optimizer, "sgd"),
    "a method": lambda file: Call(O.SGD.update, 1, 2, 3, 4),
    "a class as attribute": lambda file: O.SGD,
    "a function as attribute": lambda file: len,
    "an instance of another class": lambda file: collections.Counter("ab"),
    "a class of mxnet that is no optimizer": lambda file: mx.optimizer.Updater(O.SGD()),
    "another class of mxnet": lambda file: mx.init.Xavier(),
    "array of objects": lambda file: np.array([Call(os.system, f"touch {file}")], dtype=object),
    "dtype": lambda file: np.dtype([("a", "O")]),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_a_pickle_that_would_run_code_is_refused_and_not_run(
    name: str, protocol: int, tmp_path: pathlib.Path
) -> None:
    value = ATTACKS[name](tmp_path / "run")
    for payload in (value, with_value(value), with_value({"x": [value]})):
        with pytest.raises(Refused):
            load(pickle.dumps(payload, protocol))
    assert not list(tmp_path.iterdir())


def test_the_refusal_names_the_class_and_the_cure() -> None:
    with pytest.raises(Refused, match="names posix.system, which .* BYTESCHEDULER_TRUSTED_MODULES"):
        load(pickle.dumps(Call(os.system, "true")))


OPTIMIZER = b"cmxnet.optimizer\nSGD\n"
FORGED = {
    "a change of a class": OPTIMIZER + b"}Vx\nI1\nsb.",
    "attributes of a class by slots": OPTIMIZER + b"(N}Vupdate\nI1\nstb.",
    "a class alone": OPTIMIZER + b".",
    "a dotted name": b"\x80\x04\x8c\x0fmxnet.optimizer\x8c\x0cSGD.__init__\x93.",
    "a module inside": b"cmxnet.optimizer.optimizer\npickle\n.",
    "a function inside": b"cmxnet.optimizer.optimizer\nsgd_update\n(tR.",
    "another module": b"cmxnet.optimizer.evil\nSGD\n.",
    "a base that does something": b"ccopyreg\n_reconstructor\n(" + OPTIMIZER + OPTIMIZER + b"NtR.",
    "arguments of new": OPTIMIZER + b"(I1\nt\x81.",
    "arguments by name": OPTIMIZER + b")}\x92.",
    "a call of a number": b"I1\n(tR.",
    "a change of a number": b"I1\n}b.",
    "a call by INST": b"(ios\nsystem\n.",
    "a call by OBJ": b"(cos\nsystem\no.",
    "an extension code": b"\x80\x02\x82\x01.",
    "a persistent id": b"Pname\n.",
    "an id on the stack": b"I1\nQ.",
    "a buffer out of band": b"\x80\x05\x97.",
    "nothing": b"",
    "no end": b"I1\n",
    "an empty stack": b"0.",
    "a mark that is not there": b"t.",
    "a memo that is not there": b"g5\n.",
    "too little for a tuple": b"\x80\x02I1\n\x87.",
    "a key that is a list": b"}]I1\ns.",
    "a key that is a tuple": b"})I1\ns.",
    "an odd dictionary": b"(I1\nd.",
    "text that is no list": b"Vx\nI1\na.",
    "a number": b"I1\n.",
}


@pytest.mark.parametrize("name", sorted(FORGED))
def test_a_forged_pickle_is_refused(name: str) -> None:
    before = dict(vars(O.SGD))
    with pytest.raises(Refused):
        load(FORGED[name])
    assert dict(vars(O.SGD)) == before


TEXT = b"X\x00\x00\x10\x00" + b"a" * (1 << 20)  # of a MiB
BYTES = b"B\x00\x00\x10\x00" + b"a" * (1 << 20)
NUMBERS = b"(" + b"".join(b"J%s" % n.to_bytes(4, "little") for n in range(1 << 14)) + b"l"
ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\nq\x01(cnumpy\nndarray\nK\x00\x85C\x01btq\x02"
    b"(K\x01J\x00\x00\x10\x00\x85cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R\x89h\x00tq\x03"
)
# What is made, and the few bytes that make it once more.
COPIES = {
    "bytes": (TEXT + b"q\x00c_codecs\nencode\nq\x01", b"h\x01h\x00\x85R"),
    "bytearray": (BYTES + b"q\x00cbuiltins\nbytearray\nq\x01", b"h\x01h\x00\x85R"),
    "set": (NUMBERS + b"q\x00cbuiltins\nset\nq\x01", b"h\x01h\x00\x85R"),
    "frozenset": (NUMBERS + b"q\x00cbuiltins\nfrozenset\nq\x01", b"h\x01h\x00\x85R"),
    "empty sets": (b"", b"\x8f" * 100),
    "frozensets of nothing": (b"", b"(\x91" * 100),
    "dictionaries": (b"ccollections\nOrderedDict\nq\x01", b"h\x01)R" * 100),
    "complex numbers": (b"cbuiltins\ncomplex\nq\x01", b"h\x01)R" * 200),
    "empty arrays": (ARRAY[: -len(b"q\x03")].replace(b"h\x00", b"N"), b"h\x01h\x02R" * 100),
    "arrays": (BYTES + b"q\x00" + ARRAY, b"h\x01h\x02Rh\x03b"),
    "operations": (b"", b"N" * 70),
    "marks": (b"", b"(" * 70),
}


@pytest.mark.parametrize("name", sorted(COPIES))
def test_a_pickle_that_multiplies_its_length_is_refused_before_it_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = "bytescheduler._hosting.pickles._MOST_OPERATIONS"
    monkeypatch.setattr(most, 1 << 16)  # or it takes long
    setup, again = COPIES[name]
    data = b"\x80\x04" + setup + again * 1000 + b"."
    tracemalloc.start()
    try:
        with pytest.raises(Refused, match="many times its own length|more than 65536 operations"):
            load(data)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_large_values_that_are_there_once_arrive(protocol: int) -> None:
    many = {n: f"layer{n}_weight" for n in range(50_000)}
    array = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    loaded = load(pickle.dumps(with_value([many, array, array.tobytes()]), min(protocol, 4)))
    assert loaded.value[0] == many
    assert loaded.value[2] == array.tobytes()
    np.testing.assert_array_equal(loaded.value[1], array)


def test_a_value_that_is_endless_in_words_is_refused_in_no_time() -> None:
    doubled = b")q\x00" + b"h\x00h\x00\x86q\x00" * 60  # a pair of pairs of pairs ...
    for maker in (b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"cbuiltins\nset\n"):
        with pytest.raises(Refused):
            load(b"\x80\x04" + maker + doubled + b"\x85R.")


GOOD = pickle.dumps(O.Adam(param_idx2name={0: "a"}), 4)


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    cuts=st.lists(st.integers(0, len(GOOD) - 1), max_size=4), bytes_=st.binary(max_size=6)
)
def test_damage_ends_in_a_refusal_or_an_optimizer(cuts: "list[int]", bytes_: bytes) -> None:
    data = bytearray(GOOD)
    for cut in cuts:
        data[cut : cut + len(bytes_)] = bytes_
    try:
        loaded = load(bytes(data))
    except Refused:
        return
    assert isinstance(loaded, O.Optimizer)


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(codes=st.lists(st.sampled_from(pickletools.opcodes), max_size=12))
def test_any_sequence_of_operations_ends_in_a_refusal(codes: "list[Any]") -> None:
    data = b"".join(code.code.encode("latin1") + b"\x01\x00\x00\x00\n" for code in codes)
    with pytest.raises(Refused):
        load(data + b".")


def test_modules_can_be_trusted_by_name(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_own.py").write_text(
        "import mxnet as mx\n"
        "class Mine(mx.optimizer.SGD):\n"
        "    pass\n"
        "class Helper:\n"
        "    def __init__(self, x):\n"
        "        self.x = x\n"
        "    def __reduce__(self):\n"
        "        return Helper, (self.x,)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_own  # type: ignore[import-not-found]

    mine = users_own.Mine(learning_rate=0.5)
    mine.part = users_own.Helper([1, 2])
    for protocol in PROTOCOLS:
        pickled = pickle.dumps(mine, protocol)
        loaded = load(pickled, ["other", "users_own"])
        assert type(loaded) is users_own.Mine
        assert (loaded.lr, loaded.part.x) == (0.5, [1, 2])
        for trusted in ((), ("users",), ("users_own.inner",)):
            with pytest.raises(Refused, match="names users_own"):
                load(pickled, trusted)
        evil = users_own.Mine()
        evil.part = Call(os.system, "true")
        with pytest.raises(Refused, match="posix.system"):
            load(pickle.dumps(evil, protocol), ["users_own"])
    del sys.modules["users_own"]
