"""Python, the engine, numpy and frameworks: which they are, and whether they fit together."""

import platform
import re
import sys
from typing import List, Optional

from bytescheduler import __version__
from bytescheduler._doctor import mpi, nccl, tensorflow
from bytescheduler._doctor.findings import Finding, good, problem, warning
from bytescheduler._doctor.probe import Import, imports
from bytescheduler._process.say import counted
from bytescheduler._tuning.advisor import LIBRARY, has_library

__all__ = ["check"]

_AREA = "software"
_MXNET = "1.9.1"
_FIRST_WRONG_NUMPY = (1, 24)
_FIRST_WITHOUT_MXNET = (3, 12)
_FIRST_TORCH = (2, 1)
# The version of PyTorch, the CUDA that it is built for or 0, and the GPUs that it sees.
_ABOUT_TORCH = "f'{m.__version__} {m.version.cuda or 0} {m.cuda.device_count()}'"
_INSTALL_TORCH = "install a newer PyTorch, as its own page says, then bytescheduler[torch]"
_INSTALL = f'python -m pip install "mxnet=={_MXNET}" "numpy==1.23.5"'


def _how_to_install() -> str:
    """Return how this Python gets MXNet, or which Python can have it."""
    if sys.version_info < _FIRST_WITHOUT_MXNET:
        return _INSTALL
    return f"MXNet {_MXNET} has no release for this Python: use 3.8 to 3.11 for workers with MXNet"


def _is_missing(result: Optional[Import]) -> bool:
    return result is not None and result.outcome == "missing"


def _numpy(numpy: Import, mxnet: Optional[Import], torch: Import) -> Finding:
    instead = _is_missing(mxnet) and torch.outcome == "version"
    if numpy.outcome == "missing":
        if instead:
            return good(_AREA, "numpy", "numpy is not installed; PyTorch does without it")
        return warning(_AREA, "numpy", "numpy is not installed; MXNet needs it", _how_to_install())
    if numpy.outcome == "broken":
        text = f"numpy cannot be imported: {numpy.detail}"
        return problem(_AREA, "numpy", text, _INSTALL)
    numbers = tuple(int(part) for part in re.findall(r"\d+", numpy.detail)[:2])
    if numbers >= _FIRST_WRONG_NUMPY and not instead:
        text = f"numpy {numpy.detail}: MXNet {_MXNET} does not work with 1.24 or newer"
        return problem(_AREA, "numpy", text, 'python -m pip install "numpy==1.23.5"')
    return good(_AREA, "numpy", f"numpy {numpy.detail}")


def _mxnet(mxnet: Import, torch: Import, role: str) -> Finding:
    if mxnet.outcome == "missing":
        text = "MXNet is not installed"
        if torch.outcome == "version":
            return good(_AREA, "mxnet", f"{text}; only workers that train with it need it")
        if role in ("scheduler", "server"):
            return good(_AREA, "mxnet", f"{text}; a {role} needs it for pickled optimizers only")
        level = problem if role == "worker" else warning
        return level(_AREA, "mxnet", f"{text}; workers need it, or PyTorch", _how_to_install())
    if mxnet.outcome == "broken":
        text = f"MXNet cannot be imported: {mxnet.detail}"
        advice = (
            f"{_INSTALL}; if a library is missing: apt-get install libgomp1 libgfortran5 "
            "libopenblas0"
        )
        return problem(_AREA, "mxnet", text, advice)
    if mxnet.detail != _MXNET:
        text = f"MXNet {mxnet.detail}: bytescheduler is made for {_MXNET}"
        return problem(_AREA, "mxnet", text, _INSTALL)
    return good(_AREA, "mxnet", f"MXNet {mxnet.detail}")


def _torch(torch: Import) -> Finding:
    if torch.outcome == "missing":
        text = "PyTorch is not installed; only workers that train with it need it"
        return good(_AREA, "torch", text)
    if torch.outcome == "broken":
        text = f"PyTorch cannot be imported: {torch.detail}"
        return problem(_AREA, "torch", text, "install PyTorch again, as its own page says")
    version, cuda, gpus = torch.detail.split()
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _FIRST_TORCH:
        text = f"PyTorch {version}: bytescheduler.torch needs 2.1 or newer"
        return problem(_AREA, "torch", text, _INSTALL_TORCH)
    if cuda == "0":
        return good(_AREA, "torch", f"PyTorch {version}, for processors alone")
    seen = counted(int(gpus), "GPU") if int(gpus) else "no GPU"
    return good(_AREA, "torch", f"PyTorch {version}, for CUDA {cuda}; it sees {seen}")


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
        How long importing numpy and MXNet may take, and as long again PyTorch and each
        library of collective operations.
    """
    findings = [good(_AREA, "python", f"Python {platform.python_version()} ({sys.executable})")]
    # That it can be imported was shown when this package was.
    findings.append(
        good(_AREA, "engine", f"bytescheduler {__version__}, with its native extension")
    )
    imported = imports({"numpy": "m.__version__", "mxnet": "m.__version__"}, limit_s)
    torch = imports({"torch": _ABOUT_TORCH}, limit_s)["torch"]
    findings.append(_numpy(imported["numpy"], imported.get("mxnet"), torch))
    if "mxnet" in imported:
        findings.append(_mxnet(imported["mxnet"], torch, role))
    findings += [_torch(torch), *tensorflow.check()]
    return [*findings, *mpi.check(limit_s), *nccl.check(limit_s), *_tuning(role)]
