"""Jobs inside the guest, by name: ``jobs.py CASE``; each prints what it found."""

import pathlib
import sys
import tempfile
import time
from typing import Callable, Dict

from cards import SUMS, Cards, job_of, sums_of

ROUNDS = 3
PLAIN: Dict[str, str] = {}


def tcp(folder: pathlib.Path) -> None:
    """Sum over plain TCP; the bytes leave through the cards."""
    before, began = Cards.sent(), time.monotonic()
    with job_of(folder / "tcp", PLAIN) as job:
        found = sums_of(job.run(SUMS, str(ROUNDS)))
    print(f"tcp {found}, {Cards.sent() - before} bytes, {time.monotonic() - began:.1f} s")


CASES: Dict[str, Callable[[pathlib.Path], None]] = {"tcp": tcp}


def main(case: str) -> None:
    """Run it in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        CASES[case](pathlib.Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])
