"""The agreement of all workers on weights, and on an optimizer, by a digest in each round."""

import hashlib
from typing import Any, List, Optional, Protocol, Sequence, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.facts import WEIGHTS, Fact, Facts, difference
from bytescheduler.torch._job.job import TorchJoined
from bytescheduler.torch._sums.octets import digest_of

__all__ = ["Agreement", "FactSource"]

_DIGEST_BYTES = 4  # the bits that a tally carries


class FactSource(Protocol):
    """The numbers of an optimizer, and its state, as this worker has them."""

    def digest(self) -> int:
        """Look at the numbers, and return 32 bits of a hash."""

    def numbers(self) -> Facts:
        """Return the numbers that `digest` has seen last."""

    def state(self) -> Facts:
        """Return digests of the state."""


class Agreement:
    """Gives each round a digest, and names what differs if a digest did.

    The first round has weights and the optimizer's state too, as updates keep equal weights equal.

    Parameters
    ----------
    job : TorchJoined
        Carries the facts, once digests differ.
    optimizer_facts : FactSource, optional
        Those of an optimizer.
    """

    def __init__(self, job: TorchJoined, optimizer_facts: Optional[FactSource] = None) -> None:
        self._job = job
        self._optimizer_facts = optimizer_facts
        self._all: List[Tuple[str, torch.Tensor]] = []
        self._weights: List[Tuple[str, torch.Tensor]] = []  # that no round has compared
        self._asks = False  # something was loaded
        self._has_compared_state = optimizer_facts is None
        self._facts: Optional[Facts] = None  # in the round under way, beside numbers

    def watch(self, named: Sequence[Tuple[str, torch.Tensor]]) -> None:
        """Compare more weights in the next round; all workers do so."""
        self._all += named
        self._weights += named

    def ask(self) -> None:
        """Take note that this worker has loaded something, which is to be compared."""
        self._asks = True

    def asks(self) -> bool:
        """Return whether `ask` was called since the latest call."""
        asks, self._asks = self._asks, False
        return asks

    def compare_again(self) -> None:
        """Compare all weights and the state in the next round; all workers do so."""
        self._weights = list(self._all)
        self._has_compared_state = self._optimizer_facts is None

    @property
    def is_urgent(self) -> bool:
        """True if the round under way is to be judged before its sums are used."""
        return self._facts is not None

    def digest(self) -> int:
        """Return 32 bits for a round that starts."""
        number = 0 if self._optimizer_facts is None else self._optimizer_facts.digest()
        if self._has_compared_state and not self._weights:
            return number
        self._facts = {}
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            for name, weight in self._weights:
                self._facts[name] = Fact(WEIGHTS, digest_of(weight).hex())
            if self._optimizer_facts is not None and not self._has_compared_state:
                self._facts.update(self._optimizer_facts.state())
        text = f"{number} {sorted(self._facts.items())}"
        digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
        return int.from_bytes(digest, "little")

    def judge(self, *, differs: bool) -> None:
        """End a round, whose digests differ or not.  Blocks if they do.

        Raises
        ------
        UsageError
            On every worker: what differs, where, and the cure.
        """
        facts, self._facts = self._facts, None
        if differs:
            numbers = {} if self._optimizer_facts is None else self._optimizer_facts.numbers()
            by_rank: List[Any] = self._job.objects.gather({**numbers, **(facts or {})})
            reason = difference(by_rank)
            if reason is not None:
                raise UsageError(reason, 5)
        if facts is not None:
            self._weights.clear()
            self._has_compared_state = True
