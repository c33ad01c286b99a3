"""A worker in a job, from the first call to the last: its failure, its end, what it shows."""

import contextlib
import os
import signal
import sys
import weakref
from typing import (
    TYPE_CHECKING,
    Callable,
    Iterable,
    Iterator,
    List,
    NoReturn,
    Optional,
    Tuple,
    Type,
)

from bytescheduler._metrics.serving import serve
from bytescheduler._native import Coding, Worker, fail_exit
from bytescheduler._process.ending import (
    BadEnd,
    at_end,
    bad_end,
    early_end,
    is_child,
    print_early,
    text_of,
    uncaught,
    watch_exits,
)
from bytescheduler._process.say import say
from bytescheduler._session.direct import by_workers
from bytescheduler._session.framework import Framework, Operations
from bytescheduler._session.names import KeyNames
from bytescheduler._session.sums import Judge, Numbers, Sum, WatchedSums
from bytescheduler._session.view import View
from bytescheduler._settings import Settings
from bytescheduler._started import ready
from bytescheduler._started.consequences import Consequences, as_raised
from bytescheduler._tuning.starting import start_tuner
from bytescheduler.errors import ConfigError, Error

if TYPE_CHECKING:
    from bytescheduler._metrics.exporter import Exporter
    from bytescheduler._tuning.tuner import Tuner

__all__ = ["Item", "Session", "clamped"]

# Key, dtype code, address and bytes of a tensor.
Item = Tuple[int, int, int, int]
# How long the others may wait to hear of an exception that the script did not catch.
_LAST_WORDS_S = 0.5
# How long pending rounds may take to end when an exception leads through `close`.
_EARLY_S = 10.0
# Behind all tensors, whose order and lost time it has no part in.
_NO_HURRY = -(2**31)


def clamped(priority: int) -> int:
    """Return the priority nearest to `priority` that the engine knows."""
    if -(2**31) <= priority < 2**31:  # nearly always; each call comes here
        return priority
    return 2**31 - 1 if priority > 0 else -(2**31)


def _nothing() -> None:
    pass


def _mark_at_fork(session: "weakref.ref[Session]") -> None:
    def in_child() -> None:
        alive = session()
        if alive is not None:
            alive._forget_all()

    os.register_at_fork(after_in_child=in_child)


