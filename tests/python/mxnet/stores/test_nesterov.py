"""Momentum of gradients before they are pushed: MXNet's NAG, whatever the sizes."""

import contextlib
import logging
import pathlib
from typing import Any, Dict, List

import mxnet as mx
import numpy as np
import pytest
from fakes import FakePlugin, full
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler._native import Coding
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores import nesterov
from bytescheduler.mxnet._stores.async_store import AsyncStore
from bytescheduler.mxnet._stores.native_store import NativeStore

NESTEROV = {"momentum": "nesterov"}
SHAPE = (4, 3)


def gradient(step: int) -> np.ndarray:
    return np.random.RandomState(step).normal(0, 1, SHAPE).astype(np.float32)


def train(store: NativeStore, optimizer: mx.optimizer.Optimizer, rates: List[float]) -> np.ndarray:
    """Return the weights; a step for each of the learning rates."""
    store.init(1, mx.nd.array(gradient(999)))
    store.set_optimizer(optimizer)
    out = mx.nd.zeros(SHAPE)
    for step, rate in enumerate(rates):
        optimizer.set_learning_rate(rate)
        store.pushpull(1, mx.nd.array(gradient(step)), out, 0)
    return out.asnumpy()


NUMBERS: Dict[str, Any] = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.05, "rescale_grad": 0.5}


def error_of(weights: np.ndarray) -> float:
    """Return the difference from the weights of 50 steps of MXNet's NAG, over their size."""
    updater = mx.optimizer.get_updater(mx.optimizer.NAG(**NUMBERS))
    expected = mx.nd.array(gradient(999))
    for step in range(50):
        updater(1, mx.nd.array(gradient(step)), expected)
    difference = np.linalg.norm(weights - expected.asnumpy())
    return float(difference / np.linalg.norm(expected.asnumpy()))


@pytest.mark.parametrize("kind", [mx.optimizer.NAG, mx.optimizer.SGD])
@pytest.mark.parametrize("mu", [None, 0.9])
def test_without_a_compressor_the_weights_equal_nags(
    store: NativeStore,
    kind: Any,  # noqa: ANN401 - MXNet has no types
    mu: "float | None",
) -> None:
    """E4, with weight decay; the optimizer stays as it is."""
    ours = kind(**{**NUMBERS, "momentum": 0.9 if mu is None else 0.0})
    store.set_gradient_compression({**NESTEROV, "compressor": None, "mu": mu, "k": 1.0})
    weights = train(store, ours, [0.1] * 50)
    assert (ours.momentum, ours.wd) == (0.9 if mu is None else 0.0, 0.05)
    assert error_of(weights) < 1e-6


def test_a_momentum_that_stays_in_the_optimizer_as_well_is_caught(
    store: NativeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the test above."""
    monkeypatch.setattr(nesterov.Nesterov, "plain", lambda *_: contextlib.nullcontext())
    store.set_gradient_compression(NESTEROV)
    weights = train(store, mx.optimizer.SGD(**NUMBERS), [0.1] * 50)
    assert error_of(weights) > 0.1


def test_learning_rates_are_no_part_of_the_momentum(store: NativeStore) -> None:
    """Unlike MXNet's own, where they change; against a model in float64."""
    rates = [0.1] * 10 + [0.01] * 10
    store.set_gradient_compression(NESTEROV)
    weights = train(store, mx.optimizer.SGD(momentum=0.5, wd=0.1, rescale_grad=2.0), rates)
    expected = gradient(999).astype(np.float64)
    momentum = np.zeros(SHAPE)
    for step, rate in enumerate(rates):
        momentum = 0.5 * momentum + 2 * gradient(step)
        ahead = momentum + 0.1 * expected
        expected = expected - rate * (2 * gradient(step) + 0.1 * expected + 0.5 * ahead)
        momentum = momentum + 0.1 * expected  # as in MXNet's NAG
    np.testing.assert_allclose(weights, expected, 1e-4, 1e-5)


def test_a_momentum_follows_rescale_grad(store: NativeStore, plugin: FakePlugin) -> None:
    """Half the batch: the gradient counts twice, and so does what the momentum has of it."""
    optimizer = mx.optimizer.SGD(learning_rate=0, momentum=0.5, rescale_grad=1.0, wd=0.0)
    store.set_gradient_compression(NESTEROV)
    store.init(1, full(0))
    store.set_optimizer(optimizer)
    store.push(1, full(8), 0)
    assert plugin.sent == [12]  # 8 + 0.5 * 8
    optimizer.rescale_grad = 2.0
    store.push(1, full(0), 0)
    assert plugin.sent == [12, 1]  # 0.5 * (0.5 * 8 / 2)


def test_codes_are_made_of_gradients_with_their_momentum(
    store: NativeStore, plugin: FakePlugin
) -> None:
    """A key of 64 KiB is coded and a smaller one is not; both have the momentum."""
    large = (128, 128)
    onebit = {"compressor": "onebit", "scaling": True, "ef": "vanilla"}
    store.set_gradient_compression({**NESTEROV, **onebit, "mu": 0.5})
    store.init([1, 2], [full(0, large), full(0)])
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0, wd=0.0))
    for _ in range(2):
        store.push([1, 2], [full(8, large), full(4)], 0)
    assert plugin.sent == [12, 6, 14, 7]  # 8 + 0.5 * 8, then 8 + 0.5 * (0.5 * 8 + 8)
    coding = Coding("onebit", {"scaling": "True", "ef": "vanilla"})
    assert plugin.codings == [coding, None, coding, None]


