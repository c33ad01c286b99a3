"""What the replay makes of its options and of what its jobs take."""

import argparse
import os
import pathlib
import subprocess
import sys
import warnings
from typing import Any, Dict, List, Optional, Set, Tuple

import pytest
from inline_snapshot import snapshot

from benchmarks.engine import device
from benchmarks.jobs import link_loads, replay
from benchmarks.lab import carried, lab_job, local_job, machine
from bytescheduler import config
from bytescheduler._advise import models
from bytescheduler._advise.advice import Cluster
from bytescheduler._advise.shape import Shape
from bytescheduler._native import Prediction, partition_and_credit
from bytescheduler._process.child import Child, Streams


def test_any_rate_of_tc_is_taken_and_the_rest_refused() -> None:
    assert lab_job.rate("none") == "none"
    assert lab_job.payload_bytes_per_s(lab_job.rate("25gbit")) == 0.953 * 25e9 / 8
    assert lab_job.payload_bytes_per_s(lab_job.rate("300mbit")) == 0.953 * 3e8 / 8
    assert [lab_job.rate(each) for each in ("10G", "1.5Gbps", "300M")] == [
        *("10gbit", "1500mbit", "300mbit")
    ]
    for wrong in ("10GB", "fast", "gbit", "5furlong", ""):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{wrong}: want kbit, mbit or gbit"):
            lab_job.rate(wrong)


def test_misspelt_names_are_refused_before_anything_starts() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="vgg: want bert-base, "):
        replay.model_names("vgg16,vgg")
    with pytest.raises(argparse.ArgumentTypeError, match="0.001 to 1000"):
        replay.numbers("1,0")
    with pytest.raises(argparse.ArgumentTypeError, match="0.001 to 1000"):
        replay.numbers("1,nan")


def options(**given: object) -> argparse.Namespace:
    usual = {"models": ["vgg16"], "scale": None, "compute": None, "ratios": [1.0], "rate": "1gbit"}
    always = {"shape": Shape(), "framework": "mxnet", "arms": ["ours"]}
    return argparse.Namespace(**{**always, **usual, **given})


def test_a_ratio_says_how_much_compute_there_is() -> None:
    half, once = replay.cells_of(options(ratios=[0.5, 1.0]))
    size = sum(step.size_bytes for step in once.steps)
    assert once.compute_s == pytest.approx(size * 8 / 0.953e9, abs=0.001)
    assert half.compute_s == pytest.approx(2 * once.compute_s, abs=0.002)
    assert sum(s.forward_s + s.backward_s for s in half.steps) == pytest.approx(half.compute_s)
    assert (once.name, once.scale) == ("vgg16 / 8, r = 1", 8)


def test_compute_that_is_given_is_taken() -> None:
    (cell,) = replay.cells_of(options(scale=80, compute=0.25, rate="none"))
    assert (cell.scale, cell.compute_s, cell.name) == (80, 0.25, "vgg16 / 80, 0.25 s")


@pytest.mark.parametrize("rate", ["100mbit", "1gbit"])
def test_a_step_that_the_link_makes_slow_has_time(
    monkeypatch: pytest.MonkeyPatch, rate: str, tmp_path: pathlib.Path
) -> None:
    limits: List[float] = []

    def run(arm: str, worker: object, env: object, timeout_s: float, *_: object) -> List[Any]:
        limits.append(timeout_s)
        return [{"seconds": [0.5] * 8}]

    monkeypatch.setattr(lab_job, "run", run)
    args = options(ratios=[3.0, 0.1], rate=rate, device="x", by_name=False, iterations=10)
    args.timeout = 0
    slow, fast = replay.cells_of(args)
    found = tmp_path / "found.json"
    assert [replay.run_arm("stock", each, args, found) for each in (slow, fast)] == [0.5, 0.5]
    # Six times the compute is what healthy stock takes at r = 3.
    assert limits[0] >= 2 * 10 * 6 * slow.compute_s
    assert limits[1] == pytest.approx(10 * 4 * fast.compute_s)
    assert fast.enough_s("none") == 4 * fast.compute_s


