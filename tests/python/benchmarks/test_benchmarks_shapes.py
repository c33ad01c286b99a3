"""What the comparison by shape measures, keeps and draws."""

import contextlib
import json
import pathlib
import subprocess
import sys
from typing import Any, Iterator, List, Tuple

import pytest
from inline_snapshot import snapshot

from benchmarks.jobs import shapes
from benchmarks.lab import lab_job
from bytescheduler._advise.shape import Shape


class Lab:
    """Jobs that take as long as their arm says; every one of ours hangs once it is told to."""

    def __init__(self) -> None:
        self.ran: List[Tuple[str, Shape]] = []
        self.hangs = False

    @contextlib.contextmanager
    def lab(self, rate: str, shape: Shape) -> "Iterator[None]":
        yield

    def run(
        self,
        arm: str,
        worker: object,
        env: object,
        timeout_s: float,
        node: object,
        shape: Shape,
        of_host: object,
        watch: object,
    ) -> List[Any]:
        self.ran.append((arm, shape))
        if arm == "ours" and self.hangs:
            raise subprocess.TimeoutExpired("a worker", timeout_s)
        return [{"seconds": [{"ours": 0.25, "stock": 0.5}[arm]] * 8}] * shape.workers


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Lab:
    pytest.importorskip("matplotlib")
    fake = Lab()
    monkeypatch.setattr(lab_job, "lab", fake.lab)
    monkeypatch.setattr(lab_job, "run", fake.run)
    monkeypatch.setattr(lab_job, "measured_bytes_per_s", lambda *_: 59.8e6)
    monkeypatch.chdir(tmp_path)
    return fake


def measured(monkeypatch: pytest.MonkeyPatch, *words: str) -> List[Any]:
    monkeypatch.setattr(sys, "argv", ["shapes", "--arms", "stock,ours", *words])
    shapes.main()
    rows: List[Any] = json.loads(pathlib.Path("shapes.json").read_text())["shapes"]
    return rows


def test_a_measured_shape_is_not_measured_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    three = Shape(3, 3)
    (row,) = measured(monkeypatch, "--only", "3+3")
    assert row["step_s"] == {"stock": 0.5, "ours": 0.25}
    assert (row["shape"]["workers"], row["name"]) == (3, "3+3, resnet50 / 8, 500mbit")
    assert row["ideal_s"] == pytest.approx(0.215, rel=0.01)
    assert row["ideal_s"] <= row["predicted_s"]["ours"] <= row["predicted_s"]["p3"]
    assert lab.ran == [("stock", three), ("ours", three)]
    # Rows stand in one order, whatever was measured first, and arms take turns.
    rows = measured(monkeypatch, "--only", "3+3,2+1", "--repeats", "2")
    assert [row["name"][:3] for row in rows] == ["2+1", "3+3"]
    assert [arm for arm, shape in lab.ran[2:] if shape == three] == ["stock", "ours"]
    assert [arm for arm, shape in lab.ran[2:] if shape != three] == ["stock", "ours"] * 2
    before = len(lab.ran)
    measured(monkeypatch, "--only", "3+3", "--again")
    assert len(lab.ran) == before + 2
    assert "bytescheduler" in pathlib.Path("shapes.svg").read_text()


def test_one_that_hangs_is_kept_and_shown(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.hangs = True
    rows = measured(monkeypatch, "--only", "3+3")
    assert rows[0]["all_s"] == {"stock": [0.5], "ours": [None]}
    ideal, predicted = rows[0]["ideal_s"], rows[0]["predicted_s"]["ours"]
    row = {**rows[0], "step_s": {"stock": 0.5, "kvstore": None, "ours": 0.25}}
    head, _, line = shapes.table({"": row}).splitlines()
    assert head == snapshot("| shape | stock | ours | ours, predicted | ideal | ideal / ours |")
    assert line == (
        "| 3+3, resnet50 / 8, 500mbit | 0.500 | 0.250 "
        f"| {predicted:.3f} | {ideal:.3f} | {ideal / 0.25:.3f} |"
    )
    hung = {**row, "step_s": {"stock": 0.5, "ours": None}}
    assert shapes.table({"": row, "hung": hung}).endswith(
        f"| 0.500 | – | {predicted:.3f} | {ideal:.3f} | – |"
    )


def test_nothing_begins_when_there_is_no_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, "--only", "3+3")
    before = list(lab.ran)
    measured(monkeypatch, "--most-s", "1e-9")
    assert lab.ran == before


def test_each_shape_can_be_made_of_the_lab() -> None:
    names = [job.name for job in shapes.JOBS]
    assert len(set(names)) == len(names)
    for job in shapes.JOBS:
        assert job.shape.problem == ""
        assert job.shape.hosts <= lab_job.MOST_HOSTS
