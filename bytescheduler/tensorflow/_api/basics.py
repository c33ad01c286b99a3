"""The job: join it, ask about it, leave it."""

from bytescheduler._session.basics import Basics
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._job.job import current

__all__ = ["init", "initialized", "local_rank", "local_size", "rank", "shutdown", "size"]

_BASICS = Basics(current())

init = _BASICS.init
shutdown = _BASICS.shutdown
initialized = unconverted(_BASICS.initialized)
rank = unconverted(_BASICS.rank)
size = unconverted(_BASICS.size)
local_rank = unconverted(_BASICS.local_rank)
local_size = unconverted(_BASICS.local_size)
