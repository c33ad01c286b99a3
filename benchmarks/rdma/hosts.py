"""The machines of a benchmark by RDMA, and jobs of our engine on them."""

import argparse
import json
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Sequence

from benchmarks.lab import arms, lab_job, local_job, machine, options
from benchmarks.lab.output import add_out_option
from benchmarks.rdma.device import Device, device_at
from bytescheduler._launch.launcher import Launcher, Place
from bytescheduler._process.child import SPEAKS, Streams

__all__ = [
    "CARRIERS",
    "add_options",
    "add_program_options",
    "device_of",
    "require_devices",
    "results",
]

# How data travel between hosts.  Those of one machine have no memory in common either.
CARRIERS: Dict[str, Dict[str, str]] = {
    "tcp": {"BYTESCHEDULER_SHARED_MEMORY": "0"},
    "rdma": {"BYTESCHEDULER_SHARED_MEMORY": "0", "DMLC_ENABLE_RDMA": "1"},
}
_REPORTS = Streams(stdout=subprocess.PIPE)
_ASK_S = 60.0


def place(text: str) -> Place:
    """Return where processes of a host run."""
    name, _, address = text.rpartition("=")
    prefix = [sys.executable, "-m", "benchmarks.rdma.on_host", name] if name else []
    return Place(address, prefix)


def _places(text: str) -> List[Place]:
    found = [place(word) for word in text.split(",")]
    if len(found) < 2 or not all(each.address for each in found):
        raise argparse.ArgumentTypeError(
            f"{text!r}: want two addresses or more, such as 10.0.0.1,node2=10.0.0.2"
        )
    return found


def add_options(parser: argparse.ArgumentParser, known: Sequence[str]) -> None:
    """Let the caller say where the nodes are, which of the `known` arms run, and how often."""
    parser.add_argument(
        "--hosts",
        type=_places,
        required=True,
        help="the addresses of RDMA devices: 10.0.0.1 is on this machine, node2=10.0.0.2 on "
        "another, which `ssh node2` reaches without a password and which has this folder too",
    )
    parser.add_argument("--repeats", type=options.count(), default=5)
    arms.add_arms_option(parser, known, ",".join(known))
    machine.add_option(parser)
    add_out_option(parser)


def add_program_options(parser: argparse.ArgumentParser, timeout_s: float = 120) -> None:
    """Let the caller name the program of our engine, and bound its runs."""
    parser.add_argument("--timeout", type=float, default=timeout_s, help="seconds for an arm's run")
    parser.add_argument("--native", default="build/benchmarks/wire_benchmark")


def device_of(host: Place) -> Device:
    """Return the device of a host.

    Raises
    ------
    SystemExit
        It has none; the message says why and what to do.
    """
    if not host.prefix:
        return device_at(host.address)
    ask = [*host.prefix, sys.executable, "-m", "benchmarks.rdma.device", host.address]
    asked = subprocess.run(ask, capture_output=True, check=False, text=True, timeout=_ASK_S)
    if asked.returncode != 0:
        raise SystemExit(asked.stderr.strip())
    return Device(*json.loads(asked.stdout))


def require_devices(hosts: Sequence[Place]) -> None:
    """End the program where a host has no device, before anything is measured."""
    for host in hosts:
        device_of(host)


class Shape(NamedTuple):
    """The hosts of a job's workers, and those of its servers."""

    workers: Sequence[Place]
    servers: Sequence[Place]


def results(
    native: str, words: Sequence[str], shape: Shape, env: Dict[str, str], timeout_s: float
) -> List[Any]:
    """Run a job of the program wire_benchmark, and return what its workers report.

    The scheduler node is on the first worker's host.

    Raises
    ------
    SystemExit
        A worker failed.
    subprocess.TimeoutExpired
        A worker had not reported in time.
    """
    root, node = shape.workers[0], [native, "node"]
    every = {**local_job.settings(), **env}
    with Launcher(len(shape.workers), len(shape.servers), every, root=root) as launcher:
        launcher.reserve_port()
        launcher.start("scheduler", node, place=root, streams=SPEAKS)
        for host in shape.servers:
            launcher.start("server", node, place=host, streams=SPEAKS)
        for host in shape.workers:
            launcher.start("worker", [native, *words], place=host, streams=_REPORTS)
        with local_job.patience(words[0], timeout_s, launcher.kill_all):
            found = [lab_job.reported(words[0], worker) for worker in launcher.workers]
        lab_job.await_end(words[0], launcher)
        return found
