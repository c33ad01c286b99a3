"""A process group of c10d whose calls are exchanges of the engine."""

from bytescheduler.torch._backend.messaging import Messaging
from bytescheduler.torch._backend.moving import Moving
from bytescheduler.torch._backend.reducing import Reducing

__all__ = ["CALLS", "Group"]

# c10d's calls, by all names that its versions have.
CALLS = (
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)


class Group(Moving, Reducing, Messaging):
    """A process group, by the exchanges of its ranks; see `BaseGroup`."""
