"""The job: join it, ask about it, leave it."""

from bytescheduler._session.basics import Basics
from bytescheduler.torch._job.job import current

__all__ = [
    "cross_rank",
    "cross_size",
    "init",
    "initialized",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]

_BASICS = Basics(current())

init = _BASICS.init
shutdown = _BASICS.shutdown
initialized = is_initialized = _BASICS.initialized
rank = _BASICS.rank
size = _BASICS.size
local_rank = _BASICS.local_rank
local_size = _BASICS.local_size
cross_rank = _BASICS.cross_rank
cross_size = _BASICS.cross_size
is_homogeneous = _BASICS.is_homogeneous
