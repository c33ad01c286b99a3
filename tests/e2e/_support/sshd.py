"""A real sshd on loopback, with keys and a configuration of its own; nothing of the system's."""

import os
import pathlib
import socket
import subprocess
import time
from typing import List, Optional

from ended import Ended

__all__ = ["SSHD", "Sshd"]

SSHD = "/usr/sbin/sshd"
_SEPARATION = pathlib.Path("/run/sshd")  # sshd of root wants this empty folder
_LIMIT_S = 30.0
_SERVER = """
Port {port}
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin yes
MaxStartups 9
"""
_CLIENT = """
Host *
  Port {port}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
"""


class Sshd(Ended):
    """Runs from ``with`` to its end."""

    def __init__(self, folder: pathlib.Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._process: Optional[subprocess.Popen[bytes]] = None

    @property
    def client(self) -> str:
        """The command that reaches it."""
        return f"ssh -F {self._folder}/ssh_config"

    def __enter__(self) -> "Sshd":
        folder = self._folder
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(key, check=True, timeout=_LIMIT_S)
        values = {"folder": folder, "port": self._port}
        (folder / "sshd_config").write_text(_SERVER.format(**values))
        (folder / "ssh_config").write_text(_CLIENT.format(**values))
        if os.getuid() == 0:
            _SEPARATION.mkdir(mode=0o755, exist_ok=True)
        with (folder / "sshd.log").open("wb") as log:
            command = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
        self._await_listening()
        return self

    def _await_listening(self) -> None:
        assert self._process is not None
        end = time.monotonic() + _LIMIT_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            log = (self._folder / "sshd.log").read_text()
            assert self._process.poll() is None, f"sshd ended:\n{log}"
            assert time.monotonic() < end, f"sshd does not listen:\n{log}"
            time.sleep(0.05)

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_LIMIT_S)

    def bslaunch(self, hosts: str) -> List[str]:
        """Return the options that start a job on these hosts through it."""
        return ["-H", hosts, "--ssh", self.client]
