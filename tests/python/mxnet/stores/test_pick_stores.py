"""topk and randomk: which coding each key has."""

import logging

import mxnet as mx
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full

from bytescheduler._native import Coding
from bytescheduler.mxnet._stores import rates
from bytescheduler.mxnet._stores.native_store import NativeStore

LARGE = (128, 128)  # 64 KiB of float32
LARGER = (256, 128)


def test_a_whole_k_codes_each_size_in_its_own_way(
    store: NativeStore, plugin: FakePlugin, worker: FakeWorker
) -> None:
    store.set_gradient_compression({"compressor": "topk", "k": 12000.0})
    store.init([1, 2, 3, 4], [full(0, LARGE), full(0, LARGER), full(0), full(0, LARGER)])
    coding = Coding("topk", {"k": f"12000/{256 * 128}"})
    declared = dict(zip([key for key, _, _ in worker.declared], worker.declared_codings))
    assert declared == {1: None, 2: coding, 3: None, 4: coding}
    store.push([1, 2, 3], [full(1, LARGE), full(1, LARGER), full(1)], 0)
    assert plugin.codings == [None, coding, None]


def test_a_half_that_is_coded_travels_wide(store: NativeStore, plugin: FakePlugin) -> None:
    store.set_gradient_compression({"compressor": "topk", "k": 0.01})
    ones = mx.nd.ones(LARGER, dtype="float16")
    store.init(1, ones)
    store.push(1, ones, 0)
    assert plugin.codings == [Coding("topk", {"k": "0.01"})]


def test_topk_warns_of_optimizers_that_divide_by_gradients(
    store: NativeStore, caplog: pytest.LogCaptureFixture
) -> None:
    rates._tell_unsuited.cache_clear()
    store.set_optimizer(mx.optimizer.Adam())
    with caplog.at_level(logging.WARNING):
        store.set_gradient_compression({"compressor": "randomk", "k": 0.01})
        assert caplog.text == ""
        store.set_gradient_compression({"compressor": "topk", "k": 0.01})
    assert "so what topk loses may not come later" in caplog.text


def test_sparse_feedback_follows_the_learning_rate(
    store: NativeStore, plugin: FakePlugin, caplog: pytest.LogCaptureFixture
) -> None:
    rates._tell_none.cache_clear()
    store.set_gradient_compression({"compressor": "randomk", "k": 0.01, "ef": "sparse"})
    store.init(1, full(0, LARGE))
    with caplog.at_level(logging.WARNING):
        store.push(1, full(1, LARGE), 0)
    assert "ef 'sparse' of gradient compression follows the learning rate" in caplog.text
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, rescale_grad=0.25))
    store.push(1, full(1, LARGE), 0)
    assert plugin.rates == [None, (0.5, 0.0, 0.25)]
