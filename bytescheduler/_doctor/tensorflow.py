"""TensorFlow: its version, and whether its operations can be compiled here."""

import os
import pathlib
import re
import shutil
from importlib import metadata
from typing import List, Mapping, Optional

from bytescheduler._doctor.findings import Finding, good, problem, warning
from bytescheduler._settings import Settings

__all__ = ["check"]

_AREA = "software"
_NAME = "tensorflow"
# Builds of it.
_PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly")
_FIRST = (2, 15)
_COMPILERS = ("g++", "c++", "clang++")
_BUILD = "python -m bytescheduler.tensorflow.build --out FILE"


def _installed() -> Optional[str]:
    for package in _PACKAGES:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


def _has_compiler(variables: Mapping[str, str]) -> bool:
    named = variables.get("CXX", "").split()[:1]  # arguments may follow
    return any(shutil.which(candidate) for candidate in named or _COMPILERS)


def _folder_with_library(version: str, variables: Mapping[str, str]) -> Optional[pathlib.Path]:
    """Return the folder of a library for a version, which may be for other flags; or None."""
    cache = variables.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    folder = pathlib.Path(cache, "bytescheduler")
    return folder if any(folder.glob(f"tf-{version}-*.so")) else None


def check(variables: Mapping[str, str] = os.environ) -> List[Finding]:
    """Look at TensorFlow without importing it; no finding if it is not installed.

    Parameters
    ----------
    variables : mapping of str to str
        Those of this process.
    """
    version = _installed()
    if version is None:
        return []
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _FIRST:
        text = f"TensorFlow {version}: bytescheduler.tensorflow needs 2.15 or newer"
        return [problem(_AREA, _NAME, text, "install a newer TensorFlow, as its own page says")]
    chosen = Settings.read().tf_op
    if chosen and not pathlib.Path(chosen).is_file():
        text = f"TensorFlow {version}; BYTESCHEDULER_TF_OP={chosen} is no file"
        return [problem(_AREA, _NAME, text, f"make the file by {_BUILD}, or unset the setting")]
    if chosen:
        return [good(_AREA, _NAME, f"TensorFlow {version}, with the operations of {chosen}")]
    folder = _folder_with_library(version, variables)
    if folder is not None:
        text = f"TensorFlow {version}; a library of its operations is in {folder}"
        return [good(_AREA, _NAME, text)]
    if _has_compiler(variables):
        text = f"TensorFlow {version}; the first import of bytescheduler.tensorflow compiles"
        return [good(_AREA, _NAME, text)]
    text = f"TensorFlow {version}, and no C++ compiler for its operations"
    advice = (
        f"apt-get install g++, or run {_BUILD} on a machine with the same TensorFlow, and set "
        "BYTESCHEDULER_TF_OP=FILE"
    )
    return [warning(_AREA, _NAME, text, advice)]
