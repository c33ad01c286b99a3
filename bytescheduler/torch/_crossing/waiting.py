"""Weights that wait: the first use of such a weight makes it ready.

Meanwhile the weight has a class with `__torch_function__`, which PyTorch calls for each use from
Python.  The class is given back after the update, so that other threads queue for the same update.
"""

import functools
from multiprocessing.reduction import ForkingPickler
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Protocol, Tuple

import torch
import torch.optim.optimizer as of_optimizers
from torch.multiprocessing.reductions import reduce_tensor

from bytescheduler.torch._crossing.compilers import apart, is_compiling

__all__ = [
    "GRAD",
    "Use",
    "User",
    "begin_update",
    "can_wait",
    "end_wait",
    "end_waits",
    "let_all_wait",
    "let_wait",
    "make_ready",
]

_Values = Any  # the arguments of any function
_Function = Callable[..., Any]
Use = Tuple[_Function, Tuple[Any, ...]]  # a function, and its arguments without a name
_USER = "_bytescheduler_user"  # an attribute of a weight that waits
_WHY = "bytescheduler updates a weight here, before its first use after a step"
_PROPERTIES = (
    *("device", "dtype", "grad", "grad_fn", "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mkldnn"),
    *("is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr", "is_xpu"),
    *("itemsize", "layout", "names", "nbytes", "ndim", "output_nr", "requires_grad"),
    *("retains_grad", "shape"),
)
_METHODS = (
    *("__len__", "dim", "element_size", "get_device", "has_names", "is_complex", "is_conj"),
    *("is_contiguous", "is_floating_point", "is_inference", "is_neg", "is_signed", "ndimension"),
    *("nelement", "numel", "size", "storage_offset", "stride"),
)


def _reading_nothing() -> "frozenset[_Function]":
    """Return the functions that read and change no element of a tensor."""
    kind = torch.Tensor
    getters = [getattr(kind, name).__get__ for name in _PROPERTIES if hasattr(kind, name)]
    methods = [getattr(kind, name) for name in _METHODS if hasattr(kind, name)]
    gradients = [kind.grad.__set__, kind.grad.__delete__]
    functions = [torch.numel, torch.is_floating_point, torch.is_complex]
    return frozenset([*getters, *methods, *gradients, *functions])


_READS_NOTHING = _reading_nothing()
# Beside these, a gradient that waits may be told to have no graph, and to be zeros.
_OF_GRADIENTS = frozenset((torch.Tensor.detach_, torch.Tensor.requires_grad_))
_ZEROES = frozenset((torch.Tensor.zero_, torch.zero_, torch._foreach_zero_))
GRAD: Any = torch.Tensor.grad
_PLAIN = (torch.Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)


class User(Protocol):
    """Makes weights ready, and ends their wait."""

    gradients: bool  # it is tensors of gradients that wait

    def use(self, params: List[torch.Tensor]) -> None:
        """Make weights ready that are about to be used.  Blocks."""

    def overwrite(self, params: List[torch.Tensor]) -> None:
        """Do the same with weights that are about to become zeros."""

    def see_gradient(self, param: torch.Tensor, *, replaced: bool) -> None:
        """Take note that the gradient of a weight that waits is read, or is replaced.  Blocks."""

    def used(self, params: List[torch.Tensor], use: Optional[Use]) -> None:
        """Take note of a use that is over; None: it was a copy."""


# -- the class ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def _waiting(kind: type) -> type:
    """Return the class of weights of class `kind` while they wait."""
    unseen = ("__deepcopy__", "__reduce_ex__", "as_subclass", "set_")  # by `__torch_function__`
    space: Dict[str, Any] = {name: _method(name) for name in unseen}
    function: Any = classmethod(apart(_function, _WHY))
    space["__torch_function__"] = function
    # Each loop reads gradients, and this is quicker than `__torch_function__`.
    gradient = property(_gradient, _set_gradient, _delete_gradient)
    waiting = type(f"Waiting{kind.__name__}", (kind,), {**space, "grad": gradient})
    # An optimizer reads gradients too, whose calls are no uses.
    updating = type(f"Waiting{kind.__name__}", (kind,), space)
    # PyTorch asks for the very class before it chooses `foreach`, and before it shares memory.
    supported = of_optimizers._foreach_supported_types
    if kind in supported:
        for made in (waiting, updating):
            supported.append(made)
            ForkingPickler.register(made, _shared)
    _WAITING[kind], _UPDATING[waiting] = waiting, updating
    _GIVEN_BACK[waiting] = _GIVEN_BACK[updating] = kind
    return waiting


_WAITING: Dict[type, type] = {}  # by the class before
_UPDATING: Dict[type, type] = {}  # by the class while a weight waits
_GIVEN_BACK: Dict[type, type] = {}  # by both


def can_wait(param: torch.Tensor) -> bool:
    """Return whether uses of `param` can be seen: its class sees none itself, and can change."""
    kind: Any = type(param)
    function = getattr(kind.__torch_function__, "__func__", kind.__torch_function__)
    if function not in _PLAIN or kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return False
    try:
        param.__class__ = _waiting(kind)
        param.__class__ = kind
    except TypeError:
        return False
    return True


