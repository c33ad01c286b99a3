"""Ranks of torch.distributed that are forked from one process, which has paid PyTorch's import."""

import datetime
import os
import sys
import traceback
from typing import Callable, List

import torch
import torch.distributed as dist

import bytescheduler.torch  # noqa: F401 - it adds the backend

__all__ = ["Ended", "fork_ranks", "join"]

# Gets its rank.
Body = Callable[[int], None]


class Ended:
    """The ranks of a job.

    Attributes
    ----------
    pids : list of int
        Their processes.
    """

    def __init__(self, pids: List[int]) -> None:
        self.pids = pids

    def code(self, rank: int) -> int:
        """Wait for the end of a rank; return its exit code, negative after a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pids[rank], 0)[1])


def fork_ranks(size: int, port: str, body: Body) -> Ended:
    """Start ranks, each of which calls `body`; they meet at the port."""
    sys.stdout.flush()
    pids = []
    for rank in range(size):
        pid = os.fork()
        if not pid:
            _run(rank, size, port, body)
        pids.append(pid)
    return Ended(pids)


def _run(rank: int, size: int, port: str, body: Body) -> None:
    variables = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})
    torch.set_num_threads(1)
    try:
        body(rank)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)  # by way of the session, as any script ends
    sys.exit(0)


def join(timeout_s: float) -> None:
    """Make the default group."""
    timeout = datetime.timedelta(seconds=timeout_s)
    dist.init_process_group("bytescheduler", timeout=timeout)
