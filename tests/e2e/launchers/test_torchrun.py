"""Jobs under the real torchrun, whose processes agree on a port by the store of PyTorch."""

import importlib.util
import pathlib
import sys
import threading
from typing import Callable, List

import pytest
from job import WORKERS
from launched import DIRECT, assert_direct, run

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

PROGRAM = [sys.executable, "-m", "torch.distributed.run"]
TORCHRUN = [*PROGRAM, "--nproc-per-node", "3"]


def test_each_process_hosts_a_server() -> None:
    done = run([*TORCHRUN, "--standalone", "--no-python", *DIRECT, "store"])
    assert_direct(done.stdout, 3)


def test_without_a_store_the_port_follows_from_the_number_of_the_job() -> None:
    done = run([*TORCHRUN, "--standalone", "--no-python", *DIRECT])
    assert_direct(done.stdout, 3)


def test_agents_that_count_restarts_apart_start_the_job_again(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
    agent = [
        *PROGRAM,
        "--nnodes",
        "2",
        "--max-restarts",
        "1",
        *meeting,
        "--local-addr",
        "127.0.0.1",
    ]
    command = [*agent, str(WORKERS / "torch" / "joined_again.py"), str(tmp_path / "life")]
    written: List[str] = []
    agents = [threading.Thread(target=lambda: written.append(run(command).stdout)) for _ in "ab"]
    for thread in agents:
        thread.start()
    for thread in agents:
        thread.join()
    text = "\n".join(written)
    assert len(written) == 2, text
    for count in (0, 1):  # only the agent of the lost process counts a restart
        assert f"job 1, {count} restarts" in text, text
    assert text.count(": [3.0, 3.0, 3.0]") == 2 + 2 * 2, text
