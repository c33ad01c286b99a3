"""The process's link to the job: worker and plug-in from the first call to the last."""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import weakref
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ClassVar,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    NoReturn,
    Optional,
    Protocol,
    Set,
    Tuple,
)

import mxnet as mx
import numpy as np
from mxnet.base import _LIB

from bytescheduler._metrics.serving import serve
from bytescheduler._native import MXNetCopier, MXNetPlugin, MXNetRounds, Worker, fail_exit
from bytescheduler._process.say import say
from bytescheduler._tuning.starting import start_tuner
from bytescheduler.errors import ConfigError, Error
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._errors import as_mxnet_errors, with_names
from bytescheduler.mxnet._types import Arrays, Key, Keys, Store

if TYPE_CHECKING:
    from bytescheduler._metrics.exporter import Exporter
    from bytescheduler._tuning.tuner import Tuner

Usual = Dict[Key, MXNetRounds]
# How long the others may wait to hear of an exception that nobody caught.
_LAST_WORDS_S = 0.5
# Behind all tensors, whose order and lost time it has no part in.
_NO_HURRY = -(2**31)

# Float64 numbers that the workers add up, outside MXNet's engine.
Numbers = Any  # np.ndarray
# Says from a sum why the job must fail, if so.
Judge = Callable[[Numbers], Optional[str]]


class Waits(Protocol):
    """A sum under way."""

    def over(self) -> bool:
        """Return whether it is surely over; never blocks."""

    def wait(self) -> None:
        """Return when it is over, or raise `Error`."""


class _Watched(NamedTuple):
    """A sum under way, and who judges it."""

    pending: Waits
    total: Numbers
    judge: Judge


def let_go(inner: Store) -> None:
    """Let the stock store end without the others, who may not come any more."""
    _LIB.MXKVStoreSetBarrierBeforeExit(inner.handle, ctypes.c_int(0))


def _clamped(priority: int) -> int:
    if -(2**31) <= priority < 2**31:
        return priority
    return 2**31 - 1 if priority > 0 else -(2**31)


def _forget(inner: Store) -> None:
    # In a forked child MXNet's destructor would wait for threads and barriers that are not there.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inner))


def _mark_at_fork(link: "weakref.ref[Link]") -> None:
    def in_child() -> None:
        alive = link()
        if alive is not None:
            alive._forget_all()

    os.register_at_fork(after_in_child=in_child)


