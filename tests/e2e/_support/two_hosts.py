"""Two hosts with addresses of both kinds, and a docker bridge of the same address on each.

The bridge comes first in the system's list of interfaces, as on many real hosts, then eth10, which
reaches no other host, and then eth1.  All of it is in namespaces of its own and ends with this
object.
"""

import contextlib
import pathlib
import subprocess
import sys
from typing import Dict, List

from ended import Ended
from forked import HostPlace, start_worker
from job import AS_IN_JOBS, Process, without_settings
from lab import WITH_PATH, NoLab, hold, require

from bytescheduler._process.child import Streams

PATIENCE_S = 60.0
BRIDGE = "172.17.0.1"
ETH10 = "203.0.113."  # begins its addresses
# Ends with its standard input.  $0: the hosts file that both hosts see.
HOLD = """
set -e
mount -t tmpfs tmpfs /run
mount --bind "$0" /etc/hosts
for n in 1 2; do
  ip netns add h$n
  ip -n h$n link set lo up
  ip -n h$n link add docker0 type bridge
  ip -n h$n addr add 172.17.0.1/16 dev docker0
  ip -n h$n link set docker0 up
  ip -n h$n link add eth10 type bridge
  ip -n h$n addr add 203.0.113.$n/32 dev eth10
  ip -n h$n link set eth10 up
done
ip link add v1 type veth peer name v2
for n in 1 2; do
  ip link set v$n netns h$n
  ip -n h$n link set v$n name eth1
  ip -n h$n addr add 10.0.0.$n/24 dev eth1
  ip -n h$n addr add fd00::$n/64 dev eth1 nodad
  ip -n h$n link set eth1 up
done
echo up
exec cat
"""
IN_FOLDER = 'cd "$0" && exec "$@"'
SERVER = [sys.executable, "-m", "bytescheduler.server"]


class TwoHosts(Ended):
    """Hosts 1 and 2: 10.0.0.1 and fd00::1, 10.0.0.2 and fd00::2."""

    def __init__(self, folder: pathlib.Path) -> None:
        require()
        self.folder = folder
        self.hosts = folder / "hosts"
        self.hosts.write_text("127.0.0.1 localhost\n")
        self._running: List[subprocess.Popen[str]] = []
        self._forked: List[Process] = []
        self._holder = hold(HOLD, str(self.hosts))
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != "up\n":
            self._holder.communicate(timeout=PATIENCE_S)
            raise NoLab(said.strip())

    def end(self) -> None:
        for forked in filter(Process.running, self._forked):
            forked.kill()
        for process in self._running:
            with contextlib.suppress(OSError):
                process.kill()
            process.communicate(timeout=PATIENCE_S)
        self._holder.communicate(timeout=PATIENCE_S)

    def know(self, name: str, address: str) -> None:
        """Let both hosts know the name from now on."""
        with self.hosts.open("a") as file:
            file.write(f"{address} {name}\n")

    def start(self, host: int, command: List[str], env: Dict[str, str]) -> "subprocess.Popen[str]":
        """Start a command on a host; its output is one text."""
        inside = ["ip", "netns", "exec", f"h{host}", "sh", "-c", IN_FOLDER, str(self.folder)]
        process = subprocess.Popen(
            ["nsenter", "-t", str(self._holder.pid), "-m", *inside, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**without_settings(), "PATH": WITH_PATH["PATH"], **env},
            text=True,
        )
        self._running.append(process)
        return process

    def fork(self, host: int, script: pathlib.Path, env: Dict[str, str]) -> Process:
        """Start a script on a host, in a process that has imported its framework."""
        place = HostPlace(f"10.0.0.{host}", [])
        holder = pathlib.Path("/proc", str(self._holder.pid))
        place.namespaces = [str(holder / "root/run/netns" / f"h{host}"), str(holder / "ns/mnt")]
        name = f"process {len(self._forked)}"
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            child = start_worker(
                name,
                [sys.executable, str(script)],
                {**without_settings(), **AS_IN_JOBS, **env},
                streams=Streams(stdout=file, stderr=file),
                folder=self.folder,
                place=place,
            )
        self._forked.append(Process(child, log))
        return self._forked[-1]
