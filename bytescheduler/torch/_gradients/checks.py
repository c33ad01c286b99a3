"""The checks of parameters before their gradients travel: each error names one and the cure."""

from typing import Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._engine.dtypes import check_summable
from bytescheduler.torch._gradients.slot import Slot

__all__ = ["check_model", "check_parameter", "check_place", "names_of"]

_Named = Iterable[Tuple[str, torch.nn.Parameter]]

# By the names of classes, so that nothing is imported for them.
_SHARDED = ("FullyShardedDataParallel", "FSDPModule", "XlaFullyShardedDataParallel")
_REFUSED = {
    "DataParallel": "it copies the model to devices of one process; use one process a device",
    "DistributedDataParallel": "it averages gradients already; give the bare model, or keep it "
    "and register bytescheduler.torch.ddp_hook with it",
    "ScriptModule": "hooks of scripted modules cannot wait for weights; give the model before "
    "torch.jit.script",
    "RecursiveScriptModule": "hooks of scripted modules cannot wait for weights; give the model "
    "before torch.jit.script",
}


def _class_names(value: object) -> Iterator[str]:
    return (kind.__name__ for kind in type(value).__mro__)


def check_model(model: torch.nn.Module) -> None:
    """Raise UsageError if a module of `model` does not go with hooks of ours."""
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"model: want a torch.nn.Module, got {type(model).__name__}", 5)
    for path, module in model.named_modules():
        names = list(_class_names(module))
        module_name = path or "the model"
        if any(name in _SHARDED for name in names):
            raise UsageError(
                f"{module_name}: it is sharded (FSDP), so each worker has a part of the gradients; "
                "bytescheduler.torch averages whole ones: leave FSDP out",
                5,
            )
        for name in names:
            if name in _REFUSED:
                raise UsageError(f"{module_name}: it is a {name}; {_REFUSED[name]}", 5)


def check_parameter(name: str, param: torch.nn.Parameter) -> None:
    """Raise UsageError if gradients of `param` cannot be averaged."""
    kinds = list(_class_names(param))
    if "DTensor" in kinds or "FlatParameter" in kinds:
        raise UsageError(
            f"{name}: it is sharded ({type(param).__name__}), so its gradient is a part of one; "
            "bytescheduler.torch averages whole ones: leave FSDP and DTensor out",
            5,
        )
    if not param.is_leaf:
        raise UsageError(
            f"{name}: it is no leaf, so backward leaves no gradient in it; make it a "
            "torch.nn.Parameter, or call detach().requires_grad_()",
            5,
        )
    check_summable(param, name)


def check_place(slot: Slot, tensor: torch.Tensor) -> None:
    """Raise UsageError if a parameter or a gradient has another device, dtype or shape."""
    if tensor.dtype is slot.dtype and tensor.shape == slot.shape and tensor.device == slot.place:
        return
    if tensor.device != slot.place:
        raise UsageError(
            f"{slot.name}: it moved from {slot.place} to {tensor.device}; move the model first, "
            "wrap then",
            5,
        )
    if tensor.dtype != slot.dtype:
        raise UsageError(
            f"{slot.name}: it changed from {slot.dtype} to {tensor.dtype}; change the model first, "
            "wrap then",
            5,
        )
    if tensor.shape != slot.shape:
        raise UsageError(
            f"{slot.name}: it changed from {tuple(slot.shape)} to {tuple(tensor.shape)}; change "
            "the model first, wrap then",
            5,
        )


def names_of(
    params: List[torch.nn.Parameter],
    named_parameters: Optional[_Named],
    model: Optional[torch.nn.Module],
    *,
    all_named: bool = True,
) -> Dict[int, str]:
    """Return a name for each of `params`, by its id; without `all_named` also for new ones.

    Raises
    ------
    UsageError
        A name repeats, something has none, or a parameter belongs to no module of `model`.
    """
    pairs = _pairs(named_parameters, model)
    if pairs is None:
        return {id(param): f"parameter {at}" for at, param in enumerate(params)}
    names: Dict[int, str] = {}
    taken: Dict[str, int] = {}
    for name, param in pairs:
        if taken.setdefault(name, id(param)) != id(param):
            raise UsageError(
                f"{name}: two parameters have this name; give each its own, such as "
                "(f'encoder.{name}', p) for each of encoder.named_parameters()",
                5,
            )
        names.setdefault(id(param), name)  # a tied parameter keeps its first name
    source = "named_parameters" if named_parameters is not None else "model"
    for at, param in enumerate(params):
        if id(param) not in names and not all_named:
            names[id(param)] = f"parameter {at}"
        elif id(param) not in names:
            raise UsageError(
                f"parameter {at} of the optimizer, {tuple(param.shape)}, is not in {source}: give "
                "all that the optimizer has, such as model.named_parameters()",
                5,
            )
    return names


def _pairs(
    named_parameters: Optional[_Named], model: Optional[torch.nn.Module]
) -> Optional[List[Tuple[str, torch.nn.Parameter]]]:
    if named_parameters is None:
        return None if model is None else list(model.named_parameters())
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise UsageError(
            "named_parameters: want pairs of name and parameter; give model.named_parameters(), "
            "as model.parameters() has no names",
            5,
        )
    return pairs
