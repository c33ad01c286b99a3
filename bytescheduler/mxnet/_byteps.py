"""The names that scripts of BytePS import for MXNet: the job, sums by name, its trainer."""

from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple, Union

import mxnet as mx

from bytescheduler.errors import UsageError
from bytescheduler.mxnet._arrays.compression import compression_from
from bytescheduler.mxnet._stores.nesterov import Nesterov
from bytescheduler.mxnet._types import Array, Optimizer
from bytescheduler.mxnet.kvstore import ScheduledKVS
from bytescheduler.mxnet.trainer import ScheduledTrainer

__all__ = [
    "DistributedOptimizer",
    "DistributedTrainer",
    "broadcast_parameters",
    "byteps_declare_tensor",
    "byteps_push_pull",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "resume",
    "shutdown",
    "size",
    "suspend",
]

_USAGE = 5  # a call in the wrong moment, among the engine's codes


class _Job:
    """The store of this process that carries tensors by their names, from init() to shutdown()."""

    def __init__(self) -> None:
        self._store: Optional[ScheduledKVS] = None
        self._declared: Dict[str, Tuple[int, ...]] = {}

    def join(self) -> None:
        if self._store is None:
            self._store = ScheduledKVS()
            self._declared = {}

    def leave(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()

    @property
    def store(self) -> ScheduledKVS:
        if self._store is None:
            raise UsageError("call init() of bytescheduler.mxnet first", _USAGE)
        return self._store

    def on_this_host(self, name: str, alone: int) -> int:
        """Return a number of this host's workers."""
        session = getattr(self.store._backend, "_session", None)
        return alone if session is None else int(getattr(session.view, name))

    def add_up(self, name: str, tensor: Array, priority: int) -> None:
        """Overwrite `tensor` with the sum of all workers' under that name."""
        if name not in self._declared:
            self.store.init(name, mx.nd.zeros_like(tensor))
            self._declared[name] = tensor.shape
        if self._declared[name] != tensor.shape:
            raise UsageError(
                f"tensor {name!r} has shape {tensor.shape}, and had {self._declared[name]} before: "
                "give it another name",
                _USAGE,
            )
        self.store.pushpull(name, tensor, out=tensor, priority=priority)


_JOB = _Job()


def init() -> None:
    """Join the job; a second call does nothing.  Blocks until every worker and server is there."""
    _JOB.join()


def shutdown() -> None:
    """Wait for sums under way, and leave the job.  Blocks."""
    _JOB.leave()


def rank() -> int:
    """Return the position among the workers, from 0."""
    return int(_JOB.store.rank)


def size() -> int:
    """Return how many workers the job has."""
    return int(_JOB.store.num_workers)


def local_rank() -> int:
    """Return the position among the workers of this host, from 0."""
    return _JOB.on_this_host("local_rank", 0)


def local_size() -> int:
    """Return how many workers of the job run on this host."""
    return _JOB.on_this_host("local_size", 1)


def suspend() -> NoReturn:
    """Raise UsageError: a job keeps its workers."""
    raise UsageError(
        "suspend(): a job keeps its workers; end it, and start it with other workers from a "
        "checkpoint",
        _USAGE,
    )


def resume(*_: object, **__: object) -> NoReturn:
    """Raise UsageError: a job keeps its workers."""
    raise UsageError("resume(): no job was suspended; load a checkpoint and call init()", _USAGE)


def byteps_declare_tensor(name: str) -> None:
    """Accept a name; tensors are declared with their first sum, which all workers make alike."""
    if not isinstance(name, str) or not name:
        raise UsageError(f"byteps_declare_tensor: want a name, got {name!r}", _USAGE)


def byteps_push_pull(
    tensor: Array,
    version: int = 0,
    priority: int = 0,
    name: Optional[str] = None,
    is_average: bool = True,
) -> None:
    """Overwrite `tensor` with the mean over all workers, or with the sum.

    Parameters
    ----------
    tensor : NDArray
        Has the same shape and dtype in all calls of a name.
    version : int
        Has no effect: sums of a name follow one another.
    priority : int
        Larger goes first.
    name : str
        The tensor's, the same on all workers.
    is_average : bool
        False: the sum.
    """
    del version
    if name is None:
        raise UsageError("byteps_push_pull: want a name, the same on all workers", _USAGE)
    _JOB.add_up(name, tensor, priority)
    if is_average and size() > 1:
        tensor /= size()


Params = Union[Mapping[str, Any], List[Any]]


def broadcast_parameters(params: Params, root_rank: int = 0) -> None:
    """Overwrite parameters with those of worker `root_rank`.  Blocks until all workers do so.

    A parameter whose shape is not known yet follows when it is, in the first forward pass.  Once
    a trainer updates a parameter on its store, another value raises RuntimeError.

    Parameters
    ----------
    params : mapping
        `net.collect_params()`, initialised, or arrays by name.
    root_rank : int
        The worker to take them from.
    """
    if not isinstance(root_rank, int) or not 0 <= root_rank < size():
        raise UsageError(f"root_rank {root_rank!r}: want a rank below {size()}", _USAGE)
    if not isinstance(params, Mapping) and not hasattr(params, "items"):
        raise UsageError("broadcast_parameters: want net.collect_params(), or a dict", _USAGE)
    for name, param in sorted(params.items()):
        if isinstance(param, mx.nd.NDArray):
            _value_of(name, param, root_rank).copyto(param)
        elif param._deferred_init:
            _overwrite_later(name, param, root_rank)
        else:
            _overwrite(name, param, root_rank)
    mx.nd.waitall()


def _value_of(name: str, array: Array, root_rank: int) -> Array:
    value = array.copy() if rank() == root_rank else mx.nd.zeros_like(array)
    _JOB.add_up(f"parameter {name}", value, 0)
    return value


def _overwrite(name: str, param: Any, root_rank: int) -> None:  # noqa: ANN401 - MXNet has no types
    # Not its arrays: a store that updates it has a value of its own.
    param.set_data(_value_of(name, param.list_data()[0], root_rank))


def _overwrite_later(name: str, param: Any, root_rank: int) -> None:  # noqa: ANN401
    initialise = param._init_impl

    def initialise_alike(*args: object, **kwargs: object) -> None:
        del param._init_impl  # once
        initialise(*args, **kwargs)
        _overwrite(name, param, root_rank)

    param._init_impl = initialise_alike


class DistributedTrainer(ScheduledTrainer):
    """A `ScheduledTrainer` whose gradients are means: `step` takes the batch of one worker.

    Parameters
    ----------
    params, optimizer
        As of `ScheduledTrainer`.
    optimizer_params : dict, optional
        As of `ScheduledTrainer`; it stays as it is.
    root_rank : int
        The worker whose parameters all begin with.
    compression_params : dict, optional
        As BytePS's, where None, "" and False count as absent.  A worker alone compresses nothing.
        It has the momentum in an optimizer of its own, made from the given one.
    """

    def __init__(
        self,
        params: object,
        optimizer: Union[str, Optimizer],
        optimizer_params: Optional[Mapping[str, object]] = None,
        root_rank: int = 0,
        compression_params: Optional[Mapping[str, object]] = None,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            optimizer = optimizer.plain
        num_workers = size()
        rates = None if optimizer_params is None else dict(optimizer_params)
        store = ScheduledKVS()
        # Before any parameter is overwritten, as the dictionary may be wrong.
        if num_workers == 1 and compression_params:
            optimizer, rates = _alone(optimizer, rates, compression_params)
        elif compression_params:
            store.set_gradient_compression(dict(compression_params))
        if root_rank != 0:
            broadcast_parameters(_by_name(params), root_rank)
        super().__init__(params, optimizer, rates, kvstore=store)
        self._scale /= num_workers


def _alone(
    optimizer: Union[str, Optimizer],
    rates: Optional[Dict[str, object]],
    compression_params: Mapping[str, object],
) -> Tuple[Union[str, Optimizer], Optional[Dict[str, object]]]:
    """Return the optimizer of a worker that sends nothing, and its numbers.

    A momentum before compression is then that of NAG.
    """
    compression = compression_from(dict(compression_params))
    if not compression.has_momentum:
        return optimizer, rates
    if isinstance(optimizer, str):
        optimizer, rates = mx.optimizer.create(optimizer, **(rates or {})), None
    nesterov = Nesterov(compression, mx.optimizer.get_updater(optimizer))
    return nesterov.as_nag(optimizer), rates


def _by_name(params: Any) -> Mapping[str, Any]:  # noqa: ANN401 - MXNet has no types
    return params if hasattr(params, "items") else {param.name: param for param in params}


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]  # MXNet has no types
    """An optimizer that updates with means over all workers.

    Parameters
    ----------
    optimizer : Optimizer
        Makes the updates.
    """

    adds_up = True  # so a store with it would add up twice

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            raise TypeError(f"want an mx.optimizer.Optimizer, got {optimizer!r}")
        self.plain = optimizer

    def __reduce__(self) -> Tuple[object, ...]:
        """Travel as the optimizer itself does."""
        return type(self), (self.plain,)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - MXNet has no types
        """Return what the optimizer has."""
        if name == "plain":
            raise AttributeError(name)
        return getattr(self.plain, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set it on the optimizer: a Trainer sets rescale_grad."""
        if name == "plain":
            object.__setattr__(self, name, value)
        else:
            setattr(self.plain, name, value)

    def create_state_multi_precision(self, index: object, weight: Array) -> object:
        """Return the optimizer's."""
        return self.plain.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:  # noqa: ANN401
        """Update with the means."""
        self._update(self.plain.update, index, weight, grad, state)

    def update_multi_precision(  # noqa: D102 - as `update`
        self,
        index: Any,  # noqa: ANN401
        weight: Any,  # noqa: ANN401
        grad: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
    ) -> None:
        self._update(self.plain.update_multi_precision, index, weight, grad, state)

    @staticmethod
    def _update(
        update: Callable[..., None],
        index: Any,  # noqa: ANN401
        weight: Any,  # noqa: ANN401
        grad: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
    ) -> None:
        pairs = zip(index, grad) if isinstance(index, (list, tuple)) else [(index, grad)]
        for number, gradient in pairs:
            priority = -number if isinstance(number, int) else 0
            byteps_push_pull(gradient, priority=priority, name=f"gradient_{number}")
        update(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Set the optimizer's."""
        self.plain.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Set the optimizer's."""
        self.plain.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Set the optimizer's."""
        self.plain.set_wd_mult(args_wd_mult)
