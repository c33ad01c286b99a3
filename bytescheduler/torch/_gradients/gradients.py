"""The gradients of a set of parameters: sent as backward makes them, and averaged."""

import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, cast

import torch

from bytescheduler._compression.log_lines import Size, summary_line
from bytescheduler._process.ending import uncaught
from bytescheduler._process.say import counted, say
from bytescheduler._session.rounds import Round
from bytescheduler._session.tally import CROSSES, DISCARDS, SUMS, Tally
from bytescheduler._settings import Settings
from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.agreement import Agreement, FactSource
from bytescheduler.torch._gradients.bundle import Bundle, bundled
from bytescheduler.torch._gradients.checks import check_parameter, check_place
from bytescheduler.torch._gradients.layout import agree_on_strides, on_processors
from bytescheduler.torch._gradients.means import (
    become_mean,
    become_means,
    is_left,
    kept_mean,
    leave,
    zeros_as,
)
from bytescheduler.torch._gradients.sender import GradientOptions, Sender
from bytescheduler.torch._gradients.slot import ARMED, IDLE, PUSHED, SUMMED, Slot, touch
from bytescheduler.torch._gradients.wrapped import wrapped
from bytescheduler.torch._job.job import TorchJoined

__all__ = ["Gradients"]

Member = Tuple[str, torch.nn.Parameter, int]  # name, parameter, its group


