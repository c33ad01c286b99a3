"""The package: what it shows, what importing it does not do, what it says when it is not built."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from typing import Tuple

import pytest
from inline_snapshot import snapshot
from sentences import masked

import bytescheduler
from bytescheduler import errors

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_python(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.parametrize("module", [bytescheduler, errors])
def test_all_is_sorted_and_there(module: object) -> None:
    names = module.__all__  # type: ignore[attr-defined]
    assert list(names) == sorted(names)
    assert all(hasattr(module, name) for name in names)


def test_the_package_shows_every_error() -> None:
    assert set(errors.__all__) | {"__version__"} == set(bytescheduler.__all__)


def test_the_version_is_that_of_the_engine_and_of_cmake() -> None:
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert f"VERSION {bytescheduler.__version__} " in cmake


def test_importing_starts_nothing_and_imports_no_framework() -> None:
    done = run_python(
        "-c",
        "import sys, os, bytescheduler, bytescheduler.cli, bytescheduler.server\n"
        "assert not {'mxnet', 'torch', 'tensorflow', 'numpy'} & set(sys.modules)\n"
        "print(len(os.listdir('/proc/self/task')))",
    )
    assert done.stdout.strip() == "1", done.stdout


def test_a_python_without_mxnet_is_told_how_to_get_it() -> None:
    blocked = "import sys; sys.modules['mxnet'] = None; {}; import bytescheduler.mxnet"
    last = [
        run_python("-c", blocked.format(before)).stdout.strip().splitlines()[-1]
        for before in ("pass", "sys.version_info = (3, 12, 0, 'final', 0)")
    ]
    says = "ModuleNotFoundError: MXNet is not installed: "
    newer = f"{says}its last release, 1.9.1, runs on Python 3.8 to 3.11; use one of those"
    if sys.version_info < (3, 12):
        assert last[0] == f"{says}python -m pip install 'bytescheduler[mxnet]'"
    assert last[1] == newer


@pytest.mark.parametrize(
    ("code", "kind", "also"),
    [
        (1, bytescheduler.ConfigError, ValueError),
        (2, bytescheduler.Timeout, TimeoutError),
        (3, bytescheduler.Closed, RuntimeError),
        (4, bytescheduler.PeerLost, ConnectionError),
        (5, bytescheduler.UsageError, RuntimeError),
        (10, bytescheduler.Error, RuntimeError),
        (77, bytescheduler.Error, RuntimeError),
    ],
)
def test_codes_become_exceptions(code: int, kind: type, also: type) -> None:
    error = errors._from_code(code, "lost server 0")
    assert type(error) is kind
    assert isinstance(error, also)
    assert isinstance(error, bytescheduler.Error)
    assert str(error) == "lost server 0"
    assert error.code == code


def copy_package(target: pathlib.Path) -> pathlib.Path:
    shutil.copytree(
        str(ROOT / "bytescheduler"),
        str(target / "bytescheduler"),
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    return target / "bytescheduler"


def import_error(directory: pathlib.Path) -> str:
    # Without site-packages: an editable installation would lend its own extension.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = run_python("-S", "-c", "import bytescheduler", cwd=str(directory), env=env)
    assert done.returncode != 0
    return done.stdout.strip().splitlines()[-1]


def test_an_unbuilt_source_tree_names_the_cure(tmp_path: pathlib.Path) -> None:
    copy_package(tmp_path)
    (tmp_path / "setup.py").write_text("")
    assert masked(import_error(tmp_path), FOLDER=tmp_path) == snapshot(
        "ImportError: bytescheduler's native extension cannot be used: FOLDER/bytescheduler is a "
        "source tree in which it was not built. Run pip install -e . there, or pip install . and "
        "then start Python in another directory"
    )


def test_an_incomplete_installation_is_told(tmp_path: pathlib.Path) -> None:
    copy_package(tmp_path)
    assert "the installation is incomplete" in import_error(tmp_path)


def test_an_extension_of_another_python_is_named(tmp_path: pathlib.Path) -> None:
    package = copy_package(tmp_path)
    (package / "_core.cpython-27-elsewhere.so").write_bytes(b"")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert masked(import_error(tmp_path), SUFFIX=suffix) == snapshot(
        "ImportError: bytescheduler's native extension cannot be used: it was built for another "
        "Python (_core.cpython-27-elsewhere.so), this one wants _coreSUFFIX. Build it with this "
        "Python: python -m pip install ."
    )


def test_an_extension_that_does_not_load_is_named(tmp_path: pathlib.Path) -> None:
    package = copy_package(tmp_path)
    (package / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(b"no library")
    assert "does not load or is older than the Python files" in import_error(tmp_path)


def test_a_library_that_an_extension_lacks_is_named_with_its_package(
    tmp_path: pathlib.Path,
) -> None:
    import sysconfig

    package = copy_package(tmp_path)
    lost = tmp_path / "libnonesuch.so.5"  # a file that no host has
    shared = ["g++", "-shared", "-fPIC", "-x", "c++", "/dev/null"]
    subprocess.run([*shared, f"-Wl,-soname,{lost.name}", "-o", str(lost)], check=True)
    extension = package / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    needing = ["-Wl,--no-as-needed", "-x", "none", str(lost), "-o", str(extension)]
    subprocess.run([*shared, *needing], check=True)
    lost.unlink()
    said = import_error(tmp_path)
    assert said[said.index("needs ") :] == snapshot(
        "needs libnonesuch.so.5. On Debian or Ubuntu: apt-get install libnonesuch5"
    )


def run_command(
    directory: pathlib.Path, name: str, *arguments: str, stdout: int = subprocess.PIPE
) -> "Tuple[int, str, str]":
    shutil.copy(ROOT / "_bytescheduler_command.py", directory)
    program = f"import _bytescheduler_command as c; c.{name}()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, *arguments],
        cwd=directory,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout or "", done.stderr


@pytest.mark.parametrize("name", ["bytescheduler", "bslaunch"])
def test_commands_without_the_extension_end_with_one_line(
    tmp_path: pathlib.Path, name: str
) -> None:
    copy_package(tmp_path)
    code, stdout, stderr = run_command(tmp_path, name, "config")
    assert (code, stdout) == (1, "")
    assert stderr.startswith(f"{name}: bytescheduler's native extension cannot be used: the inst")
    assert stderr.count("\n") == 1


def test_doctor_finds_that_the_extension_is_missing(tmp_path: pathlib.Path) -> None:
    copy_package(tmp_path)
    code, stdout, stderr = run_command(tmp_path, "bytescheduler", "doctor", "--json")
    assert (code, stderr) == (1, "")
    report = json.loads(stdout)
    assert report["worst"] == "problem"
    assert report["link"] is None
    (finding,) = report["findings"]
    assert set(finding) == {"area", "name", "level", "text", "advice"}
    assert "the installation is incomplete" in finding["text"]
    code, stdout, _ = run_command(tmp_path, "bytescheduler", "doctor")
    assert code == 1
    assert "  problem  bytescheduler's native extension cannot be used: " in stdout
    with open("/dev/full", "w") as full:
        code, _, stderr = run_command(tmp_path, "bytescheduler", "doctor", stdout=full.fileno())
    cannot = "bytescheduler: cannot write to standard output: No space left on device\n"
    assert (code, stderr) == (74, cannot)


def test_an_import_error_of_another_module_is_not_explained_away(tmp_path: pathlib.Path) -> None:
    copy_package(tmp_path)
    (tmp_path / "bytescheduler" / "__init__.py").write_text("import nosuchmodule\n")
    code, _, stderr = run_command(tmp_path, "bytescheduler", "config")
    assert code == 1
    assert stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'nosuchmodule'"


def test_the_source_distribution_is_whole(tmp_path: pathlib.Path) -> None:
    """Pip builds from it: whatever CMake, Cython or Python reads has to be in it."""
    made = run_python(
        *("setup.py", "-q", "egg_info", "--egg-base", str(tmp_path), "sdist", "-d", str(tmp_path)),
        cwd=ROOT,
    )
    assert made.returncode == 0, made.stdout
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    folders = ("3rdparty", "bytescheduler", "include", "python", "src")
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *folders],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    needed = {name for name in tracked if (ROOT / name).exists()}
    assert len(needed) > 200
    needed.add("_bytescheduler_command.py")
    assert {"docs/user/running.md", "example/image-classification/train_mnist.py"} <= names
    assert needed | {"CMakeLists.txt", "LICENSE", "pyproject.toml", "setup.py"} <= names


def failed_build(folder: pathlib.Path, **env: str) -> str:
    """Build the extension where that must fail; return what was said last."""
    build = run_python(
        *("setup.py", "-q", "egg_info", "--egg-base", str(folder)),
        *("build_ext", "--build-temp", str(folder / "temp"), "--build-lib", str(folder)),
        cwd=ROOT,
        env={**os.environ, **env},
    )
    assert build.returncode != 0
    return build.stdout.strip().splitlines()[-1]


def test_missing_system_libraries_are_named_with_their_packages(tmp_path: pathlib.Path) -> None:
    said = failed_build(tmp_path, PKG_CONFIG_LIBDIR=str(tmp_path), PKG_CONFIG_PATH="")
    assert said == snapshot("apt-get install libzmq3-dev libsodium-dev libhwloc-dev libnuma-dev")


def test_missing_headers_are_named_with_their_packages(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [
            *("cmake", "-S", str(ROOT), "-B", str(tmp_path), "-DCMAKE_IGNORE_PATH=/usr/include"),
            *("-DBS_BUILD_TESTS=OFF", "-DBS_BUILD_PYTHON=OFF"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    assert done.returncode != 0
    assert "apt-get install libprotozero-dev libibverbs-dev" in done.stdout


_SLOW_CMAKE = """#!/bin/sh
case "$1" in
  --version) echo "cmake version 3.25.1" ;;
  --build)
    echo "[1/2] Building a.o"
    for _ in $(seq 600); do test -e "$SEEN" && exit 0; sleep 0.05; done
    exit 1 ;;
