"""Builds the extension with CMake, adds header and pages; all else is in pyproject.toml."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import List, Optional, Tuple

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
OLDEST_CMAKE = (3, 18)
HEADER = "include/bytescheduler/c_api.h"
# An installation has these too: `bytescheduler docs` and `bytescheduler examples` show them.
SHARED = ("README.md", "CHANGELOG.md", "SECURITY.md", "docs", "example")


def ready_extension() -> Optional[pathlib.Path]:
    """Return an extension that is packed as it is, for whichever Python it was built; or None."""
    named = os.environ.get("BS_EXTENSION")
    return pathlib.Path(named).resolve() if named else None


def version() -> str:
    """Return the version, which is written in CMakeLists.txt and nowhere else."""
    match = re.search(r"^project\(\S+ VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    if match is None:
        raise SystemExit("CMakeLists.txt names no version")
    return match.group(1)


def has_cmake() -> bool:
    """Return whether the machine's own cmake is new enough."""
    cmake = shutil.which("cmake")
    if cmake is None:
        return False
    out = subprocess.run(
        [cmake, "--version"], stdout=subprocess.PIPE, check=False, text=True
    ).stdout
    match = re.search(r"(\d+)\.(\d+)", out)
    return match is not None and (int(match.group(1)), int(match.group(2))) >= OLDEST_CMAKE


def build_tools() -> List[str]:
    """Return the build tools that the machine lacks and PyPI has."""
    tools = [] if has_cmake() else ["cmake>=3.18,<4.1"]
    return tools if shutil.which("ninja") or shutil.which("make") else [*tools, "ninja>=1.10"]


def cmake_message(output: str) -> str:
    """Return what CMake's own error says, without the frame it prints around it."""
    match = re.search(r"CMake Error at [^\n]*\n(.*?)(?:\nCall Stack|\n\n\n|\n-- |\Z)", output, re.S)
    if match is None:
        return "the extension could not be built; the compiler's own words stand above"
    lines = (line.strip() for line in match.group(1).strip().splitlines())
    return "\n".join(line for line in lines if line)


class CMakeBuild(build_ext):
    """Runs CMake for the one extension there is."""

    def build_extension(self, ext: Extension) -> None:
        """Configure, then build bytescheduler/_core; or take one that was built before."""
        extension = ready_extension()
        if extension is not None:
            package = pathlib.Path(self.build_lib, "bytescheduler")
            package.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(extension), str(package))
            return
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).resolve().parent
        ninja = shutil.which("ninja")
        build = pathlib.Path(self.build_temp).resolve() / ("ninja" if ninja else "make")
        if "BS_CMAKE_DIR" in os.environ:  # the Makefile's, which the C++ tests share
            build = ROOT / os.environ["BS_CMAKE_DIR"]
        build.mkdir(parents=True, exist_ok=True)
        cmake = shutil.which("cmake") or "cmake"
        configure = [
            cmake,
            f"-S{ROOT}",
            f"-B{build}",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DBS_BUILD_TESTS=OFF",
            "-DBS_WERROR=OFF",
            "-DBS_BUILD_PYTHON=ON",
            f"-DBS_PYTHON_OUTPUT_DIRECTORY={target}",
            f"-DBS_PYTHON={sys.executable}",
            "-DBS_OTHER_PYTHONS=",
        ]
        if ninja:
            configure += ["-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
        self._run(configure)
        self._run([cmake, "--build", str(build), "--target", "bs_python", "--parallel", jobs])

    @staticmethod
    def _run(command: List[str]) -> None:
        lines = []
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            assert running.stdout is not None
            for line in running.stdout:  # `pip install -v` shows each step as it ends
                print(line, end="", flush=True)
                lines.append(line)
        if running.returncode != 0:
            # The last thing people see is what to do.
            raise SystemExit("\n" + cmake_message("".join(lines)))


class SharingBuild(build_py):
    """Copies the C header, pages and examples beside the modules, unless it is editable."""

    def run(self) -> None:
        """Copy modules, then what is shared."""
        super().run()
        if self.editable_mode:
            return
        header = pathlib.Path(self.build_lib, "bytescheduler", HEADER)
        header.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(ROOT / HEADER), str(header))
        share = pathlib.Path(self.build_lib, "bytescheduler", "_share")
        shutil.rmtree(share, ignore_errors=True)
        for name in SHARED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            share.mkdir(exist_ok=True)
            copy(str(ROOT / name), str(share / name))
        for cache in list(share.rglob("__pycache__")):
            shutil.rmtree(cache)


class Wheel(bdist_wheel):
    """Names the wheel by the Python that its extension is for."""

    def get_tag(self) -> Tuple[str, str, str]:
        """Return the tags of Python, ABI and platform."""
        python, abi, platform = super().get_tag()
        extension = ready_extension()
        if extension is not None:
            match = re.match(r"_core\.cpython-(\d+)(t?)-", extension.name)
            if match is None:
                raise SystemExit(f"{extension.name} is no extension of CPython")
            python = f"cp{match.group(1)}"
            abi = python + match.group(2)
        return python, abi, platform


setup(
    version=version(),
    ext_modules=[Extension("bytescheduler._core", sources=[])],
    cmdclass={"bdist_wheel": Wheel, "build_ext": CMakeBuild, "build_py": SharingBuild},
    setup_requires=build_tools(),
)
