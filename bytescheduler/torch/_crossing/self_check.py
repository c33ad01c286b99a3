"""The test whether an optimizer updates each parameter independently."""

import math
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, TypeVar

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
_Result = TypeVar("_Result")
_Place = Tuple[int, int]  # a group, and the index of a parameter in it


class _Most(NamedTuple):
    """How large copies may be."""

    elements: int  # in all copies together
    of_one: int
    params: int


_LARGE = _Most(4 << 20, 64 << 10, sys.maxsize)
_SMALL = _Most(256 << 10, 512, 64)  # many rounds of steps take them
_STEPS = 2


class _OfOtherClass(torch.nn.Parameter):  # type: ignore[misc]
    """A copy of a weight for whose group PyTorch does not choose `foreach`."""


class _Round(NamedTuple):
    """Gradients of the first step of new copies; the next step gets usual gradients."""

    factor: float  # for all gradients
    odd_factor: Optional[float] = 1.0  # for one parameter of a group; None: it has no gradient
    odd_index: int = 0  # the index of that parameter in its group


_ROUNDS = (
    _Round(1e6),
    _Round(1e-6),
    _Round(1.0, 1e6),
    _Round(1.0, 0.0, -1),
    _Round(1.0, math.inf),
    _Round(1.0, math.nan, -1),
    _Round(1.0, None),
    _Round(1.0, None, -1),
)
_LARGEST = 16.0  # a random number is smaller, so a bounded product is finite
# A warm-up may begin with 0, at which every optimizer does the same: nothing.
_LEARNING_RATE = 0.01
_SEED = 7
_DRAWS = "it draws random numbers, which come in another order then"
_DEPENDS = "an update of one parameter depends on others"
_MIXED = (
    "PyTorch rounds its updates by the devices and classes of a whole group, unless it is made "
    "with foreach=False"
)
_COUNTS = "its steps change numbers of its own"
_REPLACES = "its step puts other gradients in p.grad, or drops them"
_TRIES = 3  # another thread, such as that of a data loader, may have drawn them