esac
"""


def test_a_build_prints_each_step_when_it_ends(tmp_path: pathlib.Path) -> None:
    """The build goes on when the test has read its first step."""
    cmake, seen = tmp_path / "bin" / "cmake", tmp_path / "seen"
    cmake.parent.mkdir()
    cmake.write_text(_SLOW_CMAKE)
    cmake.chmod(0o755)
    path = f"{cmake.parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [
            *(sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)),
            *("build_ext", "--build-temp", str(tmp_path / "temp"), "--build-lib", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "SEEN": str(seen)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as build:
        assert build.stdout is not None
        for line in build.stdout:
            if line.startswith("[1/2]"):
                seen.touch()
    assert build.returncode == 0


def path_without_compilers(folder: pathlib.Path) -> str:
    """Return a PATH that has what the build calls, but no compiler."""
    folder.mkdir()
    for name in ("cmake", "ninja", "make", "uname", "sh"):
        place = shutil.which(name)
        if place is not None:
            (folder / name).symlink_to(place)
    return str(folder)


def test_a_missing_compiler_is_named_beside_missing_libraries(tmp_path: pathlib.Path) -> None:
    env = {"PATH": path_without_compilers(tmp_path / "bin"), "CXX": ""}
    assert failed_build(tmp_path, **env) == "apt-get install g++"
    shutil.rmtree(tmp_path / "temp")
    said = failed_build(tmp_path, PKG_CONFIG_LIBDIR=str(tmp_path), PKG_CONFIG_PATH="", **env)
    assert said == snapshot(
        "apt-get install g++ libzmq3-dev libsodium-dev libhwloc-dev libnuma-dev"
    )


def test_a_compiler_that_was_asked_for_is_not_explained_away(tmp_path: pathlib.Path) -> None:
    path = path_without_compilers(tmp_path / "bin")
    assert failed_build(tmp_path, PATH=path, CXX="nonesuch") == "nonesuch."


def test_missing_headers_of_python_are_named_with_their_package(tmp_path: pathlib.Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf '/nonesuch;.so;python3.9-dev'\n")
    python.chmod(0o755)
    options = ["-DBS_BUILD_PYTHON=ON", "-DBS_BUILD_TESTS=OFF", f"-DBS_PYTHON={python}"]
    done = subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(tmp_path / "build"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    assert done.returncode != 0
    assert "apt-get install python3.9-dev" in (line.strip() for line in done.stdout.splitlines())


def test_cmake_installs_the_c_header_alone(tmp_path: pathlib.Path) -> None:
    build, prefix = str(tmp_path / "build"), tmp_path / "prefix"
    for command in (
        ["-S", str(ROOT), "-B", build, "-DBS_BUILD_TESTS=OFF"],
        ["--install", build, "--prefix", str(prefix), "--component", "headers"],
    ):
        subprocess.run(["cmake", *command], check=True, stdout=subprocess.DEVNULL)
    files = [path.relative_to(prefix) for path in prefix.rglob("*") if path.is_file()]
    assert files == [pathlib.Path("include/bytescheduler/c_api.h")]


def test_a_ready_extension_is_packed_for_its_python(tmp_path: pathlib.Path) -> None:
    """`make wheel` packs all Pythons' extensions from one; each has the header, pages, examples."""
    extension = tmp_path / "_core.cpython-38-x86_64-linux-gnu.so"
    extension.write_bytes(b"an extension")
    made = run_python(
        *("setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)),
        *("build", "--build-base", str(tmp_path / "build")),
        *("bdist_wheel", "--bdist-dir", str(tmp_path / "tree"), "-d", str(tmp_path)),
        cwd=ROOT,
        env={**os.environ, "BS_EXTENSION": str(extension)},
    )
    assert made.returncode == 0, made.stdout
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp38-cp38-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    share = "bytescheduler/_share"
    assert {f"bytescheduler/{extension.name}", f"{share}/docs/operate/grafana.json"} <= set(names)
    assert f"{share}/example/image-classification/train_mnist.py" in names
    headers = [name for name in names if name.startswith("bytescheduler/include/")]
    assert headers == ["bytescheduler/include/bytescheduler/c_api.h"]
    assert len([name for name in names if name.endswith(".so")]) == 1
