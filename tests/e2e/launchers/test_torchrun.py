"""Jobs under the real torchrun, whose processes agree on a port by the store of PyTorch."""

import importlib.util
import sys

import pytest
from launched import DIRECT, assert_direct, run

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]


def test_each_process_hosts_a_server() -> None:
    done = run([*TORCHRUN, "--standalone", "--no-python", *DIRECT, "store"])
    assert_direct(done.stdout, 3)


def test_without_a_store_the_port_follows_from_the_number_of_the_job() -> None:
    done = run([*TORCHRUN, "--standalone", "--no-python", *DIRECT])
    assert_direct(done.stdout, 3)
