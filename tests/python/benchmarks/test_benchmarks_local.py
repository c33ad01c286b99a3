"""How benchmarks start, watch and check the jobs that they measure."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from benchmarks.jobs import call_overhead, copies, footprint, fusion, small, throughput, train
from benchmarks.lab import arms, local_job, picture
from bytescheduler._process.child import Child, Streams

ROOT = pathlib.Path(__file__).resolve().parents[3]
BURNED_S = 0.2
# Prints when a thread that took that much processor time has ended, and waits.
BURNS = f"""
import sys, threading, time
def burn():
    while time.thread_time() < {BURNED_S}:
        pass
thread = threading.Thread(target=burn)
thread.start()
thread.join()
print("ended", flush=True)
sys.stdin.readline()
"""


def test_cpu_seconds_include_threads_that_have_ended() -> None:
    streams = Streams(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    command = [sys.executable, "-c", BURNS]
    with Child.start("it", command, os.environ, streams=streams) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ended\n"
        assert BURNED_S <= local_job.cpu_seconds([worker.pid]) < 100 * BURNED_S


IDLE_NODE = [sys.executable, "-c", "pass"]


def worker_that(does: str) -> List[str]:
    code = "import sys, time; from benchmarks.lab import local_job as j\n" + does
    return [sys.executable, "-c", code]


@pytest.fixture(autouse=True)
def _finds_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_a_job_tells_seconds_and_cpu_time_without_the_time_set_aside() -> None:
    does = """
j.worker_waits("BEGIN", "a")
j.worker_sets_aside(1000)
j.worker_waits("END", "a", [0.5, 0.25])
j.worker_waits("BEGIN", "b")
j.worker_waits("END", "b", [1])
"""
    first, second = local_job.run(IDLE_NODE, worker_that(does), {})
    assert (first.name, first.seconds) == ("a", [0.5, 0.25])
    assert first.cpu_s < 0 < second.cpu_s


IS_AT = """
import os
at = {"server": ("far", "10.0.0.2")}.get(os.environ["DMLC_ROLE"], ("near", "10.0.0.1"))
assert (os.environ["AT"], os.environ["DMLC_NODE_HOST"]) == at, at
assert os.environ["DMLC_PS_ROOT_URI"] == "10.0.0.1"
"""


def test_servers_have_another_place_than_the_rest() -> None:
    places = tuple(
        local_job.Place(address, ["env", f"AT={at}"])
        for at, address in (("near", "10.0.0.1"), ("far", "10.0.0.2"))
    )
    node = [sys.executable, "-c", IS_AT]
    assert local_job.run(node, worker_that(IS_AT), {}, places=places) == []
    with pytest.raises(SystemExit, match="failed with exit code 1"):
        local_job.run(node, worker_that(IS_AT), {}, places=places[::-1])


def test_a_job_with_a_hanging_worker_is_given_up() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        local_job.run(IDLE_NODE, worker_that("time.sleep(1000)"), {}, timeout_s=0.5)


def test_a_job_with_a_failing_worker_fails() -> None:
    with pytest.raises(SystemExit, match="failed with exit code 1"):
        local_job.run(IDLE_NODE, worker_that("sys.exit('a sum is wrong')"), {})


def test_lines_of_workers_are_awaited_no_longer_than_the_deadline() -> None:
    silent = """
if j.os.environ["DMLC_ROLE"] == "worker":
    j.worker_waits("BEGIN", "a")
