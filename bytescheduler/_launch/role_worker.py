"""Runs a worker's command, and ends it if it waits for a scheduler node that is not there.

MXNet's own store waits in `mx.kv.create` without a message and for ever.  So this process, the
parent, checks that the scheduler node can be reached, until the command reports that it has joined.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import threading
import time
from typing import Collection, Dict, Iterator, List, Mapping, Optional, Sequence

from bytescheduler._launch import leaving
from bytescheduler._native import HostFact, about_host
from bytescheduler._process import child, family, limits
from bytescheduler._process.reach import reach
from bytescheduler._process.say import plain, say
from bytescheduler._process.where import at
from bytescheduler._process.witness import Witness
from bytescheduler._settings import Settings
from bytescheduler._started import ready

__all__ = ["Rendezvous", "run", "show_route"]

_CANNOT_RUN = 126  # the code of shells
_SAY_EVERY_S = 10.0
_LOOK_EVERY_S = 0.2  # from one look at the command's reports to the next
_LOOK_LATER_S = 1.0  # the same once the worker was in the job
_CONNECT_EVERY_S = 0.5
_CONNECT_S = 2.0
_NAME_S = 2.0  # for the scheduler node's name, which a new pod may not have yet
# Time for the notice of a scheduler node that ends, and for a native worker's own, better message.
_GRACE_S = 5.0
_TERM_S = 5.0  # between SIGTERM and SIGKILL
_SI_KERNEL = 0x80
_KILL_S = 1.0  # the same for what had its time to end
# Launchers signal a process and then its group, so a second signal within this time is the first.
_REPEAT_S = 0.5
_STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
_FORWARDED = (*_STOPPING, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def _say(text: str) -> None:
    say(f"bslaunch: {text}")


def _only_ipv4(host: str) -> str:
    return (
        f"MXNet's own stores know only IPv4, and DMLC_PS_ROOT_URI={host} is an IPv6 address: "
        "import bytescheduler.mxnet before the store is made and wrap it, or let the nodes meet "
        "at an IPv4 address"
    )


def show_route(env: Dict[str, str], settings: Settings) -> None:
    """Let a store of MXNet's own show the address from which the route to the root leaves.

    By itself it shows the first network interface of the host.  Blocks.

    Parameters
    ----------
    env : dict
        The variables of the worker's command.
    settings : Settings
        Settings that have been checked; where they name an address or an interface, it stays.
    """
    if settings.uses_files or settings.node_host or settings.interface:
        return
    facts: List[HostFact] = []
    look = threading.Thread(target=lambda: facts.extend(about_host()), daemon=True)
    look.start()
    look.join(_NAME_S)
    route = next((fact.name for fact in facts if fact.what == "route"), "")
    if route and ":" not in route:
        env["DMLC_NODE_HOST"] = route


@dataclasses.dataclass(frozen=True)
class Rendezvous:
    """Where the scheduler node is, and how long to wait for it.

    Parameters
    ----------
    host, port : str, int
        Its address.
    ipc : bool
        It listens on a file in /tmp instead.
    timeout_s : float
        How long it may be unreachable.
    talkative : bool
        Whether to say that we wait.
    """

    host: str
    port: int
    ipc: bool
    timeout_s: float
    talkative: bool

    @classmethod
    def from_settings(cls, settings: Settings) -> "Rendezvous":
        """Take it from settings that have been checked."""
        return cls(
            host=settings.root_host,
            port=settings.root_port,
            ipc=settings.uses_files,
            timeout_s=settings.rendezvous_s,
            talkative=settings.is_talkative,
        )

    @property
    def is_ipv6(self) -> bool:
        """True if the scheduler node has IPv6 addresses only.  Blocks while a name is looked up."""
        with contextlib.suppress(OSError, UnicodeError):
            address_rows = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            return not self.ipc and all(row[0] == socket.AF_INET6 for row in address_rows)
        return False

    def why_unreachable(self) -> str:
        """Connect, and hang up at once; return why that failed, or nothing.  Blocks."""
        _, failure = reach(
            self.host, self.port, lambda _: True, uses_files=self.ipc, limit_s=_CONNECT_S
        )
        return failure


class _Watch:
    """Looks after the scheduler node on a thread of its own, which may hang in name look-ups."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._where = rendezvous
        self._begin = time.monotonic()
        self._said = self._begin
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._here: Optional[bool] = None  # None: it never was
        self._why = ""  # it is not there
        self._since = self._begin  # when `_here` changed
        threading.Thread(target=self._look, name="bslaunch-watch", daemon=True).start()

    def _look(self) -> None:
        while not self._over.wait(_CONNECT_EVERY_S):
            failure = self._where.why_unreachable()
            here = not failure
            with self._lock:
                self._why = failure
                if here != bool(self._here):
                    self._here = here
                    self._since = time.monotonic()

    def stop(self) -> None:
        """End the watch."""
        self._over.set()

    def why_hopeless(self) -> Optional[str]:
        """Return why the worker will never be in the job, if so; say now and then that it waits."""
        with self._lock:
            here, since, failure = self._here, self._since, self._why
        now = time.monotonic()
        rendezvous = self._where
        node = f"the scheduler node at {at(rendezvous.host, rendezvous.port)}"
        latest = f" ({failure})" if failure else ""
        if here:
            # It ends by itself when the job does not come together in time.
            if now > since + leaving.MOST_TIMEOUTS * rendezvous.timeout_s + 2 * _GRACE_S:
                self.stop()
        elif here is None:
            if now > self._begin + rendezvous.timeout_s + _GRACE_S:
                return f"no response from {node} in {rendezvous.timeout_s:g} s{latest}"
            if rendezvous.talkative and now > self._said + min(
                _SAY_EVERY_S, rendezvous.timeout_s / 4
            ):
                self._said = now
                _say(f"waiting for {node}{latest}")
        elif now > since + _GRACE_S:
            ended = f"{node} ended before this worker was in the job; its output says why"
            return f"{ended}. {_only_ipv4(rendezvous.host)}" if rendezvous.is_ipv6 else ended
        return None

    def why_aborted(self) -> Optional[str]:
        """Return what a SIGABRT means for a worker that has not told that it is in the job.

        MXNet's own stores can be told of nothing, so the scheduler node ends them by that.
        """
        with self._lock:
            seen = self._here is not None
        if self.over or not seen:
            return None
        if self._where.is_ipv6:
            return f"this worker was aborted while it connected: {_only_ipv4(self._where.host)}"
        return (
            f"this worker was aborted before it was known to be in the job; if the scheduler node "
            f"at {at(self._where.host, self._where.port)} did that, its output says why"
        )

    @property
    def was_here(self) -> bool:
        """True if the scheduler node has ever been reached, so that the worker may have trained."""
        with self._lock:
            return self._here is not None

    @property
    def over(self) -> bool:
        """True once the watch has ended."""
        return self._over.is_set()


