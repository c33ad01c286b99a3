"""The graph of a lane: the order of its steps, and mistakes in a table."""

import pathlib
import re
from typing import List, Sequence

import pytest
from steps import LANES, Step, all_needs, check, startable

ROOT = pathlib.Path(__file__).resolve().parents[3]


def names(steps: Sequence[Step]) -> List[str]:
    return [step.name for step in steps]


@pytest.mark.parametrize("lane", sorted(LANES))
def test_each_lane_is_a_graph_that_ends(lane: str) -> None:
    check(LANES[lane])


def test_an_unknown_need_is_named() -> None:
    with pytest.raises(ValueError, match="asan needs asan-build, which is no step of the lane"):
        check([Step("asan", ("asan-build",))])


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match="in a circle: b, c"):
        check([Step("a"), Step("b", ("a", "c")), Step("c", ("b",))])


def test_a_step_that_stands_twice_is_named() -> None:
    with pytest.raises(ValueError, match="the step a stands twice"):
        check([Step("a"), Step("a")])


@pytest.mark.parametrize("load", [0, 1.5])
def test_a_load_is_a_share_of_the_machine(load: float) -> None:
    with pytest.raises(ValueError, match="a has a load of"):
        check([Step("a", load=load)])


def test_needs_of_needs_are_needs() -> None:
    steps = [Step("a"), Step("b", ("a",)), Step("c", ("a", "b")), Step("d", ("c",))]
    assert all_needs("d", steps) == ["a", "b", "c"]
    assert all_needs("a", steps) == []


def test_a_step_starts_behind_its_needs() -> None:
    steps = [Step("b", ("a",), load=0.5)]
    assert names(startable(steps, [Step("a", load=0.5)], [])) == []
    assert names(startable(steps, [], ["a"])) == ["b"]


def test_foreground_steps_share_the_machine_in_the_order_of_the_table() -> None:
    steps = [Step("a", load=0.5), Step("b"), Step("c", load=0.5), Step("d", load=0.5)]
    assert names(startable(steps, [], [])) == ["a", "c"]


def test_one_background_step_runs_beside_any_load() -> None:
    steps = [Step("lint", background=True), Step("fuzz", background=True)]
    assert names(startable(steps, [Step("asan")], [])) == ["lint"]
    assert names(startable([Step("asan")], steps[:1], [])) == ["asan"]


def test_a_step_that_runs_alone_is_the_last() -> None:
    alone, other = Step("serial", load=0.5, alone=True), Step("a", load=0.5)
    background = Step("lint", background=True)
    assert names(startable([alone, other], [], [])) == ["a"]
    for running in (other, background):
        assert names(startable([alone], [running], [])) == []
    assert names(startable([alone], [], [])) == ["serial"]
    assert names(startable([other, background], [alone], [])) == []


# Steps that run CMake or a build in build/release.
IN_RELEASE = {"own-codec", "release-build", "pythons"}


def test_steps_that_compile_in_one_folder_never_run_side_by_side() -> None:
    steps = LANES["test"]
    inside = [step.name for step in steps if step.name in IN_RELEASE]
    assert set(inside) == IN_RELEASE
    for number, name in enumerate(inside):
        assert set(inside[:number]) <= set(all_needs(name, steps))


def test_steps_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {step.name for steps in LANES.values() for step in steps} <= targets


def test_the_prerequisites_of_a_target_are_among_its_needs() -> None:
    text = (ROOT / "Makefile").read_text()
    for steps in LANES.values():
        for step in steps:
            (line,) = re.findall(rf"^{step.name}:([^#\n]*)", text, re.M)
            made_first = {word for word in line.split() if word in names(steps)}
            assert made_first <= set(step.needs), f"{step.name}: two steps would build it"


def test_the_workflow_runs_every_nightly_part() -> None:
    workflow = (ROOT / ".github" / "workflows" / "lanes.yml").read_text()
    (parts,) = re.findall(r"^ +part: \[(.*)\]$", workflow, re.M)
    assert [f"nightly-{part}" for part in parts.split(", ")] == names(LANES["nightly"])
