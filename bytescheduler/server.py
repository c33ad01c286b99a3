"""Runs a scheduler node or a server in the foreground: ``python -m bytescheduler.server``.

It does not import MXNet, which would start a server of its own under DMLC_ROLE=server.  The one
exception is an optimizer that only Python can run, in a dist_async job (see `_hosting.host`).
"""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Callable, Iterator, Optional

from bytescheduler._hosting.host import Host
from bytescheduler._metrics.serving import serve
from bytescheduler._native import Node
from bytescheduler._process.say import say
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Error

__all__ = ["run"]

_PATIENCE_S = 10.0  # longer than anything takes that is not broken
_WRONG_USE = 2  # the code of shells and click


class _Ended(BaseException):
    """A signal asks this process to end."""


def _on_signal(number: int, _frame: Optional[FrameType]) -> None:
    raise _Ended(f"it got {signal.Signals(number).name}")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Make SIGINT and SIGTERM raise `_Ended`, once; only the main thread may.

    One that we were told to ignore (as shells do for `... &` in a script) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = [signal.signal(number, _on_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def _say(sentence: str) -> None:
    say(f"bytescheduler: {sentence}")


def _make_host() -> Host:
    settings = Settings.read()
    return Host(pickles=settings.pickles, trusted=settings.trusted_modules, say=_say)


def _close(node: Node, why: str = "it was closed") -> None:
    """Close the node, which waits for an update that runs; but not for one that never ends."""
    impatient = threading.Timer(_PATIENCE_S, os._exit, (1,))
    impatient.daemon = True
    impatient.start()
    try:
        node.close(why)
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


def _run_to_the_end(node: Node, role: str) -> int:
    try:
        with _metrics(node, role):
            node.wait()
    except _Ended as ended:
        _close(node, str(ended))
        _say(f"ended: {ended}")
        return 1
    except Error as error:
        _close(node)
        # The log of a scheduler node has said so already, with the time.
        if role != "scheduler" or Settings.read().log_level == "off":
            _say(f"the job failed: {error}")
        return 1
    _close(node)
    if Settings.read().is_talkative:
        _say("the job ended in good order")
    return 0


def run(role: Optional[str] = None, *, on_listening: Optional[Callable[[int], None]] = None) -> int:
    """Run a role until the job is over or a signal (SIGINT, SIGTERM) ends it.

    Blocks.  All other nodes of the job are notified of a signal before this returns.

    Parameters
    ----------
    role : str, optional
        "scheduler" or "server"; DMLC_ROLE if not given.
    on_listening : callable, optional
        Gets the port of a scheduler node as soon as it listens; not called for servers.

    Returns
    -------
    int
        The exit code: 0 if the job ended in good order, 2 if a setting is wrong, else 1; how it
        ended is printed on stderr.
    """
    try:
        with _signals():
            node = Node.start({} if role is None else {"DMLC_ROLE": role}, updater=_make_host())
            if on_listening is not None and node.port > 0:
                on_listening(node.port)
            return _run_to_the_end(node, role or Settings.read().role)
    except ConfigError as error:
        _say(str(error))
        return _WRONG_USE
    except Error as error:
        _say(str(error))
        return 1
    except _Ended as ended:
        _say(f"ended: {ended}")
        return 1


if __name__ == "__main__":
    sys.exit(run())
