"""A session without any framework: errors, owners, metrics, tuning, forks, and the end."""

import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Callable, Iterator, List, Optional, Tuple

import fake_engine
import numpy as np
import pytest
from fake_engine import (
    FakeFramework,
    FakeOperations,
    FakeWorker,
    FrameworkConfigError,
    FrameworkError,
)
from inline_snapshot import snapshot

from bytescheduler._session.session import Session, clamped
from bytescheduler.errors import ConfigError, PeerLost


@pytest.fixture
def worker() -> FakeWorker:
    return FakeWorker()


@pytest.fixture
def operations() -> FakeOperations:
    return FakeOperations()


@pytest.fixture
def framework() -> FakeFramework:
    return FakeFramework()


@pytest.fixture
def session(
    worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> Iterator[Session]:
    made = Session(worker, operations, framework)  # type: ignore[arg-type]
    yield made
    worker.failure, operations.unfinished = None, 0
    made.close()


def test_timelines_are_told_the_framework_if_it_has_a_name(
    session: Session, worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> None:
    assert worker.framework == ""

    class Named(Session):
        framework_name = "a framework"

    Named(worker, operations, framework).close()  # type: ignore[arg-type]
    assert worker.framework == "a framework"


# -- the end ---------------------------------------------------------------------------------------


def test_closing_drains_then_leaves(
    session: Session, worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> None:
    assert session.is_open
    left: List[str] = []
    session.on_leaving(lambda: left.append("left"))
    session.close(3.0)
    assert operations.drained[0] == 3.0
    assert operations.closed
    assert worker.closed
    assert worker.failure is None
    assert not framework.abandoned
    session.close()  # does nothing
    assert left == ["left"]
    assert not session.is_open
    with pytest.raises(FrameworkError, match="the thing was closed"):
        session.check()


def test_the_last_owner_leaves(session: Session, worker: FakeWorker) -> None:
    session.share()
    session.share()
    session.drop()
    session.close()
    assert not worker.closed
    session.close()
    assert worker.closed


def test_a_session_with_dropped_owners_keeps_its_place(
    session: Session, worker: FakeWorker
) -> None:
    session.drop()
    assert session.is_open
    session.share()
    session.close()
    assert worker.closed


def test_operations_that_do_not_end_in_time_fail_the_job(
    session: Session, worker: FakeWorker, operations: FakeOperations
) -> None:
    operations.unfinished = 2
    with pytest.raises(FrameworkError, match="it ended with 2 operations unfinished"):
        session.close(0.5)
    assert operations.drained == [0.5, None]
    assert worker.closed


def test_a_failed_job_is_not_waited_for(
    session: Session, worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> None:
    worker.fail("for a test")
    with pytest.raises(FrameworkError, match="for a test"):
        session.close(5.0)
    assert operations.drained == [None]
    assert framework.abandoned == 1
    assert worker.closed


def test_closing_does_not_repeat_an_error_that_a_call_has_raised(
    session: Session, worker: FakeWorker
) -> None:
    worker.fail("for a test")
    with pytest.raises(FrameworkError, match="for a test"):
        session.check()
    session.close()
    assert worker.closed


def test_an_interrupt_while_draining_still_takes_everything_apart(
    session: Session,
    worker: FakeWorker,
    operations: FakeOperations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: List[object] = []

    def drain(timeout: object = None) -> bool:
        times.append(timeout)
        if len(times) == 1:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(operations, "drain", drain)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert "it was interrupted" in str(worker.failure)
    assert worker.closed
    assert operations.closed


def test_a_session_that_was_closed_is_freed(
    worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> None:
    session = Session(worker, operations, framework)  # type: ignore[arg-type]
    session.close()
    references = gc.get_referrers(session)
    assert all(session is not getattr(r, "__self__", None) for r in references)


# -- forks and exits -------------------------------------------------------------------------------


def test_a_forked_child_raises_and_does_nothing_else(
    session: Session, worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            session.check()
        except FrameworkError as error:
            code = 0 if "the thing was created before fork" in str(error) else 2
        session.close()
        if worker.closed or operations.closed or session.is_open:
            code = 3
        if framework.forgotten != 1:
            code = 4
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    session.check()
    assert framework.forgotten == 0


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Run `script` after the imports it needs, with a `session` of a `worker`."""
    head = f"""
        import sys
        sys.path.insert(0, {str(pathlib.Path(fake_engine.__file__).parent)!r})
        from bytescheduler.errors import Error
        from bytescheduler._session.session import Session
        from fake_engine import FakeFramework, FakeOperations, FakeWorker, FrameworkError
        worker, operations = FakeWorker(), FakeOperations()
        worker.close = lambda: print("closed", operations.drained)
        session = Session(worker, operations, FakeFramework())
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        cwd="/",  # not in a source tree
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_interpreters_exit_closes_without_a_deadline_of_ours() -> None:
    done = run_script("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed [None, None]\n", "")


def test_an_uncaught_exception_fails_the_job_by_its_name() -> None:
    done = run_script("worker.close = lambda: print(worker.failure)\nraise KeyError('mine')")
    assert done.returncode == 1
    assert done.stdout == "worker 0 gave up: uncaught KeyError: 'mine'\n"
    assert done.stderr.count("mine") == 1
    assert done.stderr.endswith("KeyError: 'mine'\n")


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("sys.exit(3)", 3, "exit code 3"),
        ("sys.exit('a text')", 1, "exit code 1"),
        ("sys.exit(True)", 1, "exit code 1"),
        ("sys.exit(False)", 0, ""),
        ("try: 1 / 0\nexcept Exception: sys.exit(2)", 2, "exit code 2, after ZeroDivisionError: "),
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("try: sys.exit(3)\nexcept SystemExit: pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),  # Python does not tell of it
    ],
)
def test_a_bad_exit_fails_the_job_by_its_code(script: str, code: int, reason: str) -> None:
    done = run_script(script)
    assert done.returncode == code
    assert done.stdout == ("closed [None]\n" if reason else "closed [None, None]\n")
    assert ("worker 0 gave up: " in done.stderr) == bool(reason)
    assert reason in done.stderr


def test_an_exit_because_of_the_frameworks_error_waits_for_its_cause() -> None:
    done = run_script(
        "try: raise FrameworkError('an operator failed')\nexcept Exception: exit_ = 0"
    )
    assert done.stdout == "closed [None, None]\n"  # the script went on
    done = run_script("try: raise FrameworkError('it failed')\nexcept Exception: sys.exit(1)")
    assert done.stdout == "closed [0.5, None]\n"
    assert "exit code 1, after FrameworkError: it failed" in done.stderr


# What runs in a child of multiprocessing, which skips what the interpreter does at its end.
IN_CHILD = """
    import multiprocessing
    def work():
        global kept
        worker = FakeWorker()
        worker.close = lambda: print("closed in the child", flush=True)
        kept = Session(worker, FakeOperations(), FakeFramework())
        {}
    session.close()
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print("ended with", child.exitcode)
"""


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(3)", 3, "bytescheduler: worker 0 gave up: exit code 3\n"),
        ("raise KeyError('mine')", 1, "KeyError: 'mine'"),
        ("worker.fail('for a test')", 1, "bytescheduler: worker 0 gave up: for a test"),
    ],
)
def test_a_child_of_multiprocessing_leaves_too(last: str, code: int, said: str) -> None:
    done = run_script(IN_CHILD.format(last))
    assert done.stdout == f"closed [None, None]\nclosed in the child\nended with {code}\n"
    assert said in done.stderr


@pytest.mark.parametrize(
    ("last", "text"),
    [
        ("raise KeyError('mine')", "KeyError: 'mine'"),
        ("try: raise KeyError('mine')\n        except Exception: sys.exit(1)", "KeyError: 'mine'"),
    ],
)
@pytest.mark.parametrize("hosts_server", [True, False])
def test_a_child_that_hosts_a_server_prints_its_error_before_it_waits(
    last: str, text: str, hosts_server: bool
) -> None:
    stays = "worker.close = lambda: print('closed', file=sys.stderr)"
    lines = f"kept.hosts_server = {hosts_server}\n        {stays}\n        {last}"
    done = run_script(IN_CHILD.format(lines))
    assert "ended with 1\n" in done.stdout
    before, _, after = done.stderr.partition("closed\n")
    assert ("Process ForkProcess-1:\nTraceback" in before) == hosts_server
    assert before.count(text) == hosts_server
    is_repeated = not hosts_server and "exit" not in last
    assert after.count("Traceback") == is_repeated, done.stderr


def test_the_frameworks_own_exceptions_leave_the_engine_the_first_word() -> None:
    done = run_script(
        """
        drain = operations.drain
        def skipped(timeout=None):
            worker.failure = worker.failure or Error("the push of key 7 was skipped")
            return drain(timeout)
        operations.drain = skipped
        raise FrameworkError("an operator failed")
        """
    )
    assert done.returncode == 1
    assert done.stdout == "closed [0.5, None]\n"
    assert "the push of key 7 was skipped" in done.stderr
    assert "gave up: uncaught" not in done.stderr


def test_an_unseen_failure_is_printed_at_exit() -> None:
    done = run_script("worker.fail('for a test')")
    assert done.stdout == "closed [None]\n"
    assert done.stderr == snapshot("bytescheduler: worker 0 gave up: for a test\n")
    assert done.returncode == 1


def test_a_failure_found_at_exit_does_not_hide_another_exit_code() -> None:
    assert run_script("worker.fail('for a test'); sys.exit(7)").returncode == 7


def test_a_refused_call_reaches_the_peers_though_a_finally_leaves_the_job(
    session: Session, worker: FakeWorker
) -> None:
    def train() -> None:
        try:
            raise ConfigError("key 'x': 8 bytes here, 12 bytes there", 1)
        finally:
            session.close()

    with pytest.raises(ConfigError, match="12 bytes there"):
        train()
    assert worker.closed
    assert str(worker.failure) == snapshot(
        "worker 0 gave up: ConfigError: key 'x': 8 bytes here, 12 bytes there"
    )


class WithoutText(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("str fails")


def leave_by(session: Session, error: BaseException) -> None:
    """Raise `error`, which leads through the end of the session."""
    try:
        raise error
    finally:
        session.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("my bug"), "ValueError: my bug"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("caf\udce9"), "ValueError: caf\\udce9"),
        (ValueError("a\0b\n\x1b[31m"), "ValueError: a\\x00b\\n\\x1b[31m"),
        (ValueError("x" * 3_000_000), "ValueError: " + "x" * 1000),
        (WithoutText(), "WithoutText: (str() of it fails)"),
        (SystemExit(3), "exit code 3"),
        (SystemExit(0), ""),
        (StopIteration(), ""),
    ],
)
def test_an_exception_through_a_finally_goes_with_the_goodbye(
    session: Session, worker: FakeWorker, error: BaseException, reason: str
) -> None:
    with pytest.raises(type(error)):
        leave_by(session, error)
    assert worker.closed
    assert worker.failure is None
    assert worker.explained == ([reason] if reason else [])


def test_rounds_that_do_not_end_fail_with_the_exception_that_is_handled(
    session: Session, worker: FakeWorker, operations: FakeOperations
) -> None:
    operations.unfinished = 1
    with pytest.raises(ValueError, match="my bug"):
        leave_by(session, ValueError("my bug"))
    assert str(worker.failure) == "worker 0 gave up: ValueError: my bug"
    assert operations.drained[0] == 10.0  # not for ever


def test_a_failed_job_does_not_hide_the_exception_that_is_handled(
    session: Session, worker: FakeWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    worker.failure = PeerLost("lost worker 1 (10.0.0.1:4711): connection closed", 4)
    with pytest.raises(ValueError, match="my bug"):
        leave_by(session, ValueError("my bug"))
    assert capfd.readouterr().err == snapshot(
        "bytescheduler: lost worker 1 (10.0.0.1:4711): connection closed\n"
    )


def test_a_handled_exception_is_no_failure_of_a_job_that_does_not_need_the_worker(
    session: Session, worker: FakeWorker
) -> None:
    try:
        raise KeyError("x")
    except KeyError:
        session.close()
    assert worker.closed
    assert worker.failure is None


def test_a_failed_job_is_an_error_of_a_script_that_runs_in_an_except_block(
    worker: FakeWorker, operations: FakeOperations, framework: FakeFramework
) -> None:
    def train() -> None:
        session = Session(worker, operations, framework)  # type: ignore[arg-type]
        worker.failure = PeerLost("lost worker 1 (10.0.0.1:4711): connection closed", 4)
        session.close()

    try:
        raise ImportError("no fast module")
    except ImportError:
        with pytest.raises(FrameworkError, match="lost worker 1"):
            train()
    assert worker.explained == []


def test_a_script_that_ends_well_behind_a_failed_job_has_an_exit_code() -> None:
    done = run_script(
        textwrap.dedent(
            """
            from bytescheduler.errors import PeerLost
            try:
                raise KeyError("x")
            except KeyError:
                worker.failure = PeerLost("lost worker 1", 4)
                session.close()
            print("finished")
            """
        )
    )
    assert done.returncode == 1
    assert "finished" in done.stdout
    assert "lost worker 1" in done.stderr


def test_a_direct_job_names_a_lost_server_by_its_worker(
    session: Session, worker: FakeWorker
) -> None:
    session.hosts_server = True
    worker.failure = PeerLost("lost server 1 (10.0.0.1:4711): connection closed", 4)
    with pytest.raises(FrameworkError) as raised:
        session.check()
    assert str(raised.value) == snapshot(
        "lost worker 1 (its server 10.0.0.1:4711): connection closed"
    )


PEER = "worker.failure = PeerLost('worker 1 gave up: KeyError: 0', 4)\n"


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        (PEER + "session.check()", 1),
        (PEER + "raise worker.failure", 1),
        (PEER + "try: session.check()\nfinally: session.close()", 1),
        (
            PEER + "try: session.check()\nexcept FrameworkError as e: raise KeyError('own') from e",
            0,
        ),
        (PEER + "try: session.check()\nfinally: raise KeyError('own')", 0),
        ("raise PeerLost('worker 0 gave up: no luck', 4)", 0),
    ],
)
def test_a_failure_of_another_worker_is_a_line_without_traceback(script: str, lines: int) -> None:
    done = run_script("from bytescheduler.errors import PeerLost\n" + script)
    assert done.returncode == 1
    assert ("Traceback" not in done.stderr) == bool(lines), done.stderr
    if lines:
        assert "worker 1 gave up: KeyError: 0\n" in done.stderr
        assert len(done.stderr.splitlines()) == lines, done.stderr


@pytest.mark.parametrize("before", ["", "uncaught "])
def test_a_refused_call_of_another_worker_is_refused_here_too(
    session: Session, worker: FakeWorker, before: str
) -> None:
    told = f"worker 1 gave up: {before}ConfigError: key 'x': 8 bytes here, 12 bytes there"
    worker.failure = PeerLost(told, 4)
    with pytest.raises(FrameworkConfigError, match="12 bytes there"):
        session.check()


def test_an_error_about_a_setting_is_the_frameworks_too(
    session: Session, worker: FakeWorker
) -> None:
    worker.failure = ConfigError("worker 0: threshold 0.25, worker 1: threshold 0.5", 1)
    with pytest.raises(FrameworkConfigError, match=r"threshold 0\.25"):
        session.check()


@pytest.mark.parametrize("reason", ["uncaught KeyError: ConfigError", "Error: 1", "SystemExit: 1"])
def test_other_errors_of_another_worker_are_the_frameworks(
    session: Session, worker: FakeWorker, reason: str
) -> None:
    worker.failure = PeerLost(f"worker 1 gave up: {reason}", 4)
    with pytest.raises(FrameworkError, match=reason):
        session.check()


def test_debugging_and_hooks_of_the_script_get_tracebacks() -> None:
    peer = "from bytescheduler.errors import PeerLost\n" + PEER
    debug = "import os; os.environ['BYTESCHEDULER_LOG_LEVEL'] = 'debug'\n"
    again = "sys.excepthook = sys.__excepthook__\nSession(worker, operations, FakeFramework())\n"
    done = run_script(debug + again + peer + "session.check()")
    assert "Traceback" in done.stderr
    own = (
        "sys.excepthook = lambda *_: print('mine')\nSession(worker, operations, FakeFramework())\n"
    )
    assert "mine\n" in run_script(own + peer + "session.check()").stdout


def test_a_child_of_multiprocessing_prints_a_line_too() -> None:
    lines = "worker.failure = PeerLost('worker 1 gave up: KeyError: 0', 4); kept.check()"
    done = run_script(
        "from bytescheduler.errors import PeerLost\n" + textwrap.dedent(IN_CHILD.format(lines))
    )
    assert "ended with 1\n" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("worker 1 gave up: KeyError: 0\n") == 1


def test_an_error_that_was_handled_before_lets_the_worker_leave(
    session: Session, worker: FakeWorker
) -> None:
    with contextlib.suppress(ConfigError):
        raise ConfigError("refused", 1)
    session.close()
    assert worker.failure is None


# -- errors and priorities -------------------------------------------------------------------------


def test_errors_use_the_users_names(session: Session, worker: FakeWorker) -> None:
    session.name(5, "fc1")
    worker.fail("push key=5 round=2: no response")
    with pytest.raises(FrameworkError, match="push key='fc1' round=2"):
        session.check()


def test_errors_of_the_engine_become_the_frameworks_and_keep_their_cause(session: Session) -> None:
    session.name(5, "w")
    cause = PeerLost("lost server 0 (key 5)", 4)
    text = r"lost server 0 \(key 'w'\)"
    with pytest.raises(FrameworkError, match=text) as caught, session.translated():
        raise cause
    assert caught.value.__cause__ is cause


def test_a_wrong_setting_stays_a_config_error(session: Session) -> None:
    with pytest.raises(ConfigError), session.translated():
        raise ConfigError("want bytes", 1)


@pytest.mark.parametrize(
    ("given", "taken"),
    [(0, 0), (-3, -3), (2**31, 2**31 - 1), (10**30, 2**31 - 1), (-(10**30), -(2**31))],
)
def test_priorities_of_any_size_keep_their_order(given: int, taken: int) -> None:
    assert clamped(given) == taken


# -- sums ------------------------------------------------------------------------------------------


class Sum:
    """A sum under way, which the test ends."""

    def __init__(self) -> None:
        self.is_over = False
        self.waits = 0

    def over(self) -> bool:
        return self.is_over

    def wait(self) -> None:
        self.waits += 1

    def wait_for(self, timeout_ms: int) -> bool:
        self.wait()
        return self.is_over


@pytest.fixture
def sums(worker: FakeWorker) -> "List[Sum]":
    started: List[Sum] = []

    def start(key: int, send: int, recv: int, size: int, *, owner: object, priority: int) -> Sum:
        assert size == 16
        assert priority == -(2**31)  # behind all tensors
        started.append(Sum())
        return started[-1]

    worker.start_push_pull = start  # type: ignore[attr-defined]
    return started


def test_a_sum_is_judged_once_it_is_there(
    session: Session, worker: FakeWorker, sums: "List[Sum]"
) -> None:
    judged: List[object] = []

    def judge(total: object) -> Optional[str]:
        judged.append(total)
        return None if len(judged) == 1 else "they differ"

    session.watch(1, np.ones(2), judge)
    session.watch(1, np.ones(2), judge)
    session.check()
    assert not judged
    sums[0].is_over = True
    session.check()
    assert len(judged) == 1
    sums[1].is_over = True
    with pytest.raises(FrameworkError, match="gave up: they differ"):
        session.check()
    worker.failure = None
    session.check()
    assert len(judged) == 2


def test_a_sum_that_is_late_is_told_and_then_fails_the_job(
    session: Session,
    sums: "List[Sum]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_TIMEOUT", "5ms")
    monkeypatch.setenv("BYTESCHEDULER_STRAGGLER_TIMEOUT", "20ms")
    session.watch(1, np.ones(2), lambda _: None)
    with pytest.raises(FrameworkError, match="gave up: the other one has not come"):
        session.judge("the other one has not come")
    assert "still waiting: the other one has not come" in capsys.readouterr().err
    assert len(sums) == 1


def test_closing_waits_for_a_sum_and_judges_it(
    session: Session, worker: FakeWorker, sums: "List[Sum]"
) -> None:
    session.watch(1, np.ones(2), lambda total: "they differ")
    with pytest.raises(FrameworkError, match="gave up: they differ"):
        session.close()
    assert sums[0].waits == 1
    assert worker.closed


# -- tuning ----------------------------------------------------------------------------------------


class FakeTuner:
    """Runs until it is closed."""

    def __init__(self) -> None:
        self.running = True
        self.why: List[str] = []
        self.declared: Callable[[], Tuple[int, int]] = lambda: (0, 0)

    def close(self, why: str = "") -> None:
        self.running = False
        self.why.append(why)


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    fake = FakeTuner()

    def start(worker: object, declared: Callable[[], Tuple[int, int]]) -> FakeTuner:
        fake.declared = declared
        return fake

    monkeypatch.setattr("bytescheduler._session.session.start_tuner", start)
    return fake


def test_the_tuner_ends_before_the_worker_does(
    session: Session, worker: FakeWorker, tuner: FakeTuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.tune()
    monkeypatch.setattr(worker, "close", lambda: setattr(worker, "closed", not tuner.running))
    session.close()
    assert worker.closed


def test_retune_by_hand_ends_the_tuner(
    session: Session, worker: FakeWorker, tuner: FakeTuner
) -> None:
    session.tune()
    with pytest.raises(ConfigError):
        session.retune(0, 0)
    assert tuner.running
    for _ in range(2):
        session.retune(65536, 131072)
    assert tuner.why == ["retune was called"]
    assert worker.retuned == [(65536, 131072)] * 2


def test_only_rank_0_tunes(
    session: Session, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr("bytescheduler._session.session.start_tuner", start)
    worker.rank = 1
    session.tune()


def test_the_tuner_hears_of_declared_tensors(session: Session, tuner: FakeTuner) -> None:
    session.tune()
    assert tuner.declared() == (0, 0)
    session.declare([(0, 0, 4096, 24), (1, 0, 8192, 40)], owner=None)
    assert tuner.declared() == (2, 64)


def test_keys_are_given_back_for_good(session: Session, worker: FakeWorker) -> None:
    session.give_back([3, 4], lambda: True)
    session.let_rest(5)
    assert worker.given_back == [(3, True), (4, True), (5, False)]


def test_keys_are_given_back_once_their_rounds_have_begun(
    session: Session, worker: FakeWorker, operations: FakeOperations
) -> None:
    operations.unfinished = 1
    session.give_back([3], session.is_idle)
    session.declare([], owner=None)
    assert not worker.given_back
    operations.unfinished = 0
    session.declare([], owner=None)
    assert worker.given_back == [(3, True)]
    session.declare([], owner=None)
    assert len(worker.given_back) == 1


def test_a_session_that_was_closed_gives_nothing_back(session: Session, worker: FakeWorker) -> None:
    session.close()
    session.give_back([3], lambda: True)
    session.let_rest(5)
    assert not worker.given_back


def test_a_failure_is_no_error_of_giving_back(session: Session, worker: FakeWorker) -> None:
    def fail(keys: object, *, for_good: bool) -> None:
        raise PeerLost("lost worker 1", 4)

    worker.give_back = fail  # type: ignore[method-assign]
    session.give_back([3], lambda: True)
    session.let_rest(5)
