"""The rates of pushes whose residuals follow them."""

import logging
from typing import List

import mxnet as mx
import pytest
from fakes import FakePlugin, full

from bytescheduler._compression.params import compression_of
from bytescheduler._native import Coding
from bytescheduler.mxnet._stores import rates
from bytescheduler.mxnet._stores.native_store import NativeStore
from bytescheduler.mxnet.kvstore import ScheduledKVS
from bytescheduler.mxnet.trainer import ScheduledTrainer

LARGE = (128, 128)  # 64 KiB of float32
ONEBIT = {"compressor": "onebit", "scaling": True}


def test_pushes_carry_the_rates_of_their_step(store: NativeStore, plugin: FakePlugin) -> None:
    store.set_gradient_compression({**ONEBIT, "ef": "corrected"})
    store.init([1, 2], [full(0, LARGE), full(0)])
    optimizer = mx.optimizer.SGD(learning_rate=0.5, rescale_grad=0.25)
    store.set_optimizer(optimizer)
    store.push([1, 2], [full(1, LARGE), full(1)], 0)
    assert plugin.rates == [(0.5, 0.0, 0.25), None]
    optimizer.set_learning_rate(float("nan"))
    assert rates.rates_of(plugin.codings[0], optimizer, 1) == (0.0, 0.0, 0.25)


def test_a_scheduler_gives_pushes_the_rates_of_their_update(
    store: NativeStore, plugin: FakePlugin
) -> None:
    """Of its first and second key, pushed alone and in a list."""
    store.set_gradient_compression({**ONEBIT, "ef": "corrected"})
    store.init([1, 2], [full(0, LARGE), full(0, LARGE)])
    halving = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=8)
    optimizer = mx.optimizer.SGD(learning_rate=8, lr_scheduler=halving, wd=0.0)
    store.set_optimizer(optimizer)
    out = full(0, LARGE)
    used = []
    for _ in range(2):
        for key in (1, 2):
            store.pushpull(key, full(1, LARGE), out, 0)
            used.append(optimizer.learning_rate)
    store.push([1, 2], [full(1, LARGE)] * 2, 0)
    used += [optimizer.learning_rate] * 2
    assert [pushed[0] for pushed in plugin.rates] == used == [8, 8, 4, 4, 2, 2]


def test_without_residuals_there_are_none(store: NativeStore, plugin: FakePlugin) -> None:
    store.set_gradient_compression(ONEBIT)
    store.init(1, full(0, LARGE))
    store.set_optimizer(mx.optimizer.SGD())
    store.push(1, full(1, LARGE), 0)
    assert plugin.rates == [None]


def test_rates_may_be_of_an_optimizer_outside(store: NativeStore, plugin: FakePlugin) -> None:
    """A Trainer that updates by itself."""
    store.set_gradient_compression({**ONEBIT, "ef": "vanilla"})
    net = mx.gluon.nn.Dense(128, in_units=128, use_bias=False)
    net.initialize()
    scheduled = ScheduledKVS.__new__(ScheduledKVS)
    scheduled._inner, scheduled._backend = None, store
    trainer = ScheduledTrainer(
        net.collect_params(), "sgd", {"learning_rate": 0.5}, scheduled, update_on_kvstore=False
    )
    for batch in (2, 4):
        with mx.autograd.record():
            loss = net(full(1, (1, 128))).sum()
        loss.backward()
        trainer.step(batch)
    assert plugin.rates == [(0.5, 0.0, 0.5), (0.5, 0.0, 0.25)]


def test_corrected_without_an_optimizer_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    rates._tell_none.cache_clear()
    corrected, vanilla = (Coding("onebit", {"ef": ef}) for ef in ("corrected", "vanilla"))
    with caplog.at_level(logging.WARNING):
        assert rates.rates_of(vanilla, None, 1) is None
        assert not caplog.records
        for _ in range(2):
            assert rates.rates_of(corrected, None, 1) is None
    assert [record.getMessage() for record in caplog.records] == [
        "ef 'corrected' of gradient compression follows the learning rate of the store's "
        "optimizer, and there is none: it does what 'vanilla' does"
    ]


def test_optimizers_that_divide_by_gradients_are_warned_of_once(
    store: NativeStore, caplog: pytest.LogCaptureFixture
) -> None:
    rates._tell_unsuited.cache_clear()
    with caplog.at_level(logging.WARNING):
        store.set_optimizer(mx.optimizer.Adam())
        store.set_gradient_compression({"compressor": "bf16"})
        assert caplog.text == ""
        store.set_gradient_compression(ONEBIT)
        store.set_optimizer(mx.optimizer.Adam())
        store.set_optimizer(mx.optimizer.SGD())
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "Adam divides by the size of gradients"
    ]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """Return what is said for people, once it is."""
    lines: List[str] = []
    monkeypatch.setattr(rates, "say", lines.append)
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "info")
    return lines


def test_worker_0_tells_at_the_first_push_how_much_is_compressed(
    store: NativeStore, plugin: FakePlugin, told: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_gradient_compression({**ONEBIT, "ef": "vanilla"})
    store.init([1, 2], [full(0, LARGE), full(0)])
    assert told == []
    for _ in range(2):
        store.push([1, 2], [full(1, LARGE), full(1)], 0)
    assert told == [
        "bytescheduler: compressing 1 of 2 tensors, 100 % of the bytes: onebit scaled, "
        "ef=vanilla: 1/32 both ways"
    ]
    rates.tell_summary(compression_of(ONEBIT, 0), 1, store._tensors.values())
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "warning")
    rates.tell_summary(compression_of(ONEBIT, 0), 0, store._tensors.values())
    assert len(told) == 1


def test_another_threshold_of_two_bits_is_not_told_again(
    store: NativeStore, plugin: FakePlugin, told: List[str]
) -> None:
    store.init(1, full(0, LARGE))
    for threshold in (0.5, 0.25):
        store.set_gradient_compression({"type": "2bit", "threshold": threshold})
        store.push(1, full(1, LARGE), 0)
    assert len(told) == 1
