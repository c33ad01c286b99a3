"""Data parallel modules, by the place that BytePS has for them."""

from bytescheduler.torch._ddp.hook import ddp_hook
from bytescheduler.torch._ddp.module import DistributedDataParallel

__all__ = ["DistributedDataParallel", "ddp_hook"]
