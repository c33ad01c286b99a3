"""The values of one worker for all: tensors, variables, objects."""

from typing import Any, Iterable, List, Optional

import tensorflow as tf

from bytescheduler.tensorflow._engine.dtypes import fixed_tensor_of
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._job.job import current

__all__ = ["allgather_object", "broadcast", "broadcast_object", "broadcast_variables"]


@unconverted
def broadcast(tensor: Any, root_rank: int = 0, name: Optional[str] = None) -> tf.Tensor:  # noqa: ANN401
    """Return worker `root_rank`'s `tensor`, bit for bit; eagerly it blocks.

    Parameters
    ----------
    tensor : tensor, variable, array or number
        The same dtype and shape on every worker.
    root_rank : int
        The worker to take it from.
    name : str, optional
        Without names the calls, and in a graph function their places, are the same on all workers.

    Raises
    ------
    ConfigError
        There is no such worker.
    """
    job = current().get()
    job.objects.check_root(root_rank)
    label = "broadcast of a tensor without a name" if name is None else f"broadcast of {name!r}"
    value = fixed_tensor_of(tensor, label)
    if job.tensors is None:
        return tf.identity(value)
    return job.tensors.broadcast_tensor(value, name, root_rank)


@unconverted
def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Overwrite variables with those of worker `root_rank`, bit for bit; eagerly it blocks.

    Parameters
    ----------
    variables : iterable of variables
        Of TensorFlow or Keras, in the same order on all workers.
    root_rank : int
        The worker to take them from.

    Raises
    ------
    ConfigError
        There is no such worker, or its variables differ from ours.
    """
    job = current().get()
    job.objects.check_root(root_rank)
    all_variables = list(variables)
    if job.tensors is None or job.variables is None:
        return
    if tf.executing_eagerly():
        current().flush()  # an update that waits would come after the root's values
    named = [
        (
            f"broadcast of {job.variables.name_of(v)}",
            fixed_tensor_of(v, job.variables.name_of(v)),
            v,
        )
        for v in all_variables
    ]
    job.objects.check_same(
        [(name, (tensor.dtype.name, tuple(tensor.shape))) for name, tensor, _ in named], root_rank
    )
    for variable, value in zip(all_variables, job.tensors.broadcast(named, root_rank)):
        variable.assign(value)


@unconverted
def broadcast_object(obj: Any, root_rank: int = 0, name: str = "") -> Any:  # noqa: ANN401
    """Return worker `root_rank`'s `obj`, as a copy made by pickle.  Blocks.

    Parameters
    ----------
    obj : object
        Only worker `root_rank`'s counts.
    root_rank : int
        The worker to take it from.
    name : str
        Accepted for scripts of Horovod; the order of the calls decides.
    """
    return current().get().objects.broadcast(obj, root_rank)


@unconverted
def allgather_object(obj: Any, name: str = "") -> List[Any]:  # noqa: ANN401
    """Return every worker's `obj`, in the order of their ranks, as copies by pickle.  Blocks."""
    return current().get().objects.gather(obj)
