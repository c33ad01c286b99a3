"""The check that all workers run the same optimizer, so that their weights do not differ."""

import zlib
from typing import Callable, List, NamedTuple, Optional, Tuple

import mxnet as mx
import numpy as np

from bytescheduler._compression.params import Compression
from bytescheduler._native import Coding, MXNetCopier
from bytescheduler._session.objects import unlike
from bytescheduler._session.sums import Numbers
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._optimizer.copies import optimizer_from_text, optimizer_to_text
from bytescheduler.mxnet._sessions.tensor_session import TensorSession
from bytescheduler.mxnet._types import Optimizer, Updater

_CURE = "call set_optimizer on every worker, or _barrier() on every worker after it"
_ALIKE = "set gradient compression alike on all workers"
# The numbers that scripts change while they train.
_NUMBERS = ("rescale_grad", "lr", "wd", "momentum")
# Besides rounds 1, 2, 4, ...
_ROUNDS_A_NOTE = 1024
# A float64 holds whole numbers of this many bytes exactly.
_OCTETS = 6


class _State(NamedTuple):
    """A worker's report of itself."""

    changes: int  # how often its updater was changed, here or by taking one over
    changed_at: int  # the rounds before the latest change
    rounds: int  # pushed so far
    text_bytes: int  # the size of the optimizer as text
    history: int  # the checksum of its optimizer's numbers


# A note has changes of the updater, the checksum of its numbers, and the compression: its coding,
# least size, momentum, and the rounds before it.
_ROWS_OF_NOTE = 2 + len(_State._fields) + 3
_NO_CODING = [0] * len(_State._fields)
_OPTIMIZERS = -1.0  # a momentum that is the optimizer's own number


class _Numbers(Tensor):
    """See `Tensor`."""

    one_sender = True  # at most one


