"""bf16 and fp16: which keys are coded, how they are declared, and which are refused."""

from typing import Dict, List

import mxnet as mx
import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full
from mxnet.base import MXNetError

from bytescheduler._native import Coding
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores import scaled_steps
from bytescheduler.mxnet._stores.async_store import AsyncStore
from bytescheduler.mxnet._stores.native_store import NativeStore

BF16 = Coding("bf16", {})
LARGE = (128, 128)  # 64 KiB of float32


def test_keys_from_64_kib_on_are_coded(
    store: NativeStore, plugin: FakePlugin, worker: FakeWorker
) -> None:
    store.init(1, full(0, LARGE))
    store.set_gradient_compression({"compressor": "bf16"})
    store.init([2, 3], [full(0, LARGE), full(0)])
    assert dict(zip([key for key, _, _ in worker.declared], worker.declared_codings)) == {
        1: None,
        2: BF16,
        3: None,
    }
    store.push([1, 2, 3], [full(1, LARGE), full(1, LARGE), full(1)], 0)
    assert plugin.codings == [BF16, BF16, None]


def test_the_least_size_is_a_setting(
    store: NativeStore, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.init([1, 2], [full(0), full(0, (2, 2))])
    monkeypatch.setenv("BYTEPS_MIN_COMPRESS_BYTES", "24")
    store.set_gradient_compression({"compressor": "bf16"})
    store.push([1, 2], [full(1), full(1, (2, 2))], 0)
    assert plugin.codings == [BF16, None]


def test_half_precision_travels_as_float32(
    store: NativeStore, plugin: FakePlugin, worker: FakeWorker
) -> None:
    """A key that was declared narrow is declared again, with all workers."""
    shape = (256, 128)
    small, large = mx.nd.ones((2,), dtype="float16"), mx.nd.ones(shape, dtype="float16")
    store.init([1, 2], [large, small])
    store.set_gradient_compression({"compressor": "fp16"})
    store.init(3, large)
    assert [(code, size) for _, code, size in worker.declared] == [
        (2, 65536),
        (2, 4),
        (0, 131072),
        (0, 131072),
    ]
    out = mx.nd.zeros(shape, dtype="float16")
    store.pushpull([1, 2, 3], [large * 2, small * 2, large * 2], [out, small.copy(), out.copy()], 0)
    assert [None if coding is None else str(coding) for coding in plugin.codings] == [
        "compressed to fp16",
        None,
        "compressed to fp16",
    ]
    assert (out.asnumpy() == 2).all()


def test_whole_numbers_are_refused_where_they_are_pushed_in_coded_size(
    store: NativeStore, plugin: FakePlugin
) -> None:
    store.set_gradient_compression({"compressor": "bf16"})
    for key, dtype in enumerate(("int32", "int64")):
        small, large = (mx.nd.ones(shape, dtype=dtype) for shape in ((2, 3), LARGE))
        store.init([2 * key, 2 * key + 1], [small, large])
        store.push(2 * key, small, 0)
        with pytest.raises(MXNetError, match=f"key {2 * key + 1}: {dtype} cannot be") as raised:
            store.push(2 * key + 1, large, 0)
        assert "only float32, float16, bfloat16" in str(raised.value)
    assert plugin.codings == [None] * 2


def test_float64_of_coded_size_is_refused_with_the_first_push_of_any_key(
    store: NativeStore, plugin: FakePlugin
) -> None:
    small, large = (mx.nd.ones(shape, dtype="float64") for shape in ((2, 3), LARGE))
    store.init([0, 1], [full(1, LARGE), small])
    store.set_gradient_compression({"compressor": "bf16"})
    store.init(2, large)
    for _ in range(2):
        with pytest.raises(MXNetError, match="key 2: float64 cannot be compressed to bf16"):
            store.push(0, full(1, LARGE), 0)
    assert not plugin.codings


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"grad_stype": "row_sparse"}, "key 2: row_sparse arrays cannot be compressed to bf16"),
        ({"dtype": "float64"}, "key 2: float64 cannot be compressed to bf16"),
    ],
)
def test_a_layer_of_gluon_is_refused_with_the_first_push_unless_it_is_frozen(
    store: NativeStore, plugin: FakePlugin, how: Dict[str, str], text: str
) -> None:
    layer = mx.gluon.Parameter("layer", shape=LARGE, **how)
    store.init([1, 2], [full(1, LARGE), mx.nd.ones(LARGE, dtype=how.get("dtype", "float32"))])
    store.set_gradient_compression({"compressor": "bf16"})
    store.set_optimizer(mx.optimizer.SGD(param_dict={2: layer}))
    with pytest.raises(MXNetError, match=text):
        store.push(1, full(1, LARGE), 0)
    assert not plugin.codings
    layer.grad_req = "null"
    store.push(1, full(1, LARGE), 0)
    assert plugin.codings == [BF16]


def test_rows_of_coded_size_are_refused(store: NativeStore) -> None:
    store.init(1, full(0, LARGE))
    store.set_gradient_compression({"compressor": "bf16"})
    with pytest.raises(MXNetError, match="key 1: row_sparse arrays cannot be compressed to bf16"):
        store.push(1, full(1, LARGE).tostype("row_sparse"), 0)


def test_the_last_call_before_a_coded_push_counts(store: NativeStore, plugin: FakePlugin) -> None:
    store.init([1, 2], [full(0, LARGE)] * 2)
    store.set_gradient_compression({"compressor": "fp16"})
    store.set_gradient_compression({"compressor": None})
    store.push(1, full(1, LARGE), 0)
    store.set_gradient_compression({"compressor": "bf16"})
    store.push(1, full(1, LARGE), 0)
    assert plugin.codings == [None, BF16]
    for params in ({"compressor": "bf16"}, {"compressor": None}, {"type": "2bit"}):
        with pytest.raises(MXNetError, match="set gradient compression once, before the first"):
            store.set_gradient_compression(params)
    store.push(1, full(1, LARGE), 0)
    assert plugin.codings[-1] == BF16


def test_an_overflow_travels_so_loss_scaling_is_no_error(
    store: NativeStore, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled_steps, "is_scaling", lambda: True)
    store.init(1, full(0, LARGE))
    store.set_gradient_compression({"type": "2bit"})
    with pytest.raises(MXNetError, match="AMP's loss scaling does not go with"):
        store.push(1, full(1, LARGE), 0)
    store.set_gradient_compression({"compressor": "bf16"})
    store.push(1, full(1, LARGE), 0)
    assert plugin.codings == [BF16]


def test_the_first_push_waits_for_the_notes_of_all_workers(
    store: NativeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: List[bool] = []
    monkeypatch.setattr(store._session, "judge", lambda: judged.append(True))
    store.init([1, 2], [full(0, LARGE), full(0)])
    store.set_gradient_compression({"compressor": "bf16"})
    for key, shape in ((2, full(0).shape), (1, LARGE), (1, LARGE)):
        store.push(key, full(1, shape), 0)
        assert judged == [True], "a small tensor, which is not coded, changes weights too"


def test_dist_async_changes_its_compression_as_other_stores_do(
    session: TensorSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "broadcast_whole", lambda whole: None)
    monkeypatch.setattr(session, "update", lambda tensor, priority, **how: None)
    store = AsyncStore(session)
    store.set_gradient_compression({"compressor": "bf16"})
    store.set_gradient_compression({"type": "2bit"})
    store.init(1, full(0))
    store.push(1, full(1), 0)
    with pytest.raises(MXNetError, match="so they cannot be not compressed any more"):
        store.set_gradient_compression({"compressor": None})
    store.close(None)
