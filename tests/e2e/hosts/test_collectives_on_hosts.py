"""What collectives of torch.distributed carry over the links of hosts with one worker each."""

import pathlib
import sys

import pytest
from direct_job import start_direct
from job import WORKERS
from lab import Lab, hosts_or_skip

pytestmark = pytest.mark.nightly
SCRIPT = WORKERS / "hosts" / "collectives_torch.py"


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_link_carries_the_bytes_of_the_collective(tmp_path: pathlib.Path, ranks: int) -> None:
    pytest.importorskip("torch")
    with hosts_or_skip(lambda: Lab(ranks)) as lab:
        hosts, command = list(range(ranks)), [sys.executable, str(SCRIPT)]
        job = [start_direct(lab, tmp_path, hosts, rank, command, 29700 + ranks) for rank in hosts]
        codes = [process.wait(240) for process in job]
        outputs = [process.output() for process in job]
    assert not any(codes), outputs
    assert all("links carried what they must" in text for text in outputs), outputs
