"""The test whether an optimizer updates each parameter independently."""

from typing import Any, Dict, List, Optional

import torch

from bytescheduler.torch._crossing.shadow import (
    Group,
    Shadow,
    copied_numbers,
    needs_closure,
    plain_step,
    twin_of,
)

__all__ = ["copied_groups", "first_difference", "random_like", "why_not_separable"]

_Optimizer = Any  # torch.optim.Optimizer
# The copies of all parameters together, and of a single parameter.
_MOST_ELEMENTS = 4 << 20
_MOST_OF_ONE = 64 << 10
_STEPS = 2
# A warm-up may begin with 0, at which every optimizer does the same: nothing.
_LEARNING_RATE = 0.01
_SEED = 7
_DRAWS = "it draws random numbers, which come in another order then"
_TRIES = 3  # another thread, such as that of a data loader, may have drawn them


def why_not_separable(inner: _Optimizer) -> Optional[str]:
    """Return why `inner` cannot step its parameters separately, or None.

    Copies of its parameters take two whole steps, and two separate steps in another order.  All
    weights and states must be equal after it, bit by bit.  Nothing of `inner` changes.
    """
    if needs_closure(inner):
        return "its step evaluates the loss itself"
    if not inner.param_groups:
        return "it has no parameters"
    params = [param for group in inner.param_groups for param in group["params"]]
    gpus = sorted({param.device.index for param in params if param.is_cuda})
    try:
        with torch.random.fork_rng(gpus), torch.inference_mode(False), torch.no_grad():
            for _ in range(_TRIES):
                reason = _compare(inner)
                if reason != _DRAWS:
                    break
            return reason
    except Exception as error:  # noqa: B902 - any optimizer's own
        return f"a step with copies of its parameters failed ({type(error).__name__}: {error})"


def _compare(inner: _Optimizer) -> Optional[str]:
    whole = twin_of(inner, copied_groups(inner))
    apart = twin_of(inner, copied_groups(inner))
    shadow = Shadow(apart)
    generator = torch.Generator("cpu").manual_seed(_SEED)
    step = plain_step(type(inner))
    random = torch.get_rng_state()
    for number in range(_STEPS):
        _give_gradients(whole, apart, generator)
        step(whole)
        if number == 0:  # fused optimizers have made their single check
            settled = _fields(whole)
        shadow.snapshot()
        changed = _step_apart(shadow, apart)
        if changed is not None:
            return changed
    if not torch.equal(random, torch.get_rng_state()):
        return _DRAWS
    if not _same(_fields(whole), settled):
        return "its steps change numbers of its own"
    return first_difference(whole, apart)


def copied_groups(inner: _Optimizer) -> List[Group]:
    """Return groups with small copies of the parameters."""
    generator = torch.Generator("cpu").manual_seed(_SEED)
    left = _MOST_ELEMENTS
    groups = []
    for group in inner.param_groups:
        copies = []
        for param in group["params"]:
            if left > 0 and param.numel() and param.requires_grad:
                copies.append(_small_copy(param, generator))
                left -= copies[-1].numel()
        numbers = copied_numbers(group)
        rate = numbers.get("lr")
        if isinstance(rate, torch.Tensor):
            numbers["lr"] = torch.full_like(rate, _LEARNING_RATE)
        elif isinstance(rate, float):
            numbers["lr"] = _LEARNING_RATE
        groups.append({**numbers, "params": copies})
    return groups


def _small_copy(param: torch.nn.Parameter, generator: torch.Generator) -> torch.nn.Parameter:
    """Return random weights of the same rank, dtype and strides, with fewer rows if it is large."""
    like = param.detach()
    if like.dim() and like.numel() > _MOST_OF_ONE:
        rows = max(1, _MOST_OF_ONE // (like.numel() // like.shape[0]))
        like = like[:rows]
    return torch.nn.Parameter(random_like(like, generator))


def random_like(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random numbers of the shape, dtype and strides of `like`."""
    wide = torch.complex64 if like.is_complex() else torch.float32
    made = torch.randn(like.shape, generator=generator, dtype=wide, device="cpu")
    return torch.empty_like(like).copy_(made)


def _give_gradients(whole: _Optimizer, apart: _Optimizer, generator: torch.Generator) -> None:
    for group, twin_group in zip(whole.param_groups, apart.param_groups):
        for param, twin in zip(group["params"], twin_group["params"]):
            param.grad = random_like(param, generator)
            twin.grad = param.grad.clone()


def _step_apart(shadow: Shadow, apart: _Optimizer) -> Optional[str]:
    """Step each parameter by itself, the last first; return the difference, or None."""
    for at, group in reversed(list(enumerate(apart.param_groups))):
        before = copied_numbers(group)
        for param in reversed(group["params"]):
            (after,) = shadow.step({at: [param]})
            if not _same(before, copied_numbers(after)):
                return "its steps change the numbers of its groups"
    return None


def first_difference(whole: _Optimizer, apart: _Optimizer) -> Optional[str]:
    """Return how two optimizers differ that should have done the same, or None."""
    for group, twin_group in zip(whole.param_groups, apart.param_groups):
        if not _same(copied_numbers(group), copied_numbers(twin_group)):
            return "its steps change the numbers of its groups"
        for param, twin in zip(group["params"], twin_group["params"]):
            if not torch.equal(param, twin) or not _same(whole.state[param], apart.state[twin]):
                return "an update of one parameter depends on others"
    return None


def _fields(optimizer: _Optimizer) -> Dict[str, Any]:
    """Return the plain numbers and texts that an optimizer keeps beside its state."""
    kinds = (bool, int, float, str, torch.Tensor)
    return {name: value for name, value in vars(optimizer).items() if isinstance(value, kinds)}


def _same(left: Any, right: Any) -> bool:  # noqa: ANN401
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return bool(torch.equal(left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right))
    return bool(left == right)
