"""A file system with one Python and the libraries of every system, for programs that need no more.

It has no compiler, no shell, and none of the libraries that the engine is linked to.
"""

import os
import pathlib
import re
import shutil
import subprocess
from typing import Dict, Iterable, List, Optional

__all__ = ["BareRoot", "why_not_here"]

# Enters a root in namespaces of its own; devices and the list of processes are the host's.
_ENTER = """
set -e
for name in dev proc sys; do mount --rbind /$name "$1/$name"; done
exec chroot "$1" /bin/env -i HOME=/tmp PATH=/python/bin LC_ALL=C.UTF-8 "${@:2}"
"""
# What a platform of PEP 600 promises besides the C library itself.
_PROMISED = (
    *("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2"),
    *("librt.so.1", "libutil.so.1", "libresolv.so.2", "libnss_files.so.2"),
)
_LEFT_OUT = (
    *("__pycache__", "test", "idlelib", "ensurepip", "site-packages", "config-*", "lib2to3"),
    "_tkinter*",  # it brings a window system
)


def _unshare() -> List[str]:
    maps = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *maps, "--mount", "--fork", "--kill-child"]


def why_not_here() -> Optional[str]:
    """Return why no root can be entered on this machine."""
    probe = [*_unshare(), "sh", "-c", "mount --rbind /proc /proc"]
    done = subprocess.run(probe, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return None if done.returncode == 0 else "this user cannot mount in a namespace of its own"


def _libraries_of(files: Iterable[pathlib.Path]) -> Dict[str, pathlib.Path]:
    """Return name -> place of all that those programs and libraries load."""
    found = {}
    for file in files:
        listed = subprocess.run(
            ["ldd", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            text=True,
        ).stdout
        for name, path in re.findall(r"(\S+) => (/\S+)", listed):
            found[name] = pathlib.Path(path)
        for path in re.findall(r"^\s*(/\S+) \(", listed, re.M):  # the loader
            found[path] = pathlib.Path(path)
    return found


class BareRoot:
    """A root at `folder` with that Python at /python."""

    def __init__(self, folder: pathlib.Path, python: str) -> None:
        self.folder = folder
        prefix, name = subprocess.run(
            [
                python,
                "-c",
                "import sys; print(sys.base_prefix, 'python%d.%d' % sys.version_info[:2])",
            ],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout.split()
        for made in ("bin", "dev", "proc", "sys", "tmp", "etc", "lib", "python/bin"):
            (folder / made).mkdir(parents=True)
        program = folder / "python" / "bin" / name
        shutil.copy(os.path.realpath(f"{prefix}/bin/{name}"), program)
        modules = folder / "python" / "lib" / name
        ignored = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(f"{prefix}/lib/{name}", modules, ignore=ignored, symlinks=True)
        self.packages = modules / "site-packages"
        self.packages.mkdir()
        shutil.copy(shutil.which("env") or "/usr/bin/env", folder / "bin" / "env")
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        (folder / "etc" / "passwd").write_text("root:x:0:0:root:/tmp:/bin/sh\n")
        linked = _libraries_of([program, folder / "bin" / "env", *modules.rglob("*.so")])
        beside = next(path.parent for name, path in linked.items() if name == "libc.so.6")
        linked.update({name: beside / name for name in _PROMISED if (beside / name).exists()})
        for library, path in linked.items():
            # The loader has to stand where programs name it; all else stands in /lib.
            target = folder / (library.lstrip("/") if library.startswith("/") else f"lib/{library}")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(path), target)

    def run(self, *command: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a command of the root; stdout has what it printed, stderr included."""
        return subprocess.run(
            [*_unshare(), "bash", "-c", _ENTER, "bash", str(self.folder), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            text=True,
            timeout=timeout_s,
        )
