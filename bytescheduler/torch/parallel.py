"""Data parallel modules, by the place that BytePS has for them."""

from typing import TYPE_CHECKING

from bytescheduler.torch._api.missing import refusal
from bytescheduler.torch._ddp.hook import ddp_hook
from bytescheduler.torch._ddp.module import DistributedDataParallel

__all__ = ["DistributedDataParallel", "ddp_hook"]

if not TYPE_CHECKING:  # type checkers find a wrong name without it
    __getattr__ = refusal(__name__)
