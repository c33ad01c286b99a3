"""The NCCL of this host, which `BYTESCHEDULER_COMM=nccl` takes if PyTorch has loaded no other."""

import os
import sysconfig
from typing import List

from bytescheduler._doctor.findings import Finding, good, problem
from bytescheduler._doctor.probe import imports

__all__ = ["FILE", "OLDEST", "check"]

_AREA = "software"
# The engine's own are in src/backend/collective/nccl/nccl_library.{h,cc}.
FILE = "libnccl.so.2"
OLDEST = 21400
# Its first function, of a number that it fills.
_VERSION = (
    "(lambda filled: (m.CDLL({file!r}).ncclGetVersion(m.byref(filled)), filled.value)[1])"
    "(m.c_int())"
)


def _file() -> str:
    """Return the library of NVIDIA's packages, which PyTorch's wheels take, or its name."""
    for folder in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")):
        path = os.path.join(folder, "nvidia", "nccl", "lib", FILE)
        if os.path.exists(path):
            return path
    return FILE


def check(limit_s: float) -> List[Finding]:
    """Return a finding for the library, which a process of its own loads.

    Parameters
    ----------
    limit_s : float
        How long that may take.
    """
    file = _file()
    about = imports({"ctypes": _VERSION.format(file=file)}, limit_s)["ctypes"]
    if about.outcome == "version" and about.detail.isdigit():
        number = int(about.detail)
        text = f"NCCL {number // 10000}.{number // 100 % 100}.{number % 100} ({file})"
        if number >= OLDEST:
            return [good(_AREA, "nccl", text)]
        return [problem(_AREA, "nccl", f"{text} is older than 2.14", "pip install -U torch")]
    if f"{file}: cannot open shared object file" in about.detail:
        text = "no NCCL is found; only BYTESCHEDULER_COMM=nccl needs one"
        return [good(_AREA, "nccl", text)]
    text = f"{file} cannot be loaded: {about.detail}"
    return [problem(_AREA, "nccl", text, "install PyTorch again")]
