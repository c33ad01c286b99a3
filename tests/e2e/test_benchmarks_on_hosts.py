"""The benchmarks that put nodes on hosts of their own do so, and their sums are right."""

import json
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, Tuple

import lab
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = ROOT / "build" / "release" / "benchmarks"
NATIVE = BUILT / "wire_benchmark"
DEVICE = BUILT / "libengine_device.so"
# The lab lies where only the benchmark's processes see it, as in lab.py; they end with the first.
APART = ["unshare", "-nmpf", "--mount-proc", "--kill-child"]
APART += ["sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
# Of what is pushed, at least; headers are more, nothing else would be as much.
MIB = 1 << 20
WORKER, SERVER = 0, 2
native = pytest.mark.skipif(not NATIVE.exists(), reason="wire_benchmark is not built (make cpp)")


def run(tmp_path: pathlib.Path, line: str) -> "Tuple[Dict[str, Any], List[int]]":
    """Run a benchmark's command line; return its JSON, and how many bytes each host has sent."""
    try:
        lab.require()
    except lab.NoLab as reason:
        pytest.skip(str(reason))
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


@pytest.mark.parametrize("arm", ["tcp", "stock", "ours", pytest.param("native", marks=native)])
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
def test_urgent_ones_are_timed_on_their_way_to_the_server(tmp_path: pathlib.Path) -> None:
    line = f"urgent --rate 1gbit --arms native --count 5 --repeats 1 --native {NATIVE}"
    found, sent = run(tmp_path, line)
    (of_run,) = found["all"]["native"]
    assert 0 < of_run["to_server"]["median_ms"] <= of_run["to_sum"]["p99_ms"]
    assert sent[WORKER] > 32 * MIB  # the bulk once


@native
def test_fused_ones_are_counted(tmp_path: pathlib.Path) -> None:
    line = f"fusion --rates 1gbit --groups 15 --iterations 4 --repeats 1 --native {NATIVE}"
    found, _ = run(tmp_path, line)
    alone, together = found["rows"]
    assert (alone["fused"], alone["hung"], together["hung"]) == (0, 0, 0)
    assert together["fused"] > 0
    assert alone["cpu_us"] > 0


@native
def test_a_wrong_order_is_measured_and_mended(tmp_path: pathlib.Path) -> None:
    line = "replay --models uniform --arms native,native-caller,ours --by-name --compute 0.1"
    line += f" --iterations 5 --repeats 1 --native {NATIVE} --device {DEVICE}"
    found, sent = run(tmp_path, line)
    (cell,) = found["cells"]
    assert found["by_name"]
    assert all(seconds > cell["ideal_s"] / 2 for seconds in cell["step_s"].values())
    assert set(cell["step_s"]) == {"native", "native-caller", "ours"}
    assert sent[WORKER] > 3 * 5 * 5 * MIB


def test_arms_train_alike(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    line = "train --network mlp --epochs 2 --arms ours-fifo,ours --repeats 1 --rate 1gbit"
    found, _ = run(tmp_path, line)
    fifo, ours = (found["medians"][arm] for arm in ("ours-fifo", "ours"))
    assert fifo["weights"] == ours["weights"]
    assert fifo["accuracy"] == ours["accuracy"] > 0.5


@native
def test_a_grid_is_swept_in_one_job(tmp_path: pathlib.Path) -> None:
    line = "sweep --model uniform --compute 0.05 --partitions 64,128 --credits 128"
    found, _ = run(tmp_path, f"{line} --repeats 1 --device {DEVICE}")
    assert {(row["partition_kib"], row["credit_kib"]) for row in found["points"]} == {
        (64, 128),
        (128, 128),
    }
    assert all(row["step_s"] > 0.05 for row in found["points"])