def test_an_overflow_is_sent_and_leaves_the_momentum(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.set_gradient_compression(NESTEROV)
    store.init(1, full(0))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0, momentum=0.5, wd=0.0))
    store.push(1, full(8), 0)
    store.push(1, full(np.inf), 0)
    store.push(1, full(0), 0)
    assert plugin.sent == [12, np.inf, 1]  # 0.5 * 0.25 * 8


@pytest.mark.filterwarnings("ignore:Accumulating with float16")
def test_half_precision_has_a_momentum_in_float32(store: NativeStore) -> None:
    store.set_gradient_compression(NESTEROV)
    half = mx.nd.ones((2, 3), dtype="float16")
    store.init(1, half * 0)
    store.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5, wd=0.0))
    out = half.copy()
    store.pushpull(1, half, out, 0)
    assert (out.asnumpy() == -1.5).all()


def test_loss_scaling_is_refused_before_anything_is_sent(
    store: NativeStore, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_gradient_compression(NESTEROV)
    store.init(1, full(0))
    store.set_optimizer(mx.optimizer.SGD(momentum=0.5))
    monkeypatch.setattr(nesterov, "is_scaling", lambda: True)
    with pytest.raises(MXNetError, match="does not go with AMP's loss scaling"):
        store.push(1, full(1), 0)
    assert plugin.sent == []


def test_a_misfit_is_refused_before_anything_is_sent(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.set_gradient_compression(NESTEROV)
    store.init([1, 2], [full(0), mx.nd.zeros((2, 3), dtype="int32")])
    with pytest.raises(MXNetError, match="needs an optimizer") as raised:
        store.push(1, full(1), 0)
    assert str(raised.value) == snapshot(
        "momentum 'nesterov' of gradient compression needs an optimizer in the store, which "
        "updates without a momentum of its own: call set_optimizer, or let the Trainer update on "
        "the store (update_on_kvstore=True)"
    )
    with pytest.raises(MXNetError, match="goes with the optimizers 'sgd' and 'nag', not with Adam"):
        store.set_optimizer(mx.optimizer.Adam())
    with pytest.raises(MXNetError, match="does not go with clip_gradient 0.5"):
        store.set_optimizer(mx.optimizer.SGD(momentum=0.5, clip_gradient=0.5))
    with pytest.raises(MXNetError, match="has no number: give the optimizer a momentum"):
        store.set_optimizer(mx.optimizer.SGD())
    store.set_optimizer(mx.optimizer.SGD(momentum=0.5))
    with pytest.raises(MXNetError, match="key 2: int32 has no momentum 'nesterov'"):
        store.push(2, mx.nd.zeros((2, 3), dtype="int32"), 0)
    with pytest.raises(MXNetError, match="key 1: row_sparse arrays have no momentum"):
        store.push(1, full(1).tostype("row_sparse"), 0)
    assert plugin.calls == []


def test_a_layer_of_gluon_with_rows_is_refused_with_the_first_push(
    store: NativeStore, plugin: FakePlugin
) -> None:
    layer = mx.gluon.Parameter("layer", shape=SHAPE, grad_stype="row_sparse")
    store.set_gradient_compression(NESTEROV)
    store.init([1, 2], [full(0), full(0, SHAPE)])
    store.set_optimizer(mx.optimizer.SGD(momentum=0.5, param_dict={2: layer}))
    with pytest.raises(MXNetError, match="key 2: row_sparse arrays have no momentum 'nesterov'"):
        store.push(1, full(1), 0)
    assert plugin.calls == []


def test_an_optimizer_that_is_there_is_checked_in_the_call(store: NativeStore) -> None:
    store.set_optimizer(mx.optimizer.Adam())
    with pytest.raises(MXNetError, match="not with Adam"):
        store.set_gradient_compression(NESTEROV)


def test_it_says_once_that_the_optimizer_goes_without(
    store: NativeStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        store.set_gradient_compression(NESTEROV)
        store.init(1, full(0))
        store.set_optimizer(mx.optimizer.SGD(momentum=0.5))
        for _ in range(2):
            store.push(1, full(1), 0)
    told = [r.getMessage() for r in caplog.records if "nesterov" in r.getMessage()]
    assert len(told) == 1
    assert told[0] == snapshot(
        "momentum 'nesterov' of gradient compression is 0.5: the optimizer updates without its own"
    )


def test_it_is_set_once_before_the_first_push(store: NativeStore, plugin: FakePlugin) -> None:
    store.set_gradient_compression({**NESTEROV, "mu": 0.5})
    store.set_gradient_compression({**NESTEROV, "mu": 0.25})
    store.init(1, full(0))
    optimizer = mx.optimizer.SGD(learning_rate=0, wd=0.0)
    store.set_optimizer(optimizer)
    store.push(1, full(8), 0)
    with pytest.raises(MXNetError) as raised:
        store.set_gradient_compression({**NESTEROV, "mu": 0.5})
    assert str(raised.value) == snapshot(
        "gradients were pushed with momentum 'nesterov', so they cannot be with momentum "
        "'nesterov' any more: set gradient compression once, before the first push"
    )
    store.push(1, full(0), 0)
    assert plugin.sent == [10, 0.5]  # 8 + 0.25 * 8, 0.25 * 0.25 * 8


def test_an_optimizer_that_is_set_again_begins_with_none(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.set_gradient_compression({**NESTEROV, "mu": 0.5})
    store.init(1, full(0))
    for _ in range(2):
        store.set_optimizer(mx.optimizer.SGD(learning_rate=0.0, wd=0.5, rescale_grad=1.0))
        store.push(1, full(8), 0)
    assert plugin.sent == [12, 12]


def test_states_are_saved_and_loaded_without_it(
    store: NativeStore, plugin: FakePlugin, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.set_gradient_compression({**NESTEROV, "mu": 0.5})
    store.init(1, full(0))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0, wd=0.0))
    store.push(1, full(8), 0)
    with caplog.at_level(logging.WARNING):
        store.save_optimizer_states(str(tmp_path / "states"), dump_optimizer=False)
    assert [record.getMessage() for record in caplog.records] == snapshot(
        [
            "momentum 'nesterov' of gradient compression is in no file of optimizer states: a job "
            "that loads them begins with none"
        ]
    )
    store.load_optimizer_states(str(tmp_path / "states"))
    store.push(1, full(8), 0)
    assert plugin.sent == [12, 12]


def test_workers_of_stock_servers_compare_it_too(
    session: TensorSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("leaves_small_plain", "compares_codings"):
        monkeypatch.setattr(session, name, False)
    store = NativeStore(session)
    store.set_gradient_compression({**NESTEROV, "mu": 0.5})
    assert store._agreement._compression[-2] == 0.5
    assert store._judges


def test_dist_async_has_none(session: TensorSession) -> None:
    store = AsyncStore(session)
    with pytest.raises(MXNetError, match="has no place in dist_async"):
        store.set_gradient_compression(NESTEROV)
    store.close(None)