def test_a_tuned_arm_searches_in_its_first_run_and_then_takes_up_the_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    found = tmp_path / "found.json"
    ran: List[int] = []

    def run(arm: str, worker: List[str], env: Dict[str, str], *rest: object) -> List[Any]:
        assert env["BYTESCHEDULER_TUNING_CACHE"] == str(found)
        found.touch()
        ran.append(int(worker[worker.index("--iterations") + 1]))
        return [{"seconds": [9.0] * (ran[-1] - 10) + [0.25] * 8}]

    monkeypatch.setattr(lab_job, "run", run)
    args = options(ratios=[1.0], device="x", by_name=False, iterations=10, timeout=0)
    (cell,) = replay.cells_of(args)
    assert [replay.run_arm("ours-tuned", cell, args, found) for _ in range(3)] == [0.25] * 3
    assert ran == [130, 60, 60]


def test_layers_by_name_stand_in_the_order_of_their_numbers_as_text() -> None:
    assert replay.places(12, by_name=False) == list(range(12))
    assert replay.places(12, by_name=True) == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3]


def cell(name: str, ideal_s: float, **all_s: "List[Optional[float]]") -> "Dict[str, Any]":
    return {"name": name, "ideal_s": ideal_s, "all_s": all_s}


def test_a_table_shows_ratios_and_which_runs_hung() -> None:
    rows = [
        cell("a", 0.9, stock=[2.0, 4.0, 3.0], p3=[None, 1.2, 1.2], ours=[1.0, 1.0, 1.5]),
        cell("b", 0.4, stock=[1.0, 1.0, 1.0], p3=[None, None, None], ours=[0.5, 0.5, 0.5]),
    ]
    _, _, first, second, _, means = replay.table({"rate": "1gbit", "cells": rows}).splitlines()
    assert first == "| a | 3.000 | 1.200 (hung 1 of 3) | 1.000 | 0.900 | 0.900 | 3.000 | 1.200 |"
    assert second == "| b | 1.000 | hung | 0.500 | 0.400 | 0.800 | 2.000 | – |"
    assert means == snapshot(
        "over ours: geometric means ideal 0.849, stock 2.449, p3 1.200; "
        "least ideal 0.800, stock 2.000, p3 1.200"
    )


def test_a_tuned_arm_is_compared_where_it_exists() -> None:
    (row,) = [cell("a", 1.0, ours=[2.0], **{"ours-tuned": [1.25]})]
    assert replay.table({"rate": "1gbit", "cells": [row]}).splitlines()[2] == (
        "| a | 2.000 | 1.250 | 1.000 | 0.800 | 1.600 |"
    )


def test_a_table_of_pytorch_divides_ddp_and_fsdp2_by_ours_and_by_arms_that_are_alike() -> None:
    times = {"ddp": [1.0], "ddp-bf16": [0.6], "fsdp": [1.5], "ours": [0.8], "ours-bf16": [0.5]}
    first = cell("a", 0.4, **times, **{"fsdp-backend": [1.2]})
    second = cell("b", 0.2, **{**times, "fsdp": [None], "fsdp-backend": [1.2]})
    result = {"rate": "1gbit", "framework": "torch", "cells": [first, second]}
    head, _, row, lacks, _, over, alike = replay.table(result).splitlines()
    assert head.partition("| ideal / ours |")[2] == snapshot(
        " ddp / ours | ddp-bf16 / ours | fsdp / ours | fsdp / fsdp-backend | ddp-bf16 / ours-bf16 |"
    )
    assert row.endswith("| 0.500 | 1.250 | 0.750 | 1.875 | 1.250 | 1.200 |")
    assert lacks.endswith("| 0.250 | 1.250 | 0.750 | – | – | 1.200 |")
    assert over.startswith("over ours: geometric means ideal 0.354, ddp 1.250, ddp-bf16 0.750")
    assert over.endswith("the best DDP 1.250")
    assert alike == snapshot(
        "alike: geometric means fsdp / fsdp-backend 1.250, ddp-bf16 / ours-bf16 1.200; "
        "least fsdp / fsdp-backend 1.250, ddp-bf16 / ours-bf16 1.200"
    )


