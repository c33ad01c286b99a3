"""The options of a distributed optimizer, and their checks."""

import math
from typing import Callable, Iterable, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.checks import check_model
from bytescheduler.torch._sums.choice import Choice

__all__ = ["Crossing", "Options"]

Crossing = Union[bool, str]  # True, False or "auto"
# A number of groups, or lists of parameters.
Groups = Union[int, Sequence[Sequence[torch.nn.Parameter]]]
Named = Iterable[Tuple[str, torch.nn.Parameter]]


class Options(NamedTuple):
    """See `DistributedOptimizer`."""

    named_parameters: Optional[Named] = None
    choice: Choice = Choice()
    passes: int = 1
    average: bool = True
    crossing: Crossing = "auto"
    model: Optional[torch.nn.Module] = None
    on_gradient: Optional[Callable[[torch.nn.Parameter], None]] = None
    find_unused: bool = True
    sparse_as_dense: bool = False

    def checked(self) -> "Options":
        """Return these options, with the model that a compiled one stands for.

        Raises
        ------
        UsageError
            One of them is wrong.
        """
        check_passes(self.passes)
        if self.crossing not in (True, False, "auto"):
            raise UsageError(f'crossing={self.crossing!r}: want True, False or "auto"', 5)
        if self.model is None:
            return self
        model = getattr(self.model, "_orig_mod", self.model)  # made by torch.compile
        check_model(model)
        return self._replace(model=model)


def accepted(
    choice: Choice,
    average: bool,
    gradient_predivide_factor: float,
    groups: Groups,
    staleness: int,
) -> Choice:
    """Return how gradients travel, with the options that other packages have.

    Raises
    ------
    UsageError
        One of them is wrong, or asks for another result.
    """
    if staleness != 0:
        raise UsageError(
            f"staleness={staleness!r}: gradients are those of the same step; leave it out", 5
        )
    is_count = isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0
    if not is_count and not isinstance(groups, (list, tuple)):
        raise UsageError(
            f"num_groups or groups: want 0 or more, or lists of parameters, got {groups!r}; small "
            "gradients travel together in any case",
            5,
        )
    factor = gradient_predivide_factor
    if not isinstance(factor, (int, float)) or not 0 < factor < math.inf:
        raise UsageError(f"gradient_predivide_factor={factor!r}: want a number above 0", 5)
    if factor != 1 and not average:
        raise UsageError(
            f"gradient_predivide_factor={factor!r}: it splits a mean, so it needs op=Average", 5
        )
    return choice.scaled(1.0 / factor, factor)


def check_passes(passes: int) -> None:
    """Raise UsageError unless this is a number of passes of backward."""
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise UsageError(f"backward_passes_per_step={passes!r}: want 1 or more", 5)
