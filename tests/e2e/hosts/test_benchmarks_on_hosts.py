"""The benchmarks that put nodes on hosts of their own do so, and their sums are right."""

import json
import pathlib
import subprocess
import sys
from typing import Any, Callable, Dict, List, Tuple

import lab
import pytest
from job import HERE

ROOT = HERE.parents[2]
sys.path.append(str(ROOT))  # behind all that is installed
from benchmarks.jobs import fusion, sweep  # noqa: E402
from bytescheduler._advise import links  # noqa: E402
from bytescheduler._advise.shape import Shape  # noqa: E402
from bytescheduler._timeline.files import KEY_NAME  # noqa: E402

BUILT = ROOT / "build" / "release" / "benchmarks"
NATIVE = BUILT / "wire_benchmark"
DEVICE = BUILT / "libengine_device.so"
# The lab lies where only the benchmark's processes see it, as in lab.py; they end with the first.
APART = ["unshare", "-nmpf", "--mount-proc", "--kill-child"]
APART += ["sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
# Of what is pushed, at least; headers are more, nothing else would be as much.
MIB = 1 << 20
WORKER, SERVER = 0, 2
# These compare times, or need what is built while `make python` runs.
NATIVE_MARKS = [
    pytest.mark.serial,
    pytest.mark.skipif(not NATIVE.exists(), reason="wire_benchmark is not built (make cpp)"),
]


def native(test: "Callable[..., None]") -> "Callable[..., None]":
    """Mark a test of the engine's own benchmarks."""
    for mark in NATIVE_MARKS:
        test = mark(test)
    return test


def run(tmp_path: pathlib.Path, line: str) -> "Tuple[Dict[str, Any], List[int]]":
    """Run a benchmark's command line; return its JSON, and how many bytes each host has sent."""
    lab.hosts_or_skip(lab.require)
    out = tmp_path / "out.json"
    command = [
        *lab.one_processor(),
        *APART,
        sys.executable,
        str(HERE / "benchmark_on_hosts.py"),
        *line.split(),
    ]
    command += ["--out", str(out)]
    env = {**lab.WITH_PATH, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, timeout=240)
    assert done.returncode == 0
    sent = [line for line in done.stdout.decode().splitlines() if line.startswith("SENT ")]
    return json.loads(out.read_text()), json.loads(sent[-1][len("SENT ") :])


@pytest.mark.parametrize(
    "arm", ["tcp", "stock", "ours", pytest.param("native", marks=NATIVE_MARKS)]
)
def test_throughput_goes_from_host_to_host(arm: str, tmp_path: pathlib.Path) -> None:
    line = f"throughput --rate none --sizes 4M --arms {arm} --repeats 1 --native {NATIVE}"
    found, sent = run(tmp_path, line)
    assert found["rate"] == "none"
    figures = found["medians"][arm][str(4 * MIB)]
    assert figures["gbytes_per_s"] > 0
    assert figures["cpu_s_per_gbyte"] > 0
    # 256 of them, and two before.
    assert sent[WORKER] > 1000 * MIB
    assert sent[SERVER] > 1000 * MIB


@native
def test_urgent_tensors_are_timed_on_their_way_to_the_server(tmp_path: pathlib.Path) -> None:
    line = (
        f"urgent --rate 1gbit --arms native --count 40 --repeats 1 --bytes 8192 --native {NATIVE}"
    )
    found, sent = run(tmp_path, line)
    assert found["bytes"] == 8192  # what the timelines of both sides have, else it had failed
    (of_run,) = found["all"]["native"]
    # Each is at the server before its sum is back, by clocks of two processes.
    for name in ("median_ms", "p99_ms"):
        assert 0 < of_run["to_server"][name] < of_run["to_sum"][name]
    # The link takes 119, and whole tensors are counted.
    assert 0 < of_run["bulk_mbytes_per_s"] < 135  # what the link carries
    assert sent[WORKER] > 32 * MIB  # the bulk once


@native
def test_fused_tensors_are_counted_and_links_carry_the_loads_of_the_shape(
    tmp_path: pathlib.Path,
) -> None:
    line = f"fusion --rates 1gbit --groups 15 --iterations 4 --repeats 1 --native {NATIVE}"
    found, sent = run(tmp_path, f"{line} -w 3 -s 2 --together 1")
    shape = Shape(3, 2, together=1)
    size = sum(step.size_bytes for step in fusion.tensors(found["scale"], 0.05))
    loads = links.loads(shape, links.equal_shares(shape))
    assert len(sent) == len(loads) == 4
    # Two jobs of four steps; a broadcast of each is a step more at most.
    for host, load in loads.items():
        assert 8 * load * size < sent[host - 1] < 1.1 * 10 * load * size
    alone, together = found["rows"]
    assert (alone["fused"], alone["hung"], together["hung"]) == (0, 0, 0)
    assert together["fused"] > 0
    assert together["messages"] < alone["messages"]
    assert alone["cpu_us"] > 0


def order_of(timeline: pathlib.Path, number: int) -> List[int]:
    """Return the layers whose gradients a worker pushed in a round, the most urgent first."""
    events = json.loads(timeline.read_text())
    names = {e["args"]["key"]: e["args"]["name"] for e in events if e["name"] == KEY_NAME}
    priorities = {}
    for event in events:
        if event.get("cat") == "push" and event["args"]["round"] == number:
            name = str(names.get(event["args"]["key"], event["args"]["key"]))
            if name.isdecimal():  # else it is a key of ours
                priorities[int(name)] = event["args"]["priority"]
    return sorted(priorities, key=lambda layer: -int(priorities[layer]))


def inversions(order: List[int]) -> int:
    """Return how many of the pairs stand the wrong way round."""
    return sum(one > other for place, one in enumerate(order) for other in order[place:])


@native
def test_a_wrong_order_is_measured_and_mended(tmp_path: pathlib.Path) -> None:
    steps = 12
    line = "replay --models uniform --arms native,native-caller,ours --by-name --compute 0.1"
    line += f" --iterations {steps} --repeats 1 --native {NATIVE} --device {DEVICE}"
    found, sent = run(tmp_path, line)
    (cell,) = found["cells"]
    assert found["by_name"]
    assert set(cell["step_s"]) == {"native", "native-caller", "ours"}
    assert all(seconds > cell["ideal_s"] / 2 for seconds in cell["step_s"].values())
    assert sent[WORKER] > 3 * steps * 10 * MIB
    by_name = sorted(range(20), key=str)
    for rank in range(2):
        files = {arm: tmp_path / f"timeline-{arm}-r{rank}.json" for arm in cell["step_s"]}
        for file in files.values():
            assert order_of(file, 1) == by_name
        assert order_of(files["native-caller"], steps) == by_name
        # A layer that is late once may stand elsewhere: a few pairs of the 190, of 80 by name.
        assert inversions(by_name) == 80
        assert inversions(order_of(files["native"], steps)) < 20
        assert inversions(order_of(files["ours"], steps)) < 20


def test_stock_ddp_and_ours_end_with_the_same_weights(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    line = "train_torch --network gpt2 --steps 3 --batch 2 --arms ddp,ours --repeats 1 --rate none"
    found, sent = run(tmp_path, line)
    ddp, ours = (found["medians"][arm] for arm in ("ddp", "ours"))
    assert len(ddp["weights"]) == 1
    assert ours["weights"] == ddp["weights"]
    assert ours["loss"] == ddp["loss"]
    # Eight steps of 3 MB: from worker to worker, then to the two servers.
    assert sent[WORKER] > 2 * 8 * 3 * MIB
    assert sent[SERVER] > 8 * 3 * MIB


def test_arms_train_alike(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    line = "train --network mlp --epochs 2 --arms ours-fifo,ours --repeats 1 --rate 1gbit"
    found, _ = run(tmp_path, line)
    fifo, ours = (found["medians"][arm] for arm in ("ours-fifo", "ours"))
    assert fifo["weights"] == ours["weights"]
    assert fifo["accuracy"] == ours["accuracy"] > 0.5


@native
def test_a_grid_is_swept_in_one_job(tmp_path: pathlib.Path) -> None:
    steps = 2
    line = "sweep --model uniform --compute 0.05 --partitions 64,128 --credits 128"
    line += f" --steps {steps} --repeats 1 --device {DEVICE}"
    found, _ = run(tmp_path, line)
    points = sweep.grid([64, 128], [128])
    assert {(row["partition_kib"], row["credit_kib"]) for row in found["points"]} == set(points)
    assert all(row["step_s"] > 0.05 for row in found["points"])
    for rank in range(2):
        largest = largest_pushes(tmp_path / f"timeline-ours-r{rank}.json")
        done = sweep.CHANGING
        for point in sweep.order_of(points, 1):
            done += sweep.CHANGING + steps
            rounds = range(done - steps + 1, done + 1)
            assert {largest[number] for number in rounds} == {point.partition << 10}


def largest_pushes(timeline: pathlib.Path) -> Dict[int, int]:
    """Return the bytes of the largest piece that was pushed in each round."""
    largest: Dict[int, int] = {}
    for event in json.loads(timeline.read_text()):
        if event.get("cat") == "push":
            number, size = event["args"]["round"], event["args"]["bytes"]
            largest[number] = max(size, largest.get(number, 0))
    return largest
