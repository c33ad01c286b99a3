"""Runs a scheduler node or a server in the foreground: ``python -m bytescheduler.server``.

It does not import MXNet, which would start a server of its own under DMLC_ROLE=server.  The one
exception is an optimizer that only Python can run, in a dist_async job (see `_hosting.host`).
"""

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Callable, Iterator, Optional

from bytescheduler._hosting.host import Host
from bytescheduler._metrics.serving import serve
from bytescheduler._native import Node, await_names
from bytescheduler._process.say import say
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error

__all__ = ["run"]

_PATIENCE_S = 10.0  # longer than anything takes that is not broken
_LOOK_S = 0.1  # at what signals ask for
_REPEAT_S = 0.5  # a second signal within this time repeats the first
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGQUIT)
_FOR_WORKERS = (signal.SIGUSR1, signal.SIGUSR2)
_WRONG_USE = 2  # the code of shells and click


class _Stop:
    """The request that signals made.  The handler only notes it; it raises nothing."""

    def __init__(self) -> None:
        self.number = 0  # the first signal that stops the process
        self.last = 0
        self.is_urgent = False  # another one came, which is no repeat, or SIGQUIT
        self._begin = 0.0

    def __call__(self, number: int, _frame: Optional[FrameType]) -> None:
        now = time.monotonic()
        if number == signal.SIGQUIT:
            self.is_urgent = True
        elif self.number:
            if now < self._begin + _REPEAT_S:  # launchers signal a process and then its group
                return
            self.is_urgent = True
        self.last = number
        if not self.number:
            self.number, self._begin = number, now

    def __str__(self) -> str:
        return f"it got {signal.Signals(self.last).name}"

    @property
    def exit_code(self) -> int:
        """The code that shells have for a process that was stopped, or 1."""
        return 128 + self.number if self.number else 1


@contextlib.contextmanager
def _signals() -> Iterator[_Stop]:
    """Yield what hears signals, and ignore those for workers; only the main thread may hear.

    One that we were told to ignore (as shells do for `... &` in a script) stays ignored.
    """
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {
        number: signal.signal(number, signal.SIG_IGN if number in _FOR_WORKERS else stop)
        for number in (*_STOPPING, *_FOR_WORKERS)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(sentence: str) -> None:
    say(f"bytescheduler: {sentence}")


def _make_host() -> Host:
    settings = Settings.read()
    return Host(pickles=settings.pickles, trusted=settings.trusted_modules, say=_say)


def _close(node: Node, code: int, reason: str = "it was closed") -> None:
    """Close the node, which waits for an update that runs; exit if that never ends."""
    impatient = threading.Timer(_PATIENCE_S, os._exit, (code,))
    impatient.daemon = True
    impatient.start()
    try:
        node.close(reason)
    finally:
        impatient.cancel()


@contextlib.contextmanager
def _metrics(node: Node, role: str) -> Iterator[None]:
    """Show metrics meanwhile, if a setting asks for them."""
    exporter = serve(node.measure, role)
    try:
        yield
    finally:
        if exporter is not None:
            exporter.close()


def _is_complete(node: Node) -> bool:
    """Return whether all nodes have come, so that workers may have something to save."""
    try:
        figures = {figure.name: figure.value for figure in node.measure()}
    except Error:
        return False
    return any(figures.get(name) for name in ("ready", "workers", "servers"))


def _wait(node: Node, stop: _Stop) -> bool:
    """Return True when the job has ended in good order, False when a signal ends it.

    After the first signal wait for the grace, if there are workers.

    Raises
    ------
    Error
        The job failed.
    """
    settings = Settings.read()
    end: Optional[float] = None
    while not node.wait(_LOOK_S):
        if end is None and stop.number:
            if settings.grace_s <= 0 or not _is_complete(node):
                return False
            end = time.monotonic() + settings.grace_s
            if settings.is_talkative and not stop.is_urgent:
                _say(
                    f"{stop}: it stays until the workers have left, for {settings.grace_s:g} s at "
                    "most; a second signal ends it now"
                )
        if end is not None and (stop.is_urgent or time.monotonic() >= end):
            return False
    return True


def _run_to_the_end(
    node: Node, role: str, stop: _Stop, on_failure: Optional[Callable[[str], None]]
) -> int:
    try:
        with _metrics(node, role):
            in_good_order = _wait(node, stop)
    except Error as error:
        if on_failure is not None:
            on_failure(str(error))
        _close(node, stop.exit_code)
        # The log of a scheduler node has said so already, with the time.
        if role != "scheduler" or Settings.read().log_level == "off":
            _say(f"the job failed: {error}")
        return stop.exit_code
    if not in_good_order:
        _close(node, stop.exit_code, str(stop))
        _say(f"ended: {stop}")
        return stop.exit_code
    _close(node, 1)
    if Settings.read().is_talkative:
        _say("the job ended in good order")
    return 0


def run(
    role: Optional[str] = None,
    *,
    on_listening: Optional[Callable[[int], None]] = None,
    on_failure: Optional[Callable[[str], None]] = None,
) -> int:
    """Run a role until the job is over, or until a signal ends it.

    Blocks.  After SIGTERM, SIGINT, SIGHUP or SIGALRM it goes on until the workers have left, for
    BYTESCHEDULER_GRACE at most; a second one, or SIGQUIT, ends it at once.  All other nodes of the
    job are notified of the end before this returns.

    Parameters
    ----------
    role : str, optional
        "scheduler" or "server"; DMLC_ROLE if not given.
    on_listening : callable, optional
        Gets the port of a scheduler node as soon as it listens; not called for servers.
    on_failure : callable, optional
        Gets the reason as soon as the job has failed.

    Returns
    -------
    int
        The exit code: 0 if the job ended in good order, 2 if a setting is wrong.  Otherwise it is
        128 + n after signal n, else 1.  The reason is printed on stderr.
    """
    with _signals() as stop:
        try:
            overrides = {} if role is None else {"DMLC_ROLE": role}
            if not await_names(overrides, is_stopped=lambda: bool(stop.number)):
                _say(f"ended: {stop}")
                return stop.exit_code
            node = Node.start(overrides, updater=_make_host())
            if on_listening is not None and node.port > 0:
                on_listening(node.port)
            return _run_to_the_end(node, role or Settings.read().role, stop, on_failure)
        except ConfigError as error:
            _say(str(error))
            return _WRONG_USE
        except Error as error:
            _say(str(error))
            return 1


if __name__ == "__main__":
    sys.exit(run())
