"""Jobs under a real Slurm of one host: of srun, of srun in a batch script, and --local there."""

import os
import pathlib
import re
import shlex
import sys
from typing import Dict, Iterator

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
from slurm import SLURM_PROGRAMS, slurm
from written import ROOT, blocks


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dict[str, str]]:
    require(*SLURM_PROGRAMS)
    from bytescheduler._process.ports import Ports

    with Ports() as ports, slurm(tmp_path_factory.mktemp("slurm"), ports.free) as found:
        yield found


def test_srun_starts_a_job_without_a_wrapper(env: Dict[str, str]) -> None:
    done = run(["srun", "-n", "5", *BSLAUNCH, "--servers", "2", *WORKER], env)
    assert ranks_in(done.stdout) == [
        "rank 0 of 2, 2 servers, process 3",
        "rank 1 of 2, 2 servers, process 4",
    ]


def test_without_bslaunch_each_task_hosts_a_server(env: Dict[str, str]) -> None:
    assert_direct(run(["srun", "-n", "3", *DIRECT], env).stdout, 3)


def test_tasks_of_mxnet_need_nothing_else(env: Dict[str, str]) -> None:
    assert run(["srun", "-n", "2", *MXNET], env).stdout.count("of 2, as before") == 2


@needs_torch
def test_tasks_of_pytorch_need_nothing_else(env: Dict[str, str]) -> None:
    assert run(["srun", "-n", "2", *TORCH], env).stdout.count("all is well") == 2


@pytest.mark.nightly
@needs_tensorflow
def test_tasks_of_tensorflow_need_no_pytorch(env: Dict[str, str]) -> None:
    assert run(["srun", "-n", "2", *TENSORFLOW], env).stdout.count("all is well") == 2


def test_without_servers_every_task_names_the_option(env: Dict[str, str]) -> None:
    done = run(["srun", "-n", "3", *BSLAUNCH, *WORKER], env, code=2)
    text = "Slurm started this process (SLURM_PROCID=2 of SLURM_STEP_NUM_TASKS=3): say how many"
    assert text in done.stdout
    assert done.stdout.count("--servers N") == 3


def test_a_batch_script_has_steps_and_local_jobs(
    env: Dict[str, str], tmp_path: pathlib.Path
) -> None:
    ours, worker = shlex.join(BSLAUNCH), shlex.join(WORKER)
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/sh\n#SBATCH -n 4\n"
        f"srun {ours} --servers 1 {worker}\n"
        f"{ours} --local -w 4 -- {worker}\n"  # the script's SLURM_PROCID is no rank
        f"{ours} --servers 1 {worker}\n"
    )
    output = tmp_path / "output"
    run(["sbatch", "-W", "-o", str(output), str(script)], env, code=2)
    said = output.read_text()
    ranks = [line for line in ranks_in(said) if " of 2," in line]
    assert ranks == ["rank 0 of 2, 1 servers, process 2", "rank 1 of 2, 1 servers, process 3"]
    assert sum(" of 4," in line for line in ranks_in(said)) == 4
    assert "none of these has started this process" in said


def test_the_batch_script_of_the_page_is_a_job(env: Dict[str, str], tmp_path: pathlib.Path) -> None:
    (script,) = (text for text in blocks("user/slurm.md", "sh") if text.startswith("#!"))
    for written, meant in (("bslaunch", BSLAUNCH), ("python train.py", WORKER)):
        assert script.count(written) == 1
        script = script.replace(written, shlex.join(meant))
    (tmp_path / "job.sh").write_text(script)
    run(["sbatch", "-W", "-o", str(tmp_path / "output"), str(tmp_path / "job.sh")], env)
    assert ranks_in((tmp_path / "output").read_text()) == [
        f"rank {n} of 4, 4 servers, process {n + 5}" for n in range(4)
    ]


def test_the_script_of_the_examples_trains_and_leaves_no_secret(
    env: Dict[str, str], tmp_path: pathlib.Path
) -> None:
    path = os.pathsep.join([os.path.dirname(sys.executable), env["PATH"]])
    own = {**env, "PATH": path, "SERVERS": "1", "PYTHON": sys.executable}
    script = str(ROOT / "example" / "slurm" / "train.sbatch")
    train = [str(ROOT / "example" / "image-classification" / "train_mnist.py"), "--network", "mlp"]
    options = ["-W", "--ntasks", "4", "--output", "output", "--chdir", str(tmp_path)]
    run(["sbatch", *options, script, *train, "--num-epochs", "1"], own)
    said = (tmp_path / "output").read_text()
    digests = re.findall(r"^([23]): rank (\d): .* weights sha256 (\w+)$", said, re.M)
    assert sorted(rank for _, rank, _ in digests) == ["0", "1"], said
    assert len({digest for _, _, digest in digests}) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["output"]
