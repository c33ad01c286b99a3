"""Run a benchmark, and say what its hosts have sent: benchmark_on_hosts.py NAME OPTION...

Each job leaves its timeline in the current folder, as timeline-ARM-r0.json and so on.
"""

import contextlib
import importlib
import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, Iterator, List

from benchmarks.lab import lab_job
from bytescheduler._advise.shape import Shape

LAB = lab_job.lab
RUN = lab_job.run
SENT = "/sys/class/net/eth0/statistics/tx_bytes"


@contextlib.contextmanager
def told(rate: str, shape: Shape = lab_job.USUAL) -> "Iterator[None]":
    """Do as `lab_job.lab`, and print what each host has sent before it ends."""
    with LAB(rate, shape):
        yield
        hosts = range(1, 1 + shape.hosts)
        reads = [[*lab_job.place(host).prefix, "cat", SENT] for host in hosts]
        sent = [
            int(subprocess.run(read, check=True, stdout=subprocess.PIPE).stdout) for read in reads
        ]
        print("SENT " + json.dumps(sent), flush=True)


def traced(arm: str, worker: List[str], env: Dict[str, str], *more: Any, **named: Any) -> List[Any]:  # noqa: ANN401
    """Do as `lab_job.run`, with a timeline unless the benchmark wants one of its own."""
    timeline = {"BYTESCHEDULER_TIMELINE": str(pathlib.Path.cwd() / f"timeline-{arm}.json")}
    return RUN(arm, worker, {**timeline, **env}, *more, **named)


lab_job.lab = told
lab_job.run = traced
sys.argv = sys.argv[1:]
importlib.import_module(f"benchmarks.{sys.argv[0]}").main()
