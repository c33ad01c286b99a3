"""Jobs of `bslaunch -H` over a real sshd."""

import os
import pathlib
import re
import sys
import time
from typing import Iterator

import pytest
from launched import BSLAUNCH, WORKER, needs_torch, ranks_in, require, run
from sshd import SSHD, Sshd
from written import ROOT, blocks


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    require(SSHD, "ssh", "ssh-keygen")
    from bytescheduler._process.ports import Ports

    with Ports() as ports, Sshd(tmp_path_factory.mktemp("sshd"), ports.free()) as started:
        yield started


def test_a_job_on_two_hosts(sshd: Sshd) -> None:
    hosts = sshd.bslaunch("127.0.0.1,127.0.0.2:2")
    done = run([*BSLAUNCH, *hosts, "-w", "4", "-s", "2", "--", *WORKER])
    assert ranks_in(done.stdout) == [f"rank {n} of 4, 2 servers, process {n}" for n in range(4)]
    assert "[worker 3] rank 3 of 4" in done.stdout


def test_twelve_workers_of_one_host_log_in_though_sshd_takes_few_at_once(sshd: Sshd) -> None:
    done = run([*BSLAUNCH, *sshd.bslaunch("127.0.0.1:12"), "--", *WORKER])
    assert len(ranks_in(done.stdout)) == 12


def test_a_host_that_is_down_and_a_command_that_is_missing(sshd: Sshd) -> None:
    done = run([*BSLAUNCH, *sshd.bslaunch("127.0.0.1,127.0.0.3"), "true"], code=255)
    assert done.stdout.startswith("bslaunch: ssh cannot reach 127.0.0.3: ")
    assert done.stdout.count("\n") == 1
    done = run([*BSLAUNCH, *sshd.bslaunch("127.0.0.1"), "nope-x"], code=127)
    assert done.stdout == "bslaunch: 127.0.0.1: command not found: nope-x\n"


def test_the_code_of_the_first_cause_ends_all(sshd: Sshd, tmp_path: pathlib.Path) -> None:
    alive = tmp_path / "alive"
    script = f'[ "$DMLC_WORKER_ID" = 1 ] && exit 7; while :; do date >{alive}; sleep 0.1; done'
    hosts = sshd.bslaunch("127.0.0.1,127.0.0.2")
    done = run([*BSLAUNCH, *hosts, "--grace", "0.5", "--", "sh", "-c", script], code=7)
    assert "bslaunch: worker 1 ended with exit code 7 on 127.0.0.2" in done.stdout
    if alive.exists():
        alive.unlink()
    time.sleep(0.5)
    assert not alive.exists()


@pytest.mark.parametrize(
    "examples", [pytest.param("pytorch", marks=needs_torch), "image-classification"]
)
def test_the_first_job_on_two_machines_goes_as_its_page_says(sshd: Sshd, examples: str) -> None:
    written = blocks("user/two-machines.md", "sh")
    text = next(block for block in written if f"cd ~/bs-examples/{examples}" in block)
    _, on_first = text.split("# on the first machine", 1)
    commands = on_first.partition("\n")[2]
    here = {
        "host1,host2": "127.0.0.1,127.0.0.2",
        "cd ~/bs-examples": f"cd {ROOT / 'example'}",
        "~/bs/bin": os.path.dirname(sys.executable),
        # The port and the key of this sshd.
        "bslaunch -H": f"bslaunch --ssh '{sshd.client}' -H",
    }
    for words, meant in here.items():
        assert commands.count(words) == 1
        commands = commands.replace(words, meant)
    done = run(["sh", "-ec", commands])
    digests = re.findall(r"\[worker \d\] rank (\d): .* weights sha256 (\w+)$", done.stdout, re.M)
    assert sorted(rank for rank, _ in digests) == ["0", "1"], done.stdout
    assert len({digest for _, digest in digests}) == 1