time.sleep(1000)
"""
    with local_job.job(worker_that(silent), worker_that(silent), {}, workers=2) as job:
        assert job.heard("BEGIN a") == [["BEGIN", "a"]] * 2
        job.go_on()
        with pytest.raises(SystemExit, match=r"every worker said 'END a' within 0\.1 s"):
            job.heard("END a", timeout_s=0.1)
        for process in (*job.workers, *job.servers, job.scheduler):
            assert process.wait(60) < 0


@pytest.mark.parametrize(
    ("does", "said"), [("pass", "ended"), ("j.worker_waits('END', 'b')", "said 'END b'")]
)
def test_a_worker_that_does_not_say_the_awaited_line_is_told(does: str, said: str) -> None:
    with local_job.job(IDLE_NODE, worker_that(does), {}) as job, pytest.raises(
        SystemExit, match=f"{said}; 'BEGIN a' was waited for"
    ):
        job.heard("BEGIN a")


def total(runs: List[int]) -> int:
    return sum(runs)


def options(out: pathlib.Path, names: str = "good,bad", repeats: int = 2) -> argparse.Namespace:
    return argparse.Namespace(arms=names.split(","), repeats=repeats, out=str(out), most_stolen=1.0)


def test_an_arm_that_hangs_is_null_and_counted(tmp_path: pathlib.Path) -> None:
    def run(arm: str) -> int:
        if arm == "bad":
            raise subprocess.TimeoutExpired(arm, 1)
        return 3

    arms.alternate(options(tmp_path / "out"), run, total, {"rate": "1gbit"})
    found = json.loads((tmp_path / "out").read_text())
    assert {arm: len(shares) for arm, shares in found.pop("stolen").items()} == {
        "good": 2,
        "bad": 2,
    }
    assert found == {
        "rate": "1gbit",
        "medians": {"good": 6, "bad": None},
        "hung": {"good": 0, "bad": 2},
        "all": {"good": [3, 3], "bad": [None, None]},
    }


def test_measurements_before_a_failed_arm_are_written(tmp_path: pathlib.Path) -> None:
    def run(arm: str) -> int:
        if arm == "bad":
            raise SystemExit("a worker failed")
        return 3

    with pytest.raises(SystemExit, match="a worker failed"):
        arms.alternate(options(tmp_path / "out"), run, total)
    found = json.loads((tmp_path / "out").read_text())
    assert found["medians"] == {"good": 3, "bad": None}
    assert found["all"] == {"good": [3], "bad": []}


def test_fusion_counts_hung_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(args: argparse.Namespace, about: Dict[str, Any], setting: str) -> Dict[str, float]:
        if setting == "0":
            raise subprocess.TimeoutExpired("native", 1)
        return {"messages": about["group"]}

    monkeypatch.setattr(fusion, "measure", measure)
    result: Dict[str, Any] = {"rows": [{"group": 1}]}
    fusion.compare(options(tmp_path / "out"), {"group": 15}, result)
    assert json.loads((tmp_path / "out").read_text()) == result
    before, alone, fused = result["rows"]
    assert before == {"group": 1}
    assert alone == {"group": 15, "fusion": "0", "hung": 2, "all": [None, None]}
    assert (fused["fusion"], fused["messages"], fused["hung"]) == ("16KiB", 15, 0)
    assert fused["all"] == [{"messages": 15}] * 2


def test_footprint_keeps_measurements_before_a_failed_job(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grown(arm: str, *_: int) -> Dict[str, Dict[str, Any]]:
        if arm == "stock":
            raise SystemExit("a worker failed")
        each = {"own": 400, "shared": 7}
        return {"summed": {"worker": each, "server": each}}

    monkeypatch.setattr(footprint, "started", lambda *_: (0.5, 2.0))
    monkeypatch.setattr(footprint, "grown", grown)
    out = tmp_path / "out"
    words = f"footprint --arms ours,stock --repeats 1 --keys 100 --out {out}".split()
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="a worker failed"):
        footprint.main()
    found = json.loads(out.read_text())
    assert [row["from_start_s"] for row in found["start"]] == [2.0] * 4
    (row,) = found["bytes_per_key"]
    assert (row["arm"], row["summed_worker"]) == ("ours", 4)


def test_call_overhead_tells_the_least_and_the_most() -> None:
    found = call_overhead.summary([{"x": 3.0}, {"x": 1.0}, {"x": 2.0}])
    assert found == {"x": {"median_us": 2.0, "least_us": 1.0, "most_us": 3.0}}


def test_train_refuses_arms_that_end_with_other_weights() -> None:
    def ended(*weights: str) -> "List[Dict[str, Any]]":
        return [{"weights": one} for one in weights]

    train.require_same_weights({"a": [ended("x", "x"), ended("x", "x")], "b": []})
    for wrong in ([ended("x", "y")], [ended("y", "y")]):
        with pytest.raises(SystemExit, match="different weights"):
            train.require_same_weights({"a": [ended("x", "x")], "b": wrong})


def test_throughput_gives_medians_by_size() -> None:
    rounds = throughput.rounds_of(1 << 20)
    row = local_job.Measured(str(1 << 20), [1e-3, 2e-3, 9e-3], 0, rounds * (1 << 20) / 1e9)
    run = throughput.figures_of([row])
    assert throughput.summary([run, run]) == {
        str(1 << 20): {"gbytes_per_s": 0.5243, "cpu_s_per_gbyte": 1.0}
    }
    with pytest.raises(argparse.ArgumentTypeError, match="want sizes"):
        throughput.bytes_of("64K,1G")


def test_throughput_draws_its_arms_without_hung_arms(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    row = {"1048576": {"gbytes_per_s": 1.5, "cpu_s_per_gbyte": 0.5}}
    throughput.draw({"medians": {"tcp": row, "ours": None}}, str(tmp_path / "x.svg"))
    drawn = (tmp_path / "x.svg").read_text()
    assert "<!-- tcp -->" in drawn
    assert "<!-- CPU-seconds per GB -->" in drawn
    assert "<!-- ours -->" not in drawn


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([3.0], [3]),
        ([0.0, 20, 10], [0, 20, 10]),  # far enough
        ([5.0, 5], [0, 10]),  # the middle of a group stays
        ([0.0, 9, 40], [-0.5, 9.5, 40]),
        ([40.0, 5, 4], [40, 9.5, -0.5]),  # in the order of the places
        ([0.0, 1, 12], [-20 / 3 + 1, 13 / 3, 43 / 3]),  # a group that meets the next takes it in
    ],
)
def test_labels_stay_near_their_curves_and_apart(
    places: List[float], expected: List[float]
) -> None:
    assert picture.apart(places, 10) == pytest.approx(expected)


def test_each_curve_has_its_label_at_its_end() -> None:
    pytest.importorskip("matplotlib")
    figure, axes = picture.subplots()
    ends = {"high": 5.0, "low": 1.0, "near it": 1.01}
    for label, end in ends.items():
        axes.plot([1, 2], [0, end], label=label)
    picture.label_ends(axes)
    labels = {text.get_text(): text for text in axes.texts}
    assert {label: labels[label].xy for label in labels} == {
        label: (2, end) for label, end in ends.items()
    }
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in labels.values()]
    right = axes.transData.transform((2, 0))[0]
    assert all(box.x0 > right for box in boxes)
    assert not any(boxes[0].overlaps(box) for box in boxes[1:])
    assert not boxes[1].overlaps(boxes[2])
    assert axes.get_legend() is None


# In a process of its own: a second one that goes on must not go on with these tests.
BARE_TCP = """
import os, sys, time
from benchmarks.jobs import throughput
parent, exchange = os.getpid(), throughput.exchange

