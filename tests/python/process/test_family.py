"""The processes below one process: which there are, and which of them hear a signal."""

import os
import pathlib
import signal
import subprocess
import sys
from typing import Iterator, List

import pytest
from held_fifo import HeldFifo

from bytescheduler._process import family

LIMIT_S = 60
# Writes its number when it is ready, then the signals that it hears; ends at the end of its input.
HEARS = """
import os, signal, sys
out = os.open(sys.argv[1], os.O_WRONLY)
for n in map(int, sys.argv[2:]):
    signal.signal(n, lambda n, _: os.write(out, b"%d heard %d\\n" % (os.getpid(), n)))
os.write(out, b"%d ready\\n" % os.getpid())
while sys.stdin.buffer.read(1):
    pass
"""


class Heard:
    """What programs write to a FIFO."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = str(folder / "heard")
        os.mkfifo(self.path)
        self._lines = os.fdopen(os.open(self.path, os.O_RDWR))

    def words(self) -> List[str]:
        return self._lines.readline().split()

    def close(self) -> None:
        self._lines.close()


@pytest.fixture
def heard(tmp_path: pathlib.Path) -> Iterator[Heard]:
    made = Heard(tmp_path)
    yield made
    made.close()


@pytest.fixture
def holders(tmp_path: pathlib.Path) -> Iterator[HeldFifo]:
    with HeldFifo(tmp_path) as made:
        yield made


def shell(script: str, *arguments: str) -> "subprocess.Popen[bytes]":
    command = ["sh", "-c", script, "sh", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )


def hears(heard: Heard, *numbers: int) -> List[str]:
    return [sys.executable, "-c", HEARS, heard.path, *map(str, numbers)]


def test_members_are_all_below_and_all_of_the_session(heard: Heard) -> None:
    # The shell between them ends, so the sleeper has only the session in common with its leader.
    script = '(sleep 1000 >/dev/null & echo $!) & exec "$@"'
    with shell(script, *hears(heard)) as process:
        heard.words()
        assert process.stdout is not None
        sleeper = int(process.stdout.readline())
        assert family.members([process.pid]) == [sleeper]
        assert process.pid in family.members([os.getpid()])
        assert process.pid not in family.members([os.getpid()], [process.pid])
        family.send([sleeper], signal.SIGKILL)
        process.communicate(timeout=LIMIT_S)


@pytest.mark.parametrize(
    "script", ['exec "$@"', '"$@"; exit $?', 'sh -c \'"$@"; exit\' sh "$@"; exit']
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_program_hears_a_signal_behind_any_number_of_shells(
    heard: Heard, script: str, number: int
) -> None:
    with shell(script, *hears(heard, number)) as process:
        program = heard.words()[0]
        family.pass_on([process.pid], number)
        assert heard.words() == [program, "heard", str(int(number))]
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


def test_a_shell_hears_a_trapped_signal_and_a_program_without_handler_lives_on(
    heard: Heard,
) -> None:
    script = "trap 'echo asked' USR1; \"$@\"; exit $?"
    with shell(script, *hears(heard, signal.SIGTERM)) as process:
        heard.words()
        family.pass_on([process.pid], signal.SIGUSR1)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, b"asked\n")


def test_children_of_a_program_with_a_handler_are_its_own_matter(heard: Heard) -> None:
    # The program hears 10 and 15, and starts what hears both too.
    starts = "import subprocess, sys; subprocess.Popen(sys.argv[4:]); del sys.argv[4:]"
    hearing = hears(heard, signal.SIGUSR1, signal.SIGTERM)
    command = [sys.executable, "-c", starts + HEARS, *hearing[3:], *hearing]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        heard.words()
        heard.words()
        for number in (signal.SIGTERM, signal.SIGUSR1):
            family.pass_on([process.pid], number)
            assert heard.words() == [str(process.pid), "heard", str(int(number))]
        process.communicate(timeout=LIMIT_S)


def test_where_no_program_handles_a_signal_all_get_it(holders: HeldFifo) -> None:
    # What starts after the processes are listed hears nothing, so all have started before the line.
    script = 'exec 9>"$1"; (sleep 1000 & echo x >&9; wait) & wait'
    with shell(script, holders.path) as process:
        holders.await_started(1)
        family.pass_on([process.pid], signal.SIGALRM)
        assert process.wait(LIMIT_S) == -signal.SIGALRM
    holders.await_gone()


def test_a_process_that_is_gone_is_passed_over() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(LIMIT_S)
    family.pass_on([process.pid], signal.SIGTERM)
    family.send([process.pid], signal.SIGTERM)
    assert family.members([process.pid]) == []
    assert family.savers([process.pid], signal.SIGTERM) == []