def test_a_table_without_the_arm_ours_compares_with_another_arm_of_ours() -> None:
    row = cell("a", 0.4, ddp=[1.0], **{"ddp-backend": [0.9], "ours-direct": [0.8]})
    head, *_ = replay.table({"rate": "1gbit", "framework": "torch", "cells": [row]}).splitlines()
    assert head.endswith("| ideal / ours-direct | ddp / ours-direct | ddp / ddp-backend |")


def test_a_table_shows_simulated_times_and_disturbed_runs() -> None:
    row = {**cell("a", 0.9, stock=[2.0, 2.0], ours=[1.0, 1.0]), "name": "a"}
    row["simulated_s"] = {"ours": 0.95, "ours-fifo": 1.5}
    row["stolen"] = {"stock": [[0.3, 0.03], [0.3, 0.2]], "ours": [[0.0], [0.04]]}
    result = {"rate": "1gbit", "most_stolen": 0.04, "cells": [row]}
    head, _, line, *_ = replay.table(result).splitlines()
    assert head == snapshot(
        "| 1gbit | stock | ours | ours, simulated | ours-fifo, simulated | ideal | ideal / ours | "
        "stock / ours |"
    )
    assert line == (
        "| a | 2.000 (disturbed 1 of 2) | 1.000 | 0.950 | 1.500 | 0.900 | 0.900 | 2.000 |"
    )


@pytest.mark.parametrize("ours", ["ours", "native"])
def test_no_two_arms_are_the_same_job(ours: str) -> None:
    usual = local_job.settings()
    defaults = {row.name: row.value for row in config.values() if row.origin == "default"}
    jobs = [
        (sorted({**defaults, **usual, **settings}.items()), lab_job.COMPRESSION.get(arm))
        for arm, settings in lab_job.ARMS.items()
        if arm.startswith(ours)
    ]
    assert len(jobs) > 2
    assert all(job not in jobs[:number] for number, job in enumerate(jobs))


def test_a_step_is_simulated_with_the_lab_and_pieces_that_suit_its_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: List[Tuple[Cluster, str]] = []
    predicted = Cluster.predict

    def predict(lab: Cluster, layers: List[models.Step], policy: str) -> Prediction:
        asked.append((lab, policy))
        return predicted(lab, layers, policy)

    monkeypatch.setattr(Cluster, "predict", predict)
    (vgg16,) = replay.cells_of(options())
    found = vgg16.simulated_s(119e6)
    assert models.ideal_s(vgg16.steps, 119e6) <= found["ours"] < 0.9 * found["ours-fifo"]
    assert [policy for _, policy in asked] == ["ours", "fifo"]
    for lab, _ in asked:
        assert (lab.workers, lab.servers) == (2, 2)
        assert lab.bytes_per_s == pytest.approx(119e6)
        assert lab.sizes == partition_and_credit(
            bytes_per_second=119e6, round_trip_s=2e-4, servers=2
        )
    half = vgg16.simulated_s(119e6 / 2)
    assert half["ours-fifo"] > 1.5 * found["ours-fifo"]


# -- jobs in the lab ---------------------------------------------------------------------------

NODE = [sys.executable, "-c", "pass"]
LATE_NODE = [sys.executable, "-c", "import time; time.sleep(1000)"]
REPORTS = "import time\nfrom benchmarks.lab import lab_job\nlab_job.report([1, 2])\n"


def worker_that(does: str) -> List[str]:
    return [sys.executable, "-c", does]


