"""Sums and copies of single tensors, which belong to no variable."""

from typing import Any, List, Optional, Sequence, Tuple

import tensorflow as tf

from bytescheduler._session.named_sums import NamedSums
from bytescheduler._session.names import check_name
from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine.dtypes import code_of
from bytescheduler.tensorflow._engine.session import TensorFlowSession
from bytescheduler.tensorflow._sums.call import Target, broadcast, push_pull

__all__ = ["Tensors"]

_NO_NAME = "a tensor without a name"


def _in_graph(kind: str) -> str:
    """Return a name for the next such operation of this graph, the same each time it is made."""
    graph = tf.compat.v1.get_default_graph()
    return f"{graph.name}/{graph.unique_name(kind, mark_as_used=False)}"


class Tensors(NamedSums[object]):
    """Sums and copies tensors under their names.

    A graph function gives a tensor without a name the name of its place in the graph.

    Parameters
    ----------
    session : TensorFlowSession
        The session that carries the tensors.
    """

    def __init__(self, session: TensorFlowSession) -> None:
        super().__init__(session)
        self._carrier = session

    def push_pull(self, tensor: tf.Tensor, name: Optional[str], *, average: bool) -> tf.Tensor:
        """Return the sum or mean of every worker's `tensor`, which servers can sum.

        Raises
        ------
        UsageError
            Its shape is not known, or the name had another dtype or size before.
        """
        check_name(name)
        label = name or _NO_NAME
        size = _size_of(tensor, f"push_pull of {label!r}" if name else f"push_pull of {label}")
        if size == 0:
            return tf.identity(tensor)
        if name is None and not tf.executing_eagerly():
            name = f"{_in_graph('BsPushPull')}, {tensor.dtype.name} x {tensor.shape.num_elements()}"
        code = code_of(tensor.dtype)
        key = self.key_of(
            name,
            tensor.dtype.name,
            tensor.shape.num_elements(),
            lambda key: self._carrier.declare_zeros([(key, code, size)]),
        )
        workers = self._carrier.num_workers if average else 0
        return push_pull([tensor], [Target(key, name or label)], workers)[0]

    def broadcast(
        self, tensors: Sequence[Tuple[str, tf.Tensor, Any]], root: int
    ) -> List[tf.Tensor]:
        """Return worker `root`'s value of each tensor, bit for bit.

        Parameters
        ----------
        tensors : sequence of tuples
            The name of each, the tensor, and the variable that it is the value of, if any.
        root : int
            A worker's rank.
        """
        targets = []
        for name, tensor, variable in tensors:
            size = _size_of(tensor, f"broadcast of {name!r}")
            kind = f"{name}, {tensor.dtype.name} x {tensor.shape.num_elements()}"
            key = self.bookkeeping_key(kind, lambda _: None) if size else 0
            targets.append(Target(key, name, variable))
        return broadcast([tensor for _, tensor, _ in tensors], targets, root)

    def broadcast_tensor(self, tensor: tf.Tensor, name: Optional[str], root: int) -> tf.Tensor:
        """Return worker `root`'s `tensor`, under a name or in the order of the program."""
        check_name(name)
        if name is None:
            name = "a tensor" if tf.executing_eagerly() else _in_graph("BsBroadcast")
        return self.broadcast([(f"broadcast of {name}", tensor, None)], root)[0]


def _size_of(tensor: tf.Tensor, label: str) -> int:
    """Return the bytes of a tensor, whose shape must be known when the graph is made."""
    elements = tensor.shape.num_elements()
    if elements is None:
        raise UsageError(
            f"{label}: its shape is {tensor.shape} when the graph is made, and all workers need "
            "to know the size; give it by tf.ensure_shape(tensor, shape)",
            5,
        )
    return int(elements) * int(tensor.dtype.size)
