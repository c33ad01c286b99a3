"""The guest itself: its soft-RoCE devices, its NUMA nodes, and a job over its cards."""

import re
import sys
from typing import Callable

PAIR = """
set -e
ibv_devices | grep -o 'rxe[01]'
timeout 60 ibv_rc_pingpong -d rxe1 -g 1 -n 100 >/dev/null &
sleep 1
timeout 60 ibv_rc_pingpong -d rxe0 -g 1 -n 100 10.77.0.2
wait $!
ip link set p0 down
sleep 0.2
rdma link
"""
NUMA = """
from bytescheduler._native import about_host
settings = dict(DMLC_ROLE="worker", DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1")
settings.update(DMLC_PS_ROOT_URI="10.77.0.1", DMLC_PS_ROOT_PORT="9000")
print(*about_host(settings), sep="\\n")
"""
# The tensors of three rounds, each way: pushed and pulled by two workers.
LEAST_BYTES = 3 * 2 * 2 * 4 * 365_101


def test_two_devices_reach_each_other_and_a_cable_can_be_pulled(
    inside: "Callable[..., str]",
) -> None:
    said = inside(["bash", "-c", PAIR], rdma=True)
    assert said.split()[:2] == ["rxe0", "rxe1"]
    assert "100 iters" in said
    assert "rxe0/1 state DOWN" in said
    assert "rxe1/1 state ACTIVE" in said


def test_the_engine_sees_two_numa_nodes(inside: "Callable[..., str]") -> None:
    said = inside([sys.executable, "-c", NUMA], nodes=2, processors=4)
    nodes = re.findall(r"what='numa', name='(\d)', value='([\d ]+)'", said)
    assert nodes == [("0", "0 1"), ("1", "2 3")], said


def test_a_job_runs_over_tcp_between_the_cards(run_case: "Callable[..., str]") -> None:
    found = re.search(r"^tcp sums [0-9a-f]{64}, (\d+) bytes", run_case("sums", "tcp"), re.M)
    assert found is not None
    assert int(found.group(1)) > LEAST_BYTES
