"""The options of a distributed optimizer, and their checks."""

from typing import Callable, Iterable, NamedTuple, Optional, Tuple, Type, Union

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.checks import check_model
from bytescheduler.torch._sums.compression import Compression, Compressor

__all__ = ["Crossing", "Options"]

Crossing = Union[bool, str]  # True, False or "auto"
Named = Iterable[Tuple[str, torch.nn.Parameter]]


class Options(NamedTuple):
    """See `DistributedOptimizer`."""

    named_parameters: Optional[Named] = None
    compression: Type[Compressor] = Compression.none
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


def check_passes(passes: int) -> None:
    """Raise UsageError unless this is a number of passes of backward."""
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise UsageError(f"backward_passes_per_step={passes!r}: want 1 or more", 5)
