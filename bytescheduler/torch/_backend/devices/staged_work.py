"""The handle of a call whose tensors come from a device."""

import contextlib
import threading
from typing import Optional

from bytescheduler._native import Completions
from bytescheduler.errors import Error
from bytescheduler.torch._backend.work import Work
from bytescheduler.torch._engine.wait_order import URGENT

__all__ = ["StagedWork"]

_SLICE_S = 0.02  # in which the call may be failed by another thread


class StagedWork(Work):
    """A call that starts its exchanges when the device has copied its tensors; see `Work`."""

    _departed: Optional[threading.Event] = None  # set once the exchanges were started, or never are

    def start(self, timeout_s: float, completions: Optional[Completions], token: int) -> None:
        """Start the exchanges on another thread; an error of the device is the call's.

        The device has the time of the call, and the exchanges have it again.
        """
        departed = self._departed = threading.Event()

        def depart(error: Optional[Exception]) -> None:
            try:
                if error is not None:
                    self.fail(error)
                elif not self._done.is_set():
                    self._depart(timeout_s, completions, token)
            except Exception as failure:  # the thread serves other calls
                self.fail(failure)
            finally:
                departed.set()

        self._plan.passage.when_here(timeout_s, depart)

    def _depart(self, timeout_s: float, completions: Optional[Completions], token: int) -> None:
        priority = self._priority
        super().start(timeout_s, completions, token)
        if self._hurries and priority != URGENT:  # `hurry` may have come before the last exchanges
            self._priority, self._hurries = priority, False
            self.hurry()
        error = self._error
        if error is not None and self._carrier is not None:  # so may `fail`
            for key, _ in list(self._left):
                with contextlib.suppress(Error):  # it has ended, or the job has
                    self._carrier.quit_exchange(key, str(error))

    def _wait_a_moment(self) -> None:
        if self._departed is not None and self._departed.wait(_SLICE_S):
            super()._wait_a_moment()
