"""A session in MXNet's engine: its end leaves nothing for MXNet to wait for, or to die of."""

import os
import subprocess
import sys
import textwrap

from fake_engine import FakeWorker
from fakes import FakePlugin, full
from mxnet.base import MXNetError

from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._stores.native_store import NativeStore


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Run `script` after the imports it needs, with `session`, `worker` and `plugin` made."""
    mxnet = os.path.dirname(os.path.dirname(__file__))
    head = f"""
        import sys
        sys.path[:0] = [{mxnet!r}, {os.path.dirname(mxnet)!r}]
        import mxnet as mx
        from bytescheduler.mxnet._sessions.tensor_session import TensorSession
        from bytescheduler.errors import Error
        from fake_engine import FakeWorker
        from fakes import FakePlugin
        worker, plugin = FakeWorker(), FakePlugin()
        worker.close = lambda: print("closed", plugin.drained)
        session = TensorSession(worker, plugin)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        cwd="/",  # not in a source tree
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_store_in_a_forked_child_raises_and_does_nothing_else(
    session: TensorSession, worker: FakeWorker, plugin: FakePlugin
) -> None:
    store = NativeStore(session)
    store.init(1, full(0))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.push(1, full(1), 0)
        except MXNetError as error:
            code = 0 if "the store was created before fork" in str(error) else 2
        session.close()
        if worker.closed or plugin.closed:
            code = 3
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    store.push(1, full(1), 0)


def test_the_interpreters_exit_closes_without_a_deadline_of_ours() -> None:
    done = run_script("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed [None, None]\n", "")


def test_mxnets_own_exceptions_leave_the_engine_the_first_word() -> None:
    done = run_script(
        """
        drain = plugin.drain
        def skipped(timeout=None):
            worker.failure = worker.failure or Error("MXNet skipped the push of key 7")
            return drain(timeout)
        plugin.drain = skipped
        raise mx.base.MXNetError("an operator failed")
        """
    )
    assert done.returncode == 1
    assert done.stdout == "closed [0.5, None]\n"
    assert "MXNet skipped the push of key 7" in done.stderr
    assert "gave up: uncaught" not in done.stderr


def test_unawaited_errors_do_not_abort_the_exit_of_a_failed_job() -> None:
    done = run_script(
        """
        bad = mx.nd.random.normal(0, -1, shape=(3,))  # refused when it runs
        worker.fail('for a test')
        """
    )
    assert done.returncode == 1
    assert "terminate" not in done.stderr
