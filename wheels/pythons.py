"""The Pythons that the package promises, and where this machine has them.

``pythons.py`` prints one a line: its version and its program, or why it cannot be used.
"""

import pathlib
import re
import shutil
import subprocess
from typing import Dict, Iterator, List, Optional

__all__ = ["find", "interpreters", "promised", "why_missing"]

ROOT = pathlib.Path(__file__).resolve().parents[1]
_ASK = """
import os, sys, sysconfig
print("%d.%d" % sys.version_info[:2], os.path.exists(sysconfig.get_config_var("INCLUDEPY")
      + "/Python.h"), sys.executable, sep="\\n")
"""


def promised() -> List[str]:
    """Return the versions that pyproject.toml names, the oldest first."""
    text = (ROOT / "pyproject.toml").read_text()
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text)


def _output_of(*command: str) -> Optional[str]:
    """Return what a program printed; None if there is none or it failed."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _candidates(version: str) -> Iterator[str]:
    """Yield programs that may be that Python: on the path, of pyenv, of uv."""
    yield f"python{version}"
    for name in (_output_of("pyenv", "versions", "--bare") or "").split():
        if re.fullmatch(re.escape(version) + r"\.\d+", name):
            prefix = _output_of("pyenv", "prefix", name)
            if prefix:
                yield f"{prefix}/bin/python"
    found = _output_of("uv", "python", "find", "--no-project", "--offline", version)
    if found:
        yield found


def _look(version: str) -> Dict[str, str]:
    """Return where it is, or why it cannot be used."""
    reason = f"Python {version} is not on this machine"
    for candidate in _candidates(version):
        said = _output_of(candidate, "-I", "-c", _ASK)
        if said is None or said.count("\n") != 2:
            continue  # a shim of pyenv for a version that is not chosen
        actual, has_headers, program = said.split("\n")
        if actual != version:
            continue
        if has_headers == "True":
            return {"program": program}
        reason = f"{program} has no Python.h (apt-get install python{version}-dev)"
    return {"reason": reason}


def find(version: str) -> Optional[str]:
    """Return the program of that Python, if it can build extensions."""
    return _look(version).get("program")


def why_missing(version: str) -> str:
    """Return why `find` finds nothing."""
    return _look(version).get("reason", "")


def interpreters(versions: List[str]) -> Dict[str, str]:
    """Return version -> program, of those that are here."""
    looked = ((version, find(version)) for version in versions)
    return {version: program for version, program in looked if program}


if __name__ == "__main__":
    for each in promised():
        print(each, find(each) or why_missing(each))
