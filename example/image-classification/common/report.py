"""Progress on the screen, and a digest that shows that all workers hold the same weights."""

import hashlib
import os
import sys
import time
from typing import Dict, Iterable, Iterator, Optional, TypeVar

import mxnet as mx
from tqdm import tqdm

Item = TypeVar("Item")


def weights_digest(params: Dict[str, mx.nd.NDArray]) -> str:
    """Return the SHA-256 of all weights, by name."""
    digest = hashlib.sha256()
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(params[name].asnumpy().tobytes())
    return digest.hexdigest()


class Epoch:
    """One epoch on the screen: a bar on a terminal, and one line when it is over."""

    def __init__(self, number: int, num_batches: int, batch_size: int, rank: int) -> None:
        self._label = f"rank {rank} epoch {number}"
        self._batches = num_batches
        self._samples = num_batches * batch_size
        self._bar: Optional[tqdm] = None
        self._begin = time.perf_counter()

    def step(self) -> None:
        """Count one batch."""
        if self._bar is None:  # during the first, MXNet has something to say
            self._bar = tqdm(
                total=self._batches,
                desc=self._label,
                unit="batch",
                leave=False,
                # bslaunch shows a bar every few seconds; into a file or pipe of others goes none
                disable=False if os.environ.get("DMLC_ROLE") else None,
            )
        self._bar.update()

    def batches(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield `items`, counting each."""
        for item in items:
            yield item
            self.step()

    def finish(self, accuracy: float) -> None:
        """Print the epoch's line; `accuracy` (0 to 1) is on the validation set."""
        seconds = time.perf_counter() - self._begin
        if self._bar is not None:
            self._bar.close()
        print(
            f"{self._label}: {self._samples / seconds:.0f} samples/s, "
            f"validation accuracy {accuracy:.4f}",
            flush=True,
        )


def finish(params: Dict[str, mx.nd.NDArray], rank: int, accuracy: float, target: float) -> int:
    """Print the final line and return the exit code."""
    print(
        f"rank {rank}: final validation accuracy {accuracy:.4f}, "
        f"weights sha256 {weights_digest(params)}",
        flush=True,
    )
    if accuracy < target:
        print(
            f"rank {rank}: below the target of {target:.4f}",
            file=sys.stderr,
            flush=True,
        )
        return 1
    return 0