class Link:
    """Worker and plug-in, with their errors and their end.

    Ends by itself when the interpreter exits, before MXNet waits for its engine.  In a forked child
    every call raises and nothing acts at exit.

    Parameters
    ----------
    worker : Worker
        Owned from now on.
    plugin : MXNetPlugin
        Owned from now on.
    inner : KVStore, optional
        The stock store beside the worker; its destructor waits for nobody once the job failed.
    job : str
        Where the scheduler node listens; empty if this is no job that one can leave.
    """

    compresses = True  # whether pushes can travel in two bits an element, as they are
    counts_rows = True  # whether beside those others can travel
    compares_thresholds = True  # whether servers find workers that compress with others
    # A process has one place in the job, whatever number of stores it has.
    _of_process: "ClassVar[Optional[weakref.ref[Link]]]" = None
    # Addresses of the jobs that this process has left.
    _left: ClassVar[Set[str]] = set()

    def __init__(
        self, worker: Worker, plugin: MXNetPlugin, inner: Optional[Store] = None, job: str = ""
    ) -> None:
        self._worker = worker
        self._plugin = plugin
        self._inner = inner
        self._job = job
        self._names: Dict[int, object] = {}
        self._watched: List[_Watched] = []
        self._looking = threading.Lock()  # who has it takes from what is watched
        self._closed = False
        self._forked = False
        self._reported = False
        self._users = 1
        self._num_stores = 0
        self._exporter: Optional[Exporter] = None
        self._tuner: Optional[Tuner] = None
        self._num_tensors = 0
        self._num_bytes = 0
        atexit.register(self._at_exit)
        _mark_at_fork(weakref.ref(self))

    @classmethod
    def share(cls) -> "Optional[Link]":
        """Return the link that was offered, for one more store, unless it has ended."""
        link = None if cls._of_process is None else cls._of_process()
        if link is None or link._closed or link._forked:
            return None
        link._users += 1
        return link

    @classmethod
    def check_not_left(cls, job: str) -> None:
        """Raise MXNetError if this process has given up its place in `job`."""
        if job in cls._left:
            raise mx.base.MXNetError(
                f"this process has left the job of {job}: its last store was closed, by close() or "
                "at the end of a with block; make the next store before that"
            )

    def offer(self) -> None:
        """Let later stores of this process share this link."""
        Link._of_process = weakref.ref(self)

    def tune(self) -> None:
        """Find better partitions and credit from now on, if a setting says so; rank 0 does it.

        A second call does nothing.
        """
        if self.rank == 0 and self._tuner is None:
            self._tuner = start_tuner(self._worker, lambda: (self._num_tensors, self._num_bytes))

    def show_metrics(self) -> None:
        """Show metrics from now on, if a setting asks for them; call it once."""
        self._exporter = serve(lambda: self._worker.measure(), "worker", self._worker.rank)

    @property
    def rank(self) -> int:
        """Position among the workers, from 0."""
        return self._worker.rank

    @property
    def num_workers(self) -> int:
        """How many workers the job has."""
        return self._worker.num_workers

    @property
    def num_servers(self) -> int:
        """How many servers the job has."""
        return self._worker.num_servers

    def count_store(self) -> int:
        """Return how many stores were opened on it before; the same on every worker."""
        self._num_stores += 1
        return self._num_stores - 1

    def name(self, engine_key: int, key: object) -> None:
        """Let errors say `key` where the engine says `engine_key`."""
        if key != engine_key:  # else the engine's number is what users read
            self._names[engine_key] = key

    def show(self, engine_key: int, name: str) -> None:
        """Let timelines say `name` where the engine says `engine_key`."""
        self._worker.name_key(engine_key, name)

    def check(self) -> None:
        """Raise MXNetError if the store is of no use any more."""
        if self._forked:
            raise mx.base.MXNetError(
                "the store was created before fork; a forked process cannot use it, "
                "create one of its own"
            )
        if self._closed:
            raise mx.base.MXNetError("the store was closed")
        if self._watched:
            self._look(wait=False)
        failure = self._worker.status()
        if failure is not None:
            self._raise(failure)

    def broadcast_whole(self, tensors: "List[Tuple[Tensor, str, bool]]") -> None:
        """Do as `broadcast` for asynchronous keys that servers may update by their Python.

        With each goes what that is told about the key, and whether nobody else can update it.
        """
        items = [
            (t.engine_key, t.code, t.address(), t.size_bytes, about, hosted)
            for t, about, hosted in tensors
        ]
        with as_mxnet_errors(self._names):
            self._worker.broadcast_whole(items, owner=tensors)

    def broadcast(self, tensors: Iterable[Tensor], *, asynchronous: bool = False) -> None:
        """Declare keys; rank 0's `recv` arrays become everyone's.  Blocks."""
        tensors = list(tensors)
        items = [(t.engine_key, t.code, t.address(), t.size_bytes) for t in tensors]
        with as_mxnet_errors(self._names):
            self._worker.broadcast(items, owner=tensors, asynchronous=asynchronous)
        self._num_tensors += len(tensors)
        self._num_bytes += sum(tensor.size_bytes for tensor in tensors)

    def push_pull(self, tensor: Tensor, priority: int, threshold: float = 0) -> None:
        """Register the next round of `tensor`: from its `send` to its `recv`.

        With a `threshold`, in two bits an element.
        """
        with as_mxnet_errors(self._names):
            self._plugin.push_pull(tensor.rounds, _clamped(priority), threshold=threshold)

    def exchange(
        self,
        copier: MXNetCopier,
        usual: Usual,
        keys: Keys,
        values: Arrays,
        outs: Arrays,
        priority: int,
        copies_out: bool = True,
    ) -> bool:
        """Register a push-pull of one fitting array for each of the `usual` keys.

        Without `copies_out` the sums are not copied to `outs`, which fit all the same.
        Returns False, and has registered nothing, for any other arguments, good or bad.
        """
        try:
            return self._plugin.exchange(
                copier, usual, keys, values, outs, _clamped(priority), copies_out
            )
        except Error:
            with as_mxnet_errors(self._names):
                raise

    def _start(self, key: int, numbers: Numbers, priority: int) -> Tuple[Waits, Numbers]:
        total = np.zeros_like(numbers)
        addresses = (numbers.ctypes.data, total.ctypes.data, total.nbytes)
        owner = (numbers, total)
        pending = self._worker.start_push_pull(key, *addresses, owner=owner, priority=priority)
        return pending, total

    def sum(self, key: int, numbers: Numbers) -> Numbers:
        """Return the sum of every worker's `numbers`, float64, of a key of this size.  Blocks.

        In each place all but one worker's are 0.
        """
        with as_mxnet_errors(self._names):
            pending, total = self._start(key, numbers, 0)
            pending.wait()
        return total

    def watch(self, key: int, numbers: Numbers, judge: Judge) -> None:
        """Let the job fail if `judge` says why, once it gets every worker's `numbers` added up."""
        with as_mxnet_errors(self._names):
            self._watched.append(_Watched(*self._start(key, numbers, _NO_HURRY), judge))

    def _look(self, *, wait: bool) -> None:
        """Judge the sums that are there; with `wait`, all.  From any thread."""
        if not self._looking.acquire(blocking=wait):
            return  # another thread does
        try:
            with contextlib.suppress(Error):  # what failed the worker is said elsewhere
                while self._watched and (wait or self._watched[0].pending.over()):
                    watched = self._watched.pop(0)
                    watched.pending.wait()
                    why = watched.judge(watched.total)
                    if why is not None:
                        self._worker.fail(why)
        finally:
            self._looking.release()

    def judge(self) -> None:
        """Judge all that is watched, and raise if the job failed by it.  Blocks."""
        self._look(wait=True)
        self.check()

    def update(
        self,
        tensor: Tensor,
        priority: int,
        *,
        pushes: bool,
        pulls: bool,
        rates: Optional[Tuple[float, float, float]] = None,
        threshold: float = 0,
    ) -> None:
        """Register one use of an asynchronous key: its `send` is pushed, its `recv` pulled.

        With a `threshold`, what is pushed travels in two bits an element.
        """
        with as_mxnet_errors(self._names):
            self._plugin.update(
                tensor.rounds,
                _clamped(priority),
                pushes=pushes,
                pulls=pulls,
                rates=rates,
                threshold=threshold,
            )

    def set_optimizer(self, text: str, pickle: bytes = b"") -> None:
        """Tell every server how to update asynchronous keys.  Blocks."""
        try:
            self._worker.set_optimizer(text, pickle)
        except Error as error:  # also what the servers do not accept: no setting is wrong
            raise mx.base.MXNetError(str(error)) from error

    def compress(
        self, params: Mapping[str, object], threshold: float, tensors: List[Tensor]
    ) -> None:
        """Prepare for pushes with `threshold`, which `params` say, of `tensors` and later ones."""

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        """Change partitions and credit of all workers while they train; on rank 0.

        Nothing else does from then on.
        """
        for name, number in (("partition_bytes", partition_bytes), ("credit_bytes", credit_bytes)):
            if not isinstance(number, int):
                raise TypeError(f"{name}: want a number of bytes, got {number!r}")
            if not 0 < number < 2**64:  # what the engine can be told
                raise ConfigError(
                    f"{name} {number}: want 4 KiB to 1 GiB, and 1 byte to 64 GiB of credit", 1
                )
        if self._tuner is not None and self._tuner.running:
            self._tuner.close("retune was called")
        with as_mxnet_errors(self._names):
            self._worker.retune(partition_bytes, credit_bytes)

    def barrier(self) -> None:
        """Wait until every worker called it."""
        with as_mxnet_errors(self._names):
            self._worker.barrier()

    def close(self, drain_s: Optional[float] = None) -> None:
        """Wait up to `drain_s` seconds for pending rounds, fail what is left, leave the job.

        Only the last store's call does so; earlier ones leave pending rounds to end by themselves.
        Blocks; None waits as long as the engine's own deadlines allow.  A second call does nothing.

        Raises
        ------
        MXNetError
            The job failed and no call has said so yet.
        """
        if self._users > 1 and not self._forked:
            self._users -= 1
            return
        self._leave(drain_s)

    def drop(self) -> None:
        """Forget one store that nobody uses any more; never blocks.

        Unlike `close` this keeps the place in the job for stores to come, until the process ends.
        """
        self._users -= 1

    def _leave(self, drain_s: Optional[float]) -> None:
        if self._closed or self._forked:
            return
        self._closed = True
        Link._left.update({self._job} - {""})
        atexit.unregister(self._at_exit)
        try:
            if self._worker.status() is None:
                self._drain(drain_s)
                self._look(wait=drain_s is None)
        finally:
            failure = self._end()
        if failure is not None and not self._reported:
            self._raise(failure)

    def _drain(self, drain_s: Optional[float]) -> None:
        """Let pending rounds end, or fail them."""
        why = "it was interrupted with operations unfinished"
        done = False
        try:
            done = self._plugin.drain(drain_s)
            why = f"it ended with {self._plugin.pending()} operations unfinished"
        finally:
            if not done:
                self._worker.fail(why)

    def _end(self) -> Optional[Error]:
        """Take everything apart; return why the worker failed, if it did."""
        self._plugin.drain()  # soon over: nothing is pending, or the worker has failed
        if self._tuner is not None:
            self._tuner.close()
        failure = self._worker.status()
        if failure is not None:
            self._let_go()
        self._plugin.close()
        try:
            if self._exporter is not None:
                self._exporter.close()
        finally:
            self._worker.close()
        return failure

    def _let_go(self) -> None:
        """Take care that nothing waits for, or dies of, a job that failed."""
        # Else MXNet raises what nobody waited for in a destructor, and aborts.
        with contextlib.suppress(mx.base.MXNetError):
            mx.nd.waitall()
        if self._inner is not None:
            let_go(self._inner)

    def _at_exit(self) -> None:
        try:
            # The interpreter keeps an exception that nobody caught here.  The others must not wait
            # for what this worker will never send, nor this one for them.
            interactive = hasattr(sys, "ps1")  # there people go on after an exception
            uncaught = None if interactive else getattr(sys, "last_value", None)
            if isinstance(uncaught, mx.base.MXNetError):
                # It may come from an operation whose proxies end a moment later, and say which.
                self._plugin.drain(_LAST_WORDS_S)
            if uncaught is not None and self._worker.status() is None:
                self._worker.fail(f"uncaught {type(uncaught).__name__}: {uncaught}")
            self._leave(None)
        except mx.base.MXNetError as error:
            say(f"bytescheduler: {error}")
            fail_exit()  # nobody can catch it any more

    def _forget_all(self) -> None:
        self._forked = True
        if self._exporter is not None:
            self._exporter.forget()
        atexit.unregister(self._at_exit)
        if self._inner is not None:
            _forget(self._inner)

    def _raise(self, failure: Error) -> NoReturn:
        self._reported = True
        raise mx.base.MXNetError(with_names(str(failure), self._names)) from failure
