"""A rank that is killed, stopped or raises in the middle of each call: the others name it.

``ends_in_calls.py PORT kill|stop|raise``: rank 1 has made every second call when it ends.  Rank 0
has made all, and rank 2 makes them after that.
"""

import datetime
import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist
from forked_ranks import fork_ranks, join

RANKS = 3
VICTIM = 1
TIMEOUT_S = 3.0  # of a call; a stopped rank is known by nothing else
PATIENCE_S = 60.0
Group = Any  # PyTorch's types are not read
Handle = Any  # a work
Store = Any


def tensors(count: int) -> List[torch.Tensor]:
    return [torch.ones(50_000) for _ in range(count)]


def received(group: Group, source: "int | None") -> Handle:
    """Receive from the victim, which sends nothing."""
    return dist.irecv(torch.zeros(3), group=group, group_src=source)


CALLS: Dict[str, Callable[[Group], Any]] = {
    "all_reduce": lambda g: dist.all_reduce(torch.ones(3), group=g, async_op=True),
    "all_reduce of more": lambda g: dist.all_reduce(torch.ones(50_000), group=g, async_op=True),
    "all_reduce by PyTorch": lambda g: dist.all_reduce(
        torch.ones(3, dtype=torch.int16), group=g, async_op=True
    ),
    "broadcast": lambda g: dist.broadcast(torch.ones(50_000), group_src=0, group=g, async_op=True),
    "broadcast of it": lambda g: dist.broadcast(
        torch.ones(50_000), group_src=VICTIM, group=g, async_op=True
    ),
    "reduce": lambda g: dist.reduce(torch.ones(3), group_dst=2, group=g, async_op=True),
    "all_gather": lambda g: dist.all_gather(tensors(3), torch.ones(50_000), g, True),
    "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(
        torch.ones(9), torch.ones(3), g, True
    ),
    "gather": lambda g: dist.gather(
        torch.ones(50_000),
        tensors(3) if g.rank() == 0 else None,
        group_dst=0,
        group=g,
        async_op=True,
    ),
    "scatter": lambda g: dist.scatter(
        torch.ones(50_000),
        tensors(3) if g.rank() == 2 else None,
        group_src=2,
        group=g,
        async_op=True,
    ),
    "reduce_scatter": lambda g: dist.reduce_scatter(
        torch.ones(50_000), tensors(3), group=g, async_op=True
    ),
    "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(
        torch.ones(3), torch.ones(9), group=g, async_op=True
    ),
    "all_to_all_single": lambda g: dist.all_to_all_single(
        torch.ones(3), torch.ones(3), group=g, async_op=True
    ),
    "barrier": lambda g: dist.barrier(g, async_op=True),
    "recv": lambda g: received(g, VICTIM),
    "recv from any": lambda g: received(g, None),
}
MESSAGES = ("recv", "recv from any")


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def has_ended(pid: int) -> bool:
    """Return whether a process is stopped or dead."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(") ")[2][0] in "TZX"


def victim(fault: str, groups: Dict[str, Group], store: Store) -> None:
    works = [CALLS[name](groups[name]) for name in list(CALLS)[::2] if name not in MESSAGES]
    store.set("pid", str(os.getpid()))
    wait_until(lambda: store.check(["all calls"]))
    assert not all(work.is_completed() for work in works)
    if fault == "raise":
        raise RuntimeError("a mistake of the script")
    os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)


def survivor(rank: int, fault: str, groups: Dict[str, Group], store: Store) -> None:
    pid = int(store.get("pid"))
    if rank == 2:
        store.get("all calls")
        wait_until(lambda: has_ended(pid))
    begun, works, outcomes = time.monotonic(), {}, {}
    for name, group in groups.items():
        works[name] = CALLS[name](group)
    store.set("all calls", "")
    for name, work in works.items():
        outcomes[name] = outcome_of(work)
    took = time.monotonic() - begun
    made = set(list(CALLS)[::2]) - set(MESSAGES)
    for name, text in outcomes.items():
        print(f"rank {rank} {name}: {text}", flush=True)
        if text is None:
            assert name in made, name  # it had given before, and so have the others
            continue
        number = list(CALLS).index(name) % RANKS + 1
        assert name in MESSAGES or f"#{number} of group" in text, text
        assert f"worker {VICTIM}" in text or "no rank has sent" in text, text
    assert took < PATIENCE_S, took
    dist.destroy_process_group()
    print(f"rank {rank} has named it", flush=True)


def outcome_of(work: Handle) -> "str | None":
    try:
        work.wait()
    except RuntimeError as error:
        return str(error)
    return None


def main(rank: int, fault: str) -> None:
    join(PATIENCE_S)
    timeout = datetime.timedelta(seconds=TIMEOUT_S if fault == "stop" else PATIENCE_S)
    groups = {name: dist.new_group(list(range(RANKS)), timeout) for name in CALLS}
    for at, name in enumerate(CALLS):
        for _ in range(at % RANKS):  # so that each rank keeps some of the calls
            dist.barrier(groups[name])
    store = dist.PrefixStore("ends", dist.distributed_c10d._get_default_store())
    victim(fault, groups, store) if rank == VICTIM else survivor(rank, fault, groups, store)


if __name__ == "__main__":
    port, fault = sys.argv[1:]
    ranks = fork_ranks(RANKS, port, lambda rank: main(rank, fault))
    codes = [ranks.code(rank) for rank in (0, 2)]
    if fault == "stop":
        os.kill(ranks.pids[VICTIM], signal.SIGKILL)
    codes.insert(VICTIM, ranks.code(VICTIM))
    assert codes == [0, 1 if fault == "raise" else -signal.SIGKILL, 0], codes
