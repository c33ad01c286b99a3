"""Runs an example whose epochs end together with those of other jobs.

``epochs_together.py FILE JOB PROCESSES EPOCHS SCRIPT ARGUMENT...``: a process that has printed the
line of an epoch writes ``JOB EPOCH`` to FILE, and goes on when as many processes have done so.
"""

import builtins
import os
import pathlib
import re
import runpy
import sys
import time

_LONG_S = 300.0
_EPOCH = re.compile(r"rank \d+ epoch (\d+):")


class Meeting:
    """The end of an epoch, for the processes of all jobs."""

    def __init__(self, file: pathlib.Path, job: str, processes: int, epochs: int) -> None:
        self._file = file
        self._job = job
        self._processes = processes
        self._epochs = epochs

    def end(self, epoch: int) -> None:
        """Write that this process has ended an epoch, and wait for the others."""
        if epoch >= self._epochs:
            return
        with self._file.open("a") as file:  # a line this short is written whole
            file.write(f"{self._job} {epoch}\n")
        end = time.monotonic() + _LONG_S
        while self._file.read_text().count(f" {epoch}\n") < self._processes:
            if time.monotonic() > end:
                raise TimeoutError(f"epoch {epoch}: {self._file.read_text()!r}")
            time.sleep(0.01)


def main() -> None:
    file, job, processes, epochs, script = sys.argv[1:6]
    meeting = Meeting(pathlib.Path(file), job, int(processes), int(epochs))
    plain = builtins.print

    def print_and_meet(*values: object, **options: object) -> None:
        plain(*values, **options)  # type: ignore[call-overload]
        found = _EPOCH.match(str(values[0])) if values else None
        if found is not None:
            meeting.end(int(found.group(1)))

    builtins.print = print_and_meet  # type: ignore[assignment]
    sys.argv = sys.argv[5:]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