@pytest.fixture
def _no_lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what belongs on hosts of the lab run here."""
    here = tmp_path / "bin"
    here.mkdir()
    script = here / "netlab.sh"
    script.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(lab_job, "HERE", here)


@pytest.mark.usefixtures("_no_lab")
def test_reports_of_the_workers_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    assert lab_job.run("ours", worker_that(REPORTS), {}, 60, NODE) == [[1, 2], [1, 2]]
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("_no_lab")
def test_processes_are_where_the_shape_puts_them() -> None:
    tells = "from benchmarks.lab import lab_job\nimport os\n"
    tells += "lab_job.report([os.environ[name] for name in "
    tells += "('DMLC_NODE_HOST', 'DMLC_NUM_WORKER', 'DMLC_NUM_SERVER')])\n"
    mixed = Shape(3, 2, together=1)
    ran = lab_job.run("ours", worker_that(tells), {}, 60, NODE, mixed)
    assert sorted(ran) == [[f"10.201.0.{host}", "3", "2"] for host in (1, 2, 3)]
    assert (mixed.server_hosts, mixed.hosts, mixed.name) == ([1, 4], 4, "3+2, 1 together")


@pytest.mark.usefixtures("_no_lab")
def test_workers_may_share_hosts_and_host_the_servers() -> None:
    tells = "from benchmarks.lab import lab_job\nimport os\n"
    tells += "lab_job.report([os.environ[name] for name in "
    tells += "('DMLC_NODE_HOST', 'DMLC_NUM_WORKER', 'DMLC_NUM_SERVER')])\n"
    ran = lab_job.run("ours-direct", worker_that(tells), {}, 60, NODE, Shape(3, 2, per_host=2))
    assert ran == [[f"10.201.0.{host}", "3", "0"] for host in (1, 1, 2)]


@pytest.mark.usefixtures("_no_lab")
def test_links_are_counted_from_the_first_step_of_all_to_the_last(tmp_path: pathlib.Path) -> None:
    begun = tmp_path / "begun"
    counts = [{"1 up": 100, "1 down": 50}, {"1 up": 160, "1 down": 170}]

    def count() -> "Dict[str, int]":
        assert begun.exists() == (len(counts) == 1)
        return counts.pop(0)

    watch = carried.Links(count)
    does = "from benchmarks.lab import lab_job\nlab_job.await_begin()\n"
    worker = worker_that(f"{does}open({str(begun)!r}, 'w')\nlab_job.report(1)\n")
    assert lab_job.run("ours", worker, {}, 60, NODE, watch=watch) == [1, 1]
    assert watch.sent == {"1 up": 60, "1 down": 120}
    assert watch.busiest(40) == 3
    with pytest.raises(SystemExit, match="ours: a worker failed with exit code 0"):
        lab_job.run("ours", worker_that("pass"), {}, 60, NODE, watch=watch)


def test_the_lab_counts_the_bytes_of_its_queues(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "netlab.sh"
    script.write_text(
        "#!/bin/sh\necho '1 up bytes 12 drops 0 backlog 0b '; echo '1 down bytes 7 drops 1 '\n"
        "echo '2 up '\n"  # without a rate
    )
    script.chmod(0o755)
    monkeypatch.setattr(lab_job, "HERE", tmp_path)
    assert carried.counted() == {"1 up": 12, "1 down": 7}
    assert carried.Links().busiest(1) is None


def test_a_table_of_links_has_the_loads_by_the_shape() -> None:
    shape = Shape(4, 2, per_host=2)
    row = cell("a", 0.5, ddp=[1.0], ours=[1.0])
    row["link_models"] = {"ddp": [1.57, 1.56, 1.58], "ours": [None, 2.1]}
    loads = link_loads.of_arms(["ddp", "ours"], "torch", shape)
    result = {"rate": "1gbit", "framework": "torch", "cells": [row], "loads": loads}
    assert "\n".join(replay.table(result).splitlines()[5:]) == snapshot("""\

