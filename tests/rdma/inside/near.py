"""A job over cards that are on NUMA node 1: where its memory for RDMA lies, and where bs-io runs.

Soft-RoCE devices are on no node, so a copy of the kernel's folder of devices, with a node for each,
stands in its place.
"""

import os
import pathlib
import re
import subprocess
import tempfile
from typing import Dict, List

from job import Process
from jobs import Case, begin

DEVICES = pathlib.Path("/sys/class/infiniband")
# Where the cards are; a server's only summing thread has a core of node 0.
NODE, CORES = 1, "2-3"
ONE_SHARD = {"BYTESCHEDULER_SERVER_THREADS": "1"}
# The slots of two peers are pinned in any case.
LEAST_BYTES = 2 * (512 << 10)


def copy_files(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy what can be read of a folder of the kernel's; links lead out of it."""
    for name, _, files in os.walk(source):
        folder = target / pathlib.Path(name).relative_to(source)
        folder.mkdir(parents=True)
        for file in files:
            try:
                (folder / file).write_bytes(pathlib.Path(name, file).read_bytes())
            except OSError:  # a file to write to, or an address that is not there
                continue


def put_cards_on(node: int, folder: pathlib.Path) -> None:
    """Have the folder of devices say that each card is on this node."""
    for device in DEVICES.iterdir():
        copy_files(device.resolve(), folder / device.name)
        (folder / device.name / "device").mkdir()
        (folder / device.name / "device" / "numa_node").write_text(f"{node}\n")
    subprocess.run(["mount", "--bind", str(folder), str(DEVICES)], check=True)


def pages_placed_on(node: int, process: Process) -> Dict[int, int]:
    """Return how many pages lie on each node, of the memory for which the process wants `node`."""
    found: Dict[int, int] = {}
    for line in pathlib.Path(f"/proc/{process.pid}/numa_maps").read_text().splitlines():
        _, policy, *words = line.split()
        if policy == f"prefer:{node}":
            for where, count in re.findall(r"\bN(\d+)=(\d+)", " ".join(words)):
                found[int(where)] = found.get(int(where), 0) + int(count)
    return found


def cores_of(thread: str, process: Process) -> List[str]:
    """Return the cores of the threads of this name."""
    cores = []
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            status = (task / "status").read_text()
            cores += re.findall(r"^Cpus_allowed_list:\s*(\S+)", status, re.M)
    return cores


def main() -> None:
    """Run the job, and look at it in the middle."""
    with tempfile.TemporaryDirectory() as name:
        put_cards_on(NODE, pathlib.Path(name) / "devices")
        case = Case(pathlib.Path(name), "rdma")
        with case.job(**ONE_SHARD) as job:
            begin(job)  # the copy of the folder counts no packets
            for process in [*job.servers, *job.workers]:
                pages = pages_placed_on(NODE, process)
                placed = pages.pop(NODE, 0)
                print(f"{process.name}: {placed} pages on node {NODE}, elsewhere {pages}")
                assert not pages, pages
                assert placed * os.sysconf("SC_PAGESIZE") >= LEAST_BYTES
                assert cores_of("bs-io", process) == [CORES], cores_of("bs-io", process)
            for server in job.servers:
                assert cores_of("bs-shard-0.0", server) in (["0"], ["1"])
    print("all memory for RDMA lies near the cards")


if __name__ == "__main__":
    main()
