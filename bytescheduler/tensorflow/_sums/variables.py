"""Keys of variables, in the order of first sight, and what workers agree on about them."""

import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Set, Tuple

from bytescheduler._session.keys import EngineKeys
from bytescheduler._session.objects import Fact, Kind, Objects, difference, unlike
from bytescheduler.errors import ConfigError, UsageError
from bytescheduler.tensorflow._engine.session import TensorFlowSession

__all__ = ["Gradient", "Variables"]

_CURE = "build the same model on every worker"


class Gradient(NamedTuple):
    """A gradient of a variable on this worker, or its absence.

    Parameters
    ----------
    variable : Variable
        Of TensorFlow or Keras.
    dtype : str
        The dtype that travels.
    code : int
        The engine's number of it.
    shape : tuple of int
        The variable's.
    size_bytes : int
        Of the gradient as it travels.
    is_here : bool
        Whether this worker has a gradient; False: it is None.
    """

    variable: Any
    dtype: str
    code: int
    shape: Tuple[int, ...]
    size_bytes: int
    is_here: bool


def _plain_name(variable: Any) -> str:  # noqa: ANN401
    return str(getattr(variable, "path", None) or variable.name)


class Variables:
    """Gives each variable a name and keys, alike on all workers.

    Names of variables repeat: a name gets a count behind it, in the order of first sight.  Keys of
    a variable that is gone are given back.

    Parameters
    ----------
    session : TensorFlowSession
        The session that carries the gradients.
    objects : Objects
        Carry what workers compare.
    """

    def __init__(self, session: TensorFlowSession, objects: Objects) -> None:
        self._session = session
        self._objects = objects
        self._keys = EngineKeys(session)
        self._names: Dict[int, Tuple[Any, str]] = {}  # by id, with a reference to the variable
        self._counts: Dict[str, int] = {}
        self._numbers: Dict[str, int] = {}
        # The names on the wire that are declared, by the names of their variables.
        self._declared: Dict[str, Set[str]] = {}
        # The names and dtypes of a set of variables, and which have a gradient on any worker.
        self._agreed: Dict[Tuple[Tuple[str, str], ...], Tuple[bool, ...]] = {}

    def name_of(self, variable: Any) -> str:  # noqa: ANN401
        """Return the name of a variable, with a count if an earlier variable has it."""
        entry = self._names.get(id(variable))
        if entry is not None and entry[0]() is variable:
            return entry[1]
        plain = _plain_name(variable)
        count = self._counts[plain] = self._counts.get(plain, 0) + 1
        name = plain if count == 1 else f"{plain} ({count})"
        place = id(variable)
        self._names[place] = (weakref.ref(variable, lambda _: self._forget(place, name)), name)
        return name

    def _forget(self, place: int, name: str) -> None:
        """Give the keys of a variable back that is gone; its name does not come again."""
        if self._names.get(place, (None, ""))[1] == name:
            del self._names[place]
        self._agreed = {
            names: used
            for names, used in self._agreed.items()
            if all(agreed_name != name for agreed_name, _ in names)
        }
        keys = [self._numbers.pop(wire) for wire in self._declared.pop(name, ())]
        if keys:
            self._session.give_back(keys, self._session.is_idle)

    def key_of(self, name: str) -> int:
        """Return the key of a name; it is not declared."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._keys.of([name])[name]
        return number

    def agree(
        self, gradients: Sequence[Gradient], is_new_anywhere: Callable[[bool], bool]
    ) -> Tuple[bool, ...]:
        """Return which of the variables have a gradient on any worker.

        Blocks until all workers call it, for variables that they have not agreed on before.  Their
        keys are declared then, under the names of `name_on_wire`.

        Parameters
        ----------
        gradients : sequence of Gradient
            The gradients of this worker.
        is_new_anywhere : callable
            Gets whether a variable without a gradient on any worker has one here now; returns
            whether that holds on any worker.  It is called while there is such a variable.

        Raises
        ------
        ConfigError
            Workers have other variables, shapes or dtypes.
        """
        names = [self.name_of(gradient.variable) for gradient in gradients]
        key = tuple((name, gradient.dtype) for name, gradient in zip(names, gradients))
        used = self._agreed.get(key)
        if used is not None:
            is_new = any(g.is_here and not is_used for is_used, g in zip(used, gradients))
            if all(used) or not is_new_anywhere(is_new):
                return used
        if len(set(names)) < len(names):
            again = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{again}: this variable is there twice; pass each variable once", 5)
        facts = {
            name: (gradient.dtype, gradient.shape, gradient.is_here)
            for name, gradient in zip(names, gradients)
        }
        gathered: List[Any] = self._objects.gather(facts)
        _check_same(gathered)
        used = tuple(any(worker[name][2] for worker in gathered) for name in names)
        self._declare(
            [(name, gradient) for name, gradient, is_used in zip(names, gradients, used) if is_used]
        )
        self._agreed[key] = used
        self._session.tune()
        return used

    def _declare(self, gradients: Sequence[Tuple[str, Gradient]]) -> None:
        new = []
        for name, gradient in gradients:
            wire = name_on_wire(name, gradient.dtype)
            wires = self._declared.setdefault(name, set())
            if gradient.size_bytes and wire not in wires:
                wires.add(wire)
                new.append((self.key_of(wire), gradient.code, gradient.size_bytes))
        self._session.declare_zeros(new)


def name_on_wire(name: str, dtype: str) -> str:
    """Return the name of a variable's gradient of a dtype."""
    return name if dtype == "float32" else f"{name}, {dtype}"


def _check_same(gathered: Sequence[Dict[str, Tuple[str, Tuple[int, ...], bool]]]) -> None:
    reason = difference(
        [
            {
                f"gradient of {name!r}": Fact("gradient", f"{dtype} of shape {shape}")
                for name, (dtype, shape, _) in worker.items()
            }
            for worker in gathered
        ],
        {"gradient": Kind(_CURE)},
    )
    if reason is not None:
        raise ConfigError(reason, 1)
    rank = unlike([list(worker) for worker in gathered])
    if rank is not None:
        raise ConfigError(f"worker {rank} has variables in another order; {_CURE}", 1)
