"""The handle of a call: its end, its error, its future."""

import contextlib
import datetime
import threading
import time
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch.distributed import Work as C10dWork

from bytescheduler._native import Completions
from bytescheduler._session.groups.carrier import Carrier, Ending
from bytescheduler.errors import Error, Timeout
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._engine.wait_order import URGENT, Turn

__all__ = ["Work"]

# Between two looks at all exchanges of a call, of which one may fail while another waits.
_SLICE_MS = 20


class Work(C10dWork):  # type: ignore[misc]
    """A call under way.

    `Future.set_exception` sets a value that C++ takes for tensors, so errors come from a callback
    of `then`.

    Parameters
    ----------
    carrier : Carrier, optional
        None where the group has one rank.
    plan : Plan
        Its exchanges are started by `start`.
    turn : Turn, optional
        Its place in the order; None: a thread waits for it from the start.
    """

    def __init__(self, carrier: Optional[Carrier], plan: Plan, turn: Optional[Turn] = None) -> None:
        super().__init__()
        self._carrier = carrier
        self._plan = plan
        self._turn = turn
        self._priority = URGENT if turn is None else turn.priority
        self._hurries = False
        self._left: List[Tuple[int, Ending]] = []  # key and end of each exchange
        self._is_started = False
        self._is_settled = False
        self._done = threading.Event()
        self._error: Optional[Exception] = None
        self._lock = threading.Lock()
        self._begun: Any = None  # the future that the end completes, if one was asked for
        self._future: Any = None
        self._is_told = False
        self._on_end: List[Callable[[], object]] = []

    # -- of this package -----------------------------------------------------------------------

    @property
    def is_message(self) -> bool:
        """True if a single rank sends, and a single rank receives."""
        return self._plan.is_message

    @property
    def only_receives(self) -> bool:
        """True if it is a message to this rank."""
        return self._plan.only_receives

    def start(self, timeout_s: float, completions: Optional[Completions], token: int) -> None:
        """Start the exchanges; an error of the start is the call's."""
        failure: Optional[Exception] = None
        for exchange in self._plan.exchanges:
            assert self._carrier is not None
            if self._is_settled:  # another thread has ended it
                break
            try:
                ending = self._carrier.start_exchange(
                    exchange,
                    owner=self._plan.owner,
                    timeout_s=timeout_s,
                    completions=completions,
                    token=token,
                    priority=self._priority,
                )
            except Error as error:
                failure = error
                break
            self._left.append((exchange.key, ending))
        self._is_started = True
        if failure is not None:
            self.fail(failure)
        elif self._error is not None:
            self._quit(self._error)  # `fail` came before the last exchanges
        else:
            self.poll()  # some may have ended while others were started

    def poll(self) -> bool:
        """Take up exchanges that have ended; return whether the call has ended.  Any thread."""
        if self._done.is_set():
            return True
        if not self._is_started:
            return False
        failure: Optional[Exception] = None
        with self._lock:
            if not self._is_settled:
                try:
                    self._left = [(key, end) for key, end in self._left if not end.over()]
                except Error as error:
                    failure = error
            has_ended = not self._left and failure is None
        has_ended = has_ended and all(call.poll() for call in self._plan.earlier)
        if failure is not None:
            self.fail(failure)
        elif has_ended:
            self._settle(None)
        return self._done.is_set()

    def hurry(self) -> None:
        """Send it before all calls for which no thread waits; see `_Call` of a plan."""
        if self._hurries:
            return
        self._hurries = True
        is_late, self._priority = self._priority != URGENT, URGENT
        if is_late and self._carrier is not None:
            for key, _ in self._left:
                with contextlib.suppress(Error):  # the job has failed, which `poll` tells
                    self._carrier.reprioritise_exchange(key, URGENT)
        for call in self._plan.earlier:
            call.hurry()

    def fail(self, error: Exception) -> None:
        """End the call with an error, and its exchanges on all ranks.  Any thread."""
        if isinstance(error, Error):
            error = self._named(error)
        if self._settle(error):
            self._quit(error)

    def _quit(self, error: Exception) -> None:
        for key, _ in list(self._left):
            assert self._carrier is not None
            with contextlib.suppress(Error):  # it has ended, or the job has
                self._carrier.quit_exchange(key, str(error))

    def _named(self, error: Error) -> Error:
        """Return an error that names the call, in the words of users."""
        error = error if self._carrier is None else self._carrier.error_of(error)
        title = self._plan.title
        return error if title in str(error) else type(error)(f"{title}: {error}", error.code)

    def _settle(self, error: Optional[Exception]) -> bool:
        """End the call; return whether this is the first end of it."""
        with self._lock:
            if self._is_settled:
                return False
            self._is_settled = True
            if error is None:
                try:
                    self._plan.finish()
                except Exception as failure:  # a copy to the user's tensor, which PyTorch refuses
                    error = failure
            self._error = error
            self._done.set()
        self._plan.release()
        self._tell()
        calls, self._on_end = self._on_end, []  # they may refer to this
        for call in calls:
            call()
        return True

    def on_end(self, call: Callable[[], object]) -> None:
        """Let `call` be called once this has ended: now, or by the thread that ends it."""
        with self._lock:
            if not self._is_settled:
                self._on_end.append(call)
                return
        call()

    def is_searching(self) -> bool:
        """Return whether the call waits for something that is no exchange."""
        return False

    def over(self) -> bool:
        """Return whether it has ended; raise its error; see `Round`."""
        if self.poll() and self._error is not None:
            raise self._error
        return self._done.is_set()

    def _tell(self) -> None:
        with self._lock:
            if self._begun is None or self._is_told or not self._is_settled:
                return
            self._is_told = True
        self._begun.set_result(None)

    def _outcome(self, _: object) -> List[torch.Tensor]:
        if self._error is not None:
            raise self._error
        self._plan.passage.follow()  # the stream of the future's callbacks
        return self._plan.results

    def _wait_a_moment(self) -> None:
        """Wait for the first exchange that has not ended, or for another thread."""
        left = self._left
        if not left:
            self._done.wait(_SLICE_MS / 1000)
            return
        with contextlib.suppress(Error):  # `poll` raises it again
            left[0][1].wait_for(_SLICE_MS)

    # -- of c10d -------------------------------------------------------------------------------

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Block until the call has ended; raise its error.

        On a device results come behind work that is there: the current stream waits for them.

        Raises
        ------
        Timeout
            It has not ended within `timeout`, or within the time of its group.
        """
        if self._turn is not None:
            self._turn.waited_for()
        if not self.poll():
            self.hurry()
        limit_s = timeout.total_seconds()
        end = time.monotonic() + limit_s if limit_s > 0 else None
        while not self.poll():
            if end is not None and time.monotonic() >= end:
                raise Timeout(f"{self._plan.title}: it has not ended after {limit_s:g} s", 2)
            self._wait_a_moment()
        if self._error is not None:
            raise self._error
        self._plan.passage.follow()
        return True

    def synchronize(self) -> None:
        """Do as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the call has ended, well or not."""
        has_ended = self.poll()
        if has_ended and self._turn is not None:
            self._turn.leave()
        if has_ended and self._error is None:
            self._plan.passage.follow()
        return has_ended

    def is_success(self) -> bool:
        """Return whether the call has ended well."""
        return self.poll() and self._error is None

    def exception(self) -> Optional[Exception]:
        """Return the call's error, or None."""
        return self._error

    def result(self) -> List[torch.Tensor]:
        """Return the tensors that hold the result."""
        return self._plan.results

    def get_future(self) -> Any:  # noqa: ANN401 - PyTorch's types are not read
        """Return a future of the result, which raises the call's error."""
        if self._turn is not None:
            self._turn.leave()
        with self._lock:
            if self._future is None:
                self._begun = torch.futures.Future(devices=self._plan.passage.devices)
                self._future = self._begun.then(self._outcome)
        self._tell()
        return self._future