class Agreement:
    """Reports at each barrier, and after 1, 2, 4, ... rounds, how often the updater was changed.

    At a barrier, workers that are behind take over the optimizer of one that is not.  Stock servers
    do the same with an optimizer that rank 0 alone sends.  If that is too late, every worker gets
    an error instead of numbers that differ.  Every worker also gets an error in more cases:

    - the optimizers have, or once had, different learning rates, weight decays, momenta or
      rescale_grads in the same round;
    - states were loaded in different rounds, or not by all workers;
    - workers compress gradients otherwise.

    Parameters
    ----------
    session : TensorSession
        Its sums carry the reports.
    copier : MXNetCopier
        The store's.
    key : callable
        Returns for a word an engine key that has no other use.
    """

    def __init__(
        self, session: TensorSession, copier: MXNetCopier, key: Callable[[str], int]
    ) -> None:
        self._session = session
        self._copier = copier
        self._key = key
        self.is_declared = False
        self._changes = 0
        self._changed_at = 0
        self._rounds = 0
        self._taken_over = 0
        self._numbers: List[str] = []  # the optimizer's in the latest round
        self._history = 0  # the checksum of all their values and the rounds of their changes
        self._compression: List[float] = [0] * (_ROWS_OF_NOTE - 2)

    def changed(self) -> None:
        """Note that the updater of this worker is another one."""
        self._changes += 1
        self._changed_at = self._rounds

    def loaded(self) -> None:
        """Note that the updater of this worker has other states from here on."""
        self._history = zlib.crc32(f"{self._rounds} loaded".encode(), self._history)

    def compressed(self, compression: Compression) -> None:
        """Note how this worker compresses gradients from here on.

        If that changes behind the first key, it blocks until all workers call it.  So none of them
        updates with a sum of gradients that differ.  Two bits have every size, so servers find
        workers that differ by their first push.

        Raises
        ------
        MXNetError
            On every worker: workers compress otherwise, or some do not call it.
        """
        coding, mu = compression.coding, 0.0
        if compression.has_momentum:
            mu = _OPTIMIZERS if compression.mu is None else compression.mu
        numbers = _NO_CODING if coding is None else _numbers_of(coding)
        least_bytes = 0 if coding is None else compression.least_bytes
        before, after = self._compression, [*numbers, least_bytes, mu]
        if after == before[:-1]:
            return
        self._compression = [*after, self._rounds]
        meets = self.is_declared and self._session.num_workers > 1
        if meets and not compression.is_two_bit:
            self._note()
            self._session.judge(self._why_late(before))

    def _why_late(self, before: List[float]) -> str:
        """Return what to say if the others still compress as `before`."""
        rank, others = self._session.rank, ("some workers have", "they push")
        if self._session.num_workers == 2:
            others = (f"worker {1 - rank} has", "it pushes")
        return (
            f"what worker {rank} pushes is {_describe(np.array(self._compression))}, and "
            f"{others[0]} not set that, so what {others[1]} is {_describe(np.array(before))}: "
            f"{_ALIKE}"
        )

    def undeclared(self) -> List[Tensor]:
        """Return what must be broadcast before anything else is called."""
        n = self._session.num_workers
        return [] if self.is_declared or n == 1 else self.tensors()

    def tensors(self) -> List[Tensor]:
        """Return the tensors to broadcast once, and again if the back end has changed."""
        n = self._session.num_workers
        sizes = {"notes": _ROWS_OF_NOTE * n, "barriers": n * len(_State._fields)}
        return [self._tensor(self._key(name), size) for name, size in sizes.items()]

    def _tensor(self, key: int, elements: int) -> Tensor:
        nothing = mx.nd.zeros((elements,), dtype="float64")
        tensor = _Numbers("optimizers", key, nothing, self._copier)
        tensor.take(nothing)
        return tensor

    # -- between barriers ----------------------------------------------------------------------

    def pushed(self, rounds: int, updater: Updater, *, rescales: bool = False) -> None:
        """Count rounds that `updater` ends; never blocks, but on stock servers.

        With `rescales` the workers may have other numbers in rescale_grad.

        There with compression a note first waits for the one before it, and so for the slowest
        worker, and with NaiveEngine for itself.
        """
        if updater is not None:
            self._look_at(updater, _NUMBERS[1:] if rescales else _NUMBERS)
        before, self._rounds = self._rounds, self._rounds + rounds
        # How many powers of 2 were reached.
        notes = self._rounds.bit_length() - before.bit_length()
        for _ in range(notes + self._rounds // _ROUNDS_A_NOTE - before // _ROUNDS_A_NOTE):
            self._note()

    def _look_at(self, updater: Updater, names: Tuple[str, ...] = _NUMBERS) -> None:
        optimizer = getattr(updater, "optimizer", None)
        numbers = [_exactly(getattr(optimizer, name, None)) for name in names]
        if numbers == self._numbers:
            return
        self._numbers = numbers
        since = f"{self._rounds} {type(optimizer).__name__} {numbers}"
        self._history = zlib.crc32(since.encode(), self._history)

    def require(self) -> None:
        """Fail the job if another worker's updater was changed less often.

        Blocks until all workers call it; one that does not is found at its next note.
        """
        if self._session.num_workers > 1:
            self._note()
            self._session.judge()

    def _note(self) -> None:
        if self._session.num_workers > 1:
            contribution = np.zeros((_ROWS_OF_NOTE, self._session.num_workers))
            state = [self._changes, self._history, *self._compression]
            contribution[:, self._session.rank] = state
            self._session.watch(self._key("notes"), contribution, self._what_differs)

    @staticmethod
    def _what_differs(notes: Numbers) -> Optional[str]:
        changes, histories = notes[:2]
        compressions = [_describe(column) for column in notes[2:].T]
        rank = unlike(compressions)
        if rank is not None:
            return _unlike_codings(compressions[0], rank, compressions[rank])
        if changes.max() == changes.min():
            return _what_differed(histories)
        return (
            f"worker {changes.argmax()} has set an optimizer that worker {changes.argmin()} does "
            f"not have: {_CURE}"
        )

    def share(self, number: float) -> List[float]:
        """Return every worker's `number`, by rank; blocks until all workers call it."""
        n = self._session.num_workers
        if n == 1:
            return [number]
        contribution = np.zeros((_ROWS_OF_NOTE, n))
        contribution[0, self._session.rank] = number
        return [float(value) for value in self._session.sum(self._key("notes"), contribution)[0]]

    def same_coding(self, coding: Coding) -> None:
        """Raise MXNetError on every worker unless what all push is coded alike.

        Blocks until all workers call it.
        """
        n = self._session.num_workers
        if n == 1:
            return
        contribution = np.zeros((n, len(_State._fields)))
        contribution[self._session.rank] = _numbers_of(coding)
        codings = [
            _coding_from(row) for row in self._session.sum(self._key("barriers"), contribution)
        ]
        rank = unlike(codings)
        if rank is not None:
            raise mx.base.MXNetError(_unlike_codings(codings[0], rank, codings[rank]))

    # -- at a barrier --------------------------------------------------------------------------

    def meet(self, updater: Updater) -> Optional[Optimizer]:
        """Return the optimizer to take over, or None; blocks until all workers call it.

        Raises
        ------
        MXNetError
            On every worker: the workers' updaters differ, and cannot be made alike; or their
            numbers did.
        """
        if self._session.num_workers == 1:
            return None
        if not self.is_declared:
            self._session.broadcast(self.undeclared())
            self.is_declared = True
        text = _text_of(updater)
        states = self._exchange(len(text))
        most = max(state.changes for state in states)
        if all(state.changes == most for state in states):
            differed = _what_differed(np.array([state.history for state in states]))
            if differed is not None:
                raise mx.base.MXNetError(differed)
            return None
        giver = [state.changes for state in states].index(most)
        self._check_in_time(giver, states)
        optimizer_text = self._give(giver, text, states[giver].text_bytes)
        if not optimizer_text.startswith("["):
            raise mx.base.MXNetError(f"worker {giver}: {optimizer_text}")
        behind = states[self._session.rank].changes < most
        self._changes, self._changed_at = most, self._rounds
        return optimizer_from_text(optimizer_text) if behind else None

    def _exchange(self, text_bytes: int) -> List[_State]:
        contribution = np.zeros((self._session.num_workers, len(_State._fields)))
        state = _State(self._changes, self._changed_at, self._rounds, text_bytes, self._history)
        contribution[self._session.rank] = state
        return [
            _State(*map(int, row)) for row in self._session.sum(self._key("barriers"), contribution)
        ]

    @staticmethod
    def _check_in_time(giver: int, states: List[_State]) -> None:
        for rank, state in enumerate(states):
            if state.rounds != states[giver].changed_at:
                raise mx.base.MXNetError(
                    f"worker {giver} has set an optimizer in another round than that of worker "
                    f"{rank}: {_CURE}, before the next push"
                )

    def _give(self, giver: int, text: bytes, size: int) -> str:
        """Return the text of worker `giver`: a number for each byte, for stock servers."""
        self._taken_over += 1
        key = self._key(f"copy {self._taken_over}")
        self._session.broadcast([self._tensor(key, size)])
        contribution = np.zeros(size)
        if self._session.rank == giver:
            contribution[:] = np.frombuffer(text, np.uint8)
        return bytes(int(number) for number in self._session.sum(key, contribution)).decode()


def _numbers_of(coding: Coding) -> List[int]:
    """Return a coding as whole numbers, as many as a `_State` has, which a float64 holds."""
    form = bytes(coding)
    octets = bytes([len(form)]) + form.ljust(_OCTETS * len(_State._fields) - 1, b"\0")
    chunks = (octets[at : at + _OCTETS] for at in range(0, len(octets), _OCTETS))
    return [int.from_bytes(chunk, "little") for chunk in chunks]


def _coding_from(numbers: Numbers) -> Coding:
    octets = b"".join(int(number).to_bytes(_OCTETS, "little") for number in numbers)
    return Coding.of(octets[1 : 1 + octets[0]])


def _describe(compression: Numbers) -> str:
    """Return what a worker's part of a note says of its compression."""
    coding = compression[: len(_State._fields)]
    from_bytes, mu, rounds = compression[len(_State._fields) :]
    text = str(_coding_from(coding)) if coding.any() else "not compressed"
    if from_bytes:
        text += f" from {int(from_bytes)} bytes on (BYTESCHEDULER_MIN_COMPRESS)"
    if mu:
        number = "the optimizer's momentum" if mu == _OPTIMIZERS else f"momentum {float(mu)!r}"
        text += f", with {number}"
    return f"{text}, from push {int(rounds) + 1} on" if rounds else text


def _unlike_codings(coding_of_0: object, rank: int, coding: object) -> str:
    return f"what worker 0 pushes is {coding_of_0}, what worker {rank} pushes is {coding}: {_ALIKE}"


def _exactly(number: object) -> str:
    """Return a text that is the same for equal numbers of any type; of arrays nothing is read."""
    if isinstance(number, (int, float, np.number)):
        return repr(float(number))
    return type(number).__name__


def _what_differed(histories: Numbers) -> Optional[str]:
    if histories.max() == histories.min():
        return None
    return (
        f"the optimizers of worker {histories.argmax()} and of worker {histories.argmin()} differ, "
        "or did in some round, in learning rate, weight decay, momentum or rescale_grad (which a "
        "Trainer makes of the batch size: give step() the same number), or states were loaded on "
        "one only, and so their weights do: every worker updates its own, so give all of them the "
        "same numbers, and let all of them load states, before the same push"
    )


def _text_of(updater: Updater) -> bytes:
    """Return the optimizer of `updater`, or why it cannot be handed on."""
    if updater is None:
        return b""
    optimizer = getattr(updater, "optimizer", None)
    if optimizer is None:
        return f"its updater is no optimizer: {_CURE.split(',')[0]}".encode()
    try:
        return optimizer_to_text(optimizer).encode()
    except mx.base.MXNetError as error:
        return str(error).encode()
