"""Scripts with the calls of Horovod and BytePS train after their import is changed, and no more."""

import pathlib
import re
import sys
from typing import List

import pytest
from job import WORKERS
from launched import run

LAUNCH = [sys.executable, "-m", "bytescheduler.launch", "--local", "-w", "2", "-s", "1", "--"]
PUBLISHED = WORKERS / "published"
# One job runs these after each other, as Python is quick to start a job and slow to import PyTorch.
SEVERAL = [
    "horovod_mnist.py --fp16-allreduce --gradient-predivide-factor 2",
    "horovod_imagenet.py",
    "horovod_imagenet.py --epochs 3",  # goes on from its checkpoint
    "horovod_synthetic.py --fp16-allreduce",
    "byteps_mnist.py",
    "byteps_cross_barrier.py",
    "byteps_ddp.py",  # its shutdown() ends the job
]
FOREIGN = re.compile(r"^(import|from) (?:horovod|byteps)(?=\.torch\b)", re.M)


def change_imports(folder: pathlib.Path) -> None:
    """Copy all scripts to `folder`, where they import our module."""
    for script in PUBLISHED.glob("*.py"):
        text, imports = FOREIGN.subn(r"\1 bytescheduler", script.read_text())
        assert imports >= 1
        assert not re.search(r"\b(?:horovod|byteps)\.", text)
        (folder / script.name).write_text(text)


def sums_in(output: str) -> List[str]:
    """Return the sums of the weights of all scripts, which both workers end with."""
    ends = {rank: re.findall(rf"rank {rank} ends with (\S+)", output) for rank in (0, 1)}
    assert ends[0] == ends[1], output
    return ends[0]


def test_published_scripts_train_after_their_imports_are_changed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_imports(tmp_path)
    scripts = {script.name for script in PUBLISHED.glob("*.py")}
    assert {command.split()[0] for command in SEVERAL} == scripts
    monkeypatch.chdir(tmp_path)
    output = run([*LAUNCH, sys.executable, str(WORKERS / "torch" / "scripts.py"), *SEVERAL]).stdout
    assert len(sums_in(output)) == len(SEVERAL), output
    assert "began at 2, saw 3 checkpoints" in output
    losses = [float(loss) for loss in re.findall(r"test: loss (\S+),", output)]
    assert len(losses) == 2
    assert losses[1] < losses[0]
