"""The process that looks for a better point: its answers, and every way in which it can fail."""

import os
import pathlib
import resource
import signal
import time
from typing import Iterator

import pytest

from bytescheduler._tuning.advisor import REACH, Advisor, AdvisorError, Trial
from bytescheduler._tuning.points import CREDITS, PARTITIONS

SEEN = [Trial((4, 8), 0.62, 0.003), Trial((4, 10), 0.60, 0.003), Trial((5, 10), 0.59, 0.003)]


def started(stopped: bool = False) -> Advisor:
    made = Advisor(lambda: stopped)
    made.start()
    return made


@pytest.fixture
def advisor() -> Iterator[Advisor]:
    made = started()
    yield made
    made.close()


def test_says_a_point_within_reach_and_the_same_each_time(advisor: Advisor) -> None:
    advice = advisor.ask(SEEN)
    assert advice == advisor.ask(SEEN)
    x, y = advice.next
    assert 0 <= x <= y < len(CREDITS)
    assert x < len(PARTITIONS)
    assert min(max(abs(x - at[0]), abs(y - at[1])) for at, _, _ in SEEN) <= REACH
    assert advice.best == 2
    assert 0 < advice.gain < 1


def test_an_advisor_gives_way_to_other_processes(advisor: Advisor) -> None:
    advisor.ask(SEEN)  # it has started
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, advisor._pid) == min(own + 10, 19)


def test_an_advisor_does_not_go_near_slow_points(advisor: Advisor) -> None:
    slow = [Trial((4, 8), 0.6, 0.001), Trial((6, 10), 0.9, 0.001), Trial((3, 8), 0.61, 0.001)]
    x, y = advisor.ask(slow).next
    assert max(abs(x - 4), abs(y - 8)) <= REACH or max(abs(x - 3), abs(y - 8)) <= REACH
    assert max(abs(x - 6), abs(y - 10)) > REACH, "on the other side"


def test_numbers_that_make_no_sense_are_an_error_and_it_goes_on(advisor: Advisor) -> None:
    with pytest.raises(AdvisorError, match="nan|NaN|finite"):
        advisor.ask([*SEEN, Trial((1, 1), float("nan"), 0.1)])
    assert advisor.ask(SEEN).gain > 0


def test_an_advisor_names_the_library_to_install(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bayes_opt.py").write_text('raise ImportError("no such library")')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    advisor = started()
    with pytest.raises(AdvisorError, match="no such library: pip install bayesian-optimization=="):
        advisor.ask(SEEN)
    advisor.close()


def test_one_that_was_killed_is_an_error(advisor: Advisor) -> None:
    os.kill(advisor._pid, signal.SIGKILL)
    with pytest.raises(AdvisorError, match="has ended"):
        advisor.ask(SEEN)
    advisor.close()
    advisor.close()


def test_an_advisor_that_thinks_for_too_long_is_not_awaited(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(advisor._pid, signal.SIGSTOP)
    monkeypatch.setattr("bytescheduler._tuning.advisor._TIMEOUT_S", 0.2)
    with pytest.raises(AdvisorError, match=r"no advice in 0\.2 s"):
        advisor.ask(SEEN)


def test_an_advisor_that_is_told_to_stop_is_not_awaited() -> None:
    advisor = started(stopped=True)
    with pytest.raises(AdvisorError, match="stopped"):
        advisor.ask(SEEN)
    advisor.close()


def test_works_where_a_thousand_descriptors_are_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2000:
        pytest.skip("the system allows no more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        advisor = started()
        assert advisor.ask(SEEN).gain > 0
        advisor.close()
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_left_is_an_error_and_leaves_none_behind() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_ones = len(os.listdir("/proc/self/fd")) - 1
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 3, hard))
    try:
        with pytest.raises(AdvisorError, match="Too many open files"):
            started()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) - 1 == open_ones


def test_an_answer_that_is_none_is_an_error(advisor: Advisor) -> None:
    advisor._text = b"Killed\n"
    with pytest.raises(AdvisorError, match="the response makes no sense: b'Killed'"):
        advisor.ask(SEEN)


def test_an_advisor_does_not_name_seen_points(advisor: Advisor) -> None:
    """A bowl on which the best of three looks like the best of all."""
    seen = [Trial((4, 8), 0.9, 0.01), Trial((5, 9), 0.81, 0.01), Trial((4, 10), 0.75, 0.01)]
    for _ in range(4):
        advice = advisor.ask(seen)
        assert advice.next not in {point.at for point in seen}
        seen.append(Trial(advice.next, 0.8, 0.01))


def test_leaves_no_process_and_no_descriptor_behind() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    advisor = started()
    pid = advisor._pid
    advisor.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_python_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nosuch/python")
    with pytest.raises(AdvisorError, match="/nosuch/python: No such file"):
        started()


def test_ends_with_the_training_process() -> None:
    """A killed parent leaves nobody behind."""
    report, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(started()._pid).encode())
        os.close(write)
        signal.pause()
    os.close(write)
    pid = int(os.read(report, 32))
    os.close(report)
    assert pathlib.Path(f"/proc/{pid}").exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 60
    while pathlib.Path(f"/proc/{pid}").exists():
        if "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text():
            break  # nobody here takes what an orphan left
        assert time.monotonic() < deadline
        time.sleep(0.05)
