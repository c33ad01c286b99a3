"""Updates of raw memory, as a server asks for them."""

import pickle
from typing import List, Optional, Tuple

import mxnet as mx
import numpy as np
import pytest

from bytescheduler._hosting.host import Host
from bytescheduler.mxnet._optimizer.server_updates import Updates, describe_key

Rates = Tuple[Optional[float], Optional[float], Optional[float]]
OWN: Rates = (None, None, None)
FLOAT32 = 0


def memory(gradient: np.ndarray, weights: np.ndarray) -> "Tuple[int, int, int]":
    return gradient.ctypes.data, weights.ctypes.data, weights.nbytes


def test_an_update_equals_the_optimizer_on_the_whole_array() -> None:
    random = np.random.RandomState(3)
    here, there = mx.optimizer.LAMB(), Updates(mx.optimizer.LAMB())
    update = mx.optimizer.get_updater(here)
    weights = random.randn(4, 5).astype(np.float32)
    want = mx.nd.array(weights)
    about = describe_key("fc", (4, 5), rows=False)
    for step in range(5):
        gradient = random.randn(4, 5).astype(np.float32)
        here.lr = 0.1 / (step + 1)
        update("fc", mx.nd.array(gradient), want)
        rates = (0.1 / (step + 1), 0.0, 1.0)
        there.update(11, about, FLOAT32, memory(gradient, weights), rates)
    np.testing.assert_allclose(weights, want.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize(("code", "dtype"), [(0, "float32"), (1, "float64"), (2, "float16")])
def test_dtypes_and_flat_arrays_of_no_name(code: int, dtype: str) -> None:
    updates = Updates(mx.optimizer.Test(rescale_grad=2.0, multi_precision=True))
    weights = np.array([1, 2, 3], dtype)
    updates.update(5, "", code, memory(np.array([1, 1, 2], dtype), weights), OWN)
    assert weights.tolist() == [3, 4, 7]


def test_a_gradient_may_start_anywhere_and_be_empty() -> None:
    updates = Updates(mx.optimizer.Test())
    raw = np.zeros(13, np.uint8)
    raw[1:13] = np.array([1, 2, 3], np.float32).view(np.uint8)
    weights = np.zeros(3, np.float32)
    updates.update(1, "", FLOAT32, (raw.ctypes.data + 1, weights.ctypes.data, 12), OWN)
    assert weights.tolist() == [1, 2, 3]
    updates.update(2, describe_key(2, (0, 3), rows=False), FLOAT32, (0, 0, 0), OWN)


@pytest.mark.filterwarnings("ignore:Accumulating with float16")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_only_the_rows_with_flags_are_updated(dtype: str) -> None:
    codes = {"float32": 0, "float64": 1, "float16": 2}
    sgd = mx.optimizer.SGD(learning_rate=1.0, wd=0.5, lazy_update=True, multi_precision=False)
    updates = Updates(sgd)
    about = describe_key(3, (4, 2), rows=True)
    weights = np.array([8] * 8 + [0] * 4, dtype)
    gradient = np.array([0, 0, 1, 2, 0, 0, 0, 0] + [0, 1, 0, 2], dtype)
    updates.update(3, about, codes[dtype], memory(gradient, weights), OWN)
    assert weights.tolist() == [8, 8, 3, 2, 8, 8, 4, 4] + [0] * 4
    gradient[:] = 0
    updates.update(3, about, codes[dtype], memory(gradient, weights), OWN)
    assert weights.tolist() == [8, 8, 3, 2, 8, 8, 4, 4] + [0] * 4, "no rows at all"


def test_rates_of_a_push_win_and_the_next_has_its_own() -> None:
    sgd = mx.optimizer.SGD(learning_rate=0.5, wd=0.0, momentum=0.0)
    sgd.set_lr_mult({"w": 100.0})
    updates = Updates(sgd)
    weights, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    about = describe_key("w", (1,), rows=False)
    values = []
    for rates in (OWN, (1.0, 0.0, 2.0), (None, None, 4.0), OWN):
        weights[:] = 0
        updates.update(1, about, FLOAT32, memory(one, weights), rates)
        values.append(float(weights[0]))
    assert values == [-50, -2, -200, -50]


@pytest.mark.parametrize(
    "about",
    [
        "x",
        "[]",
        "{}",
        '{"key":1,"shape":[3]}',
        '{"key":1,"shape":[-2,-1]}',
        '{"key":[],"shape":[2]}',
    ]
    + ['{"key":1,"shape":["2"]}', '{"key":1,"shape":2}', '{"key":1,"shape":[2],"rows":true}'],
)
def test_a_malformed_description_of_a_key_is_told(about: str) -> None:
    weights = np.zeros(2, np.float32)
    host, said = make_host()
    assert host.set_optimizer(pickle.dumps(mx.optimizer.Test())) is None
    why = host.update(1, about, FLOAT32, *memory(weights, weights), OWN)
    assert why is not None
    assert said[-1].startswith("an update of key")


def make_host(**options: object) -> "Tuple[Host, List[str]]":
    said: List[str] = []
    settings = {"pickles": "allow-list", "trusted": (), "say": said.append, **options}
    return Host(**settings), said  # type: ignore[arg-type]


def test_a_host_keeps_an_allowed_optimizer_after_a_refusal() -> None:
    host, said = make_host()
    assert host.set_optimizer(pickle.dumps(mx.optimizer.Test(rescale_grad=3))) is None
    why = host.set_optimizer(pickle.dumps(print))
    assert why is not None
    assert "names builtins.print" in why
    weights, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    assert host.update(1, "", FLOAT32, *memory(one, weights), OWN) is None
    assert weights[0] == 3
    assert said == [
        "updates weights by mxnet.optimizer.optimizer.Test",
        f"refused an optimizer: {why}",
    ]


def test_a_host_may_refuse_pickles_altogether() -> None:
    host, said = make_host(pickles="refuse")
    why = host.set_optimizer(pickle.dumps(mx.optimizer.Test()))
    assert why is not None
    assert "BYTESCHEDULER_PICKLES=refuse" in why
    assert len(said) == 1


def test_a_long_exception_is_cut_off() -> None:
    host, _ = make_host()
    assert host.set_optimizer(pickle.dumps(mx.optimizer.Test())) is None
    why = host.update(1, '{"key":1,"shape":[' + "7," * 2000 + "7]}", FLOAT32, 0, 0, 4, OWN)
    assert why is not None
    assert len(why) < 1000


def test_mxnet_is_imported_as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = []
    monkeypatch.setenv("DMLC_ROLE", "server")

    def note(name: str) -> object:
        import os

        roles.append(os.environ.get("DMLC_ROLE"))
        raise ImportError(f"no {name}")

    monkeypatch.setattr("importlib.import_module", note)
    host, _ = make_host()
    why = host.set_optimizer(b"")
    assert why is not None
    assert "the server's Python cannot import mxnet (ImportError: no bytescheduler.mxnet" in why
    assert roles == [None]
    import os

    assert os.environ["DMLC_ROLE"] == "server"
