"""Steps of any optimizer with some of its parameters, by its own class.

A shadow is an object of the optimizer's class that shares its state.  Its groups are copies with
the parameters at hand.  The user's object is never touched.
"""

import copy
import inspect
from typing import Any, Callable, Dict, List, Mapping

import torch

__all__ = ["Group", "Shadow", "copied_numbers", "needs_closure", "plain_step"]

Group = Dict[str, Any]
_Optimizer = Any  # torch.optim.Optimizer
_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)

_MANY = 16  # tensors, for which one call is quicker than a call for each
_PLAIN = (int, float)


def plain_step(kind: type) -> Callable[..., object]:
    """Return the step of a class of optimizers, without the hooks and the profiler around it."""
    step: Any = kind.step  # type: ignore[attr-defined]
    if getattr(step, "hooked", False):  # set by PyTorch on its own wrapper, and only there
        step = getattr(step, "__wrapped__", step)
    return step  # type: ignore[no-any-return]


def needs_closure(optimizer: _Optimizer) -> bool:
    """Return whether a step evaluates the loss itself, as line searches do."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return True
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def copied_numbers(group: Mapping[str, Any]) -> Group:
    """Return a group's numbers as they stand, without its parameters."""
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in group.items()
        if name != "params"
    }


class Shadow:
    """Steps parameters with the numbers of the latest snapshot.

    Parameters
    ----------
    inner : Optimizer
        Kept alive; its state is shared.
    """

    def __init__(self, inner: _Optimizer) -> None:
        self._inner = inner
        self._kind = type(inner)
        self._step = plain_step(self._kind)
        self._shadow: _Optimizer = object.__new__(self._kind)
        self._numbers: List[Group] = []

    def snapshot(self) -> None:
        """Remember learning rates and all other numbers as they are now."""
        self._numbers = [copied_numbers(group) for group in self._inner.param_groups]
        fields = dict(self._inner.__dict__)
        fields.update({name: {} for name in _HOOKS})
        fields.pop("step", None)  # a scheduler's wrapper around the user's call
        self._shadow.__dict__.clear()
        self._shadow.__dict__.update(fields)

    def step(
        self, params: Mapping[int, List[torch.nn.Parameter]], *, are_here: bool = False
    ) -> List[Group]:
        """Step the parameters of each group, which have gradients; return the groups after it.

        `are_here` tells that all are in the processor's memory.
        """
        groups = [{**self._numbers[at], "params": these} for at, these in params.items()]
        if are_here and self._kind is torch.optim.SGD:
            for group in groups:
                if len(group["params"]) >= _MANY and _is_alike_together(group):
                    group["foreach"] = True
        self._shadow.param_groups = groups
        self._step(self._shadow)
        return groups


def _is_alike_together(group: Group) -> bool:
    """Return whether SGD's `foreach`, which is quicker for many tensors, is the same to the bit.

    In the processor's memory it calls the same functions, one tensor after the other.  Nesterov's
    changes the gradients.
    """
    is_free = group["foreach"] is None and not (group.get("fused") or group["differentiable"])
    numbers = ("lr", "momentum", "weight_decay", "dampening")
    return is_free and not group["nesterov"] and all(type(group[key]) in _PLAIN for key in numbers)


def twin_of(inner: _Optimizer, groups: List[Group]) -> _Optimizer:
    """Return an optimizer of the same class and options, with these groups and no state."""
    twin = object.__new__(type(inner))
    for name, value in inner.__dict__.items():
        if name in ("state", "param_groups", "step"):
            continue
        twin.__dict__[name] = {} if name in _HOOKS else copy.deepcopy(value)
    twin.state = type(inner.state)(dict) if hasattr(inner.state, "default_factory") else {}
    twin.param_groups = groups
    return twin
