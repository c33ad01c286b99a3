"""BytePS's module for crossing the barrier, by the place that BytePS has for it.

Change one line of a script that BytePS trains::

    import bytescheduler.torch.cross_barrier as bps
    bps.init()
    optimizer = bps.CrossBarrier(model, optimizer, model.named_parameters())
"""

from typing import TYPE_CHECKING

from bytescheduler.torch._api.basics import init, local_rank, local_size, rank, shutdown, size
from bytescheduler.torch._api.broadcast import broadcast_optimizer_state, broadcast_parameters
from bytescheduler.torch._api.missing import refusal
from bytescheduler.torch._api.push_pull import declare, poll, push_pull, synchronize
from bytescheduler.torch._sums.compression import Compression
from bytescheduler.torch.optimizer import CrossBarrier

__all__ = [
    "Compression",
    "CrossBarrier",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "declare",
    "init",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]

if not TYPE_CHECKING:  # type checkers find a wrong name without it
    __getattr__ = refusal(__name__)