def exchange_or(*arguments):
    if os.getpid() != parent:
        DOES
    exchange(*arguments)

throughput.exchange = exchange_or
try:
    rows = throughput.bare_tcp([4096, 65536], float(sys.argv[1]), throughput.connected())
    print([row.name for row in rows])
except BaseException as error:
    print(error)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child is left")
"""


@pytest.mark.parametrize(
    ("does", "timeout_s", "printed"),
    [
        ("pass", 60, "['4096', '65536']"),
        ("raise KeyError('x')", 60, "tcp: the other process has gone"),
        ("raise SystemExit('x')", 60, "tcp: the other process has gone"),
        ("time.sleep(1000)", 0.2, "Command 'tcp' timed out after 0.2 seconds"),
    ],
)
def test_plain_tcp_ends_with_its_other_process(does: str, timeout_s: float, printed: str) -> None:
    command = [sys.executable, "-c", BARE_TCP.replace("DOES", does), str(timeout_s)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.stdout == f"{printed}\nno child is left\n"
    assert ("Traceback" in ran.stderr) == ("raise" in does)


def test_small_gives_microseconds_a_key() -> None:
    rows = [
        local_job.Measured("blocking", [2e-6, 4e-6, 3e-6], 0, 9e-6),
        local_job.Measured("burst", [2e-3], 0, 4e-3),
        local_job.Measured("calls", [1e-3], 0, 7),
    ]
    run = small.figures_of(rows, 1000)
    assert small.summary([run]) == {
        "blocking_us": 3,
        "blocking_us_cpu": 3,
        "burst_us_per_key": 2,
        "burst_us_per_key_cpu": 4,
        "calls_us_per_key": 1,
    }


COMPILER = shutil.which("c++")
# Copies what should count, and what is too little; prints how much counts.
COPIES = """
import os, sys
count = lambda: int.from_bytes(open(f"{sys.argv[1]}/{os.getpid()}", "rb").read(), "little")
large, small = bytearray(1 << 20), bytearray(1000)
begin = count()
kept = [bytes(small) for _ in range(2000)], [bytes(large) for _ in range(3)]
copied = count() - begin
print(copied)
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no c++ to compile the library")
def test_copies_of_a_kibibyte_and_more_are_counted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / copies.LIBRARY
    source = str(ROOT / "benchmarks" / "engine" / "count_copies.cc")
    flags = ["-std=c++20", "-O1", "-fno-builtin", "-fPIC", "-shared"]
    subprocess.run([str(COMPILER), *flags, source, "-o", str(library), "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("BENCH_COPIES", str(tmp_path))
    command = [sys.executable, "-c", COPIES, str(tmp_path)]
    found = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert 3 << 20 <= found < (3 << 20) + 2000 * 1000


def test_copies_are_counted_in_worker_and_server_between_begin_and_end(
    tmp_path: pathlib.Path,
) -> None:
    def write(**counts: int) -> None:
        for name, count in counts.items():
            (tmp_path / name[1:]).write_bytes(count.to_bytes(8, "little"))

    counts = copies.Counts(tmp_path)
    with pytest.raises(SystemExit, match="counts nothing"):
        counts.watch("BEGIN", [1, 2, 3])
    for begin, end in ((5, 7), (10, 30)):
        write(_1=0, _2=begin, _3=2 * begin)
        counts.watch("BEGIN", [1, 2, 3])
        write(_1=1000, _2=end, _3=2 * end)
        counts.watch("END", [1, 2, 3])
    assert counts.copied_bytes == [[4, 2], [40, 20]]
    run = {"1048576": {"worker": 2.0004, "server": 1.5}}
    assert copies.summary([run]) == {"1048576": {"worker": 2.0, "server": 1.5}}
