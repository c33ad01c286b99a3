"""Sums and copies of single tensors, which belong to no variable."""

import weakref
from collections import Counter
from typing import Any, Dict, List, MutableMapping, Optional, Sequence, Tuple

import tensorflow as tf

from bytescheduler._session.named_sums import NamedSums
from bytescheduler._session.names import check_name
from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._engine.dtypes import code_of
from bytescheduler.tensorflow._engine.session import TensorFlowSession
from bytescheduler.tensorflow._sums.call import Target, broadcast, new_anchor, push_pull

__all__ = ["Tensors"]

_NO_NAME = "a tensor without a name"


# The names of a graph of a branch or loop, and of a gradient, count eager tensors of a process.
_CONTROL_FLOW = ("Cond", "While")
_BACKWARD = "__backward"
# Unnamed operations of each kind in the graph of a function, with its branches and loops.
_COUNTS: "MutableMapping[Any, Counter[str]]" = weakref.WeakKeyDictionary()


def _function_graph(label: str) -> Any:  # noqa: ANN401
    """Return the graph of the function around the branches and loops that are made now."""
    graph: Any = tf.compat.v1.get_default_graph()
    while any(word in type(graph).__name__ for word in _CONTROL_FLOW):
        graph = graph.outer_graph
    if getattr(graph, "name", "").startswith(_BACKWARD):
        raise UsageError(f"{label} in the gradient of a function: it needs a name; pass name=", 5)
    return graph


def _in_graph(kind: str, label: str) -> str:
    """Return a name for the next such operation of a function, the same on all workers.

    A function that is traced again uses the same names again.
    """
    graph = _function_graph(label)
    counts = _COUNTS.setdefault(graph, Counter())
    counts[kind] += 1
    return f"{getattr(graph, 'name', 'graph')}/{kind}, {counts[kind]}"


class Tensors(NamedSums[object]):
    """Sums and copies tensors under their names.

    A graph function gives a tensor without a name that of its place in the function.

    Parameters
    ----------
    session : TensorFlowSession
        The session that carries the tensors.
    """

    def __init__(self, session: TensorFlowSession) -> None:
        super().__init__(session)
        self._carrier = session
        self._anchors: Dict[int, tf.Tensor] = {}  # by keys

    @staticmethod
    def name_of(tensor: tf.Tensor, name: Optional[str]) -> Optional[str]:
        """Return the name of a sum; a graph function gives one to a tensor without a name."""
        elements = tensor.shape.num_elements()
        if name is not None or tf.executing_eagerly() or elements is None:
            return name
        place = _in_graph("BsPushPull", f"push_pull of {_NO_NAME}")
        return f"{place}, {tensor.dtype.name} x {elements}"

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
        name = self.name_of(tensor, name)
        target = Target(self._key(tensor, name, size), name or label)
        return push_pull([tensor], [target], self._divisor(average=average))[0]

    def push_pull_apart(self, tensors: Sequence[tf.Tensor], *, average: bool) -> List[tf.Tensor]:
        """Return sums or means of tensors, none of which waits for another one.

        Names come from their places, in a function or in the list.

        Raises
        ------
        UsageError
            A shape is not known.
        """
        results = list(tensors)
        places, targets = [], []
        for place, tensor in enumerate(tensors):
            size = _size_of(tensor, f"push_pull of {_NO_NAME}")
            if size:
                kind = f"place {place}, {tensor.dtype.name} x {tensor.shape.num_elements()}"
                name = kind if tf.executing_eagerly() else self.name_of(tensor, None)
                assert name is not None
                key = self._key(tensor, name, size)
                if key not in self._anchors:
                    self._anchors[key] = new_anchor(f"bytescheduler/{name}")
                targets.append(Target(key, name, None, -place, self._anchors[key]))
                places.append(place)
        sent = [tensors[place] for place in places]
        for place, total in zip(places, push_pull(sent, targets, self._divisor(average=average))):
            results[place] = total
        return results

    def _key(self, tensor: tf.Tensor, name: Optional[str], size: int) -> int:
        code = code_of(tensor.dtype)
        return self.key_of(
            name,
            tensor.dtype.name,
            tensor.shape.num_elements(),
            lambda key: self._carrier.declare_zeros([(key, code, size)]),
        )

    def _divisor(self, *, average: bool) -> int:
        return self._carrier.num_workers if average else 0

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
            label = f"broadcast of {_NO_NAME}"
            name = "a tensor" if tf.executing_eagerly() else _in_graph("BsBroadcast", label)
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
