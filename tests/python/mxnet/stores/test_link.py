"""The link's end: it drains, fails what is left, and never acts in a forked child."""

import concurrent.futures
import gc
import os
import subprocess
import sys
import textwrap
import time
from typing import Callable, List, Tuple

import pytest
from fakes import FakePlugin, FakeWorker, full
from mxnet.base import MXNetError

from bytescheduler.errors import ConfigError
from bytescheduler.mxnet._stores.link import Link, _Watched
from bytescheduler.mxnet._stores.native_store import NativeStore


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Run `script` after the imports it needs, with `link`, `worker` and `plugin` made."""
    head = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
        import mxnet as mx
        from bytescheduler.mxnet._stores.link import Link
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


def test_sums_that_are_watched_are_judged_once_whatever_threads_look(link: Link) -> None:
    class Waits:
        def over(self) -> bool:
            time.sleep(1e-5)  # lets others run
            return True

        def wait(self) -> None:
            pass

    judged: List[int] = []

    def judge(total: int) -> None:
        judged.append(total)

    link._watched.extend(_Watched(Waits(), number, judge) for number in range(500))

    def look() -> None:
        while link._watched:
            link.check()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(look) for _ in range(4)]
    for each in looks:
        each.result()
    assert judged == list(range(500))


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


class FakeTuner:
    """Runs until it is closed."""

    def __init__(self) -> None:
        self.running = True
        self.why: List[str] = []

    def close(self, why: str = "") -> None:
        self.running = False
        self.why.append(why)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    fake = FakeTuner()

    def start(worker: object, declared: Callable[[], Tuple[int, int]]) -> FakeTuner:
        fake.declared = declared
        return fake

    monkeypatch.setattr("bytescheduler.mxnet._stores.link.start_tuner", start)
    return fake


def test_the_tuner_ends_before_the_worker_does(
    link: Link, worker: FakeWorker, tuner: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    link.tune()
    monkeypatch.setattr(worker, "close", lambda: setattr(worker, "closed", not tuner.running))
    link.close()
    assert worker.closed


def test_retune_by_hand_ends_the_tuner(link: Link, worker: FakeWorker, tuner: FakeTuner) -> None:
    link.tune()
    with pytest.raises(ConfigError):
        link.retune(0, 0)
    assert tuner.running
    for _ in range(2):
        link.retune(65536, 131072)
    assert tuner.why == ["retune was called"]
    assert worker.retuned == [(65536, 131072)] * 2


def test_only_rank_0_tunes(link: Link, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr("bytescheduler.mxnet._stores.link.start_tuner", start)
    worker.rank = 1
    link.tune()


def test_the_tuner_hears_what_is_declared(link: Link, tuner: FakeTuner) -> None:
    link.tune()
    assert tuner.declared() == (0, 0)
    store = NativeStore(link)
    store.init([0, 1], [full(1.0), full(1.0)])
    assert tuner.declared() == (2, 2 * full(1.0).size * 4)
