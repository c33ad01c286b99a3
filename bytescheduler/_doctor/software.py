"""Python, the engine, numpy and MXNet: which they are, and whether they fit together.

numpy and MXNet are imported in a child process: a broken MXNet may crash or hang.
"""

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
from typing import Dict, List, NamedTuple, Tuple

from bytescheduler import __version__
from bytescheduler._doctor.findings import Finding, good, problem, warning
from bytescheduler._process.child import die_with, signal_name
from bytescheduler._tuning.advisor import LIBRARY, has_library

__all__ = ["check"]

_AREA = "software"
_MXNET = "1.9.1"
_FIRST_WRONG_NUMPY = (1, 24)
_FIRST_WITHOUT_MXNET = (3, 12)
_INSTALL = f'python -m pip install "mxnet=={_MXNET}" "numpy==1.23.5"'
# Writes the outcome of each import as a line to a pipe of its own, because MXNet may print.  The
# lines are read when the child has ended, so the pipe must hold both.
_PROBE = """
import importlib, json, os, sys
sys.path = [p for p in sys.path if p]
out = os.fdopen(int(sys.argv[1]), "w")
for name in ("numpy", "mxnet"):
    try:
        said = ["version", str(importlib.import_module(name).__version__)]
    except ModuleNotFoundError as error:
        said = ["missing", ""] if error.name == name else ["broken", str(error)]
    except BaseException as error:
        said = ["broken", type(error).__name__ + ": " + str(error)]
    out.write(json.dumps([name, said[0], said[1][-1000:]]) + "\\n")
    out.flush()
os._exit(0)
"""


class _Import(NamedTuple):
    outcome: str  # version, missing or broken
    detail: str


def _clean_environment() -> Dict[str, str]:
    """Return an environment in which importing MXNet starts no role of a job."""
    return {name: text for name, text in os.environ.items() if not name.startswith("DMLC_")}


def _run_probe(program: str, limit_s: float) -> Tuple[str, str]:
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
            [sys.executable, "-c", program, str(tells)],
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


def _imports(limit_s: float) -> Dict[str, _Import]:
    """Return the outcome of importing numpy, then MXNet."""
    try:
        text, end = _run_probe(_PROBE, limit_s)
    except OSError as error:
        text, end = "", f"it could not be started: {error.strerror}"
    found: Dict[str, _Import] = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            name, outcome, detail = json.loads(line)
            found[name] = _Import(outcome, (detail.strip().splitlines() or [""])[-1])
    for name in ("numpy", "mxnet"):
        if name not in found:
            found[name] = _Import("broken", end or "it said nothing")
            break
    return found


def _how_to_install() -> str:
    """Return how this Python gets MXNet, or which Python can have it."""
    if sys.version_info < _FIRST_WITHOUT_MXNET:
        return _INSTALL
    return f"MXNet {_MXNET} has no release for this Python: use 3.8 to 3.11 for workers with MXNet"


def _numpy(found: _Import) -> Finding:
    if found.outcome == "missing":
        return warning(_AREA, "numpy", "numpy is not installed; MXNet needs it", _how_to_install())
    if found.outcome == "broken":
        text = f"numpy cannot be imported: {found.detail}"
        return problem(_AREA, "numpy", text, _INSTALL)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found.detail)[:2])
    if numbers >= _FIRST_WRONG_NUMPY:
        text = f"numpy {found.detail}: MXNet {_MXNET} does not work with 1.24 or newer"
        return problem(_AREA, "numpy", text, 'python -m pip install "numpy==1.23.5"')
    return good(_AREA, "numpy", f"numpy {found.detail}")


def _mxnet(found: _Import, role: str) -> Finding:
    if found.outcome == "missing":
        text = "MXNet is not installed"
        if role in ("scheduler", "server"):
            return good(_AREA, "mxnet", f"{text}; a {role} needs it for pickled optimizers only")
        level = problem if role == "worker" else warning
        return level(_AREA, "mxnet", f"{text}; workers need it", _how_to_install())
    if found.outcome == "broken":
        text = f"MXNet cannot be imported: {found.detail}"
        advice = (
            f"{_INSTALL}; if a library is missing: apt-get install libgomp1 libgfortran5 "
            "libopenblas0"
        )
        return problem(_AREA, "mxnet", text, advice)
    if found.detail != _MXNET:
        text = f"MXNet {found.detail}: bytescheduler is made for {_MXNET}"
        return problem(_AREA, "mxnet", text, _INSTALL)
    return good(_AREA, "mxnet", f"MXNet {found.detail}")


def _tuning(role: str) -> List[Finding]:
    if role in ("scheduler", "server"):
        return []
    name = LIBRARY.split("==")[0]
    if not has_library():
        text = f"{name} is not installed; without it partition and credit are not tuned"
        return [warning(_AREA, "tuning", text, f'python -m pip install "{LIBRARY}"')]
    return [good(_AREA, "tuning", f"{name} is there: partition and credit are tuned")]


def check(role: str, *, limit_s: float = 60.0) -> List[Finding]:
    """Look at the software.

    Parameters
    ----------
    role : str
        DMLC_ROLE, or empty.
    limit_s : float, optional
        How long importing numpy and MXNet may take.
    """
    findings = [good(_AREA, "python", f"Python {platform.python_version()} ({sys.executable})")]
    # That it can be imported was shown when this package was.
    findings.append(
        good(_AREA, "engine", f"bytescheduler {__version__}, with its native extension")
    )
    imports = _imports(limit_s)
    findings.append(_numpy(imports["numpy"]))
    if "mxnet" in imports:
        findings.append(_mxnet(imports["mxnet"], role))
    return findings + _tuning(role)
