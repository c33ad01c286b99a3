"""Each test gets a maker of guests, or says why there can be none here."""

import pathlib
import sys
from typing import Callable, List

import pytest
from guest import Ended, Guest, NoGuest

HERE = pathlib.Path(__file__).resolve().parent
INSIDE = HERE / "inside"
SUPPORT = [HERE / "_support", HERE.parent / "e2e" / "_support"]


@pytest.fixture
def inside(tmp_path: pathlib.Path) -> "Callable[..., str]":
    """Return a function that runs a command in a fresh guest, to a good end, for its output."""

    def run(command: "List[str]", *, limit_s: float = 300.0, **options: int) -> str:
        try:
            guest = Guest(**options)
        except NoGuest as reason:
            pytest.skip(str(reason))
        env = {"PYTHONPATH": ":".join(map(str, SUPPORT))}
        ended: Ended = guest.run(command, folder=tmp_path, env=env, limit_s=limit_s)
        assert ended.code == 0, f"{ended.output}\n--- the guest's console\n{ended.console}"
        print(ended.output)  # shown where the test failed
        return ended.output

    return run


@pytest.fixture
def run_case(inside: "Callable[..., str]") -> "Callable[..., str]":
    """Return a function that runs a case of inside/jobs.py in a guest with soft-RoCE."""

    def run(*case: str, limit_s: float = 300.0) -> str:
        return inside([sys.executable, str(INSIDE / "jobs.py"), *case], limit_s=limit_s, rdma=True)

    return run
