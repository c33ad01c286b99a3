"""Nesterov's momentum of gradients before they travel, in place of the optimizer's own."""

from typing import Dict, Optional

import torch

__all__ = ["Nesterov"]

_HALVES = (torch.float16, torch.bfloat16)


class Nesterov:
    """Gives gradients a momentum on their worker, so that a sum of them has it too.

    With a momentum mu and a gradient g, a worker sends g + mu m, where m is mu m + g.  Means of
    that are the gradients with which PyTorch's SGD with `nesterov=True` steps, but for rounding.

    Parameters
    ----------
    mu : float
        Between 0 and 1.
    """

    def __init__(self, mu: float) -> None:
        self._mu = mu
        self._momenta: Dict[int, torch.Tensor] = {}  # float32 for half precision
        # Momenta before the round under way, of the parameters that it changes; None: no momentum.
        self._before: Dict[int, Optional[torch.Tensor]] = {}

    def applied(self, index: int, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of parameter `index` with its momentum, which takes it in.

        An infinity or a NaN is returned and not taken in, where it would stay for good.  `keep` or
        `take_back` ends the round.
        """
        with torch.no_grad():
            wide = gradient.float() if gradient.dtype in _HALVES else gradient
            before = self._before[index] = self._momenta.get(index)
            momentum = torch.zeros_like(wide) if before is None else before * self._mu
            # No branch, as that would wait for a device.
            taken = torch.where(torch.isfinite(wide).all(), wide, wide.new_zeros(()))
            momentum += taken
            self._momenta[index] = momentum
            return torch.add(wide, momentum, alpha=self._mu).to(gradient.dtype)

    def without(self, index: int) -> Optional[torch.Tensor]:
        """Return what parameter `index` sends without a gradient; None: it has no momentum yet.

        `decay` tells that the others had one.
        """
        self._before.pop(index, None)
        momentum = self._momenta.get(index)
        return None if momentum is None else momentum * (self._mu * self._mu)

    def decay(self, index: int) -> None:
        """Take note that parameter `index` had no gradient here, in a step that updated it."""
        momentum = self._momenta.get(index)
        if momentum is not None:
            self._before.setdefault(index, momentum)
            self._momenta[index] = momentum * self._mu

    def keep(self) -> None:
        """End a round whose sums an update uses."""
        self._before.clear()

    def take_back(self) -> None:
        """End a round that no update uses: momenta are again as before it."""
        for index, momentum in self._before.items():
            if momentum is None:
                self._momenta.pop(index, None)
            else:
                self._momenta[index] = momentum
        self._before.clear()