class Session:
    """A worker and the framework's operations, with their errors and their end.

    It ends by itself when the interpreter exits, before the framework waits for its engine.  In a
    forked child every call raises and nothing acts at exit.

    Parameters
    ----------
    worker : Worker
        Owned from now on.
    operations : Operations
        Owned from now on.
    framework : Framework
        The framework whose tensors travel.

    Attributes
    ----------
    framework_name : str
        The name of the framework in timelines and profiles; empty: it is not told.
    """

    framework_name = ""

    def __init__(self, worker: Worker, operations: Operations, framework: Framework) -> None:
        self._worker = worker
        self._operations = operations
        self._framework = framework
        self._names = KeyNames()
        self._watched = WatchedSums(worker.fail)
        self._closed = False
        self._forked = False
        self._reported = False
        self._owners = 1
        self._handled_at_start = sys.exc_info()[1]  # a whole script may run in an ``except``
        self._num_key_spaces = 0
        self._unneeded: List[Tuple[List[int], Callable[[], bool]]] = []  # keys to give back
        self._on_leaving: Callable[[], None] = lambda: None
        self._exporter: Optional[Exporter] = None
        self._tuner: Optional[Tuner] = None
        self._num_tensors = 0
        self._num_bytes = 0
        # True in a direct job: errors name workers alone, and the end waits for other processes.
        self.hosts_server = False
        self._end_unasked: Callable[[], None] = at_end(self._at_exit)
        watch_exits()
        self._consequences = Consequences(self.rank, framework.error)
        self._consequences.install()
        self._place = worker.place
        if self._place:
            ready.tell_place(self._place)
        if self.framework_name:
            worker.name_framework(self.framework_name)
        _mark_at_fork(weakref.ref(self))

    # -- owners, and the place in the job ------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True as long as this process can use it."""
        return not self._closed and not self._forked

    def share(self) -> None:
        """Count one more owner; each calls `close` or `drop` once."""
        self._owners += 1

    def on_leaving(self, tell: Callable[[], None]) -> None:
        """Let `tell` be called when the last owner closes this."""
        self._on_leaving = tell

    @property
    def error(self) -> Type[Exception]:
        """The exception that users of the framework catch."""
        return self._framework.error

    @property
    def view(self) -> View:
        """The job as this worker sees it now."""
        return View(*self._worker.view())

    @property
    def rank(self) -> int:
        """Position among the workers, from 0."""
        return self.view.rank

    @property
    def num_workers(self) -> int:
        """How many workers the job has."""
        return self.view.num_workers

    @property
    def num_servers(self) -> int:
        """How many servers the job has."""
        return self.view.num_servers

    # -- keys ----------------------------------------------------------------------------------

    def new_key_space(self) -> int:
        """Return how many owners have asked before; the same on every worker."""
        self._num_key_spaces += 1
        return self._num_key_spaces - 1

    def name(self, engine_key: int, key: object) -> None:
        """Let errors say `key` where the engine says `engine_key`."""
        self._names.add(engine_key, key)

    def show(self, engine_key: int, name: str) -> None:
        """Let timelines say `name` where the engine says `engine_key`."""
        self._worker.name_key(engine_key, name)

    def give_back(self, keys: Iterable[int], is_idle: Callable[[], bool]) -> None:
        """Give keys back that this worker never uses again.  Never blocks; any thread.

        Servers forget a key once all workers have given it back.

        Parameters
        ----------
        keys : iterable of int
            Declared; synchronous keys, as others stay.
        is_idle : callable
            Returns True once every round of these keys has reached the engine.
        """
        self._unneeded.append((list(keys), is_idle))
        self._give_back_idle()

    def is_idle(self) -> bool:
        """Return True if every operation of the framework has ended."""
        return not self._operations.pending()

    def let_rest(self, key: int) -> None:
        """Give a key back for now: the next round takes it again, on each worker at any time."""
        if self.is_open:
            with contextlib.suppress(Error):  # the worker's failure has its own message
                self._worker.give_back([key], for_good=False)

    def _give_back_idle(self) -> None:
        for _ in range(len(self._unneeded)):
            try:
                keys, is_idle = self._unneeded.pop(0)
            except IndexError:  # the collector, or another thread, was here meanwhile
                return
            if not self.is_open:
                return
            if not is_idle():
                self._unneeded.append((keys, is_idle))
                continue
            with contextlib.suppress(Error):  # the worker's failure has its own message
                self._worker.give_back(keys, for_good=True)

    def declare(
        self,
        items: Iterable[Item],
        *,
        owner: object,
        asynchronous: bool = False,
        coding: Optional[Coding] = None,
    ) -> None:
        """Declare keys; every worker gets rank 0's bytes.  Blocks.

        `owner` keeps the memory of the `items` alive.  `coding` is that of later rounds.
        """
        items = list(items)
        self._give_back_idle()  # first, so that servers have room
        with self.translated():
            self._worker.broadcast(items, owner=owner, asynchronous=asynchronous, coding=coding)
        self._num_tensors += len(items)
        self._num_bytes += sum(size for _, _, _, size in items)

    # -- sums of numbers -----------------------------------------------------------------------

    def _start(self, key: int, numbers: Numbers, priority: int) -> Tuple[Sum, Numbers]:
        """Begin to add up `numbers`; return the sum under way and where it goes."""
        import numpy as np  # a framework brings it; not everything that imports this needs it

        total = np.zeros_like(numbers)
        addresses = (numbers.ctypes.data, total.ctypes.data, total.nbytes)
        owner = (numbers, total)
        pending = self._worker.start_push_pull(key, *addresses, owner=owner, priority=priority)
        return pending, total

    def sum(self, key: int, numbers: Numbers) -> Numbers:
        """Return the sum of every worker's `numbers`, float64, of a key of this size.  Blocks.

        In each place all but one worker's are 0.
        """
        with self.translated():
            pending, total = self._start(key, numbers, 0)
            pending.wait()
        return total

    def watch(self, key: int, numbers: Numbers, judge: Judge) -> None:
        """Let the job fail if `judge` says why, once it gets every worker's `numbers` added up."""
        with self.translated():
            self._watched.add(*self._start(key, numbers, _NO_HURRY), judge)

    def judge(self, late: str = "") -> None:
        """Judge all that is watched, and raise if the job failed by it.  Blocks.

        With `late`, that is said after BYTESCHEDULER_TIMEOUT.  The job fails for that reason after
        half of BYTESCHEDULER_STRAGGLER_TIMEOUT, before servers give up what others wait for.
        """
        if not late:
            self._watched.look(wait=True)
        elif not self._is_over_within(Settings.read(), late):
            self._worker.fail(late)
        self.check()

    def _is_over_within(self, settings: Settings, late: str) -> bool:
        first_s = min(settings.timeout_s, settings.straggler_s / 2)
        if self._watched.wait_for(first_s):
            return True
        say(f"bytescheduler: still waiting: {late}")
        return self._watched.wait_for(settings.straggler_s / 2 - first_s)

    # -- the job -------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait until every worker called it."""
        with self.translated():
            self._worker.barrier()

    def show_metrics(self) -> None:
        """Show metrics from now on, if a setting asks for them; call it once."""
        self._exporter = serve(lambda: self._worker.measure(), "worker", self._worker.rank)

    def tune(self) -> None:
        """Find better partitions and credit from now on, if a setting says so; rank 0 does it.

        A second call does nothing.
        """
        if self.rank == 0 and self._tuner is None:
            self._tuner = start_tuner(self._worker, lambda: (self._num_tensors, self._num_bytes))

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        """Change partitions and credit of all workers while they train; on rank 0.

        Nothing else does from then on.
        """
        for name, number in (("partition_bytes", partition_bytes), ("credit_bytes", credit_bytes)):
            if not isinstance(number, int):
                raise TypeError(f"{name}: want a number of bytes, got {number!r}")
            if not 0 < number < 2**64:  # the engine takes 64 bits
                raise ConfigError(
                    f"{name} {number}: want 4 KiB to 1 GiB, and 1 byte to 64 GiB of credit", 1
                )
        if self._tuner is not None and self._tuner.running:
            self._tuner.close("retune was called")
        with self.translated():
            self._worker.retune(partition_bytes, credit_bytes)

    # -- failure -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the engine's errors into the framework's; a wrong setting stays a ConfigError."""
        try:
            yield
        except ConfigError:
            raise
        except Error as error:
            raise self._raised(error) from error

    def _raised(self, error: Error) -> Exception:
        """Return the exception for users; a ConfigError of another worker is one here too."""
        peer_error = as_raised(error)
        shown = by_workers(error) if self.hosts_server else error
        text = self._names.in_text(str(shown))
        if isinstance(peer_error, ConfigError):
            return self._framework.config_error(text, error.code)
        return self._framework.error(text)

    def check(self) -> None:
        """Raise the framework's error if this is of no use any more."""
        if self._forked:
            raise self._framework.error(
                f"the {self._framework.owner} was created before fork; a forked process cannot use "
                "it, create one of its own"
            )
        if self._closed:
            raise self._framework.error(f"the {self._framework.owner} was closed")
        if self._watched:
            self._watched.look(wait=False)
        failure = self._worker.status()
        if failure is not None:
            self._raise(failure)

    def _raise(self, failure: Error) -> NoReturn:
        self._reported = True
        raise self._raised(failure) from failure

    # -- the end -------------------------------------------------------------------------------

    def close(self, drain_s: Optional[float] = None) -> None:
        """Wait up to `drain_s` seconds for pending rounds, fail what is left, leave the job.

        Only the last owner's call does so; earlier ones leave pending rounds to end by themselves.
        While a ConfigError is handled, as in a ``finally``, the job fails with its reason instead.
        Another exception that is handled goes with the goodbye: only calls that miss this worker
        fail with it.  Then pending rounds get ten seconds, and errors of the job are lines.
        Blocks; None waits as long as the engine's own deadlines allow.  A second call does nothing.

        Raises
        ------
        framework.error
            The job failed and no call has said so yet.
        """
        if self._owners > 1 and not self._forked:
            self._owners -= 1
            return
        self._fail_if_refused()
        early = self.early_end()
        if early is None or not self.is_open:
            self._leave(drain_s)
        else:
            self._leave_early(early.reason, _EARLY_S if drain_s is None else min(drain_s, _EARLY_S))

    def early_end(self) -> Optional[BadEnd]:
        """Return why the script leaves early, while it does; see `ending.early_end`."""
        return early_end(self._handled_at_start)

    def is_settled(self) -> bool:
        """Return whether all pending rounds end within ten seconds.  Blocks."""
        return self._operations.drain(_EARLY_S)

    def drop(self) -> None:
        """Forget one owner that is gone; never blocks.

        Unlike `close` this keeps the place in the job for owners to come, until the process ends.
        """
        self._owners -= 1

    def _fail_if_refused(self) -> None:
        """Fail the job if the error is on its way that refused a call of this worker alone."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConfigError) or error is self._handled_at_start:
            return
        if self.is_open and self._worker.status() is None:
            self._reported = True  # the caller has the error itself
            self._worker.fail(text_of(error))

    def _leave_early(self, reason: str, drain_s: float) -> None:
        """Leave while an exception is on its way, which no error of the job may replace."""
        handled = sys.exc_info()[1]
        by_this_worker = f"worker {self.rank} gave up: "
        if self._worker.status() is None:
            self._worker.explain(reason)
        try:
            self._leave(drain_s, reason)
        except (self._framework.error, Error) as error:
            if str(error) == str(handled):
                return
            fail_exit()  # the script may end well, and does not see this error
            if by_this_worker not in str(error):
                say(f"bytescheduler: {error}")

    def _leave(self, drain_s: Optional[float], early: str = "") -> None:
        if not self.is_open:
            return
        self._closed = True
        self._on_leaving()
        self._stay_silent_at_end()
        try:
            if self._worker.status() is None:
                self._drain(drain_s, early)
                self._watched.look(wait=drain_s is None)
        finally:
            failure = self._end(early)
        if failure is not None and not self._reported:
            self._raise(failure)

    def _drain(self, drain_s: Optional[float], early: str = "") -> None:
        """Let pending rounds end, or fail them, by the reason of an `early` end."""
        reason = early or "it was interrupted with operations unfinished"
        done = False
        try:
            done = self._operations.drain(drain_s)
            reason = early or f"it ended with {self._operations.pending()} operations unfinished"
        finally:
            if not done:
                self._worker.fail(reason)

    def _end(self, early: str = "") -> Optional[Error]:
        """Take everything apart; return why the worker failed, if it did."""
        self._operations.drain()  # soon over: nothing is pending, or the worker has failed
        if self._tuner is not None:
            self._tuner.close()
        failure = self._worker.status()
        if failure is not None:
            self._framework.abandon()
        self._operations.close()
        try:
            if self._exporter is not None:
                self._exporter.close()
        finally:
            try:
                with self.translated():
                    self._worker.close()
            finally:
                if self._place:
                    has_reason = failure is not None or bool(early)
                    ready.tell_left(self._place, has_reason=has_reason)
        if failure is None:
            self._framework.release()
        return failure

    def _at_exit(self) -> None:
        ends_badly = bad_end() is not None
        # multiprocessing prints it later, and knows no hook.
        printed = is_child() and self._consequences.tell(uncaught())
        self._reported = self._reported or self._consequences.has_told
        try:
            if self.is_open:
                printed = self._fail_if_failed() or printed
            self._leave(None)
        except (self._framework.error, ConfigError) as error:
            say(f"bytescheduler: {error}")
            fail_exit()  # the script cannot catch it any more
            # Such a child ends without what `fail_exit` changes.  An exception on its way makes it
            # end with a code of its own, and multiprocessing prints that.
            if is_child() and not ends_badly:
                raise SystemExit(1) from None
        except KeyboardInterrupt:
            # No code of the script is left that could handle it, so it ends as Python does.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        if printed and uncaught() is not None:
            raise SystemExit(1) from None  # the same code, and nothing is printed twice

    def _stay_silent_at_end(self) -> None:
        self._end_unasked()
        self._end_unasked = _nothing  # the other knows this session, and would keep it

    def _fail_if_failed(self) -> bool:
        """Fail the job if the script did not catch an exception, or ended with a code other than 0.

        The others must not wait for what this worker will never send, nor this one for them.
        Return whether the exception was printed, before what this process waits for.
        """
        end = bad_end()
        if end is not None and issubclass(end.kind, self._framework.error):
            # It may come from an operation that ends a moment later, and says which.
            self._operations.drain(_LAST_WORDS_S)
        if end is None or self._worker.status() is not None:
            return False
        printed = self.hosts_server and print_early()
        self._worker.fail(end.reason)
        self._reported = self._reported or uncaught() is not None  # Python prints that
        return printed

    def _forget_all(self) -> None:
        self._forked = True
        if self._exporter is not None:
            self._exporter.forget()
        self._stay_silent_at_end()
        self._framework.forget()
