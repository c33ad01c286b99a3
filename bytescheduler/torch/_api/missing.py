"""Names of Horovod and BytePS that are not here, with the sentence that says what to do."""

from typing import Dict

__all__ = ["MISSING", "sentence_of"]

_OBJECTS = "tensors of other workers come by allgather_object"
_PART = "sums are over all workers; leave process sets out"
_LIVES = "a job has as many workers as at its start; a lost worker can be replaced"
_ADDS = "servers add and average; other operations come with later back ends, and until then"
# The migration pages have them too.
MISSING: Dict[str, str] = {
    "Adasum": "there is no such sum; take Average",
    "Max": f"{_ADDS} take the largest of allgather_object(value)",
    "Min": f"{_ADDS} take the smallest of allgather_object(value)",
    "Product": f"{_ADDS} multiply those of allgather_object(value)",
    "ProcessSet": _PART,
    "add_process_set": _PART,
    "allgather": _OBJECTS,
    "allgather_async": _OBJECTS,
    "alltoall": _OBJECTS,
    "alltoall_async": _OBJECTS,
    "byteps_push_pull": "use push_pull_async_inplace",
    "check_extension": "the package is built with its engine; leave it out",
    "elastic": _LIVES,
    "get_pushpull_speed": "set BYTESCHEDULER_METRICS, and call bytescheduler top",
    "global_process_set": _PART,
    "grouped_allgather": _OBJECTS,
    "grouped_allgather_async": _OBJECTS,
    "grouped_reducescatter": "use grouped_allreduce, and take a part of each result",
    "grouped_reducescatter_async": "use grouped_allreduce_async, and take a part of each result",
    "join": "all workers make equally many steps, as a DistributedSampler gives",
    "reducescatter": "use allreduce, and take a part of its result",
    "reducescatter_async": "use allreduce_async, and take a part of its result",
    "remove_process_set": _PART,
    "resume": _LIVES,
    "run": "start the script with bslaunch",
    "sparse_allreduce_async": "pass sparse_as_dense=True to the optimizer, or tensor.to_dense()",
    "suspend": _LIVES,
}


def sentence_of(name: str) -> str:
    """Return what an AttributeError of the module says."""
    if name in MISSING:
        return f"bytescheduler.torch has no {name}: {MISSING[name]}"
    return f"module 'bytescheduler.torch' has no attribute {name!r}"
