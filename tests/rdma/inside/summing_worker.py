"""A worker without MXNet that sums random floats: ``summing_worker.py ROUNDS [PAUSE_S [fork]]``.

Tensors of all ways through a link: some travel together, one is a partition, one is many.  It
prints a digest of the bits of all sums, which are the same however they travelled.  With ``fork``
a child reads the gradients in each round, while they travel, as those of a data loader do.
"""

import array
import hashlib
import os
import pathlib
import random
import re
import sys
import time
from typing import List

from bytescheduler._native import Worker

FLOAT32 = 0
FLOATS = [1, 100, 5_000, 60_000, 300_000]


def values(seed: int, count: int) -> "array.array[float]":
    """Return floats between -1 and 1 with random mantissas, quickly."""
    bits = array.array("I", random.Random(seed).randbytes(4 * count))
    return array.array("f", [word / 2**31 - 1 for word in bits])


def digest_of(tensors: "List[array.array[float]]") -> str:
    """Return a digest of the bits of all these."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor)
    return digest.hexdigest()


def read_in_child(tensors: "List[array.array[float]]", expected: str) -> None:
    """Let a child read them; it must find the bits of this digest."""
    child = os.fork()
    if child == 0:
        os._exit(int(digest_of(tensors) != expected))
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child read other gradients, or was ended: {status}"


def pinned_kib() -> int:
    """Return how much of this process's memory the kernel holds for devices."""
    found = re.search(r"^VmPin:\s+(\d+) kB", pathlib.Path("/proc/self/status").read_text(), re.M)
    return int(found.group(1)) if found else 0


def main(rounds: int, pause_s: float = 0.0, forks: bool = False) -> None:
    worker = Worker.open()
    own = [values(1000 * worker.rank + key, count) for key, count in enumerate(FLOATS)]
    total = [array.array("f", bytes(4 * count)) for count in FLOATS]
    at = [(tensor.buffer_info()[0], 4 * len(tensor)) for tensor in total]
    keys = [(key, FLOAT32, address, size) for key, (address, size) in enumerate(at)]
    worker.broadcast(keys, owner=total)
    print("begins", flush=True)
    digest = hashlib.sha256()
    for step in range(rounds):
        for tensor in own:
            tensor[0] = step / 7  # so that no round's sums are those of another
        gradients = digest_of(own) if forks else ""
        pending = []
        for key, (address, size) in enumerate(at):
            source = own[key].buffer_info()[0]
            one = worker.start_push_pull(key, source, address, size, owner=(own, total))
            pending.append(one)
        if forks:
            read_in_child(own, gradients)
        for one in pending:
            one.wait()
        for tensor in total:
            digest.update(tensor)
        print(f"step {step + 1} done", flush=True)
        time.sleep(pause_s)
    print(f"sums {digest.hexdigest()}", flush=True)
    pinned = pinned_kib()
    worker.close()
    print(f"pinned {pinned} KiB, and {pinned_kib()} KiB once closed", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]), *map(float, words[1:2]), forks=words[2:] == ["fork"])
