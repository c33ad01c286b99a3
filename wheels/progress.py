"""Runs a command, and prints what takes long: large downloads of pip, each tenth of a build.

``progress.py ARGUMENT...`` runs ``pip install ARGUMENT...`` so, and prints all of pip's output if
it fails.
"""

import os
import re
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence

__all__ = ["Done", "Progress", "main", "pip_install", "run"]

LEAST_MB = 10.0
# How many lines a build prints, beside its first.
PARTS = 10

_DOWNLOAD = re.compile(r"\s*Downloading (\S+) \((\d+(?:\.\d+)?) ([kMG])B\)")
_MB = {"k": 0.001, "M": 1.0, "G": 1000.0}
_NINJA = re.compile(r"\s*\[(\d+)/(\d+)\] ")
_MAKE = re.compile(r"\s*\[ *(\d+)%\] ")


class Progress:
    """Chooses the lines of a command that a reader sees."""

    def __init__(self) -> None:
        self._part = -1

    def shown(self, line: str) -> Optional[str]:
        """Return what to print for a line of the output; None for nothing."""
        download = _DOWNLOAD.match(line)
        if download is not None:
            name, number, unit = download.groups()
            if float(number) * _MB[unit] < LEAST_MB:
                return None
            return f"downloading {name.rpartition('/')[2]}: {number} {unit}B"
        ninja, make = _NINJA.match(line), _MAKE.match(line)
        if ninja is not None:
            return self._step(int(ninja.group(1)), int(ninja.group(2)), "step {} of {}")
        return None if make is None else self._step(int(make.group(1)), 100, "")

    def _step(self, step: int, count: int, steps: str) -> Optional[str]:
        part = PARTS * step // max(count, 1)
        if part == self._part:
            return None
        self._part = part
        percent = f"building the engine: {100 * step // max(count, 1)} %"
        return f"{percent}, {steps.format(step, count)}" if steps else percent


class Done(NamedTuple):
    """How a command ended: its exit status, and all that it printed."""

    status: int
    output: str


def run(command: Sequence[str], env: Optional[Dict[str, str]] = None, cwd: str = ".") -> Done:
    """Run a command with further variables in a folder, and print what takes long."""
    progress, lines = Progress(), []
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            shown = progress.shown(line)
            if shown is not None:
                print(shown, flush=True)
    return Done(process.returncode, "".join(lines))


def pip_install(arguments: Sequence[str]) -> Done:
    """Run ``pip install`` in this Python's environment."""
    # Without -v pip holds the output of a build back until the build fails.
    pip = [sys.executable, "-m", "pip", "install", "-v", "--progress-bar", "off"]
    return run([*pip, *arguments])


def main(arguments: List[str]) -> int:
    """Run ``pip install`` with the arguments, and return its exit status."""
    print(f"pip install {' '.join(arguments)}", flush=True)
    done = pip_install(arguments)
    if done.status != 0:
        print(done.output, end="", flush=True)
    return done.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
