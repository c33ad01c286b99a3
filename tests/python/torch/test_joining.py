"""The module of PyTorch: its names, its import, and the others of a job that do not come."""

import subprocess
import sys

import pytest
from inline_snapshot import snapshot

import bytescheduler.torch as bps
from bytescheduler.errors import Timeout
from bytescheduler.torch._job.meeting import Meeting


def test_a_process_without_its_peers_names_the_awaited_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_TIMEOUT", "1")
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "0")  # PyTorch takes a free one
    with pytest.raises(Timeout, match=r"RANK=0 waits .* start all 2 \(WORLD_SIZE\)"):
        Meeting().agree(lambda _: 9)


def test_names_of_other_packages_are_there() -> None:
    assert bps.CrossBarrier.__module__ == "bytescheduler.torch.optimizer"
    assert set(bps.__all__) <= set(dir(bps))


def test_importing_starts_nothing_and_brings_no_other_framework() -> None:
    script = (
        "import sys, bytescheduler.torch\n"
        "assert not {'mxnet', 'tensorflow'} & set(sys.modules)\n"
        "import os; print('bs-' in str([open(f'/proc/self/task/{t}/comm').read() "
        "for t in os.listdir('/proc/self/task')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert done.stdout.strip() == "False"


def test_a_python_without_pytorch_is_told_how_to_get_it() -> None:
    script = "import sys; sys.modules['torch'] = None; import bytescheduler.torch"
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert done.stderr.splitlines()[-1] == snapshot(
        "ModuleNotFoundError: PyTorch is not installed: install it first, as its own page says, "
        "such as python -m pip install torch"
    )
