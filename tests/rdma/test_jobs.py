"""Whole jobs over soft-RoCE in the guest: equal sums, and every fault that a job may meet."""

import os
import re
from typing import Callable

import pytest

Run = Callable[..., str]


def packets_in(said: str) -> int:
    found = re.search(r"the devices received (\d+) packets", said)
    assert found is not None, said
    return int(found.group(1))


def test_the_transport_keeps_its_promises_over_two_devices(inside: Run) -> None:
    program = os.environ.get("BS_CONFORMANCE")
    if program is None:
        pytest.skip("no program for it: make nightly-rdma builds it")
    said = inside([program], rdma=True, limit_s=900)
    assert "[  PASSED  ]" in said
    assert "[       OK ] LibraryConformanceTest.DataGoesByRdma" in said, said


def test_sums_equal_the_sums_of_tcp_bit_for_bit(run_case: Run) -> None:
    said = run_case("same")
    assert "equal; " in said
    # The tensors of three rounds in packets of at most 4 KiB, pushed and pulled by two workers.
    assert packets_in(said) > 3 * 2 * 2 * 4 * 365_101 / 4096


def test_children_of_a_worker_read_its_gradients(run_case: Run) -> None:
    said = run_case("fork", limit_s=900)
    assert "equal; " in said
    assert packets_in(said) > 0


@pytest.mark.parametrize("case", ["kill", "pause", "blink", "cut", "loss", "beside", "memlock"])
def test_a_job_meets(case: str, run_case: Run) -> None:
    run_case(case, limit_s=900)


def test_a_training_has_the_weights_of_tcp_bit_for_bit(run_case: Run) -> None:
    said = run_case("digits", limit_s=1800)
    assert "equal: weights sha256" in said
    assert packets_in(said) > 0


def test_nothing_is_left_of_many_jobs(run_case: Run) -> None:
    assert "20 jobs, and nothing is left" in run_case("many", limit_s=1800)
