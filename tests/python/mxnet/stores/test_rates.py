"""The rates of pushes whose residuals follow them."""

import logging

import mxnet as mx
import pytest
from fakes import FakePlugin, full

from bytescheduler._native import Coding
from bytescheduler.mxnet._stores import rates
from bytescheduler.mxnet._stores.native_store import NativeStore

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
    assert rates.rates_of(plugin.codings[0], store.updater) == (0.0, 0.0, 0.25)


def test_without_residuals_there_are_none(store: NativeStore, plugin: FakePlugin) -> None:
    store.set_gradient_compression(ONEBIT)
    store.init(1, full(0, LARGE))
    store.set_optimizer(mx.optimizer.SGD())
    store.push(1, full(1, LARGE), 0)
    assert plugin.rates == [None]


def test_corrected_without_an_optimizer_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    rates._tell_none.cache_clear()
    corrected, vanilla = (Coding("onebit", {"ef": ef}) for ef in ("corrected", "vanilla"))
    with caplog.at_level(logging.WARNING):
        assert rates.rates_of(vanilla, None) is None
        assert not caplog.records
        for _ in range(2):
            assert rates.rates_of(corrected, None) is None
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
