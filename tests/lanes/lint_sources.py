"""Runs clang-tidy on each source alone, and skips unchanged sources that passed.

``lint_sources.py --commands FOLDER --sources PATTERN [options of clang-tidy]`` reads the sources in
``FOLDER/compile_commands.json`` whose path has the pattern.  ``FOLDER/passed`` has a stamp of each
source that passed: a digest of all that clang-tidy reads for it.  So a run that was interrupted
goes on where it stopped, and a change costs the sources that include it.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import time
from typing import Dict, List, NamedTuple, Sequence, Tuple

__all__ = ["Command", "Digests", "Outcome", "lint", "read_commands"]

# Each names an output of the compiler, in the word behind it.
_OUTPUTS = {"-o", "-MF", "-MT", "-MQ"}
# Words that compile, or write a list of headers beside the output.
_COMPILES = {"-c", "-MD", "-MMD"}


class Command(NamedTuple):
    """How a source is compiled.

    Attributes
    ----------
    source : pathlib.Path
        The source.
    folder : str
        Where the compiler runs.
    words : tuple of str
        The compiler and its arguments.
    """

    source: pathlib.Path
    folder: str
    words: "Tuple[str, ...]"


class Outcome(NamedTuple):
    """The verdict on a source.

    Attributes
    ----------
    source : pathlib.Path
        The source.
    passed : bool
        Nothing was found.
    skipped : bool
        It passed in an earlier run, and is unchanged.
    text : str
        The output of clang-tidy, or of the compiler where it cannot read the source.
    seconds : float
        How long it took.
    """

    source: pathlib.Path
    passed: bool
    skipped: bool
    text: str
    seconds: float


def read_commands(folder: pathlib.Path, pattern: str) -> "List[Command]":
    """Return the commands of ``folder/compile_commands.json`` whose source has the pattern."""
    commands = []
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"])
        if re.search(pattern, str(source)):
            words = entry["arguments"] if "arguments" in entry else shlex.split(entry["command"])
            commands.append(Command(source, entry["directory"], tuple(words)))
    return commands


def _list_of_files(command: Command) -> "Tuple[str, ...]":
    """Return the command that prints what the compiler reads."""
    words = []
    is_output = False
    for word in command.words:
        if not is_output and word not in _OUTPUTS and word not in _COMPILES:
            words.append(word)
        is_output = not is_output and word in _OUTPUTS
    return (*words, "-M")


class Digests:
    """Digests of all that clang-tidy reads for a source.

    Parameters
    ----------
    words : sequence of str
        Options of clang-tidy, and its version.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._lock = threading.Lock()
        self._by_file: Dict[pathlib.Path, str] = {}

    def _of_file(self, path: pathlib.Path) -> str:
        with self._lock:
            digest = self._by_file.get(path)
        if digest is None:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            with self._lock:
                self._by_file[path] = digest
        return digest

    def of(self, commands: Sequence[Command]) -> str:
        """Return the digest of a source, which `commands` compile.

        Raises
        ------
        subprocess.CalledProcessError
            The compiler cannot read it, for example for want of a header.
        """
        facts: List[object] = [self._words]
        for command in commands:
            listed = subprocess.run(
                _list_of_files(command),
                cwd=command.folder,
                capture_output=True,
                check=True,
                text=True,
            )
            # Words of make: the target with a colon, then the files.
            _, *names = shlex.split(listed.stdout.replace("\\\n", " "))
            files = [pathlib.Path(command.folder, name) for name in names]
            rules = [folder / ".clang-tidy" for folder in command.source.parents]
            files += [path for path in rules if path.is_file()]
            facts += [command.words, [(str(path), self._of_file(path)) for path in files]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _lint_source(
    commands: Sequence[Command], clang_tidy: Sequence[str], digests: Digests, stamps: pathlib.Path
) -> Outcome:
    source = commands[0].source
    stamp = stamps / hashlib.sha256(str(source).encode()).hexdigest()
    begin = time.monotonic()
    try:
        digest = digests.of(commands)
    except subprocess.CalledProcessError as failed:
        return Outcome(source, False, False, failed.stderr, time.monotonic() - begin)
    if stamp.is_file() and stamp.read_text() == digest:
        return Outcome(source, True, True, "", time.monotonic() - begin)
    done = subprocess.run(
        [*clang_tidy, str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    passed = done.returncode == 0
    if passed:
        stamp.write_text(digest)
    return Outcome(source, passed, False, done.stdout, time.monotonic() - begin)


def lint(
    commands: Sequence[Command], folder: pathlib.Path, options: Sequence[str], jobs: int
) -> "List[Outcome]":
    """Run clang-tidy on each source that did not pass yet; print and return the outcomes.

    Parameters
    ----------
    commands : sequence of Command
        How the sources are compiled.
    folder : pathlib.Path
        It has ``compile_commands.json``, and takes the stamps.
    options : sequence of str
        Options of clang-tidy.
    jobs : int
        How many sources are read at once.
    """
    stamps = folder / "passed"
    stamps.mkdir(exist_ok=True)
    clang_tidy = ["clang-tidy", "-quiet", f"-p={folder}", *options]
    version = subprocess.run(
        ["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True, text=True
    )
    digests = Digests([version.stdout, *options])
    by_source: Dict[pathlib.Path, List[Command]] = {}
    for command in commands:
        by_source.setdefault(command.source, []).append(command)
    outcomes: List[Outcome] = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [
            pool.submit(_lint_source, ways, clang_tidy, digests, stamps)
            for ways in by_source.values()
        ]
        try:
            for future in concurrent.futures.as_completed(futures):
                outcome = future.result()
                outcomes.append(outcome)
                end = "skipped" if outcome.skipped else f"{outcome.seconds:.0f} s"
                print(f"[{len(outcomes)}/{len(futures)}] {outcome.source}: {end}")
                print(outcome.text, end="", flush=True)
        finally:
            for future in futures:
                future.cancel()
    return outcomes


def main() -> int:
    """Read the sources that the command line names; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--commands", type=pathlib.Path, required=True, metavar="FOLDER")
    parser.add_argument("--sources", required=True, metavar="PATTERN")
    parser.add_argument("--jobs", type=int, default=2)
    arguments, options = parser.parse_known_args()
    commands = read_commands(arguments.commands, arguments.sources)
    if not commands:
        print(f"error: no source in {arguments.commands} has the pattern {arguments.sources}")
        return 1
    outcomes = lint(commands, arguments.commands, options, arguments.jobs)
    num_failed = sum(not outcome.passed for outcome in outcomes)
    num_read = sum(not outcome.skipped for outcome in outcomes)
    print(f"{num_read} of {len(outcomes)} sources read, {num_failed} failed")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
