"""A session over a stock store: who publishes first, what is refused, what a failure leaves."""

import os
import subprocess
import sys
import textwrap
from typing import List

import pytest
from fake_engine import FakeWorker
from fakes import FakePlugin, full
from inline_snapshot import snapshot
from mxnet.base import MXNetError

from bytescheduler._session.place import Place
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._choice import opening
from bytescheduler.mxnet._functions import open_copier
from bytescheduler.mxnet._sessions.stock_session import StockSession


class RecordingWorker(FakeWorker):
    """Notes the order of what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: List[str] = []

    def broadcast(self, items: "List[tuple[int, int, int, int]]", **options: object) -> None:
        super().broadcast(items, **options)  # type: ignore[arg-type]
        self.asked.append("broadcast")

    def barrier(self) -> None:
        super().barrier()
        self.asked.append("barrier")


@pytest.mark.parametrize(
    ("rank", "order"), [(0, ["broadcast", "barrier"]), (1, ["barrier", "broadcast"])]
)
def test_rank_0_publishes_before_the_other_ranks_ask(rank: int, order: "List[str]") -> None:
    worker = RecordingWorker()
    worker.rank = rank
    session = StockSession(worker, FakePlugin())  # type: ignore[arg-type]
    session.broadcast([Tensor(3, 3, full(1), open_copier())])
    assert worker.asked == order
    session.close()


def test_a_dtype_that_stock_servers_cannot_sum_is_refused_before_any_message() -> None:
    worker = RecordingWorker()
    session = StockSession(worker, FakePlugin())  # type: ignore[arg-type]
    whole = full(1).astype("int64")
    tensors = [Tensor(3, 3, full(1), open_copier()), Tensor("a", 4, whole, open_copier())]
    with pytest.raises(MXNetError, match="key 'a'.* int64") as raised:
        session.broadcast(tensors)
    assert str(raised.value) == snapshot(
        "key 'a': stock servers cannot sum int64, only float32, float64, float16: cast it, or "
        "start the job with bslaunch"
    )
    assert worker.asked == []
    session.close()


def test_after_a_failure_the_process_ends_with_its_code_though_mxnet_waits_for_ever() -> None:
    mxnet = os.path.dirname(os.path.dirname(__file__))
    script = f"""
        import ctypes, sys
        sys.path[:0] = [{mxnet!r}, {os.path.dirname(mxnet)!r}]
        import mxnet as mx
        from bytescheduler.mxnet._sessions.stock_session import StockSession
        from fake_engine import FakeWorker
        from fakes import FakePlugin

        class Store:
            def __del__(self):
                print("destroyed")

        session = StockSession(FakeWorker(), FakePlugin(), Store())
        # An operation of MXNet's engine that nobody completes.
        array, cpu = mx.nd.ones(3), (ctypes.c_int * 2)(1, 0)
        never = ctypes.CFUNCTYPE(None, *3 * [ctypes.c_void_p])(lambda *_: None)
        call = mx.base._LIB.MXEnginePushAsyncND
        mx.base.check_call(call(never, None, None, cpu, None, 0, ctypes.byref(array.handle), 1,
                                None, 0, b"never", ctypes.c_bool(False)))
        session._worker.fail("a test")
        sys.exit(7)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd="/",  # not in a source tree
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 7, done.stderr
    assert "worker 0 gave up: a test" in done.stderr
    assert "destroyed" not in done.stdout


def test_a_process_has_one_store_on_stock_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "STOCK", Place())
    opening._require_no_stock_session()
    session = StockSession(RecordingWorker(), FakePlugin())  # type: ignore[arg-type]
    opening.STOCK.take(session)
    with pytest.raises(MXNetError, match="has a store on stock servers already"):
        opening._require_no_stock_session()
    session.close()
    opening._require_no_stock_session()