| models on the busiest link, each way, a step | ddp | ours |
|---|---|---|
| a | 1.57 | 2.10 |
| by the shape, a copy a worker | 1.50 | 2.00 |
| by the shape, a copy a host | 1.50 | 1.00 |\
""")
    assert link_loads.of_arms(["stock", "ours-direct"], "mxnet", Shape(6, 3, per_host=2)) == {
        "a copy a worker": {"stock": 2.0, "ours-direct": pytest.approx(8 / 3)},
        "a copy a host": {"stock": 1.0, "ours-direct": pytest.approx(4 / 3)},
    }
    assert link_loads.of_arms(["alone"], "torch", shape)["a copy a host"] == {"alone": None}


def test_hosts_of_another_rate_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[Tuple[str, ...]] = []
    monkeypatch.setattr(lab_job, "_netlab", lambda *words: asked.append(words))
    with lab_job.lab("1gbit", Shape(2, 1, factors=((2, 0.5),))):
        pass
    assert asked == [
        ("up", lab_job.LAB, "3", "-r", "1gbit"),
        ("rate", lab_job.LAB, "1", "1gbit", "1gbit"),
        ("rate", lab_job.LAB, "2", "500000kbit", "500000kbit"),
        ("rate", lab_job.LAB, "3", "1gbit", "1gbit"),
        ("down", lab_job.LAB, "-k"),
    ]


@pytest.mark.usefixtures("_no_lab")
def test_a_job_remembers_nothing_of_other_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_TUNING_CACHE", "/of/this/user")
    tells = "from benchmarks.lab import lab_job\nimport os\n"
    tells += "lab_job.report(os.environ['BYTESCHEDULER_TUNING_CACHE'])\n"
    first, second = lab_job.run("ours-tuned", worker_that(tells), {}, 60, NODE)
    (later, _) = lab_job.run("ours-tuned", worker_that(tells), {}, 60, NODE)
    assert first == second
    assert len({first, later, "/of/this/user"}) == 3
    given = {"BYTESCHEDULER_TUNING_CACHE": "/of/this/cell"}
    assert lab_job.run("ours-tuned", worker_that(tells), given, 60, NODE) == ["/of/this/cell"] * 2


@pytest.mark.usefixtures("_no_lab")
def test_results_are_kept_when_a_node_does_not_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_job, "TO_END_S", 1.0)
    assert lab_job.run("stock", worker_that(REPORTS), {}, 60, LATE_NODE, shape=Shape(1, 1)) == [
        [1, 2]
    ]
    assert capfd.readouterr().err == snapshot("""\
