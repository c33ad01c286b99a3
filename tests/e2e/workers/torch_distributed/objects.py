"""Object collectives of random sizes, after which ranks have no more memory than early on.

``objects.py PORT CALLS``: each rank hosts a server, whose memory is its own.
"""

import ctypes
import gc
import random
import sys

import torch.distributed as dist
from forked_ranks import fork_ranks, join

RANKS = 2
EARLY = 100
LARGEST = 200_000  # bytes of an object
MORE = 32 << 20  # that a process may have at the end, of 2 GB that have travelled


def own_bytes() -> int:
    """Return the memory of this process, without what the allocator keeps free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as file:
        own = next(line for line in file if line.startswith("RssAnon:"))
    return int(own.split()[1]) << 10


def exchange(alike: random.Random, own: random.Random) -> None:
    """Make a random call; `alike` is in the same state on all ranks."""
    rank, mine = dist.get_rank(), own.randbytes(own.randrange(LARGEST))
    kind = alike.randrange(3)
    if kind == 0:
        gathered = [None] * RANKS
        dist.all_gather_object(gathered, (rank, mine))
        assert gathered[rank] == (rank, mine)
        assert gathered[1 - rank][0] == 1 - rank
    elif kind == 1:
        root = alike.randrange(RANKS)
        told = [mine]
        dist.broadcast_object_list(told, root)
        assert told == [mine] or rank != root
    else:
        got = [None]
        dist.scatter_object_list(got, [(0, mine), (1, mine)] if rank == 0 else None)
        assert got[0][0] == rank


def main(rank: int, calls: int) -> None:
    join(60)
    alike, own = random.Random(1), random.Random(100 + rank)
    early = 0
    for call in range(calls):
        exchange(alike, own)
        if call == EARLY:
            dist.barrier()
            early = own_bytes()
    dist.barrier()
    late = own_bytes()
    assert late < early + MORE, f"{early >> 20} MiB after {EARLY} calls, {late >> 20} at the end"
    dist.destroy_process_group()
    print("as little memory as early on", flush=True)


if __name__ == "__main__":
    ranks = fork_ranks(RANKS, sys.argv[1], lambda rank: main(rank, int(sys.argv[2])))
    codes = [ranks.code(rank) for rank in range(RANKS)]
    assert codes == [0] * RANKS, codes