def why_not_separable(inner: _Optimizer) -> Optional[str]:
    """Return why `inner` cannot step its parameters separately, or None.

    Copies of its parameters take two whole steps, and two separate steps in another order.  All
    weights and states must be equal after it, bit by bit.  Small copies do so with gradients that
    are huge, tiny, zero, not finite or absent.  Nothing of `inner` changes.
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
            reason = reason or _compare_unusual(inner)
            return _MIXED if reason == _DEPENDS and _is_mixed(inner) else reason
    except Exception as error:  # noqa: B902 - any optimizer's own
        return f"a step with copies of its parameters failed ({type(error).__name__}: {error})"


def _is_mixed(inner: _Optimizer) -> bool:
    """Return whether PyTorch chooses `foreach` for a group by more than one kind of parameter."""
    return any(
        group.get("foreach", True) is None
        and len({(param.device.type, type(param)) for param in group["params"]}) > 1
        for group in inner.param_groups
    )


def _compare(inner: _Optimizer) -> Optional[str]:
    whole = twin_of(inner, copied_groups(inner))
    apart = twin_of(inner, copied_groups(inner))
    shadow = Shadow(apart)
    generator = torch.Generator("cpu").manual_seed(_SEED)
    step = plain_step(type(inner))
    random = torch.get_rng_state()
    for number in range(_STEPS):
        _give_gradients(whole, apart, generator)
        before_step = _gradients(whole)
        step(whole)
        if any(old is not new for old, new in zip(before_step, _gradients(whole))):
            return _REPLACES  # behind a step that crosses, p.grad is what backward made
        if number == 0:  # fused optimizers have made their single check
            settled = _fields(whole)
        shadow.snapshot()
        changed = _step_apart(shadow, apart)
        if changed is not None:
            return changed
    if not torch.equal(random, torch.get_rng_state()):
        return _DRAWS
    if not _same(_fields(whole), settled):
        return _COUNTS
    return first_difference(whole, apart)


def _compare_unusual(inner: _Optimizer) -> Optional[str]:
    """Compare steps of small copies: whether gradients count, and whether unusual ones join."""
    twins = _Twins(inner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the script has no such gradients
        if not twins.use_gradients():
            return "gradients do not change the weights of its copies"
        for unusual in _ROUNDS:
            reason = twins.compare(unusual)
            if reason is not None:
                return reason
    return None


class _Twins:
    """Two copies of an optimizer, with new small copies of its parameters in each round."""

    def __init__(self, inner: _Optimizer) -> None:
        self._inner = inner
        self._whole = twin_of(inner, [])
        self._apart = twin_of(inner, [])
        self._shadow = Shadow(self._apart)
        self._step = plain_step(type(inner))
        self._generator = torch.Generator("cpu").manual_seed(_SEED)
        self._all_groups: List[List[Group]] = []  # an optimizer may know parameters by their id()
        self._settled: Dict[str, Any] = {}

    def use_gradients(self) -> bool:
        """Return whether opposite gradients lead to other weights in each group.

        They do not where the optimizer steps parameters that it keeps elsewhere.
        """
        left = {
            at
            for at, group in enumerate(self._renew())
            if group["params"] and not _is_zero(group.get("lr"))
        }
        for from_zero in (False, True):  # at zero no update is too small for the dtype
            if left:
                left -= self._moved(from_zero)
        self._settled = _fields(self._whole)
        return not left

    def _moved(self, from_zero: bool) -> Set[int]:
        """Return the groups in which opposite gradients lead to other weights."""
        self._renew()
        gradients = {}
        for place, param, twin in self._pairs():
            if from_zero:
                param.zero_()
                twin.zero_()
            gradients[place] = random_like(param, self._generator)
        for _ in range(_STEPS):
            for place, param, twin in self._pairs():
                param.grad, twin.grad = gradients[place].clone(), gradients[place].neg()
            self._step(self._whole)
            self._step(self._apart)
        return {at for (at, _), param, twin in self._pairs() if not _same(param, twin)}

    def compare(self, unusual: _Round) -> Optional[str]:
        """Return how whole steps and separate ones differ, or None; both may fail alike."""
        self._renew()
        for number in range(_STEPS):
            self._give(unusual if number == 0 else _Round(1.0))
            _, whole_error = _tried(lambda: self._step(self._whole))
            if whole_error is not None and unusual.odd_factor is None:
                return None  # a plain run ends here too
            self._shadow.snapshot()
            changed, apart_error = _tried(lambda: _step_apart(self._shadow, self._apart))
            if whole_error is not apart_error:
                return _DEPENDS
            if whole_error is not None:
                return None
            if not _same(_fields(self._whole), self._settled):
                return _COUNTS
            # After a step without a gradient, only one of both may have a state.
            if changed is None and (number > 0 or unusual.odd_factor is not None):
                changed = first_difference(self._whole, self._apart)
            if changed is not None:
                return changed
        return None

    def _renew(self) -> List[Group]:
        for twin in (self._whole, self._apart):
            twin.state.clear()
            twin.param_groups = copied_groups(self._inner, _SMALL)
            self._all_groups.append(twin.param_groups)
        return self._all_groups[-1]

    def _pairs(self) -> Iterator[Tuple[_Place, torch.nn.Parameter, torch.nn.Parameter]]:
        for at, (group, twin_group) in enumerate(
            zip(self._whole.param_groups, self._apart.param_groups)
        ):
            for index, (param, twin) in enumerate(zip(group["params"], twin_group["params"])):
                yield (at, index), param, twin

    def _give(self, unusual: _Round) -> None:
        odd = _odd_places(self._whole.param_groups, unusual.odd_index)
        for place, param, twin in self._pairs():
            factor = unusual.odd_factor if place in odd else unusual.factor
            if factor is None:
                param.grad = twin.grad = None
                continue
            if math.isfinite(factor):
                factor = min(factor, torch.finfo(param.dtype).max / _LARGEST)
            param.grad = random_like(param, self._generator).mul_(factor)
            twin.grad = param.grad.clone()


def _odd_places(groups: List[Group], index: int) -> Set[_Place]:
    """Return the place of a parameter in each group where it is not the only one."""
    sizes = {at: len(group["params"]) for at, group in enumerate(groups) if group["params"]}
    several = [at for at, size in sizes.items() if size > 1] or list(sizes)[:1]
    return {(at, index % sizes[at]) for at in several}


def _is_zero(rate: Any) -> bool:  # noqa: ANN401
    return isinstance(rate, (int, float, torch.Tensor)) and not rate


def _tried(call: Callable[[], _Result]) -> Tuple[Optional[_Result], Optional[type]]:
    """Return the result of a call, and the class of its exception."""
    try:
        return call(), None
    except Exception as error:  # noqa: B902 - any optimizer's own
        return None, type(error)


def copied_groups(inner: _Optimizer, most: _Most = _LARGE) -> List[Group]:
    """Return groups with small copies of the parameters, of two or more in each group at first."""
    generator = torch.Generator("cpu").manual_seed(_SEED)
    elements, params = most.elements, most.params
    of_group = max(2, params // max(1, len(inner.param_groups)))
    groups = []
    for group in inner.param_groups:
        copies: List[torch.nn.Parameter] = []
        for param in group["params"]:
            has_room = elements > 0 and params > 0 and len(copies) < of_group
            if has_room and param.numel() and param.requires_grad:
                copies.append(_small_copy(param, generator, most.of_one))
                elements -= copies[-1].numel()
                params -= 1
        numbers = copied_numbers(group)
        rate = numbers.get("lr")
        if isinstance(rate, torch.Tensor):
            numbers["lr"] = torch.full_like(rate, _LEARNING_RATE)
        elif isinstance(rate, float):
            numbers["lr"] = _LEARNING_RATE
        groups.append({**numbers, "params": copies})
    return groups


def _small_copy(
    param: torch.nn.Parameter, generator: torch.Generator, most: int
) -> torch.nn.Parameter:
    """Return random weights of the same rank, dtype and strides, with fewer rows if it is large."""
    like = param.detach()
    if like.dim() and like.numel() > most:
        rows = max(1, most // (like.numel() // like.shape[0]))
        like = like[:rows]
    kind = torch.nn.Parameter if type(param) is torch.nn.Parameter else _OfOtherClass
    return kind(random_like(like, generator))


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


def _gradients(optimizer: _Optimizer) -> List[Optional[torch.Tensor]]:
    return [param.grad for group in optimizer.param_groups for param in group["params"]]


def _step_apart(shadow: Shadow, apart: _Optimizer) -> Optional[str]:
    """Step each parameter by itself, the last first; return the difference, or None."""
    for at, group in reversed(list(enumerate(apart.param_groups))):
        before = copied_numbers(group)
        for param in reversed(group["params"]):
            if param.grad is None:
                continue
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
            state, twin_state = whole.state.get(param, {}), apart.state.get(twin, {})
            if not _same(param, twin) or not _same(state, twin_state):
                return _DEPENDS
    return None


def _fields(optimizer: _Optimizer) -> Dict[str, Any]:
    """Return the plain numbers and texts that an optimizer keeps beside its state."""
    kinds = (bool, int, float, str, torch.Tensor)
    return {name: value for name, value in vars(optimizer).items() if isinstance(value, kinds)}


def _same(left: Any, right: Any) -> bool:  # noqa: ANN401
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return bool(torch.equal(left, right)) or _same_with_nan(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right))
    return bool(left == right) or bool(left != left and right != right)  # NaN


def _same_with_nan(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or not bool(left.isnan().any()):
        return False
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
