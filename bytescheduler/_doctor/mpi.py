"""The MPI libraries of this host, of which `BYTESCHEDULER_COMM=mpi` takes the launcher's."""

import os
import shutil
import sys
from typing import Dict, List, NamedTuple

from bytescheduler._doctor.findings import Finding, good, problem
from bytescheduler._doctor.probe import imports

__all__ = ["LIBRARIES", "check"]

_AREA = "software"


class Library(NamedTuple):
    """A library of MPI, by the name under which the engine looks for it.

    Parameters
    ----------
    file : str
        That name.
    abi : str
        The name of its ABI.
    launcher : str
        The launcher for whose processes the engine takes it.
    """

    file: str
    abi: str
    launcher: str


# The engine's own table is src/backend/collective/mpi/mpi_abi.cc.
LIBRARIES = (
    Library("libmpi.so.40", "Open MPI", "Open MPI"),
    Library("libmpi.so.12", "MPICH", "MPICH"),
    Library("libmpich.so.12", "MPICH", "MPICH"),
    Library("libmpi_abi.so.1", "MPI-5", "MPICH"),
)
# The text that a library says of itself; MPI need not be initialised.
_VERSION = (
    "(lambda text, length: (m.CDLL({file!r}).MPI_Get_library_version(text, m.byref(length)), "
    "text.value.decode().split('\\n')[0])[1])(m.create_string_buffer(8193), m.c_int())"
)


def _folders() -> List[str]:
    """Return folders of libraries beside the programs that start MPI jobs here."""
    programs = [shutil.which(name) for name in ("mpirun", "mpiexec")]
    files = [os.path.realpath(program) for program in programs if program]
    roots = [os.path.dirname(os.path.dirname(file)) for file in files]
    return list(dict.fromkeys(os.path.join(root, "lib") for root in (*roots, sys.prefix)))


def _files(name: str) -> List[str]:
    """Return where a library may be, as a path, or by its name for the system's loader."""
    paths = [os.path.join(folder, name) for folder in _folders()]
    return [path for path in paths if os.path.exists(path)] or [name]


def check(limit_s: float) -> List[Finding]:
    """Return a finding for each library, each of which a process of its own loads.

    Parameters
    ----------
    limit_s : float
        How long a library may take.
    """
    findings: Dict[str, Finding] = {}
    for library in LIBRARIES:
        for file in _files(library.file):
            name = f"mpi {file}"
            about = imports({"ctypes": _VERSION.format(file=file)}, limit_s)["ctypes"]
            if about.outcome == "version":
                version = " ".join(about.detail.split(",")[0].split())
                text = f"{version}, ABI of {library.abi}, for {library.launcher}'s mpirun ({file})"
                findings[name] = good(_AREA, name, text)
            elif f"{file}: cannot open shared object file" not in about.detail:
                text = f"the MPI library {file} cannot be loaded: {about.detail}"
                findings[name] = problem(_AREA, name, text, "install it again")
    if not findings:
        text = "no MPI library is found; only BYTESCHEDULER_COMM=mpi needs one"
        return [good(_AREA, "mpi", text)]
    return list(findings.values())
