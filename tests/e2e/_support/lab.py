"""Hosts on one switch, each with a network of its own, for jobs of real processes: one host a node.

They are those of benchmarks/lab/netlab.sh, in namespaces that only this test's processes see, so
labs of several tests do not meet, and nothing is left behind, however the test ends.
"""

import contextlib
import os
import pathlib
import subprocess
import time
from typing import Callable, Iterator, List, Sequence, Tuple, TypeVar

import pytest
from ended import Ended

NETLAB = pathlib.Path(__file__).resolve().parents[3] / "benchmarks" / "lab" / "netlab.sh"
PATIENCE_S = 30.0
NAME, PREFIX = "lab", "10.201.0"
# What a lab needs and not every machine lends.
PROBE = "tc qdisc add dev lo root tbf rate 1mbit burst 64kb latency 50ms"
WITH_PATH = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}  # where tc is
# "/run", where hosts have their names, is this lab's own; it ends with its standard input.
HOLD = f"""
mount -t tmpfs tmpfs /run && "$0" up {NAME} "$1" -r 1gbit -p {PREFIX} && echo up && exec cat
"""
IN_FOLDER = 'cd "$0" && exec "$@"'


Hosts = TypeVar("Hosts")


class NoLab(Exception):
    """There can be none here: the reason."""


def hosts_or_skip(make: "Callable[[], Hosts]") -> "Hosts":
    """Return the hosts that `make` makes; skip the test where there can be none."""
    try:
        return make()
    except NoLab as error:
        pytest.skip(f"no hosts of their own to be had here: {error}")


def require() -> None:
    """Raise NoLab if there can be no hosts of their own here."""
    if os.geteuid() != 0:
        raise NoLab("needs root")
    probe = ["unshare", "-nm", *PROBE.split()]
    done = subprocess.run(probe, env=WITH_PATH, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise NoLab(done.stderr.strip())


def one_processor() -> List[str]:
    """Return what the command begins with that brings a lab up.

    A mount namespace can be kept in an older one only, and where numbers are given to each
    processor in lots (Linux 6.18), those of one processor alone tell which is older.
    """
    return ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def hold(script: str, *words: str) -> "subprocess.Popen[str]":
    """Start a shell in namespaces of its own, which end with it; `words` are $0, $1 and so on."""
    return subprocess.Popen(
        [*one_processor(), "unshare", "-nm", "sh", "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=WITH_PATH,
        text=True,
    )


class Lab(Ended):
    """Hosts 0 to `hosts` - 1, whose links take 1 Gbit/s in each direction."""

    def __init__(self, hosts: int) -> None:
        require()
        self._holder = hold(HOLD, str(NETLAB), str(hosts))
        assert self._holder.stdout is not None
        said = []
        for line in self._holder.stdout:
            if line == "up\n":
                return
            said.append(line)
        self._holder.communicate(timeout=PATIENCE_S)
        raise AssertionError("".join(said))

    def end(self) -> None:
        self._holder.communicate(timeout=PATIENCE_S)

    @staticmethod
    def address(host: int) -> str:
        """Return the address of `host`."""
        return f"{PREFIX}.{host + 1}"

    def on(self, host: int, folder: pathlib.Path, command: List[str]) -> List[str]:
        """Return the command that becomes `command` in `folder` on `host`, as the same process."""
        inside = [str(NETLAB), "exec", NAME, str(host + 1), "sh", "-c", IN_FOLDER, str(folder)]
        return [*self._enter(), "-m", *inside, *command]

    def namespaces(self, host: int) -> List[str]:
        """Return the files of what `on` enters, the one of mounts at last."""
        run = pathlib.Path("/proc", str(self._holder.pid), "root", "run")  # that of the lab
        others = [run / "bs-netlab" / NAME / f"{host + 1}.{kind}" for kind in ("uts", "ipc", "mnt")]
        return [str(path) for path in (run / "netns" / f"{NAME}-{host + 1}", *others)]

    def link(self, host: int, state: str) -> None:
        """Pull the cable of `host` out of the switch ("down"), or put it in ("up")."""
        self._run("ip", "-n", f"{NAME}-sw", "link", "set", f"p{host + 1}", state)

    def reset(self, host: int) -> None:
        """End the connections of `host` to others, so that what is under way there is lost."""
        self.link(host, "down")
        time.sleep(0.5)  # until all who talk to each other wait for what is under way
        try:
            self.end_connections(host)
        finally:
            self.link(host, "up")

    def end_connections(self, host: int) -> None:
        """End the connections of `host` to others, who hear of it if they are heard."""
        self._connections(host, "-K")
        if self._connections(host):
            raise NoLab("this kernel ends no connections of others (CONFIG_INET_DIAG_DESTROY)")

    def num_waiting(self, host: int) -> int:
        """Return how many connections of `host` to others have bytes that nobody acknowledged."""
        return sum(int(line.split()[2]) > 0 for line in self._connections(host))

    def _connections(self, host: int, *flags: str) -> List[str]:
        """Return what ss says of each connection of `host` to others."""
        inside = [str(NETLAB), "exec", NAME, str(host + 1), "ss", "-Htn", *flags]
        command = [*self._enter(), "-m", *inside, "not", "dst", self.address(host)]
        done = subprocess.run(command, env=WITH_PATH, check=True, stdout=subprocess.PIPE, text=True)
        return [line for line in done.stdout.splitlines() if line.startswith("ESTAB")]

    @contextlib.contextmanager
    def unheard(self, host: int, others: Sequence[int]) -> Iterator[None]:
        """Lose what `host` sends to `others`: no card has the address that it takes for theirs."""
        neighbour = ["ip", "-n", f"{NAME}-{host + 1}", "neigh"]
        for other in others:
            nobody = ["lladdr", "02:00:00:00:00:01", "dev", "eth0"]
            self._run(*neighbour, "replace", self.address(other), *nobody)
        try:
            yield
        finally:
            for other in others:
                self._run(*neighbour, "del", self.address(other), "dev", "eth0")

    def rate(self, host: int, rate: str) -> None:
        """Change what the link of `host` takes in each direction (1gbit, 2mbit)."""
        self._run(str(NETLAB), "rate", NAME, str(host + 1), rate)

    def carried(self, host: int) -> "Tuple[int, int]":
        """Return how many bytes `host` has sent over its link and got, headers included.

        The queues count a packet that is cut later with the headers of all its frames.
        """
        command = [*self._enter(), "-m", "-n", str(NETLAB), "stat", NAME]
        done = subprocess.run(command, env=WITH_PATH, check=True, stdout=subprocess.PIPE, text=True)
        sent, got = (
            int(line.split()[3])
            for line in done.stdout.splitlines()
            if line.startswith((f"{host + 1} up ", f"{host + 1} down "))
        )
        return sent, got

    def disk(self, host: int, folder: pathlib.Path, size: str) -> None:
        """Put an empty disk of `size` (64k) at `folder`, which `host` alone sees."""
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        subprocess.run(self.on(host, folder, mount), check=True)

    def read(self, host: int, file: pathlib.Path) -> str:
        """Return the text of a file as `host` sees it."""
        cat = self.on(host, file.parent, ["cat", str(file)])
        return subprocess.run(cat, check=True, stdout=subprocess.PIPE).stdout.decode()

    def _enter(self) -> List[str]:
        return ["nsenter", "-t", str(self._holder.pid)]

    def _run(self, *command: str) -> None:
        subprocess.run([*self._enter(), "-m", "-n", *command], env=WITH_PATH, check=True)
