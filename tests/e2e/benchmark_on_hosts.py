"""Run a benchmark, and say what its hosts have sent: benchmark_on_hosts.py NAME OPTION..."""

import contextlib
import importlib
import json
import subprocess
import sys
from typing import Iterator

from benchmarks import lab_job

LAB = lab_job.lab
SENT = "/sys/class/net/eth0/statistics/tx_bytes"


@contextlib.contextmanager
def told(rate: str) -> "Iterator[None]":
    """Do as `lab_job.lab`, and print what each host has sent before it ends."""
    with LAB(rate):
        yield
        hosts = range(1, 1 + lab_job.NUM_WORKERS + lab_job.NUM_SERVERS)
        reads = [[*lab_job.place(host).inside, "cat", SENT] for host in hosts]
        sent = [
            int(subprocess.run(read, check=True, stdout=subprocess.PIPE).stdout) for read in reads
        ]
        print("SENT " + json.dumps(sent), flush=True)


lab_job.lab = told
sys.argv = sys.argv[1:]
importlib.import_module(f"benchmarks.{sys.argv[0]}").main()
