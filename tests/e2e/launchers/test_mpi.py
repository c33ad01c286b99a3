"""Jobs under the real mpirun of Open MPI and of MPICH, without a wrapper."""

import os
from typing import List

import pytest
from launched import (
    BSLAUNCH,
    DIRECT,
    MXNET,
    TENSORFLOW,
    TORCH,
    WORKER,
    assert_direct,
    needs_tensorflow,
    needs_torch,
    ranks_in,
    require,
    run,
)

OPEN_MPI = ["mpirun.openmpi", "--oversubscribe"]
MPICH = ["mpiexec.hydra"]
BOTH = pytest.mark.parametrize("mpirun", [OPEN_MPI, MPICH], ids=["Open MPI", "MPICH"])


def command_of(mpirun: List[str], count: int) -> List[str]:
    require(mpirun[0])
    as_root = ["--allow-run-as-root"] if mpirun is OPEN_MPI and os.getuid() == 0 else []
    return [*mpirun, *as_root, "-n", str(count)]


@BOTH
def test_process_0_is_the_scheduler_node_then_servers_then_workers(mpirun: List[str]) -> None:
    done = run([*command_of(mpirun, 5), *BSLAUNCH, "--servers", "2", *WORKER])
    assert ranks_in(done.stdout) == [
        "rank 0 of 2, 2 servers, process 3",
        "rank 1 of 2, 2 servers, process 4",
    ]


@BOTH
def test_too_few_processes_are_refused(mpirun: List[str]) -> None:
    done = run([*command_of(mpirun, 3), *BSLAUNCH, "--servers", "2", *WORKER], code=2)
    assert "for --servers 2: there are 3, want 4 or more" in done.stdout


@BOTH
def test_a_script_may_stand_before_bslaunch(mpirun: List[str]) -> None:
    script = ["sh", "-c", '"$@"; exit $?', "sh"]
    done = run([*command_of(mpirun, 3), *script, *BSLAUNCH, "--servers", "1", *WORKER])
    assert ranks_in(done.stdout) == ["rank 0 of 1, 1 servers, process 2"]


def test_mpirun_may_start_the_workers_alone() -> None:
    """Then its ranks are those of the workers."""
    local = [*BSLAUNCH, "--local", "--", *command_of(OPEN_MPI, 1), *WORKER]
    assert ranks_in(run(local).stdout) == ["rank 0 of 1, 1 servers, process 0"]


@BOTH
def test_without_bslaunch_each_process_hosts_a_server(mpirun: List[str]) -> None:
    assert_direct(run([*command_of(mpirun, 3), *DIRECT]).stdout, 3)


def test_workers_of_mxnet_need_nothing_else() -> None:
    assert run([*command_of(OPEN_MPI, 2), *MXNET]).stdout.count("of 2, as before") == 2


@needs_torch
@BOTH
def test_workers_of_pytorch_need_nothing_else(mpirun: List[str]) -> None:
    assert run([*command_of(mpirun, 2), *TORCH]).stdout.count("all is well") == 2


@pytest.mark.nightly
@needs_tensorflow
@BOTH
def test_workers_of_tensorflow_need_no_pytorch(mpirun: List[str]) -> None:
    assert run([*command_of(mpirun, 2), *TENSORFLOW]).stdout.count("all is well") == 2