class _Command:
    """The process of a worker's command, and what it started; signals come through here."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        signals: "set[signal.Signals]",
        grace_s: float,
        others: Collection[int],
        witness: Witness,
    ) -> None:
        self._process = process
        self._witness = witness
        self._others = others  # that are below us, but not of the command
        self._signals = signals
        self._grace_s = grace_s
        self._since = 0.0
        self._is_cut_short = False
        self.stopped_by = 0  # the first signal that stops it

    def hear_next(self, timeout_s: float) -> bool:
        """Wait for a signal, or until the process ends; pass it on.  Return whether one came."""
        waited = self._signals | {signal.SIGCHLD}
        got = signal.sigtimedwait(waited, timeout_s)
        if got is None:
            return False
        if got.si_signo == signal.SIGCHLD:
            family.reap_orphans(self._process.pid)
        else:
            self._hear(got.si_signo, from_terminal=got.si_code == _SI_KERNEL)
        return True

    def _hear(self, number: int, *, from_terminal: bool) -> None:
        now = time.monotonic()
        if number in _STOPPING and self.stopped_by:
            self._is_cut_short = self._is_cut_short or now >= self._since + _REPEAT_S
            return
        if number in _STOPPING:
            self.stopped_by, self._since = number, now
            if self._process.returncode is None:
                _say(
                    f"{signal.Signals(number).name}: the worker has {self._grace_s:g} s to save "
                    "and end; a second signal ends it now"
                )
        # The terminal sends its signals to the whole process group.
        if from_terminal or self._witness.has_heard(number):
            return
        if self._process.returncode is None:
            family.pass_on([self._process.pid], number)
        else:
            family.send(self._left(), number)

    def _left(self) -> List[int]:
        return family.members([os.getpid()], self._others)

    def is_over(self) -> bool:
        """Return whether it has ended, and what saves where it was the shell of that."""
        if self._process.poll() is None:
            return False
        # A signal for all processes may have ended it before we took ours.
        while self.hear_next(0):
            pass
        if not self.stopped_by or self._process.returncode != -self.stopped_by:
            return True
        return not family.savers([os.getpid()], self.stopped_by, self._others)

    def is_late(self, *, may_save: bool) -> bool:
        """Return whether the time to end is over."""
        if not self.stopped_by:
            return False
        grace_s = self._grace_s if may_save else min(self._grace_s, _TERM_S)
        return self._is_cut_short or time.monotonic() >= self._since + grace_s

    def end_rest(self) -> None:
        """End at once what outlives the command, if a signal stopped it."""
        if self.stopped_by:
            family.send(self._left(), signal.SIGKILL)

    def end(self, patience_s: float) -> None:
        """End it, and what it started, by SIGTERM, then by SIGKILL."""
        family.send(self._left(), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        family.send(self._left(), signal.SIGKILL)
        self._process.wait()


def run(
    command: Sequence[str], env: Mapping[str, str], rendezvous: Rendezvous, grace_s: float
) -> int:
    """Run `command` in our place and return its exit code for the shell; on the main thread only.

    It shares our terminal and process group, gets our signals, and ends if we are killed.  After a
    signal that stops it, it has `grace_s` seconds to end, and nothing that it started outlives it.
    128 + n if signal n ended it; 1 if it waited for a scheduler node in vain, or was aborted while
    it did.
    """
    signals = {n for n in _FORWARDED if signal.getsignal(n) is not signal.SIG_IGN}
    with Witness(signals, session=False) as witness:
        return _run(command, env, rendezvous, grace_s, signals, witness)


@contextlib.contextmanager
def _vouching(
    process: "subprocess.Popen[bytes]", listener: ready.Listener, env: Mapping[str, str]
) -> Iterator[None]:
    """Vouch for the worker while it lives and says nothing."""
    vouching = leaving.Vouching(
        lambda: int(process.returncode is None and listener.is_silent()), env
    )
    try:
        yield
    finally:
        vouching.stop()


def _run(
    command: Sequence[str],
    env: Mapping[str, str],
    rendezvous: Rendezvous,
    grace_s: float,
    signals: "set[signal.Signals]",
    witness: Witness,
) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the kernel drops exit codes if it is ignored
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals | {signal.SIGCHLD})
    others = family.members([os.getpid()])
    family.adopt_orphans()
    listener = ready.Listener()
    try:
        process = _start(command, {**env, ready.NAME: listener.name}, before)
    except OSError as error:
        _say(f"cannot run {plain(command[0])}: {limits.reason(error)}")
        return _CANNOT_RUN
    running = _Command(process, signals, grace_s, others, witness)
    with _vouching(process, listener, env):
        return _await_end(process, listener, rendezvous, running)


def _await_end(
    process: "subprocess.Popen[bytes]",
    listener: ready.Listener,
    rendezvous: Rendezvous,
    running: _Command,
) -> int:
    """Return the exit code for the shell once the command has ended, or was ended."""
    watch = _Watch(rendezvous)
    while not running.is_over():
        looks = not watch.over or running.stopped_by
        running.hear_next(_LOOK_EVERY_S if looks else _LOOK_LATER_S)
        if not watch.over and listener.heard():
            watch.stop()
        if watch.over and listener.waits():  # another store, perhaps of a child
            watch = _Watch(rendezvous)
        if running.is_late(may_save=watch.over or watch.was_here) and not running.is_over():
            _say("the worker has had its time to end; ending it")
            running.end(_KILL_S)
            return 128 + running.stopped_by
        reason = None if watch.over or running.stopped_by else watch.why_hopeless()
        if reason is not None and process.poll() is None:
            _say(f"{reason}; ending the worker")
            running.end(_TERM_S)
            return 1
    if process.returncode == 0:
        leaving.leave_for(listener.held_places(), {}, _say)
    elif process.returncode > 0 and not running.stopped_by:
        leaving.leave_for(listener.unexplained_places(), {}, _say, process.returncode)
    running.end_rest()
    if listener.heard():
        watch.stop()
    code: int = process.returncode
    reason = watch.why_aborted() if code == -signal.SIGABRT else None
    if reason is not None:
        _say(reason)
        return 1
    return 128 - code if code < 0 else code


def _start(
    command: Sequence[str], env: Dict[str, str], mask: "set[int]"
) -> "subprocess.Popen[bytes]":
    us = os.getpid()

    def prepare() -> None:
        child.die_with(us)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return subprocess.Popen(list(command), env=env, close_fds=False, preexec_fn=prepare)
