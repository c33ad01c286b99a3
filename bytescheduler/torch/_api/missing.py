"""Names of Horovod and BytePS that are not here, with the sentence that says what to do."""

import sys
from typing import Callable, Dict, NoReturn

__all__ = ["MISSING", "refusal", "sentence_of"]

_PUBLIC = "bytescheduler.torch"
_OBJECTS = "tensors of other workers come by allgather_object"
_PART = "sums are over all workers; leave process sets out"
_RESTARTS = (
    "start the script with torchrun --nnodes 1:2 --max-restarts 3, and load a checkpoint first: "
    "all processes begin anew, on the hosts that are there"
)
_HERE = "its names are in bytescheduler.torch itself"
_GRAPH = "it is of TensorFlow's graphs; here size() and rank() are numbers"
_KERAS = "it is a callback of Keras; call what it does in the loop of the script"
_PARAMETERS = "use broadcast_parameters(model.state_dict(), root_rank=0)"
_OTHER = "this module is for PyTorch; MXNet's Trainer takes a store of bytescheduler.mxnet"
_STATE = f"load a checkpoint in place of it; {_RESTARTS}"
# The migration pages have them too.
MISSING: Dict[str, str] = {
    "Adasum": "there is no such sum; take Average",
    "BroadcastGlobalVariablesCallback": _KERAS,
    "BroadcastGlobalVariablesHook": _PARAMETERS,
    "DistributedGradientTape": "it is of TensorFlow; use DistributedOptimizer",
    "DistributedTrainer": _OTHER,
    "ElasticSampler": "use torch.utils.data.DistributedSampler(dataset, size(), rank())",
    "HorovodInternalError": "catch bytescheduler.Error, whose PeerLost names the lost worker",
    "LearningRateScheduleCallback": _KERAS,
    "LearningRateWarmupCallback": _KERAS,
    "MetricAverageCallback": "use allreduce(metric)",
    "PartialDistributedGradientTape": "it is of TensorFlow; use DistributedOptimizer",
    "ProcessSet": _PART,
    "ReduceOp": "pass op=Average, Sum, Min, Max or Product",
    "TorchState": _STATE,
    "add_process_set": _PART,
    "allgather": _OBJECTS,
    "allgather_async": _OBJECTS,
    "alltoall": _OBJECTS,
    "alltoall_async": _OBJECTS,
    "broadcast_global_variables": _PARAMETERS,
    "broadcast_variables": _PARAMETERS,
    "byteps_push_pull": "use push_pull_async_inplace",
    "callbacks": _KERAS,
    "check_extension": "the package is built with its engine; leave it out",
    "check_installed_version": "bytescheduler doctor looks at the installation; leave it out",
    "compression": _HERE,
    "elastic": _RESTARTS,
    "functions": _HERE,
    "get_pushpull_speed": "set BYTESCHEDULER_METRICS, and call bytescheduler top",
    "global_process_set": _PART,
    "gpu_available": "ask torch.cuda.is_available()",
    "grouped_allgather": _OBJECTS,
    "grouped_allgather_async": _OBJECTS,
    "grouped_reducescatter": "use grouped_allreduce, and take a part of each result",
    "grouped_reducescatter_async": "use grouped_allreduce_async, and take a part of each result",
    "join": "all workers make equally many steps, as a DistributedSampler gives",
    "local_rank_op": _GRAPH,
    "local_size_op": _GRAPH,
    "mpi_ops": _HERE,
    "nccl_version": "no NCCL carries tensors; ask torch.cuda.nccl.version()",
    "ops": _HERE,
    "process_set_included_op": _PART,
    "rank_op": _GRAPH,
    "reducescatter": "use allreduce, and take a part of its result",
    "reducescatter_async": "use allreduce_async, and take a part of its result",
    "remove_process_set": _PART,
    "resume": f"call init, which under torchrun joins anew; with other hosts {_RESTARTS}",
    "run": "start the script with bslaunch",
    "size_op": _GRAPH,
    "sparse_allreduce_async": "pass sparse_as_dense=True to the optimizer, or tensor.to_dense()",
    "suspend": f"call shutdown; with other hosts {_RESTARTS}",
    "sync_batch_norm": _HERE,
}


def sentence_of(name: str, module: str = _PUBLIC) -> str:
    """Return what an AttributeError of one of the public modules says."""
    if module != _PUBLIC and name in sys.modules[_PUBLIC].__all__:
        return f"{module} has no {name}: take it from {_PUBLIC}"
    if name in MISSING:
        return f"{module} has no {name}: {MISSING[name]}"
    return f"module {module!r} has no attribute {name!r}"


def refusal(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a public module."""

    def refuse(name: str) -> NoReturn:
        text = sentence_of(name, module)
        # `from ... import` would drop the text of an AttributeError.
        if name in MISSING and sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise ImportError(text, name=module)
        raise AttributeError(text)

    return refuse
