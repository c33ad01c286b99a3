"""The way of gradients to the engine: keys, memory and rounds of single slots and of bundles."""

from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set

import torch

from bytescheduler._compression.params import by_coding
from bytescheduler._native import Coding
from bytescheduler._session.keys import EngineKeys
from bytescheduler._session.rounds import Rates, Round, RoundCall, is_over
from bytescheduler._session.tally import Tally
from bytescheduler.errors import UsageError
from bytescheduler.torch._engine.session import TorchSession
from bytescheduler.torch._gradients.bundle import Bundle
from bytescheduler.torch._gradients.checks import check_place
from bytescheduler.torch._gradients.layout import empty_gradient
from bytescheduler.torch._gradients.means import fits
from bytescheduler.torch._gradients.nesterov import Nesterov
from bytescheduler.torch._gradients.slot import PUSHED, Slot
from bytescheduler.torch._sums.choice import Choice
from bytescheduler.torch._sums.passage import Passage

__all__ = ["GradientOptions", "Sender"]

_STRIDED = torch.strided


class GradientOptions(NamedTuple):
    """The way in which gradients travel."""

    choice: Choice = Choice()
    average: bool = True
    passes: int = 1  # by backward, before a gradient is sent
    sparse_as_dense: bool = False
    find_unused: bool = True
    # Returns the learning rate of a group, which residuals follow; None: it is not known.
    learning_rate: Optional[Callable[[int], float]] = None


