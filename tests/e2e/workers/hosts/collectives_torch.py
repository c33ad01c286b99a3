"""Counts what collectives of torch.distributed send and get over a host's link, with headers.

Each host has one worker.  A count is compared with what the collective has to carry.
"""

import time
from typing import Callable, Dict, List, Tuple

import torch
import torch.distributed as dist

import bytescheduler.torch  # noqa: F401 - it adds the backend

SIZES = (1 << 20, 8 << 20)  # of the larger tensor of a call
TIMES = 4
LEAST, MOST = 0.9, 1.08
# Bytes that a rank sends and gets.
Bytes = Tuple[float, float]


def carried() -> List[int]:
    """Return how many bytes this host has sent and got."""
    found = []
    for name in ("tx_bytes", "rx_bytes"):
        with open(f"/sys/class/net/eth0/statistics/{name}") as file:
            found.append(int(file.read()))
    return found


def counted(call: Callable[[], object]) -> List[float]:
    """Return what one of several calls has carried."""
    call()
    dist.barrier()
    time.sleep(0.05)  # for acknowledgements of TCP
    before = carried()
    dist.barrier()  # no rank begins before all have read
    for _ in range(TIMES):
        call()
    dist.barrier()
    time.sleep(0.05)
    return [(now - then) / TIMES for then, now in zip(before, carried())]


def calls(size: int) -> "Dict[str, Tuple[Callable[[], object], Bytes]]":
    """Return the calls with a tensor of `size` bytes, and what each has to carry here."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole, other = torch.ones(size // 4), torch.empty(size // 4)
    shard = torch.ones(size // 4 // ranks)
    most = size * (ranks - 1) / ranks

    def send() -> None:
        if rank == 0:
            dist.send(whole, 1)
        elif rank == 1:
            dist.recv(other, 0)

    return {
        "all_reduce": (lambda: dist.all_reduce(whole), (2 * most, 2 * most)),
        "reduce_scatter": (lambda: dist.reduce_scatter_tensor(shard, whole), (most, most)),
        "all_gather": (lambda: dist.all_gather_into_tensor(other, shard), (most, most)),
        "all_to_all": (lambda: dist.all_to_all_single(other, whole), (most, most)),
        "send": (send, (size * (rank == 0), size * (rank == 1))),
    }


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("bytescheduler")
    for size in SIZES:
        for name, (call, expected) in calls(size).items():
            for way, bytes_, wanted in zip(("sent", "got"), counted(call), expected):
                if wanted:
                    share = bytes_ / wanted
                    print(f"{name} of {size} bytes: {way} {share:.3f} of what it must", flush=True)
                    assert LEAST <= share <= MOST, (name, size, way, bytes_, wanted)
    dist.destroy_process_group()
    print("links carried what they must", flush=True)


if __name__ == "__main__":
    main()
