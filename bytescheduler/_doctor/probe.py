"""Imports modules in a child process, because a broken one may crash or hang."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Dict, Mapping, NamedTuple, Tuple

from bytescheduler._process.child import die_with, signal_name

__all__ = ["Import", "imports"]

# Writes the outcome of each import as a line to a pipe of its own, because MXNet may print.  The
# lines are read when the child has ended, so the pipe must hold all of them.
_PROBE = """
import importlib, json, os, sys
sys.path = [p for p in sys.path if p]
out = os.fdopen(int(sys.argv[1]), "w")
for name, about in json.loads(sys.argv[2]).items():
    try:
        said = ["version", str(eval(about, {"m": importlib.import_module(name)}))]
    except ModuleNotFoundError as error:
        said = ["missing", ""] if error.name == name else ["broken", str(error)]
    except BaseException as error:
        said = ["broken", type(error).__name__ + ": " + str(error)]
    out.write(json.dumps([name, said[0], said[1][-1000:]]) + "\\n")
    out.flush()
os._exit(0)
"""


class Import(NamedTuple):
    """The outcome of an import."""

    outcome: str  # version, missing or broken
    detail: str  # the answer to the expression, or the cause


def _clean_environment() -> Dict[str, str]:
    """Return an environment in which importing MXNet starts no role of a job."""
    return {name: text for name, text in os.environ.items() if not name.startswith("DMLC_")}


def _run_probe(modules: Mapping[str, str], limit_s: float) -> Tuple[str, str]:
    """Return the child's lines, and how it ended if that was not well.

    Raises
    ------
    OSError
        It cannot be started.
    """
    us = os.getpid()
    told, tells = os.pipe()  # a file would want space in /tmp
    try:
        os.set_blocking(told, False)
        child = subprocess.Popen(
            [sys.executable, "-c", _PROBE, str(tells), json.dumps(modules)],
            env=_clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(tells,),
            start_new_session=True,
            preexec_fn=lambda: die_with(us),
        )
        try:
            code = child.wait(limit_s)
            end = f"it was ended by {signal_name(-code)}" if code < 0 else f"it ended with {code}"
        except subprocess.TimeoutExpired:
            code, end = 1, f"it was not done in {limit_s:g} s"
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        text = b""
        with contextlib.suppress(BlockingIOError):  # it told nothing
            text = os.read(told, 1 << 16)
        return text.decode("utf-8", "replace"), end if code else ""
    finally:
        os.close(told)
        os.close(tells)


def imports(modules: Mapping[str, str], limit_s: float) -> Dict[str, Import]:
    """Return the outcome of importing modules in their order, up to one that ends the process.

    Parameters
    ----------
    modules : mapping of str to str
        An expression by the name of a module, which it calls ``m``: what to return of it.
    limit_s : float
        How long all of them may take.
    """
    try:
        text, end = _run_probe(modules, limit_s)
    except OSError as error:
        text, end = "", f"it could not be started: {error.strerror}"
    outcomes: Dict[str, Import] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            name, outcome, detail = json.loads(line)
            outcomes[name] = Import(outcome, (detail.strip().splitlines() or [""])[-1])
    for name in modules:
        if name not in outcomes:
            outcomes[name] = Import("broken", end or "it said nothing")
            break
    return outcomes
