"""The link's end: it drains, fails what is left, and never acts in a forked child."""

import gc
import os
import subprocess
import sys
import textwrap
from typing import List

import pytest
from fakes import FakePlugin, FakeWorker, full
from mxnet.base import MXNetError

from bytescheduler.mxnet._link import Link
from bytescheduler.mxnet._native_store import NativeStore


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Run `script` after the imports it needs, with `link`, `worker` and `plugin` made."""
    head = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import mxnet as mx
        from bytescheduler.mxnet._link import Link
        from bytescheduler.errors import Error
        from fakes import FakePlugin, FakeWorker, full
        worker, plugin = FakeWorker(), FakePlugin()
        worker.close = lambda: print("closed", plugin.drained)
        link = Link(worker, plugin)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        cwd="/",  # not in a source tree
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_closing_drains_then_leaves(link: Link, worker: FakeWorker, plugin: FakePlugin) -> None:
    link.close(3.0)
    assert plugin.drained[0] == 3.0
    assert plugin.closed
    assert worker.closed
    assert worker.failure is None
    link.close()  # does nothing
    with pytest.raises(MXNetError, match="the store was closed"):
        link.check()


def test_what_does_not_end_in_time_fails_the_job(
    link: Link, worker: FakeWorker, plugin: FakePlugin
) -> None:
    plugin.unfinished = 2
    with pytest.raises(MXNetError, match="it ended with 2 operations unfinished"):
        link.close(0.5)
    assert plugin.drained == [0.5, None]
    assert worker.closed


def test_a_failed_job_is_not_waited_for(link: Link, worker: FakeWorker, plugin: FakePlugin) -> None:
    worker.fail("for a test")
    with pytest.raises(MXNetError, match="for a test"):
        link.close(5.0)
    assert plugin.drained == [None]
    assert worker.closed


def test_what_a_call_has_said_closing_does_not_repeat(link: Link, worker: FakeWorker) -> None:
    worker.fail("for a test")
    with pytest.raises(MXNetError, match="for a test"):
        link.check()
    link.close()
    assert worker.closed


def test_an_interrupt_while_draining_still_takes_everything_apart(
    link: Link, worker: FakeWorker, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: List[object] = []

    def drain(timeout: object = None) -> bool:
        times.append(timeout)
        if len(times) == 1:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(plugin, "drain", drain)
    with pytest.raises(KeyboardInterrupt):
        link.close()
    assert "it was interrupted" in str(worker.failure)
    assert worker.closed
    assert plugin.closed


def test_a_dropped_link_that_was_closed_is_freed(worker: FakeWorker, plugin: FakePlugin) -> None:
    link = Link(worker, plugin)
    link.close()
    references = gc.get_referrers(link)
    assert all(link is not getattr(r, "__self__", None) for r in references)


def test_errors_use_the_users_names(link: Link, worker: FakeWorker) -> None:
    link.name(5, "fc1")
    worker.fail("push key=5 round=2: no answer")
    with pytest.raises(MXNetError, match="push key='fc1' round=2"):
        link.check()


def test_a_forked_child_raises_and_does_nothing_else(
    link: Link, worker: FakeWorker, plugin: FakePlugin
) -> None:
    store = NativeStore(link)
    store.init(1, full(0))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.push(1, full(1), 0)
        except MXNetError as error:
            code = 0 if "created before fork" in str(error) else 2
        link.close()
        if worker.closed or plugin.closed:
            code = 3
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    store.push(1, full(1), 0)


def test_the_interpreters_exit_closes_without_a_deadline_of_ours() -> None:
    done = run_script("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed [None, None]\n", "")


def test_an_uncaught_exception_fails_the_job_by_its_name() -> None:
    done = run_script("raise KeyError('mine')")
    assert done.returncode == 1
    assert done.stdout == "closed [None]\n"
    assert "worker 0 gave up: uncaught KeyError: 'mine'" in done.stderr


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


def test_a_failure_that_nobody_saw_is_printed_at_exit() -> None:
    done = run_script("worker.fail('for a test')")
    assert done.stdout == "closed [None]\n"
    assert done.stderr == "bytescheduler: worker 0 gave up: for a test\n"
    assert done.returncode == 1


def test_a_failure_found_at_exit_does_not_hide_another_exit_code() -> None:
    assert run_script("worker.fail('for a test'); sys.exit(7)").returncode == 7


def test_errors_that_nobody_waited_for_do_not_abort_the_exit_of_a_failed_job() -> None:
    done = run_script(
        """
        bad = mx.nd.random.normal(0, -1, shape=(3,))  # refused when it runs
        worker.fail('for a test')
        """
    )
    assert done.returncode == 1
    assert "terminate" not in done.stderr
