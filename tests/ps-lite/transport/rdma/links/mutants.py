"""Mistakes in the code of RDMA links, each of which rdma_seeds_test must find.

`mutants.py BUILD` makes each mistake in a copy of one source.  It compiles that copy as BUILD
compiled the source, and links the test with it.  BUILD must have rdma_seeds_test.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[5]
SOURCES = ROOT / "3rdparty/ps-lite/src/transport/rdma"
TEST = "tests/ps-lite/transport/rdma/links/rdma_seeds_test"
SECONDS = 300


@dataclass(frozen=True)
class Mutant:
    """A mistake: in `source`, `right` becomes `wrong`."""

    what: str
    source: str
    right: str
    wrong: str


MUTANTS = [
    Mutant(
        "a frame is released before its advert is",
        "rdma_link.cc",
        "  advert.message = std::move(message);\n",
        "  { const Message dropped = std::move(message); }\n",
    ),
    Mutant(
        "a landing is written to after it was revoked",
        "rdma_inbound.cc",
        "  if (IsRevoked(*reading.arrival)) return;\n",
        "",
    ),
    Mutant(
        "a credit is not given back",
        "rdma_channel.cc",
        "  if (taken.ok()) ++owed_;\n",
        "  if (taken.ok() && slot > 0) ++owed_;\n",
    ),
    Mutant(
        "more READs are under way than agreed",
        "rdma_inbound.cc",
        "  at->readings_.resize(reads);\n",
        "  at->most_reads_ = reads + 1;\n  at->readings_.resize(reads + 1);\n",
    ),
    Mutant(
        "a message overtakes another of its priority",
        "rdma_inbound.cc",
        "  while (!same.empty() && same.front()->whole) {\n",
        "  const auto whole = std::ranges::find_if(same, &Arrival::whole);\n"
        "  if (whole != same.end()) std::iter_swap(same.begin(), whole);\n"
        "  while (!same.empty() && same.front()->whole) {\n",
    ),
    Mutant(
        "a region ends while its memory is shown to the peer",
        "rdma_link.cc",
        "  adverts_.emplace(header.id, std::move(advert));\n",
        "  advert.regions.clear();\n  adverts_.emplace(header.id, std::move(advert));\n",
    ),
    Mutant(
        "a slot is used again before its SEND is complete",
        "rdma_channel.cc",
        "  return joined_ && has_credit && sent_ - done_ < most_sends_ && ring_.has_room();\n",
        "  return joined_ && has_credit;\n",
    ),
    Mutant(
        "a SEND begins on bytes that another still needs",
        "rdma_channel.cc",
        "sent_ - done_ < most_sends_ && ring_.has_room();\n",
        "sent_ - done_ < most_sends_;\n",
    ),
]


def ninja(build: Path, *words: str) -> str:
    """The output of Ninja's tool, run in `build`."""
    command = ["ninja", "-C", str(build), "-t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def command_of(build: Path, source: Path) -> list[str]:
    """How `build` compiles `source`, from its first word to its last."""
    text = ninja(build, "compdb")
    for entry in json.loads(text):
        if Path(build, entry["file"]).resolve() == source and " -c " in entry["command"]:
            return shlex.split(entry["command"])
    sys.exit(f"{build} does not compile {source}: is it a build of this tree with Ninja?")


def link_command(build: Path) -> str:
    """How `build` links the test; a line of shell."""
    lines = ninja(build, "commands", "-s", TEST).splitlines()
    return lines[-1]


def survives(build: Path, mutant: Mutant, folder: Path) -> bool:
    """True if the test passes with the mistake."""
    source = SOURCES / mutant.source
    text = source.read_text()
    if text.count(mutant.right) != 1:
        sys.exit(f"{source} has changed: mutants.py must find this in it once:\n{mutant.right}")
    changed, made = folder / mutant.source, folder / "mutant.o"
    changed.write_text(text.replace(mutant.right, mutant.wrong))
    words = command_of(build, source)
    words[words.index("-o") + 1] = str(made)
    words[words.index("-c") + 1] = str(changed)
    subprocess.run([word for word in words if word != "-Werror"], check=True, cwd=build)
    program = folder / "test"
    line = link_command(build).replace(f"-o {TEST}", f"{made} -o {program}", 1)
    subprocess.run(line, shell=True, check=True, cwd=build, stdout=subprocess.DEVNULL)
    try:
        done = subprocess.run([str(program)], capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main(build: Path) -> int:
    """Return how many mistakes the test does not find."""
    found = 0
    for mutant in MUTANTS:
        with tempfile.TemporaryDirectory() as folder:
            lives = survives(build.resolve(), mutant, Path(folder))
        print(f"{'NOT FOUND' if lives else 'found'}: {mutant.what}", flush=True)
        found += lives
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
