"""The values of one worker for all: parameters, states of optimizers, objects."""

import hashlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._job.job import current
from bytescheduler.torch._sums.octets import octets_of
from bytescheduler.torch._sums.tensor_sums import Call

__all__ = [
    "allgather_object",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]

_STAMP_BYTES = 8

_Named = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]


def broadcast_parameters(params: _Named, root_rank: int = 0) -> None:
    """Overwrite tensors with those of worker `root_rank`, bit for bit.  Blocks.

    Tensors that are equal on all workers do not travel.

    Parameters
    ----------
    params : mapping or pairs
        `model.state_dict()` or `model.named_parameters()`; what is no tensor is left alone.
    root_rank : int
        The worker to take them from.

    Raises
    ------
    ConfigError
        A tensor has another name, dtype or shape there.
    UsageError
        `params` has no names.
    """
    pairs = list(params.items() if isinstance(params, Mapping) else params)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise UsageError(
            "broadcast_parameters: want model.state_dict() or model.named_parameters(); "
            "model.parameters() has no names",
            5,
        )
    current().flush()
    tensors = [(name, value) for name, value in pairs if isinstance(value, torch.Tensor)]
    current().get().objects.broadcast_tensors(tensors, root_rank)


def broadcast_optimizer_state(optimizer: Any, root_rank: int = 0) -> None:  # noqa: ANN401
    """Give an optimizer the state and the numbers of worker `root_rank`'s.  Blocks.

    No optimizer steps for that: what worker `root_rank` has no state for yet, no worker has after.

    Raises
    ------
    ConfigError
        It has other parameters there.
    """
    job = current().get()
    job.objects.check_root(root_rank)
    if job.size == 1:
        return
    tensors: List[torch.Tensor] = []
    structure = _without_tensors(optimizer.state_dict(), tensors)
    told = job.objects.broadcast((structure, [_like(tensor) for tensor in tensors]), root_rank)
    assert isinstance(told, tuple)
    theirs, likes = told
    if job.rank != root_rank:
        tensors = [torch.empty(shape, dtype=dtype, device="cpu") for dtype, shape in likes]
    job.objects.overwrite(tensors, root_rank)
    if job.rank == root_rank:
        return
    try:
        optimizer.load_state_dict(_with_tensors(theirs, tensors))
    except ValueError as error:
        raise UsageError(
            f"broadcast_optimizer_state: worker {root_rank}'s optimizer has other parameters "
            f"({error}); build the same one on every worker",
            5,
        ) from error


class _Place(int):
    """Stands for a tensor: its number."""


def _like(tensor: torch.Tensor) -> Tuple[torch.dtype, Tuple[int, ...]]:
    return tensor.dtype, tuple(tensor.shape)


def _without_tensors(value: Any, tensors: List[torch.Tensor]) -> Any:  # noqa: ANN401
    """Return `value` with numbers in place of its tensors, which are appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach().cpu())
        return _Place(len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _without_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_tensors(item, tensors) for item in value)
    return value


def _with_tensors(value: Any, tensors: List[torch.Tensor]) -> Any:  # noqa: ANN401
    """Undo `_without_tensors`."""
    if isinstance(value, _Place):
        return tensors[value]
    if isinstance(value, dict):
        return {key: _with_tensors(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_tensors(item, tensors) for item in value)
    return value


def broadcast_object(
    obj: Any,  # noqa: ANN401
    root_rank: int = 0,
    name: str = "",
) -> Any:  # noqa: ANN401
    """Return worker `root_rank`'s `obj`, as a copy made by pickle.  Blocks.

    Parameters
    ----------
    obj : object
        That of the other workers is not looked at.
    root_rank : int
        The worker to take it from.
    name : str
        Accepted for scripts of Horovod; the order of the calls decides.
    """
    return current().get().objects.broadcast(obj, root_rank)


def allgather_object(obj: Any, name: str = "") -> List[Any]:  # noqa: ANN401
    """Return every worker's `obj`, in the order of their ranks, as copies by pickle.  Blocks."""
    return current().get().objects.gather(obj)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """Overwrite `tensor` with that of worker `root_rank`, and return it.  Blocks."""
    named: Dict[str, torch.Tensor] = {name or "tensor": tensor}
    broadcast_parameters(named, root_rank)
    return tensor


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """Return worker `root_rank`'s `tensor`.  Blocks."""
    return broadcast_(tensor.detach().clone(), root_rank, name)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> int:
    """Begin `broadcast`, and return a handle for `poll` and `synchronize`.

    Parameters
    ----------
    tensor : Tensor
        The same dtype and shape on every worker.
    root_rank : int
        The worker to take it from.
    name : str, optional
        Without names the calls must come in the same order on all workers.
    """
    return _start(tensor, root_rank, name, tensor.detach().clone())


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> int:
    """Do as `broadcast_async`; `synchronize` overwrites `tensor` with the result."""
    return _start(tensor, root_rank, name, tensor)


def _start(tensor: torch.Tensor, root: int, name: Optional[str], into: torch.Tensor) -> int:
    """Add up bytes of which the other workers send zeros, so that any of them may be the root."""
    job = current().get()
    job.objects.check_root(root)
    label = "broadcast" if name is None else f"broadcast {name}"
    stamp = _stamp(tensor)
    octets = octets_of(tensor)
    send = torch.zeros(octets.numel() + len(stamp), dtype=torch.uint8)
    if job.rank == root:
        torch.cat([octets, stamp], out=send)

    def finish(total: torch.Tensor) -> torch.Tensor:
        arrived, theirs = total.split([octets.numel(), len(stamp)])
        if int(theirs[0]) != 1:
            raise UsageError(f"{label}: workers name other roots; this worker names {root}", 5)
        if not torch.equal(theirs, stamp):
            raise UsageError(
                f"{label}: it is {tensor.dtype} of shape {tuple(tensor.shape)} here, and another "
                f"dtype or shape on worker {root}; make it alike on all workers",
                5,
            )
        with torch.no_grad():
            return into.copy_(arrived.view(tensor.dtype).view(tensor.shape))

    number = job.sums.start(send, Call(average=False, name=None if name is None else label))
    return job.sums.change(number, finish)


def _stamp(tensor: torch.Tensor) -> torch.Tensor:
    """Return a count of roots, and a hash of dtype and shape, in the bytes of one number."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)}"
    digest = hashlib.blake2b(kind.encode(), digest_size=_STAMP_BYTES - 1).digest()
    return torch.tensor([1, *digest], dtype=torch.uint8)