stock: all results are there, but the scheduler on host 1 does not end; it is killed
stock: all results are there, but the server on host 2 does not end; it is killed
""")


@pytest.mark.usefixtures("_no_lab")
def test_results_are_kept_when_a_worker_does_not_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_job, "TO_END_S", 0.1)
    does = f"{REPORTS}time.sleep(1000)"
    # Nobody waits until it ends by itself.
    assert lab_job.run("ours", worker_that(does), {}, 2000, NODE, shape=Shape(1, 1)) == [[1, 2]]
    assert "the worker on host 1 does not end" in capfd.readouterr().err


@pytest.mark.usefixtures("_no_lab")
def test_a_job_without_results_has_hung_or_failed() -> None:
    with pytest.raises(subprocess.TimeoutExpired, match="timed out after 0.1 seconds"):
        lab_job.run("ours", worker_that("import time; time.sleep(1000)"), {}, 0.1, LATE_NODE)
    with pytest.raises(SystemExit, match="ours: a worker failed with exit code 0"):
        lab_job.run("ours", worker_that("pass"), {}, 60, NODE)
    with pytest.raises(SystemExit, match="exit code 3") as raised:
        lab_job.run("ours", worker_that(f"{REPORTS}raise SystemExit(3)"), {}, 60, NODE)
    assert str(raised.value) == snapshot(
        "ours: the worker on host 1 reported, and failed with exit code 3"
    )


@pytest.mark.parametrize(
    "said", ['RESULT {"a": 1}\n', 'RESULT {"a": 1}RESULT {"a": 2}\n', 'RESULT {"RESULT {"a": 1}\n']
)
def test_mpirun_may_put_the_results_of_two_workers_into_a_line(said: str) -> None:
    command = ["printf", said + 'RESULT {"a": 1}\n']
    streams = Streams(stdout=subprocess.PIPE)
    with Child.start("worker", command, os.environ, streams=streams) as worker:
        assert lab_job.reported("mpi", worker) == {"a": 1}


def test_of_several_readings_of_a_link_the_largest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([118.6e6, 119.5e6, 119.4e6])
    monkeypatch.setattr(lab_job, "_measured_once", lambda *_: next(readings))
    assert lab_job.measured_bytes_per_s() == 119.5e6


def test_the_ideal_is_that_of_the_fastest_link_that_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = replay.cells_of(options(compute=0.001))
    result: Dict[str, Any] = {"payload_bytes_per_s": 0.0, "cells": [{}]}
    ideals = []
    seen: List[float] = []
    for measured in (100e6, 125e6, 50e6):
        seen.append(measured)
        monkeypatch.setattr(lab_job, "measured_bytes_per_s", lambda *_, measured=measured: measured)
        replay.measure_link(cells, result, options())
        ideals.append(result["cells"][0]["ideal_s"])
        assert result["cells"][0]["simulated_s"] == cells[0].simulated_s(max(seen))
    assert result["payload_bytes_per_s"] == 125e6
    assert ideals[0] == pytest.approx(1.25 * ideals[1], rel=0.01)
    assert ideals[2] == ideals[1]
    # Of several workers on a host, one copy crosses its link.
    result["payload_bytes_per_s"] = 0.0
    replay.measure_link(cells, result, options(shape=Shape(4, 2, per_host=2)))
    assert result["cells"][0]["ideal_s"] == models.ideal_s(cells[0].steps, 50e6)


def test_a_direct_job_of_four_has_an_ideal_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_job, "measured_bytes_per_s", lambda *_: 100e6)
    cells = replay.cells_of(options(compute=0.001))
    for arms, shape, ideal in (
        (["ours", "ours-direct"], Shape(4, 4), models.ideal_s(cells[0].steps, 100e6 / 1.5)),
        (["ours", "ours-direct"], Shape(2, 2), None),  # as with servers apart
        (["ours"], Shape(4, 4), None),
    ):
        row = dict(cell("a", 0.0, **{arm: [1.0] for arm in arms}))
        result: Dict[str, Any] = {"payload_bytes_per_s": 0.0, "cells": [row], "rate": "1gbit"}
        replay.measure_link(cells, result, options(arms=arms, shape=shape))
        assert row.get("direct_ideal_s") == (ideal and pytest.approx(ideal))
        assert ("| direct's ideal |" in replay.table(result)) == (ideal is not None)


def test_a_repeated_tuned_run_finds_the_same_results_as_its_first_try(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([0.5, 0.0, 0.5, 0.0])
    monkeypatch.setattr(machine.Processors, "stolen_since", lambda *_: next(shares))
    found = tmp_path / "found.json"
    seen: List[Optional[str]] = []

    def run_arm(*_: object) -> float:
        seen.append(found.read_text() if found.exists() else None)
        found.write_text(f"of run {len(seen)}")
        return float(len(seen))

    monkeypatch.setattr(replay, "run_arm", run_arm)
    (cell,) = replay.cells_of(options())
    args = options(most_stolen=0.1)
    assert replay.run_quietly("ours-tuned", cell, args, found) == (2.0, [0.5, 0.0])
    assert replay.run_quietly("ours-tuned", cell, args, found) == (4.0, [0.5, 0.0])
    assert seen == [None, None, "of run 2", "of run 2"]


def test_a_tuned_job_takes_up_the_result_of_the_run_that_counts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([0.5, 0.2, *[0.6] * (machine.TRIES - 2)])
    monkeypatch.setattr(machine.Processors, "stolen_since", lambda *_: next(shares))
    found = tmp_path / "found.json"
    runs = iter(range(1, 100))

    def run_arm(*_: object) -> float:
        number = next(runs)
        found.write_text(f"of run {number}")
        return float(number)

    monkeypatch.setattr(replay, "run_arm", run_arm)
    (cell,) = replay.cells_of(options())
    took, _ = replay.run_quietly("ours-tuned", cell, options(most_stolen=0.1), found)
    assert (took, found.read_text()) == (2.0, "of run 2")


# -- what a worker checks --------------------------------------------------------------------------

USES_MXNET = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class InstantDevice:
    """A device whose layers take no time; it counts sums that are not as they should be."""

    def __init__(self, library: str) -> None:
        self.wrong = 0

    def forward(self, _: float, weight: Any, expected: float, output: Any = None) -> None:  # noqa: ANN401
        self.wrong += int((weight.asnumpy() != expected).any())

    def backward(self, _: float, grad: Any, value: float) -> None:  # noqa: ANN401
        grad[:] = value


class Summing:
    """A store of one worker; what is `kept` stays as it was, keys that are `swapped` are."""

    num_workers, rank = 1, 0

    def __init__(self) -> None:
        self.kept: Set[int] = set()
        self.swapped: Dict[int, int] = {}
        self.grads: Dict[int, Any] = {}

    def broadcast(self, key: int, value: Any, out: Any) -> None:  # noqa: ANN401
        pass

    def pushpull(self, key: int, grad: Any, out: Any, priority: int) -> None:  # noqa: ANN401
        self.grads[key] = grad.copy()
        if key not in self.kept:
            out[:] = self.grads.get(self.swapped.get(key, key), grad)


class SummingInBf16(Summing):
    """The store of worker 0 of five, whose sums come back in bf16."""

    num_workers = 5

    def set_gradient_compression(self, params: Dict[str, object]) -> None:
        assert params == {"compressor": "bf16"}

    def pushpull(self, key: int, grad: Any, out: Any, priority: int) -> None:  # noqa: ANN401
        bits = (5 * grad + 10).asnumpy().view("uint32")
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        grad[:] = bits.view("float32")
        super().pushpull(key, grad, out, priority)


def replayed_over(
    store: Summing, monkeypatch: pytest.MonkeyPatch, arm: str = "stock"
) -> replay.Replayed:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MXNet 1.9 uses what NumPy 1.23 calls deprecated
        import mxnet as mx

    monkeypatch.setattr(mx.kv, "create", lambda kind: store)
    monkeypatch.setattr(device, "Device", InstantDevice)
    args = argparse.Namespace(arm=arm, by_name=False, device="")
    return replay.Replayed(replay.Cell("uniform", 4096, 0.01, None), args)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> replay.Replayed:
    return replayed_over(Summing(), monkeypatch)


@USES_MXNET
def test_a_replay_with_right_sums_says_nothing(replayed: replay.Replayed) -> None:
    for iteration in range(3):
        replayed.step(iteration)
    replayed.check(2)


@USES_MXNET
@pytest.mark.parametrize("wrong", [{"kept": {3}}, {"swapped": {3: 2}}], ids=["stale", "another's"])
def test_a_replay_finds_a_sum_of_the_step_before_or_of_another_key(
    replayed: replay.Replayed, wrong: Dict[str, Any]
) -> None:
    replayed.step(0)
    for name, value in wrong.items():
        setattr(replayed.store, name, value)
    replayed.step(1)
    with pytest.raises(AssertionError, match="a sum is wrong"):
        replayed.check(1)
    for name in wrong:
        getattr(replayed.store, name).clear()
    replayed.step(2)  # has used it
    with pytest.raises(AssertionError, match="a step used a wrong sum"):
        replayed.check(2)


@USES_MXNET
def test_a_replay_takes_the_rounded_sums_of_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SummingInBf16()
    monkeypatch.setenv("BYTESCHEDULER_MIN_COMPRESS", "1")
    monkeypatch.setattr("bytescheduler.mxnet.ScheduledKVS", lambda inner: inner)
    replayed = replayed_over(store, monkeypatch, "ours-bf16")
    last = 34  # 275 of the last layer is no number of bf16
    for iteration in range(1 + last):
        replayed.step(iteration)
    replayed.check(last)
    store.kept.add(19)
    replayed.step(1 + last)
    with pytest.raises(AssertionError, match="a sum is wrong"):
        replayed.check(1 + last)
