"""Sums are judged in their order, each once, whatever threads look."""

import concurrent.futures
import time
from typing import List, Optional

import pytest

from bytescheduler._session.sums import WatchedSums
from bytescheduler.errors import Error


class Ready:
    """A sum that is over."""

    def over(self) -> bool:
        time.sleep(1e-5)  # lets others run
        return True

    def wait(self) -> None:
        pass

    def wait_for(self, timeout_ms: int) -> bool:
        return self.over()


class Broken(Ready):
    """A sum that fails."""

    def wait(self) -> None:
        raise Error("the worker failed")


class Late(Ready):
    """A sum that is over when it was waited for so often."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def over(self) -> bool:
        return self.waits <= 0

    def wait_for(self, timeout_ms: int) -> bool:
        assert 0 < timeout_ms < 1000
        self.waits -= 1
        return self.over()


class Failed(Ready):
    """A sum whose worker has failed."""

    def over(self) -> bool:
        raise Error("the worker failed")


def test_each_sum_is_judged_once_whatever_threads_look() -> None:
    judged: List[int] = []

    def judge(total: int) -> Optional[str]:
        judged.append(total)
        return None

    sums = WatchedSums(lambda why: pytest.fail(why))
    for number in range(500):
        sums.add(Ready(), number, judge)
    assert len(sums) == 500

    def look() -> None:
        while sums:
            sums.look(wait=False)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        looks = [pool.submit(look) for _ in range(4)]
    for each in looks:
        each.result()
    assert judged == list(range(500))


def test_a_verdict_fails_the_job_and_a_failed_worker_has_its_own_message() -> None:
    reasons: List[str] = []
    sums = WatchedSums(reasons.append)
    sums.add(Ready(), 0, lambda _: "they differ")
    sums.add(Broken(), 0, lambda _: "never asked")
    sums.look(wait=True)
    assert reasons == ["they differ"]
    assert not sums


def test_a_wait_with_a_deadline_judges_sums_that_come_in_time() -> None:
    reasons: List[str] = []
    sums = WatchedSums(reasons.append)
    sums.add(Late(3), 0, lambda _: "they differ")
    assert sums.wait_for(60)
    assert reasons == ["they differ"]
    sums.add(Late(1), 0, lambda _: "never asked")
    assert not sums.wait_for(0)
    assert len(sums) == 1


def test_a_wait_with_a_deadline_ends_with_a_failed_worker() -> None:
    sums = WatchedSums(lambda why: pytest.fail(why))
    sums.add(Failed(), 0, lambda _: "never asked")
    assert sums.wait_for(60)