class Sender:
    """Sends the gradients of slots, each in a round of its own or with its bundle.

    A slot that is sent becomes PUSHED.

    Parameters
    ----------
    session : TorchSession
        Carries the rounds.
    options : GradientOptions
        How gradients travel.
    """

    def __init__(self, session: TorchSession, options: GradientOptions) -> None:
        self._session = session
        self._options = options
        self._keys = EngineKeys(session)
        self._called = 1  # the number of the first slot in this round
        # The latest of each key: the engine has them only when a copy from the device is there.
        self._on_devices: Dict[int, Round] = {}
        self._zeros: Dict[torch.dtype, torch.Tensor] = {}
        mu = options.choice.mu
        self._nesterov = Nesterov(mu) if mu else None
        self._tally: Optional[Tally] = None
        # Slots that had no gradient here in their latest round.
        self._without: Set[int] = set()

    def bookkeeping_key(self, name: str) -> int:
        """Return a key of something that is no gradient."""
        return self._keys.bookkeeping(name)

    def give_back(self) -> None:
        """Give all keys back; see `Session.give_back`."""
        rounds = list(self._on_devices.values())
        self._keys.give_back(lambda: all(map(is_over, rounds)))

    def end_round(self, count: int) -> None:
        """Begin to number the next round, as `count` slots are sent."""
        self._called += count

    def declare(self, new: List[Slot], bundles: List[Bundle[Slot]]) -> None:
        """Make the memory of new slots and declare their keys; a bundle has one."""
        for bundle in bundles:
            bundle.key = self._keys.beside(bundle.slots[0].name, "bundle")
            for slot in bundle.slots:
                slot.bundle, slot.key = bundle, bundle.key
        single = [slot for slot in new if slot.bundle is None]
        keys = self._keys.of([slot.name for slot in single])
        for slot in single:
            slot.key = keys[slot.name]
            self._make_buffers(slot)
        targets = [(bundle.key, bundle.make_memory()) for bundle in bundles]
        by_cut = by_coding(single, self._cut_for)
        targets += [(slot.key, _target(slot)) for slot in by_cut.pop(None, [])]
        for coding, slots in by_cut.items():
            self._session.declare_tensors([(slot.key, _target(slot)) for slot in slots], coding)
        if targets:
            self._session.declare_tensors(targets)

    def _cut_for(self, slot: Slot) -> Optional[Coding]:
        return self._options.choice.cut_for(slot.size_bytes, slot.element_bytes)

    def show_order(self, slots: Iterable[Slot]) -> None:
        """See `Gradients`."""
        names: Dict[int, str] = {}
        for slot in sorted(slots, key=lambda slot: -slot.priority):
            names.setdefault(slot.key, slot.name if slot.bundle is None else slot.bundle.name)
        for key, name in names.items():
            self._session.show(key, name)

    def push(self, slot: Slot) -> None:
        """Send the gradient of a slot that is IDLE, or let it join its bundle."""
        grad = slot.param.grad
        if grad.layout is not _STRIDED:
            grad = self._densified(slot, grad)
        try:
            slot.version = grad._version
        except RuntimeError:  # it was made in inference mode
            with torch.inference_mode(False):
                slot.param.grad = grad = grad.clone()
            slot.version = grad._version
        slot.sent = grad
        slot.address = grad.data_ptr()
        slot.had_gradient = True
        bundle = slot.bundle
        if bundle is not None:
            if bundle.awaited == 1:
                self._send_bundle(bundle)
            else:
                bundle.awaited -= 1
            slot.state = PUSHED
            return
        check_place(slot, grad)
        self._send(slot, self._sent_by(slot))

    def _densified(self, slot: Slot, grad: torch.Tensor) -> torch.Tensor:
        if not self._options.sparse_as_dense:
            raise UsageError(
                f"{slot.name}: its gradient is sparse; make the layer without sparse=True, or pass "
                "sparse_as_dense=True",
                5,
            )
        slot.param.grad = grad.to_dense()
        return slot.param.grad

    def _sent_by(self, slot: Slot) -> Optional[torch.Tensor]:
        """Return what a slot sends, of any strides; None: nothing but zeros."""
        if self._nesterov is None:
            return slot.sent
        self._decay([slot.index])
        if slot.sent is not None:
            return self._nesterov.applied(slot.index, slot.sent)
        self._without.add(slot.index)
        momentum = self._nesterov.without(slot.index)
        return None if momentum is None else momentum.to(slot.dtype)

    def _decay(self, indices: Iterable[int]) -> None:
        for index in indices:
            if index in self._without and self._tally is not None and self._nesterov is not None:
                if self._tally.is_used(index):
                    self._nesterov.decay(index)
                self._without.discard(index)

    def keep_momentum(self) -> None:
        """End a round whose means an update uses."""
        if self._nesterov is not None:
            self._nesterov.keep()

    def take_momentum_back(self) -> None:
        """End a round that no update uses: momenta of all slots are again as before it."""
        if self._nesterov is not None:
            self._nesterov.take_back()
            self._without.clear()

    def follow(self, tally: Tally) -> None:
        """Learn from `tally`, from now on, which gradients other workers have.  Blocks at times."""
        self._decay(list(self._without))
        self._tally = tally

    def _send(self, slot: Slot, gradient: Optional[torch.Tensor]) -> None:
        # Numbered in the order of the parameters, as the engine compares that with this one.
        called = self._called + slot.index
        dense = self._nothing(slot) if gradient is None else gradient
        if gradient is not None and not fits(slot, gradient):
            dense = empty_gradient(slot).copy_(gradient)
        if self._lacks_memory(slot, dense):
            self._make_buffers(slot)
        passage = slot.passage
        assert passage is not None
        if slot.device is not None:
            slot.device.check_works(slot.name)
        send = passage.compress(dense)
        coding = passage.coding_of(send)
        rates = self._rates_of(slot, coding)
        call = RoundCall(
            slot.priority, self._options.average, called, not slot.had_gradient, coding, rates
        )
        here = gradient is None
        slot.pending = passage.start(self._session, slot.key, send, call, is_here=here)
        if slot.device is not None:
            self._on_devices[slot.key] = slot.pending
        slot.state = PUSHED

    def _rates_of(self, slot: Slot, coding: Optional[Coding]) -> Optional[Rates]:
        """Return the rates that a residual of `coding` follows, if it follows any."""
        learning_rate = self._options.learning_rate
        if coding is None or not coding.feedback or learning_rate is None:
            return None
        return learning_rate(slot.group), 0.0, 1.0

    def _send_bundle(self, bundle: Bundle[Slot]) -> None:
        """Send a bundle that the last of its members joins; an error leaves it as it was."""
        for slot in bundle.slots:
            if slot.sent is not None:
                check_place(slot, slot.sent)
        send = bundle.gather([self._sent_by(slot) for slot in bundle.slots])
        called = self._called + bundle.slots[0].index
        at_once = not bundle.had_gradient
        call = RoundCall(bundle.priority, self._options.average, called, at_once)
        pending = bundle.passage.start(self._session, bundle.key, send, call)
        for slot in bundle.slots:
            slot.pending = pending

    @staticmethod
    def _lacks_memory(slot: Slot, dense: torch.Tensor) -> bool:
        if slot.passage is None:
            return True
        if slot.device is not None:
            return False
        return slot.recv is None or slot.recv.data_ptr() == dense.data_ptr()

    def _make_buffers(self, slot: Slot) -> None:
        there = self._session.sums_on_devices
        compressor = self._options.choice.compressor_for(slot.size_bytes, slot.element_bytes)
        slot.passage = Passage(compressor, slot.device, there)
        like = empty_gradient(slot)
        if slot.device is None:
            slot.recv = like.zero_()
        narrow = slot.passage.compress(like)
        if narrow is slot.recv:
            slot.passage.received = slot.recv
        else:
            slot.passage.make_room(narrow).zero_()

    def push_unsent(self, slot: Slot) -> None:
        """Send what backward has not sent: a gradient that a script made, or nothing."""
        grad = slot.param.grad
        if grad is not None:
            check_place(slot, grad)
            self.push(slot)
            return
        if not self._options.find_unused:
            raise UsageError(
                f"{slot.name}: backward made no gradient; the model must use it in each step, "
                "or pass find_unused=True",
                5,
            )
        check_place(slot, slot.param)
        slot.sent = None
        slot.had_gradient = False
        bundle = slot.bundle
        if bundle is None:
            self._send(slot, self._sent_by(slot))
            return
        if bundle.awaited == 1:
            self._send_bundle(bundle)
        else:
            bundle.awaited -= 1
        slot.state = PUSHED

    def _nothing(self, slot: Slot) -> torch.Tensor:
        """Return zeros in the place of a gradient; all share their memory."""
        dtype, elements = slot.param.dtype, slot.param.numel()
        zeros = self._zeros.get(dtype)
        if zeros is None or zeros.numel() < elements:
            zeros = self._zeros[dtype] = torch.zeros(elements, dtype=dtype, device="cpu")
        return zeros[:elements]


def _target(slot: Slot) -> torch.Tensor:
    """Return the memory that the engine writes to."""
    assert slot.passage is not None
    assert slot.passage.received is not None
    return slot.passage.received