def let_wait(param: torch.Tensor, user: User) -> None:
    """Let `user` make `param` ready before its next use."""
    let_all_wait([param], user)


def let_all_wait(params: Iterable[torch.Tensor], user: User) -> None:
    """Let `user` make each of `params` ready before its next use."""
    for param in params:
        param.__dict__[_USER] = user
        kind: Any = type(param)
        if kind not in _GIVEN_BACK:
            param.__class__ = _WAITING.get(kind) or _waiting(kind)


def begin_update(params: Iterable[torch.Tensor]) -> None:
    """Let an optimizer change `params`, which wait until `end_waits`."""
    for param in params:
        updating: Any = _UPDATING.get(type(param))
        if updating is not None:
            param.__class__ = updating


def end_wait(param: torch.Tensor) -> None:
    """Give `param` its class back, if it waits."""
    end_waits([param])


def end_waits(params: Iterable[torch.Tensor]) -> None:
    """Give each of `params` its class back, if it waits."""
    for param in params:
        kind: Any = _GIVEN_BACK.get(type(param))
        if kind is not None:
            param.__class__ = kind
        # Not before, as another thread asks a weight of this class for it.
        param.__dict__.pop(_USER, None)


def _waits(param: torch.Tensor) -> bool:
    return type(param) in _GIVEN_BACK


# -- its uses ----------------------------------------------------------------------------------


def make_ready(params: Iterable[torch.Tensor]) -> None:
    """Make those of `params` ready that wait, as a forward pass uses them now.  Blocks."""
    for user, waiting in _users(params):
        user.use(waiting)
        user.used(waiting, (make_ready, ()))


def _users(values: _Values) -> List[Tuple[User, List[torch.Tensor]]]:
    """Return the weights that wait among arguments, each once, by their users."""
    by_user: Dict[int, Tuple[User, List[torch.Tensor]]] = {}
    for param in {id(value): value for value in _tensors(values)}.values():
        user = param.__dict__.get(_USER)
        if user is not None and _waits(param):  # else another thread has just made it ready
            by_user.setdefault(id(user), (user, []))[1].append(param)
    return list(by_user.values())


def _tensors(values: _Values) -> Iterator[torch.Tensor]:
    """Yield weights that wait among arguments, also in lists and dictionaries."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if _waits(value):
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


def _see_gradient(param: torch.Tensor, *, replaced: bool) -> None:
    user = param.__dict__.get(_USER)
    if user is not None:
        user.see_gradient(param, replaced=replaced)


def _gradient(param: torch.Tensor) -> _Values:
    if is_compiling():
        return _gradient_apart(param)
    return _read_gradient(param)


def _read_gradient(param: torch.Tensor) -> _Values:
    if not torch._C._is_torch_function_enabled():  # an update, which is no use
        return GRAD.__get__(param)
    _see_gradient(param, replaced=False)
    with torch._C.DisableTorchFunctionSubclass():
        return GRAD.__get__(param)


_gradient_apart = apart(_read_gradient, _WHY)


def _set_gradient(param: torch.Tensor, grad: _Values) -> None:
    if is_compiling():
        _set_gradient_apart(param, grad)
    else:
        _write_gradient(param, grad)


def _write_gradient(param: torch.Tensor, grad: _Values) -> None:
    if not torch._C._is_torch_function_enabled():
        GRAD.__set__(param, grad)
        return
    _see_gradient(param, replaced=True)
    with torch._C.DisableTorchFunctionSubclass():
        GRAD.__set__(param, grad)


_set_gradient_apart = apart(_write_gradient, _WHY)


def _delete_gradient(param: torch.Tensor) -> None:
    _set_gradient(param, None)


_GRADIENTS: Dict[Any, _Function] = {
    GRAD.__get__: _gradient,
    GRAD.__set__: _set_gradient,
    GRAD.__delete__: _delete_gradient,
}


def _function(
    cls: type,
    func: _Function,
    types: _Values,
    args: _Values = (),
    kwargs: Optional[Dict[str, Any]] = None,
) -> _Values:
    """Make the weights among the arguments ready, and call `func`, as PyTorch's protocol says."""
    named = kwargs or {}
    if func in _GRADIENTS and _waits(args[0]):
        return _GRADIENTS[func](*args)
    if func in _READS_NOTHING:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **named)
    users = _users((*args, *named.values()))
    if func in _OF_GRADIENTS and all(user.gradients for user, _ in users):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **named)
    for user, params in users:
        (user.overwrite if func in _ZEROES else user.use)(params)
    try:
        return func(*args, **named)
    finally:
        for user, params in users:
            user.used(params, (func, args))


def _method(name: str) -> _Function:
    """Return a method that calls the one of the class that it gives back before."""

    def method(self: torch.Tensor, *args: _Values) -> _Values:
        return _copied(self, lambda: getattr(self, name)(*args))

    return method


def _shared(param: torch.Tensor) -> _Values:
    """Return `param` as another process reads it, in memory of both."""
    return _copied(param, lambda: reduce_tensor(param))


def _copied(param: torch.Tensor, copy: Callable[[], _Values]) -> _Values:
    users = _users([param])
    for user, params in users:
        user.use(params)
    try:
        return copy()
    finally:
        for user, params in users:
            user.used(params, None)
