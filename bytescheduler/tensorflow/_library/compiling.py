"""Compiles the operations against an installed TensorFlow, once for each version of it."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shlex
import shutil
import stat
import subprocess
import tempfile
from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence

__all__ = ["CannotCompile", "Target", "cached", "compile_to", "compiler_of", "library_folder"]

_HERE = pathlib.Path(__file__).resolve().parent
SOURCE = _HERE / "operations.cc"
_OWN_HEADERS = (_HERE / "connection.h", _HERE / "held_sums.h")
_HEADER = pathlib.Path("include", "bytescheduler", "c_api.h")
_COMPILERS = ("g++", "c++", "clang++")
_LAST_LINES = 12
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHER_FOLDER = (
    "set XDG_CACHE_HOME to a folder that can be written, or compile ahead by python -m "
    "bytescheduler.tensorflow.build --out FILE, and set BYTESCHEDULER_TF_OP=FILE"
)


class CannotCompile(Exception):
    """The operations cannot be compiled here; the text says why, and the cure."""


class Target(NamedTuple):
    """A TensorFlow to compile against.

    Parameters
    ----------
    version : str
        Its version, such as 2.15.1.
    compile_flags, link_flags : sequence of str
        The flags of `tf.sysconfig`.
    """

    version: str
    compile_flags: Sequence[str]
    link_flags: Sequence[str]


def _include_folder() -> pathlib.Path:
    """Return the folder with the C header: an installed package has it, and so has the tree."""
    package = _HERE.parents[1]
    folders = [package / "include", package.parent / "include"]
    return next((folder for folder in folders if (folder.parent / _HEADER).is_file()), folders[0])


def library_folder(variables: Mapping[str, str]) -> pathlib.Path:
    """Return the folder of compiled libraries: ``bytescheduler`` in the user's cache.

    Raises
    ------
    CannotCompile
        The user has no home, and no absolute XDG_CACHE_HOME.
    """
    cache = variables.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    if not os.path.isabs(cache):
        raise CannotCompile(f"there is no home for this user; {_OTHER_FOLDER}")
    return pathlib.Path(cache, "bytescheduler")


def _check_owner(path: pathlib.Path) -> None:
    """Raise CannotCompile if other users can write a file or folder, whose code runs here."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
        raise CannotCompile(
            f"{path} belongs to another user, or other users can write it; remove it, or give it "
            f"to this user with mode 700, or {_OTHER_FOLDER}"
        )


def _digest(target: Target) -> str:
    """Return a digest of all that the library is made of, but the compiler.

    The flags have the folder of TensorFlow: a library serves where it is in the same folder.
    """
    digest = hashlib.blake2b(digest_size=8)
    header = _include_folder() / "bytescheduler" / "c_api.h"
    for file in (SOURCE, *_OWN_HEADERS, header):
        digest.update(file.read_bytes())
    digest.update(repr([*target.compile_flags, *target.link_flags]).encode())
    return digest.hexdigest()


def compiler_of(variables: Mapping[str, str]) -> Sequence[str]:
    """Return the compiler and its first arguments: CXX, or the first that there is.

    Raises
    ------
    CannotCompile
        There is none.
    """
    named = variables.get("CXX")
    candidates = [named] if named else list(_COMPILERS)
    for candidate in candidates:
        words = _words(candidate)
        program = shutil.which(words[0]) if words else None
        if program is not None:
            return [program, *words[1:]]
    missing = f"CXX={named} is no program" if named else "there is none of " + ", ".join(_COMPILERS)
    raise CannotCompile(
        f"{missing}; install a C++ compiler (on Debian or Ubuntu: apt-get install g++), or compile "
        "on a machine with the same TensorFlow by python -m bytescheduler.tensorflow.build --out "
        "FILE, and set BYTESCHEDULER_TF_OP=FILE here"
    )


def _words(command: str) -> List[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its end
        return [command]


def compile_to(
    out: pathlib.Path,
    target: Target,
    variables: Mapping[str, str],
    source: pathlib.Path = SOURCE,
) -> None:
    """Compile the library to `out`, which is never seen half written.  Takes some ten seconds.

    Parameters
    ----------
    out : path
        In a folder that exists.
    target : Target
        The TensorFlow to compile against.
    variables : mapping
        The environment, which may name a compiler.
    source : path
        The source of the operations.

    Raises
    ------
    CannotCompile
        There is no compiler, it fails, or the folder is not writable.
    """
    compiler = compiler_of(variables)
    try:
        handle, temporary = tempfile.mkstemp(dir=str(out.parent), suffix=".so")
    except OSError as error:
        raise _unwritable(out.parent, error) from None
    os.close(handle)
    # No warnings of TensorFlow's headers.
    flags = [
        flag.replace("-I", "-isystem", 1) if flag.startswith("-I") else flag
        for flag in target.compile_flags
    ]
    command = [
        *(*compiler, "-shared", "-fPIC", "-O2", "-std=c++17", *flags, f"-I{_include_folder()}"),
        *(str(source), "-o", temporary, *target.link_flags),
    ]
    try:
        _run(command)
        try:
            os.chmod(temporary, 0o755)
            os.replace(temporary, str(out))
        except OSError as error:
            raise _unwritable(out, error) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _run(command: Sequence[str]) -> None:
    cure = "set CXX to a compiler that takes C++17, such as g++ 9 or newer"
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True
        )
    except OSError as error:
        raise CannotCompile(f"{command[0]} does not start ({error.strerror}); {cure}") from None
    if done.returncode != 0:
        last_lines = "\n".join(done.stdout.strip().splitlines()[-_LAST_LINES:])
        raise CannotCompile(
            f"{command[0]} ends with {done.returncode}; {cure}.  It says:\n{last_lines}"
        )


def _unwritable(folder: pathlib.Path, error: OSError) -> CannotCompile:
    return CannotCompile(f"{folder} cannot be written ({error.strerror}); {_OTHER_FOLDER}")


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Let one process at a time compile.  Blocks."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cached(
    target: Target, variables: Mapping[str, str], folder: Optional[pathlib.Path] = None
) -> pathlib.Path:
    """Return the library for a TensorFlow, compiled now if no process has done so.  Blocks.

    Raises
    ------
    CannotCompile
        As `compile_to`, or other users can write the library or its folder.
    """
    folder = folder or library_folder(variables)
    try:
        digest = _digest(target)
    except OSError as error:
        raise CannotCompile(
            f"{error.filename} cannot be read ({error.strerror}); install bytescheduler again"
        ) from None
    library = folder / f"tf-{target.version}-{digest}.so"
    try:
        if not library.is_file():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(folder)
            with _locked(folder):
                if not library.is_file():  # another process may have been first
                    compile_to(library, target, variables)
        _check_owner(folder)
        _check_owner(library)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return library
