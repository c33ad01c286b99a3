"""The numbers and the state of an optimizer, as its worker has them, in texts and digests."""

import hashlib
import numbers
from typing import Any, Callable, ContextManager, Dict, List, Set

import torch

from bytescheduler.torch._gradients.facts import NUMBERS, STATE, Fact, Facts
from bytescheduler.torch._optimizer.own_step import OwnStep
from bytescheduler.torch._sums.octets import digest_of, has_octets

__all__ = ["OptimizerFacts", "text_of"]

_Optimizer = Any  # torch.optim.Optimizer
_Value = Any  # anything in a parameter group
_Names = Callable[[List[torch.nn.Parameter]], Dict[int, str]]

# Classes of values that never change in place.
_PLAIN = frozenset((float, int, bool, str, type(None)))
_EXACT_BELOW = 1 << 53  # whole numbers, as floats
_DIGEST_BYTES = 4
_LONG = 16  # items of a list that a step may read


def text_of(value: _Value, *, thorough: bool = True) -> str:
    """Return a text that is the same for equal values, whatever the types of their numbers.

    Parameters
    ----------
    value : object
        Any; one without such a text gets the name of its class.
    thorough : bool
        Whether tensors on a device are read, which waits for the device, and long lists.
    """
    kind = type(value)
    if kind is float:
        return _number(value)
    if value is None or kind is bool:
        return repr(value)
    if isinstance(value, torch.Tensor):
        return _text_of_tensor(value, thorough)
    if isinstance(value, (complex, str)) or (kind is int and abs(value) >= _EXACT_BELOW):
        return repr(value)
    if isinstance(value, numbers.Real):
        return _number(float(value))
    if isinstance(value, (list, tuple, dict)) and len(value) > _LONG and not thorough:
        return f"a {kind.__qualname__} of {len(value)}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(text_of(item, thorough=thorough) for item in value)})"
    if isinstance(value, dict):
        items = [f"{key}: {text_of(v, thorough=thorough)}" for key, v in value.items()]
        return f"{{{', '.join(items)}}}"
    return f"a {kind.__qualname__}"


def _number(value: float) -> str:
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text


def _text_of_tensor(value: torch.Tensor, thorough: bool) -> str:
    kind = f"a tensor of {value.dtype} and shape {tuple(value.shape)}"
    if not has_octets(value) or not (value.is_cpu or thorough):
        return kind
    if value.numel() == 1:
        return text_of(value.item())
    return f"{kind}, digest {digest_of(value).hex()}" if thorough else kind


class OptimizerFacts:
    """The numbers and the state of an optimizer; see `FactSource`.

    Numbers that a step of the optimizer changes come from gradients, and have no part in it.

    Parameters
    ----------
    inner : Optimizer
        Its numbers may change at any time.
    names : callable
        Returns the names of parameters, by their ids.
    """

    def __init__(self, inner: _Optimizer, names: _Names) -> None:
        self._inner = inner
        self._names = names
        self._groups: List[List[_Value]] = []  # see `_look`
        self._left_out: Set[str] = {"params", "param_names"}
        self._lines: List[str] = []  # a text for each group
        self._digest = 0
        self._before_step: List[List[_Value]] = []
        self._own_step = OwnStep(inner, self._begin_step, self._end_step)

    def digest(self, *, thorough: bool = False) -> int:
        """See `FactSource`; `thorough` is that of `text_of`."""
        groups = self._look(thorough)
        if groups != self._groups:
            earlier_groups = [*self._groups, *[None] * len(groups)]
            lines = [*self._lines, *[""] * len(groups)]
            self._lines = [
                line if group == earlier else _line_of(group)
                for group, earlier, line in zip(groups, earlier_groups, lines)
            ]
            self._groups = groups
            text = "\n".join(self._lines).encode()
            digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()
            self._digest = int.from_bytes(digest, "little")
        return self._digest

    def _look(self, thorough: bool = False) -> List[List[_Value]]:
        """Return each group's keys and numbers by turns, or texts of what can change in place."""
        left_out = self._left_out
        groups = []
        for group in self._inner.param_groups:
            values: List[_Value] = []
            for key, value in group.items():
                if key not in left_out:
                    kind = type(value)
                    is_plain = (
                        kind in _PLAIN or kind is tuple and _PLAIN.issuperset(map(type, value))
                    )
                    values += key, value if is_plain else text_of(value, thorough=thorough)
            groups.append(values)
        return groups

    def stepping(self) -> ContextManager[None]:
        """Leave numbers out, from now on, that the optimizer's own code changes meanwhile.

        A scheduler may change numbers in a hook, or in a closure: they stay in.
        """
        return self._own_step.watched()

    def outside_step(self) -> ContextManager[None]:
        """Let a closure run in a step."""
        return self._own_step.paused()

    def _begin_step(self) -> None:
        self._before_step = self._look()

    def _end_step(self) -> None:
        for earlier, group in zip(self._before_step, self._look()):
            if earlier != group:
                earlier_values = dict(zip(earlier[::2], earlier[1::2]))
                pairs = zip(group[::2], group[1::2])
                changed = [key for key, value in pairs if earlier_values.get(key) != value]
                self._left_out.update(changed)

    def numbers(self) -> Facts:
        """See `FactSource`."""
        return {
            f"{key} of group {at} of the optimizer": Fact(NUMBERS, _text_of_value(value))
            for at, group in enumerate(self._groups)
            for key, value in zip(group[::2], group[1::2])
        }

    def state(self) -> Facts:
        """See `FactSource`."""
        inner = self._inner
        params = [param for group in inner.param_groups for param in group["params"]]
        names = self._names(params)
        facts: Facts = {}
        for param in params:
            of_param = inner.state.get(param, {})
            for key, value in of_param.items() if isinstance(of_param, dict) else ():
                label = f"{key} of {names[id(param)]} in the optimizer's state"
                facts[label] = Fact(STATE, text_of(value))
        return facts


def _line_of(group: List[_Value]) -> str:
    """Return a text of keys and numbers, whatever the order of the keys."""
    pairs = zip(group[::2], group[1::2])
    return " ".join(sorted([f"{key} {_text_of_value(value)}" for key, value in pairs]))


def _text_of_value(value: _Value) -> str:
    return value if type(value) is str else text_of(value)
