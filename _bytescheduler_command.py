"""What the commands `bytescheduler` and `bslaunch` run: the package, or why it cannot be used.

The package needs its native extension to be imported at all, so this stands beside it.
"""

import contextlib
import json
import os
import signal
import sys
from typing import Iterator, List

__all__ = ["bslaunch", "bytescheduler"]

_BROKEN = "bytescheduler's native extension cannot be used"
_ADVICE = "mend the installation; docs/user/troubleshooting.md has more"


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody is there to read it
        os.write(2, f"{line}\n".encode(errors="replace"))


def _doctor(why: str, arguments: List[str]) -> int:
    """Print what `bytescheduler doctor` can still say; return the exit code."""
    if "--json" in arguments:
        finding = {
            "area": "software",
            "name": "bytescheduler",
            "level": "problem",
            "text": why,
            "advice": _ADVICE,
        }
        report = {"worst": "problem", "findings": [finding], "link": None}
        text = json.dumps(report, indent=2)
    else:
        text = f"software\n  problem  {why}\n           -> {_ADVICE}\n1 problem"
    # bytescheduler/_process/stdout.py cannot be imported here; this ends the same way.  Nothing
    # stays in a buffer.
    try:
        os.write(1, f"{text}\n".encode(errors="replace"))
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except OSError as error:
        _say(f"bytescheduler: cannot write to standard output: {error.strerror}")
        return os.EX_IOERR
    return 1


def _explain(error: ImportError, program: str, arguments: List[str]) -> int:
    """Say in one line why the package cannot be used; return the exit code."""
    why = " ".join(str(error).split())
    if not why.startswith(_BROKEN):
        raise error
    if program == "bytescheduler" and arguments[:1] == ["doctor"]:
        return _doctor(why, arguments)
    _say(f"{program}: {why}")
    return 1


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once, without the traceback of what is being imported."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def bytescheduler() -> None:
    """Run `bytescheduler`."""
    try:
        with _interruptible():
            from bytescheduler.cli import main
    except ImportError as error:
        sys.exit(_explain(error, "bytescheduler", sys.argv[1:]))
    main()


def bslaunch() -> None:
    """Run `bslaunch`."""
    try:
        with _interruptible():
            from bytescheduler.launch import main
    except ImportError as error:
        sys.exit(_explain(error, "bslaunch", sys.argv[1:]))
    main()