class Gradients:
    """Sends each gradient as soon as backward has accumulated it.

    All workers make it with the same parameters, and complete the same rounds.

    Parameters
    ----------
    job : TorchJoined
        Carries the sums.
    members : list
        Parameters that have gradients, in an order that is the same on every worker.
    options : GradientOptions
        How they travel.
    on_first : callable
        Called when backward makes a gradient; it may refuse by an error.
    optimizer_facts : FactSource, optional
        Those of an optimizer, which rounds compare beside weights.
    """

    def __init__(
        self,
        job: TorchJoined,
        members: Iterable[Member],
        options: GradientOptions,
        on_first: Callable[[], None] = lambda: None,
        optimizer_facts: Optional[FactSource] = None,
    ) -> None:
        assert job.carrier is not None
        self._job = job
        self._session = job.carrier
        self.options = options
        self._on_first = on_first
        self.slots: List[Slot] = []
        self.passes = options.passes
        self.paused = False  # gradients accumulate, and none is sent
        self.has_any = False  # backward has made a gradient since the latest round
        self._has_round = False  # a round was completed
        # Makes all updates that wait, before a round ends where a step does not end it.
        self.flush: Callable[[], None] = lambda: None
        self._sender = Sender(self._session, options)
        # Also as garbage, at another moment on each worker.
        self._end = weakref.finalize(self, self._sender.give_back)
        self._end.atexit = False
        self._orphans: List[Round] = []
        self._handles: List[Any] = []
        self._hooks = threading.Lock()  # held while a hook runs
        self.agreement = Agreement(job, optimizer_facts)
        self._tallies = 0
        self.tally: Tally
        self.add(members)
        self._session.count(self)

    def add(self, members: Iterable[Member]) -> None:
        """Take more parameters; all workers do so, between two rounds.  Blocks."""
        new: List[Slot] = []
        for name, param, group in members:
            check_parameter(name, param)
            if not param.numel():
                continue  # nothing to send
            new.append(Slot(len(self.slots) + len(new), name, param, group))
        choice = self.options.choice
        for slot in new:
            wrapped().check_free(slot.param, slot.name)
        self._job.objects.check_alike([(slot.name, slot.param) for slot in new], 0)
        for slot in new:
            choice.check_dtype(slot.dtype, slot.size_bytes, slot.element_bytes, slot.name)
        agree_on_strides(self._job.objects, new)
        for slot in new:
            slot.device = self._job.devices.of(slot.param, slot.name)
            if choice.compressor_for(slot.size_bytes, slot.element_bytes).coding is None:
                self._session.check_place(slot.param, slot.name, slot.device)
        here = on_processors(self._job.objects, new)
        plain = [slot for slot in here if not choice.is_coded(slot.size_bytes, slot.element_bytes)]
        self._sender.declare(new, bundled(plain, choice.plain))
        for slot in new:
            wrapped().take(slot.param, self)
            self._handles.append(slot.param.register_post_accumulate_grad_hook(_hook(self, slot)))
        self.agreement.watch([(slot.name, slot.param) for slot in new])
        if self.slots:
            self.settle()
        elif self._job.rank == 0:
            self._tell_compression(new)
        self.slots += new
        self._tallies += 1
        key = self._sender.bookkeeping_key(f"tally {self._tallies} of all gradients")
        self.tally = Tally(self._session, key, len(self.slots))
        self._sender.follow(self.tally)
        self._session.tune()

    def _tell_compression(self, slots: List[Slot]) -> None:
        params = self.options.choice.params
        if params.coding is not None and Settings.read().is_talkative:
            sizes = [Size(slot.elements, slot.element_bytes) for slot in slots]
            say(f"bytescheduler: {summary_line(params, sizes)}")

    def show_order(self) -> None:
        """Repeat the names in the order of forward, which the priorities tell from now on."""
        self._sender.show_order(self.slots)

    def unfinished(self) -> List[Round]:
        """See `Source`."""
        rounds: List[Optional[Round]] = [slot.pending for slot in self.slots]
        rounds += [*self._orphans, self.tally.pending]
        different = {id(pending): pending for pending in rounds}  # members of a bundle share one
        return [pending for pending in different.values() if pending is not None]

    def at_end(self) -> None:
        """See `Source`."""
        waiting = sum(slot.state == ARMED for slot in self.slots)
        if waiting and uncaught() is None:  # an exception says more
            say(
                f"bytescheduler: the script ends while {counted(waiting, 'update')} of weights "
                "wait, which are lost; call optimizer.synchronize() before the last use of weights"
            )

    def close(self) -> None:
        """Send nothing any more, and give the keys back; rounds under way end by themselves."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for slot in self.slots:
            wrapped().release(slot.param, self)
        if self._end.detach() is not None:
            self._sender.give_back()

    # -- from backward -------------------------------------------------------------------------

    def arrived(self, slot: Slot) -> None:
        """Take a gradient that backward has accumulated; the hook calls it.

        Backward has a thread for each device.
        """
        with self._hooks:
            if self.paused:
                return
            if slot.state != IDLE:
                self._leave_state(slot)
            if not self.has_any:
                self._on_first()
                self.has_any = True
            if slot.passes and slot.is_anew:
                slot.passes = 0
            slot.passes += 1
            if slot.passes >= self.passes:
                self._sender.push(slot)
            else:
                slot.sent = slot.param.grad

    def _leave_state(self, slot: Slot) -> None:
        """Make a slot ready for a gradient, or say why it cannot be."""
        if slot.state == SUMMED:  # the step was left out, as GradScaler does
            self.forget_sums(unused=True)
            return
        if slot.state == PUSHED:
            if not self.leave_dropped():
                raise UsageError(self._why_twice(slot), 5)
            return
        reason = (
            f"{slot.name}: a gradient came after step() and before the update: backward ran again "
            "on a graph from before step(), or code that Python does not see used the weight; call "
            "optimizer.synchronize() after step(), or pass crossing=False"
        )
        self._session.give_up(reason)
        raise UsageError(reason, 5)

    def _why_twice(self, slot: Slot) -> str:
        dropped = [peer.name for peer in self.slots if peer.is_replaced]
        if dropped:
            return (
                f"{dropped[0]}: its gradient was dropped after backward sent it, as not all "
                "gradients were; call optimizer.zero_grad() before another backward"
            )
        if slot.param.grad._version > slot.version + 1:  # backward itself changes it once
            return (
                f"{slot.name}: its gradient was changed after backward sent it, and backward came "
                "again; call optimizer.zero_grad() for zeros before another backward"
            )
        if self.passes > 1:
            return (
                f"{slot.name}: backward came more than backward_passes_per_step={self.passes} "
                "times before step(); call step() after that many, or raise the number"
            )
        return (
            f"{slot.name}: backward made two gradients before step(); call step() after each "
            "backward, or pass backward_passes_per_step=2 to accumulate; with activation "
            "checkpointing of shared weights pass use_reentrant=False to checkpoint"
        )

    # -- the end of a round --------------------------------------------------------------------

    def complete(self, end: int) -> None:
        """Send what backward has not sent, so that every worker ends the same round.

        Raises
        ------
        UsageError
            A gradient was changed after it was sent; or workers disagree on the latest round.
        """
        self.settle()
        if not self._has_round:
            self._has_round = True
            wrapped().collect_all_but(self)  # so that an optimizer before this gives its keys back
        self._orphans = [orphan for orphan in self._orphans if not orphan.over()]
        unsent = [slot for slot in self.slots if slot.state == IDLE]
        if end != DISCARDS:
            self._check_unchanged()
        for slot in unsent:
            self._sender.push_unsent(slot)
        digest = self.agreement.digest()
        present = [slot.had_gradient for slot in self.slots]
        self.tally.start(end, present, digest, asks=self.agreement.asks())
        self._job.unflushed.add(self)  # the last round is judged too, though it has no next one
        self.has_any = False
        self._sender.end_round(len(self.slots))
        if end == CROSSES:
            self._sender.keep_momentum()
        elif end == DISCARDS:
            self._sender.take_momentum_back()
        if self.agreement.is_urgent:
            self.settle()

    def settle(self) -> None:
        """Wait for the latest round, and name what differs between workers.  Blocks.

        All workers come here after each round, at the latest in their next one.
        """
        self._job.unflushed.discard(self)
        self.tally.settle()
        differs, self.tally.differs = self.tally.differs, False
        self.agreement.judge(differs=differs)
        if self.tally.is_asked:
            self.tally.is_asked = False
            self.agreement.compare_again()

    def _check_unchanged(self) -> None:
        for slot in self.slots:
            if slot.state != PUSHED or not slot.had_gradient:
                continue
            grad, sent = slot.param.grad, slot.sent
            same = grad is sent and grad is not None and grad.data_ptr() == slot.address
            if same and (grad._version == slot.version or self._is_counted_twice(slot)):
                continue
            check_place(slot, slot.param)
            change = "taken away" if grad is None else "changed"
            raise UsageError(
                f"{slot.name}: its gradient was {change} after backward sent it; call "
                "optimizer.synchronize() before gradients are clipped, scaled or set to zero, or "
                "optimizer.zero_grad() before p.grad gets values that no backward made",
                5,
            )

    def _is_counted_twice(self, slot: Slot) -> bool:
        """Return whether the only changes were those of a gradient that was sent later.

        Gradients that backward made as parts of one tensor, as that of `torch.cat` does, count
        their changes together.
        """
        assert slot.sent is not None
        count = slot.sent._version
        alike = [
            (sibling, sibling.sent)
            for sibling in self.slots
            if sibling.state == PUSHED
            and sibling.sent is not None
            and sibling.sent._version == count
        ]
        touch(slot.sent)
        joint = [sibling for sibling, grad in alike if sibling.version == count != grad._version]
        if not joint:
            return False
        for sibling in [slot, *joint]:
            sibling.version = slot.sent._version
        return True

    def wait(self, slots: Iterable[Slot]) -> None:
        """Return when the sums of slots that are PUSHED or ARMED are there; changes nothing."""
        latest: Optional[Round] = None
        for slot in slots:
            if slot.pending is not None and slot.pending is not latest:
                latest = slot.pending
                self._session.wait(latest)

    def receive(self, slot: Slot) -> torch.Tensor:
        """Return the mean of a slot that is PUSHED or ARMED.  Blocks."""
        assert slot.pending is not None
        self._session.wait(slot.pending)
        mean = self.mean(slot)
        self.let_go(slot)
        return mean

    def let_go(self, slot: Slot) -> None:
        """Forget a round that is over."""
        slot.pending = None
        slot.sent = None
        slot.passes = 0

    def mean(self, slot: Slot) -> torch.Tensor:
        """Return what a round that is over brought; the slot's state stays."""
        if slot.bundle is not None:
            slot.bundle.decode()
            assert slot.recv is not None
            return slot.recv
        assert slot.passage is not None
        mean = slot.passage.result()
        if slot.recv is None or mean is slot.recv:
            return mean
        return slot.recv.copy_(mean)

    def means(self, slots: Sequence[Slot]) -> List[torch.Tensor]:
        """Do as `mean` for several slots."""
        bundles = {slot.bundle for slot in slots if slot.bundle is not None}
        for bundle in bundles:
            bundle.decode()
        means = [slot.recv if slot.bundle is not None else self.mean(slot) for slot in slots]
        return cast(List[torch.Tensor], means)

    def is_used(self, slot: Slot) -> bool:
        """Return whether any worker had a gradient in the latest round.  Blocks at times."""
        return slot.had_gradient or self.tally.is_used(slot.index)

    def sum_up(self) -> None:
        """Turn all gradients into means: PUSHED becomes SUMMED.  Blocks."""
        self.complete(SUMS)
        self.settle()
        for slot in self.slots:
            if slot.state == PUSHED and slot.bundle is not None:
                self._take_means(slot.bundle)
            elif slot.state == PUSHED:
                self._take_mean(slot)
                slot.state = SUMMED

    def _take_means(self, bundle: Bundle[Slot]) -> None:
        """Do as `_take_mean` for the members of a bundle, which become SUMMED."""
        self.wait(bundle.slots)
        bundle.decode()
        used = [slot for slot in bundle.slots if self.is_used(slot)]
        become_means([(slot, slot.param.grad) for slot in used if slot.param.grad is not None])
        for slot in used:
            if slot.param.grad is None:
                slot.param.grad = kept_mean(slot, self.mean(slot))
        for slot in bundle.slots:
            self.let_go(slot)
            slot.state = SUMMED

    def _take_mean(self, slot: Slot) -> None:
        """Let the parameter's gradient be the mean; what was sent becomes the next memory."""
        used = self.is_used(slot)
        mean = self.receive(slot)
        grad = slot.param.grad
        if not used:
            return
        if grad is None:
            slot.param.grad = kept_mean(slot, mean)
        else:
            become_mean(slot, grad, mean)

    def forget_sums(self, *, unused: bool = False) -> None:
        """Let SUMMED become IDLE: the step was made or, if `unused`, left out."""
        summed = [slot for slot in self.slots if slot.state == SUMMED]
        for slot in summed:
            slot.state = IDLE
            leave(slot.param)
        if summed and unused:
            self._sender.take_momentum_back()
        elif summed:
            self._sender.keep_momentum()

    def discard(self, *, to_zeros: bool = False) -> bool:
        """End a round whose gradients nothing wants; return whether there was one.

        With `to_zeros`, gradients that any worker has are zeros then, else None.  Blocks at times.
        """
        if not self.has_state(PUSHED):
            return False
        unwanted = self._end_unwanted()
        for slot, sent in unwanted:
            param, grad = slot.param, slot.param.grad
            if not to_zeros:
                param.grad = None
            elif sent is not None and grad is sent:
                sent.data = zeros_as(param)  # the engine still reads what was sent
            elif sent is None and self.tally.is_used(slot.index):
                param.grad = zeros_as(param)
        return True

    def leave_dropped(self) -> bool:
        """Do as `discard` if a script has dropped or replaced every gradient that was sent."""
        pushed = [slot for slot in self.slots if slot.state == PUSHED]
        if not pushed or not all(slot.is_replaced for slot in pushed):
            return False
        self._end_unwanted()
        return True

    def _end_unwanted(self) -> List[Tuple[Slot, Optional[torch.Tensor]]]:
        """End a round that nothing waits for; return its slots, and the gradients that were sent.

        `p.grad` stays.
        """
        self.flush()
        self.complete(DISCARDS)
        unwanted = []
        orphans: Dict[int, Round] = {}
        for slot in self.slots:
            if slot.state != PUSHED:
                continue
            assert slot.pending is not None
            orphans[id(slot.pending)] = slot.pending  # members of a bundle share one
            unwanted.append((slot, slot.sent))
            # The engine still writes to this memory.
            slot.pending = slot.recv = slot.sent = slot.passage = None
            if slot.bundle is not None:
                slot.bundle.drop_memory()
            slot.state, slot.passes = IDLE, 0
        self._orphans += orphans.values()
        return unwanted

    @property
    def has_made(self) -> bool:
        """True if a script has put gradients into `p.grad` that no round has sent."""
        grads = [slot.param.grad for slot in self.slots if slot.state == IDLE]
        return any(grad is not None and not is_left(grad) for grad in grads)

    @property
    def is_under_way(self) -> bool:
        """True if backward has sent a gradient, and nothing has asked for the sums."""
        return self.has_any and any(slot.state == PUSHED for slot in self.slots)

    def has_state(self, state: int) -> bool:
        """Return whether any slot has this state."""
        return state in [slot.state for slot in self.slots]


def _hook(gradients: Gradients, slot: Slot) -> Callable[[torch.nn.Parameter], None]:
    """Return the hook of a parameter, which keeps neither of them alive."""
    alive, index = weakref.ref(gradients), slot.index

    def arrived(param: torch.nn.Parameter) -> None:
        owner = alive()
        if owner is not None:
            owner.arrived(owner.slots[index])

    return arrived
