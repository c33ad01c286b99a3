"""Runs a command on another machine by ssh: ``python -m benchmarks.rdma.on_host NAME COMMAND...``.

It runs in the same folder there, with the settings that this process has.
"""

import os
import shlex
import sys
from typing import List, Mapping, Sequence

__all__ = ["ssh_command"]

_PASSED = ("DMLC_", "BYTESCHEDULER_", "PYTHONPATH")


def ssh_command(
    host: str, command: Sequence[str], env: Mapping[str, str], folder: str
) -> List[str]:
    """Return what runs `command` in `folder` of `host`, with the settings of `env`."""
    settings = [f"{name}={value}" for name, value in env.items() if name.startswith(_PASSED)]
    there = f"cd {shlex.quote(folder)} && exec {shlex.join(['env', *settings, *command])}"
    return ["ssh", "-o", "BatchMode=yes", host, there]


if __name__ == "__main__":
    words = ssh_command(sys.argv[1], sys.argv[2:], os.environ, os.getcwd())
    os.execvp(words[0], words)
