"""`bytescheduler advise`: predictions, verdicts, and profiles that are none."""

import contextlib
import json
import math
import os
import pathlib
import pty
import re
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

import pytest
from click.testing import Result
from click_runner import runner
from inline_snapshot import snapshot
from sentences import line_with, masked

from bytescheduler import cli
from bytescheduler._advise import advice, models, profile
from bytescheduler._native import Prediction, partition_and_credit
from bytescheduler._process.numbers import bits_per_s, seconds_of

LAYERS: List[Dict[str, Any]] = [
    *(
        {"name": f"conv{i}", "bytes": 500_000, "forward_s": 0.01, "backward_s": 0.02}
        for i in range(4)
    ),
    {"name": "fc", "bytes": 12_000_000, "forward_s": 0.001, "backward_s": 0.002},
]


THOUSANDS = ("-w", "4000", "-s", "1000", "--simulate", "3000")


def invoke(*arguments: str) -> Result:
    return runner().invoke(cli._cli, ["advise", *arguments])


def advised(path: pathlib.Path, *arguments: str) -> Dict[str, Any]:
    result = invoke(str(path), "--json", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    found: Dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"bytescheduler_profile": 1, "layers": LAYERS}))
    return path


def test_where_priority_helps_it_is_said(saved: pathlib.Path) -> None:
    found = advised(saved, "--rate", "1gbit")
    times = found["step_s"]
    assert times["ideal"] <= times["ours"] <= times["p3"] <= 1.04 * times["fifo"]
    assert times["fifo"] < times["no_overlap"]
    assert found["verdict"] == "priority helps"
    assert found["priority_gain"] == pytest.approx(1 - times["ours"] / times["fifo"])
    assert (found["bytes"], found["layers"]) == (14_000_000, 5)
    assert found["compute_s"] == pytest.approx(0.123)


def test_a_fast_link_will_not_help(saved: pathlib.Path) -> None:
    found = advised(saved, "--rate", "100gbit")
    assert found["verdict"] == "compute-bound"
    assert found["text"].startswith("It will not help: compute-bound.")


def test_compute_can_be_said_instead_of_the_compute_of_the_profile(saved: pathlib.Path) -> None:
    found = advised(saved, "--rate", "1gbit", "--compute", "10")
    assert found["compute_s"] == pytest.approx(10)
    assert found["verdict"] == "compute-bound"


@pytest.mark.parametrize("servers", [8, 12, 57])
def test_no_more_servers_are_recommended_than_there_are_pieces(servers: int) -> None:
    layers = [models.Step("a", 8 * 128 * 1024, 0.01, 0.02)]
    found = advice.advise(layers, advice.Cluster(64, servers, 1e9, 1e-4, 128 * 1024, 512 * 1024))
    assert found["recommended_servers"] <= 8
    assert "would be faster" not in found["text"]
    assert found["step_s"]["ideal"] <= found["step_s"]["ours"]


@pytest.mark.parametrize("workers", ["1", "16"])
def test_layers_without_any_bytes_need_one_server(tmp_path: pathlib.Path, workers: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(layers_with(bytes=0))
    found = advised(path, "--rate", "1gbit", "-w", workers, "-s", "4")
    assert found["recommended_servers"] == 1
    assert found["verdict"] == "compute-bound"
    assert found["step_s"]["ideal"] == found["step_s"]["no_overlap"] == pytest.approx(0.03)


def test_as_many_servers_are_recommended_as_the_link_needs(saved: pathlib.Path) -> None:
    slow = advised(saved, "--rate", "100mbit", "-w", "4", "-s", "1")
    assert slow["recommended_servers"] == 4
    assert "4 servers would be faster" in slow["text"]
    fast = advised(saved, "--rate", "100gbit", "-w", "4", "-s", "4")
    assert fast["recommended_servers"] == 1
    assert "1 of the servers would do" in fast["text"]


def test_servers_on_workers_hosts_are_counted(saved: pathlib.Path) -> None:
    apart = advised(saved, "--rate", "1gbit", "-w", "4", "-s", "4")
    together = advised(saved, "--rate", "1gbit", "-w", "4", "-s", "4", "--together", "4")
    layers = profile.read(str(saved)).layers
    ideals = [models.ideal_s(layers, advice.GOODPUT * 125e6 / load) for load in (1, 1.5)]
    assert [found["step_s"]["ideal"] for found in (apart, together)] == pytest.approx(ideals)
    assert together["step_s"]["ours"] > 1.2 * apart["step_s"]["ours"]
    assert (together["together"], together["recommended_servers"]) == (4, 4)
    told = invoke(str(saved), "--rate", "1gbit", "--together", "2")
    assert "servers to use" not in told.stdout
    # Nothing crosses a link, so all of it is compute.
    alone = advised(saved, "--rate", "1mbit", "-w", "1", "-s", "1", "--together", "1")
    assert alone["verdict"] == "compute-bound"


def test_workers_that_share_a_host_are_counted(
    saved: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = ("-w", "4", "-s", "4", "--together", "4", "--per-host", "2")
    monkeypatch.setenv("BYTESCHEDULER_PARTITION", "64KiB")  # one size for both jobs
    monkeypatch.setenv("BYTESCHEDULER_CREDIT", "128KiB")
    found = advised(saved, "--rate", "1gbit", *shape)
    assert (found["per_host"], found["recommended_servers"]) == (2, 4)
    assert found["link_models"] == pytest.approx({"worker_copies": 2, "host_copy": 1, "ring": 1.5})
    layers = profile.read(str(saved)).layers
    times = found["step_s"]
    assert times["ideal"] == pytest.approx(models.ideal_s(layers, advice.GOODPUT * 125e6))
    # A host sends one copy, as the only worker of a host does; MXNet's dist_sync sends two.
    single = ("-w", "2", "-s", "2", "--together", "2")
    alone = advised(saved, "--rate", "1gbit", *single)["step_s"]
    for policy in ("ours", "fifo", "no_overlap"):
        assert times[policy] == pytest.approx(alone[policy], rel=0.05)
    assert times["dist_sync"] > 1.3 * alone["dist_sync"]
    told = invoke(str(saved), "--rate", "1gbit", *shape).stdout
    assert line_with("busiest link", told) == snapshot(
        "the busiest link carries, each way, a step: 1.00 models with a copy a host, 2.00 with a "
        "copy a worker, 1.50 in a ring of the workers"
    )
    assert "link_models" not in advised(saved, "--rate", "1gbit")


def test_a_slow_link_of_one_host_is_counted(saved: pathlib.Path) -> None:
    usual, half = (
        advised(saved, "--rate", "1gbit", *more)["step_s"] for more in ((), ("--factors", "1=0.5"))
    )
    all_half = advised(saved, "--rate", "500mbit")["step_s"]
    assert half["ideal"] == all_half["ideal"] > usual["ideal"]
    assert half["ours"] == pytest.approx(all_half["ours"], rel=0.05)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("--together 3", "3 servers beside workers: want 0 to 2"),
        ("--per-host 0", "0: want a whole number from 1 to 4096"),
        ("--together x", "Invalid value for '--together'"),
        ("--factors 5=0.5", "the rate of host 5: there are 4 hosts"),
        ("--factors 1=0.5,1=2", "the rate of host 1 is there twice"),
        ("--factors 1=0", "the rate of host 1: want 0.001 to 1000 times that of the others"),
        ("--factors 1", "1: want a host and its part of the rate, such as 3=0.5"),
    ],
)
def test_a_placement_that_is_none_is_refused(saved: pathlib.Path, words: str, wrong: str) -> None:
    result = invoke(str(saved), "--rate", "1gbit", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert wrong in result.stderr


@pytest.mark.parametrize("given", [None, "256KiB"])
def test_other_numbers_of_servers_are_tried_as_a_job_would_run_with_them(
    saved: pathlib.Path, monkeypatch: pytest.MonkeyPatch, given: Optional[str]
) -> None:
    tried: Dict[int, Tuple[int, int]] = {}
    predict = advice.predict

    def seen(layers: object, **job: Any) -> Prediction:  # noqa: ANN401
        tried[job["servers"]] = (job["partition_bytes"], job["credit_bytes"])
        return predict(layers, **job)

    monkeypatch.setattr(advice, "predict", seen)
    if given:
        monkeypatch.setenv("BYTESCHEDULER_CREDIT", given)
    # So long a way that what is in flight to each server depends on how many there are.
    advised(saved, "--rate", "1gbit", "-w", "4", "-s", "1", "--latency", "5ms")
    assert len(tried) > 1
    for servers, pieces in tried.items():
        suit = partition_and_credit(
            bytes_per_second=advice.GOODPUT * 125e6, round_trip_s=1e-2, servers=servers
        )
        assert pieces == ((128 << 10, 256 << 10) if given else suit)
    assert len({credit for _, credit in tried.values()}) == (1 if given else len(tried))


def test_partitions_are_larger_where_hosts_add_up() -> None:
    alone, pairs, one_host = (
        advice.Cluster(workers, 2, 1e9, 1e-4, per_host=per_host).sizes
        for workers, per_host in ((4, 1), (4, 2), (2, 2))
    )
    assert pairs == (2 * alone[0], 2 * alone[1])
    assert one_host == alone


def test_a_prediction_slower_than_no_overlap_is_not_sure() -> None:
    times = {"no_overlap": 1.0, "fifo": 1.2, "ours": 1.1, "p3": 1.2, "ideal": 0.6, "dist_sync": 1.0}
    assert advice._verdict(times, 0.5, "dist_sync") == "unsure"
    assert advice._verdict({**times, "ours": 0.99}, 0.5, "dist_sync") == "no gain"
    assert advice._verdict({**times, "dist_sync": 0.7, "ours": 0.7}, 0.5, "dist_sync") == "no gain"
    assert (
        advice._verdict({**times, "fifo": 0.705, "ours": 0.7}, 0.5, "dist_sync") == "overlap helps"
    )
    assert (
        advice._verdict({**times, "fifo": 0.7, "ours": 0.71}, 0.5, "dist_sync") == "overlap helps"
    )
    assert (
        advice._verdict({**times, "fifo": 0.7, "ours": 0.72}, 0.5, "dist_sync") == "priority costs"
    )


def test_the_verdict_compares_with_mxnets_dist_sync() -> None:
    layers = models.scaled("vgg16", 1, 0.58)
    found = advice.advise(layers, advice.Cluster(2, 2, 8e9, 5e-5))
    times = found["step_s"]
    assert times["ours"] < times["fifo"] < times["dist_sync"] < times["no_overlap"]
    saved = f"{100 * (1 - times['ours'] / times['dist_sync']):.0f} %"
    line = line_with("It will help", found["text"])
    assert masked(line, SAVED=saved) == snapshot(
        "It will help: a step takes SAVED less than with MXNet's dist_sync, and priority is worth "
        "27 % of first come first served."
    )


def test_where_priority_costs_it_is_said() -> None:
    layers = models.scaled("vgg16", 8, 0.58)
    found = advice.advise(layers, advice.Cluster(4, 2, 2e8, 1e-4, 4 << 20, 4 << 20))
    times = found["step_s"]
    assert times["ours"] > 1.05 * times["fifo"], "or look for another one where it costs"
    assert found["verdict"] == "priority costs"
    assert found["priority_gain"] == pytest.approx(1 - times["ours"] / times["fifo"])
    cost = f"{100 * (times['ours'] / times['fifo'] - 1):.0f} % more than first come first served"
    assert cost in found["text"]
    assert f"P3 would take {100 * (1 - times['p3'] / times['ours']):.0f} % less" in found["text"]


def test_thousands_of_workers_are_predicted(saved: pathlib.Path) -> None:
    many = advised(saved, "--rate", "10gbit", "-w", "2000", "-s", "64")
    few = advised(saved, "--rate", "10gbit", "-w", "64", "-s", "64")
    assert many["step_s"]["ours"] > 3 * few["step_s"]["ours"]  # 31 workers share a server


def test_as_many_workers_are_simulated_as_are_asked_for(saved: pathlib.Path) -> None:
    many = ("--rate", "1gbit", "-w", "12", "-s", "12")
    found = {n: advised(saved, *many, "--simulate", str(n)) for n in (10, 1000)}
    found[0] = advised(saved, *many)
    assert [found[n]["simulated_workers"] for n in found] == [10, 12, 8]
    assert found[1000]["step_s"]["ours"] == pytest.approx(found[0]["step_s"]["ours"], rel=0.1)
    assert found[1000]["step_s"] != found[0]["step_s"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/no/such/folder/model.json", "/no/such/folder is no folder that can be written to"),
        ("--", "--record --: want the name of a file"),
    ],
)
def test_a_profile_that_cannot_be_written_is_told_before_the_job(
    tmp_path: pathlib.Path, path: str, why: str
) -> None:
    ran = tmp_path / "ran"
    words = ["launch", "--local", "--record", path, "--", "touch", str(ran)]
    result = runner().invoke(cli._cli, words)
    assert result.exit_code == 2
    assert why in result.stderr
    assert not ran.exists()


@pytest.mark.parametrize("name", ["", "folder", "link", "fifo", "new/", "a\x1b[2J/b"])
def test_a_profile_replaces_nothing_but_a_file(tmp_path: pathlib.Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    ran, path = tmp_path / "ran", name and f"{tmp_path}/{name}"
    words = ["launch", "--local", "--record", path, "--", "touch", str(ran)]
    result = runner().invoke(cli._cli, words)
    assert result.exit_code == 2
    assert "Error: --record" in result.stderr
    assert "\x1b" not in result.stderr
    assert not ran.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "folder", "link"]


def test_a_table_is_for_people(saved: pathlib.Path) -> None:
    result = invoke(str(saved), "--rate", "1gbit")
    assert result.exit_code == 0
    assert "5 layers, 14.0 MB of gradients, 0.123 s of compute a step" in result.stdout
    for name in ("MXNet's dist_sync  ", "first come first served  ", "MXNet's P3  "):
        assert f"\n  {name}" in result.stdout
    assert "servers to use: 2" in result.stdout


def on_a_terminal(*arguments: str) -> Tuple[str, str]:
    """Return what the command prints, and what it shows on a terminal that is its stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bytescheduler.cli", "advise", *arguments]
    with open(ours, "rb", buffering=0) as terminal:
        printed = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True)
        os.write(theirs, b"$ ")  # there is something to read in any case
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while chunk := terminal.read(4096):
                shown += chunk
    return printed.stdout.decode(), shown.decode()


def test_a_terminal_shows_the_running_simulation_until_it_is_done(saved: pathlib.Path) -> None:
    arguments = (str(saved), "--rate", "1gbit", "-w", "6", "-s", "1")
    printed, shown = on_a_terminal(*arguments)
    assert printed == invoke(*arguments).stdout
    lines = shown.split("\r\x1b[K")
    assert lines[0] == ""
    assert lines[-1] == "$ ", "the line is gone"
    said = [re.sub(r" \(\d+ s so far\) $", "", line) for line in lines[1:-1]]
    assert said[:4] == snapshot(
        [
            "simulating MXNet's dist_sync, 1 of 4",
            "simulating first come first served, 2 of 4",
            "simulating MXNet's P3, 3 of 4",
            "simulating bytescheduler, 4 of 4",
        ]
    )
    assert said[4:]
    for line in said[4:]:
        assert re.fullmatch(r"simulating bytescheduler with \d servers", line)


def test_neither_json_nor_a_file_has_a_line_of_progress(saved: pathlib.Path) -> None:
    arguments = (str(saved), "--rate", "1gbit")
    assert on_a_terminal(*arguments, "--json")[1] == "$ "
    assert invoke(*arguments).stderr == ""


def test_known_models_have_the_parameters_of_their_papers() -> None:
    millions = {
        name: sum(layer.num_params for layer in layers) / 1e6
        for name, layers in models.MODELS.items()
    }
    assert millions["vgg16"] == pytest.approx(138.4, abs=0.1)
    assert millions["resnet50"] == pytest.approx(25.6, abs=0.1)
    assert millions["bert-base"] == pytest.approx(109.5, abs=0.5)
    assert millions["bert-large"] == pytest.approx(335, abs=1)
    assert millions["gpt2"] == pytest.approx(124.4, abs=0.5)
    assert millions["transformer"] == pytest.approx(63, abs=2)


def test_closed_forms_agree_with_the_docs() -> None:
    layers = [models.Step("a", 100, 1, 2), models.Step("b", 300, 3, 4)]
    assert models.no_overlap_s(layers, 100) == 10 + 8
    assert models.ideal_s(layers, 1e9) == pytest.approx(10)
    assert models.ideal_s(layers, 50) == pytest.approx(
        8 + 7
    )  # all behind the last layer's backward


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-w", "2"], "bytescheduler launch --local --record model.json"),
        (
            ["--framework", "jax", "x", "--rate", "1gbit"],
            "'jax' is not one of 'torch', 'tensorflow', 'mxnet'",
        ),
        (["--rate", "1gbit"], "want either a PROFILE or --model"),
        (["x", "--model", "vgg16", "--rate", "1gbit"], "want either a PROFILE or --model"),
        (["--model", "vgg16", "--rate", "1gbit"], "--model needs --compute S"),
        (["--model", "vgg17", "--rate", "1gbit"], "'vgg17' is not one of"),
        (["--model", "vgg16", "--rate", "1gb"], "want kbit, mbit or gbit, such as 300mbit"),
        (["--model", "vgg16", "--rate", "0gbit"], "want kbit, mbit or gbit"),
        (["--model", "vgg16"], "Missing option '--rate'"),
        (["x", "--rate", "1gbit", "--latency", "soon"], "want a time of up to 1s, such as 0.05ms"),
        (["x", "--rate", "1gbit", "-w", "0"], "0: want a whole number from 1 to 65536"),
        (["x", "--rate", "1gbit", "--simulate", "0"], "0: want a whole number from 1 to 65536"),
        (["x", "--rate", "1gbit", "--simulate", "all"], "all: want a whole number"),
        (
            [*("--model", "vgg16", "--compute", "1", "--rate", "1gbit"), *THOUSANDS],
            "3000 workers with 1000 servers are too many to simulate: want at most 2097 with this "
            "number of servers",
        ),
        (["x", "--rate", "1gbit", "--compute", "nan"], "nan: want seconds from 1e-06 to 100000"),
    ],
)
def test_misuse_ends_with_2_and_says_the_wanted_arguments(arguments: List[str], text: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


def test_partitions_suit_the_links_unless_a_partition_is_set(
    saved: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = advised(saved, "--rate", "1gbit")["step_s"]["ours"]
    monkeypatch.setenv("BYTESCHEDULER_CREDIT", "128KiB")
    larger = advised(saved, "--rate", "1gbit")["step_s"]["ours"]
    monkeypatch.setenv("BYTESCHEDULER_PARTITION", "64KiB")
    assert advised(saved, "--rate", "1gbit")["step_s"]["ours"] == chosen
    assert larger != chosen


@pytest.mark.parametrize(("name", "value"), [("PARTITION", "2GiB"), ("CREDITS", "1MiB")])
def test_a_setting_that_a_job_refuses_is_refused(
    saved: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"BYTESCHEDULER_{name}", value)
    result = invoke(str(saved), "--rate", "1gbit")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"BYTESCHEDULER_{name}" in result.stderr


def test_a_wrong_setting_is_named(saved: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCHEDULER_PARTITION", "8Q")
    result = invoke(str(saved), "--rate", "1gbit")
    assert result.exit_code == 2
    assert "BYTESCHEDULER_PARTITION=8Q: want bytes" in result.stderr


def layers_with(**changed: object) -> str:
    return json.dumps({"bytescheduler_profile": 1, "layers": [{**LAYERS[0], **changed}]})


def framed(framework: object) -> str:
    return json.dumps({"bytescheduler_profile": 1, "framework": framework, "layers": LAYERS})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is not JSON, or cut off"),
        (layers_with()[:-9], "it is not JSON, or cut off"),
        ("[" * 100_000, "it is not JSON, or cut off"),
        ("[1, 2]", "it is JSON, but no profile of bytescheduler"),
        ('{"bytescheduler_profile": 2}', "it is of version 2, this is for version 1"),
        ('{"bytescheduler_profile": 1}', "it has no layers"),
        ('{"bytescheduler_profile": 1, "layers": []}', "it has no layers"),
        ('{"bytescheduler_profile": 1, "layers": [3]}', "layer 0 is no object with name"),
        (layers_with(bytes=-1), "layer 0 ('conv0'): 'bytes' is not a whole number from 0"),
        (layers_with(bytes=1.5), "layer 0 ('conv0'): 'bytes' is not a whole number from 0"),
        (layers_with(bytes=None), "layer 0 ('conv0'): 'bytes' is not a whole number from 0"),
        (layers_with(forward_s=-1), "'forward_s' is not a number of seconds from 0"),
        (layers_with(backward_s="1"), "'backward_s' is not a number of seconds from 0"),
        (layers_with(backward_s=float("nan")), "'backward_s' is not a number of seconds"),
        (layers_with(backward_s=True), "'backward_s' is not a number of seconds from 0"),
        (layers_with(name=3), "layer 0: 'name' is no text"),
        (layers_with(forward_s=0, backward_s=0), "its layers take no time"),
        (framed("jax"), "'framework' is jax: want one of torch, tensorflow, mxnet"),
        (framed(["torch"]), "'framework' is ['torch']: want one of torch"),
    ],
)
def test_a_bad_profile_is_one_line_that_names_it(
    tmp_path: pathlib.Path, text: str, what: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    result = invoke(str(path), "--rate", "1gbit")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"bytescheduler: {path}: ")
    assert what in line
    assert line.rpartition("; ")[2] == snapshot(
        "record one with: bytescheduler launch --local --record FILE -- python train.py"
    )


def test_a_profile_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    result = invoke(str(tmp_path / "none"), "--rate", "1gbit")
    assert result.exit_code == 2
    assert masked(result.stderr, FOLDER=tmp_path) == snapshot(
        "bytescheduler: FOLDER/none: it cannot be read: No such file or directory; record one "
        "with: bytescheduler launch --local --record FILE -- python train.py\n"
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/dev/zero", "/dev/zero: it has more than 64 MiB; record one with"),
        ("", "'': it cannot be read: No such file or directory"),
    ],
)
def test_an_endless_or_missing_profile_is_refused(path: str, text: str) -> None:
    result = invoke(path, "--rate", "1gbit")
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


def test_a_written_profile_is_read_back(tmp_path: pathlib.Path) -> None:
    layers = [models.Step("a", 4, 0.5, 0.25), models.Step("b", 8, 0, 1)]
    for framework in ("", "torch"):
        written = profile.Profile(layers, framework)
        profile.write(written, tmp_path / "p.json")
        assert profile.read(tmp_path / "p.json") == written
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_a_profile_that_cannot_be_written_leaves_nothing(tmp_path: pathlib.Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        profile.write(profile.Profile([]), tmp_path / "no" / "p.json")


# -- from timelines ----------------------------------------------------------------------------


def span(category: str, key: int, number: int, begin_ms: float, end_ms: float) -> Dict[str, Any]:
    args = {"key": key, "round": number, "bytes": 100 * (key + 1), "part": 0, "server": 0}
    times = {"ts": 1000 * begin_ms, "dur": 1000 * (end_ms - begin_ms)}
    return {"ph": "X", "pid": 1, "tid": 1, "cat": category, "name": "x", "args": args, **times}


def timeline(steps: int) -> List[Dict[str, Any]]:
    """Return steps of 100 ms: keys 2, 1, 0 ready after 40, 60 and 90 ms, summed 1 ms later."""
    about = {"role": "worker", "rank": 0, "version": 1, "start_ns": 0, "num_workers": 1}
    events: List[Dict[str, Any]] = [
        {"name": "bytescheduler", "ph": "M", "pid": 1, "args": {**about, "num_servers": 1}},
        *(
            {"name": "bytescheduler_key", "ph": "M", "pid": 1, "args": {"key": k, "name": f"w{k}"}}
            for k in range(3)
        ),
    ]
    for step in range(steps):
        for key, ready in ((2, 40), (1, 60), (0, 90)):
            begin = 100 * step + ready
            events.append(span("tensor", key, step + 1, begin, begin + 1))
            events.append(span("push", key, step + 1, begin, begin + 0.5))
            events.append(span("pull", key, step + 1, begin + 0.5, begin + 1))
    return [*events, {"name": "bytescheduler_end", "ph": "M", "pid": 1, "args": {"lost": 0}}]


def test_a_profile_comes_out_of_a_timeline(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t-r0.json"
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in timeline(6)) + "\n]\n")
    layers, framework = profile.from_timeline(path)
    assert framework == ""
    assert [(layer.name, layer.size_bytes) for layer in layers] == [
        *(("w0", 100), ("w1", 200), ("w2", 300))
    ]
    # From the sum at 91 ms to the first gradient at 140 ms: 49 ms, of which forward is a third of
    # all 99 ms, and the rest the backward of the last layer.
    assert [layer.backward_s for layer in layers] == pytest.approx([0.030, 0.020, 0.016])
    assert sum(layer.forward_s for layer in layers) == pytest.approx(0.033)
    assert layers[0].forward_s == pytest.approx(0.033 * 30 / 66)


def test_a_profile_has_the_framework_that_the_timeline_tells(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t-r0.json"
    about, *events = timeline(6)
    for name, known in (("torch", "torch"), ("tensorflow", "tensorflow"), ("jax", "")):
        told = {"name": "bytescheduler_framework", "ph": "M", "pid": 1, "args": {"framework": name}}
        text = ",\n".join(json.dumps(event) for event in [about, told, *events])
        path.write_text(f"[\n{text}\n]\n")
        assert profile.from_timeline(path).framework == known


def layers_of(path: pathlib.Path, events: List[Dict[str, Any]]) -> List[models.Step]:
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in events) + "\n]\n")
    return profile.from_timeline(path).layers


def in_moments(ready_ms: List[float], priorities: List[int]) -> List[Dict[str, Any]]:
    """Return steps of 100 ms with key k ready after `ready_ms[k]`."""
    about, *_, end = timeline(0)
    events = [about]
    for step in range(6):
        for key, (ready, priority) in enumerate(zip(ready_ms, priorities)):
            spans = [
                span(category, key, step + 1, 100 * step + ready, 100 * step + ready + 1)
                for category in ("tensor", "push", "pull")
            ]
            for each in spans:
                each["args"]["priority"] = priority
            events += spans
    return [*events, end]


@pytest.mark.parametrize(
    ("ready_ms", "priorities", "order"),
    [
        # A segment whose gradients are ready at once, in the order of the calls.
        ([40, 41, 42, 43], [0, -1, -2, -3], "0123"),
        # Two of them; the second is ready last.
        ([80, 81, 40, 41], [0, -1, -2, -3], "0123"),
        # Priorities that are the other way round are not believed, but within a moment.
        ([40, 60, 80, 80.5], [0, -1, -2, -3], "2310"),
        # None say anything.
        ([40, 80, 60, 20], [0, 0, 0, 0], "1203"),
    ],
)
def test_gradients_of_one_moment_are_in_the_order_of_priorities(
    tmp_path: pathlib.Path, ready_ms: List[float], priorities: List[int], order: str
) -> None:
    layers = layers_of(tmp_path / "t-r0.json", in_moments(ready_ms, priorities))
    assert "".join(layer.name for layer in layers) == order


def test_gradients_of_one_moment_share_its_time_by_size(tmp_path: pathlib.Path) -> None:
    events = in_moments([80, 81, 40, 41], [0, -1, -2, -3])
    layers = layers_of(tmp_path / "t-r0.json", events)
    # 40 ms from moment to moment are shared by 100 and 200 bytes; the rest of the step by 300, 400.
    backward = [layer.backward_s for layer in layers]
    assert backward[:2] == pytest.approx([0.040 / 3, 0.040 * 2 / 3])
    assert backward[2] / backward[3] == pytest.approx(3 / 4)
    shares = [layer.forward_s / layer.backward_s for layer in layers]
    assert shares == pytest.approx([shares[0]] * 4)


def test_an_order_that_the_worker_knows_counts(tmp_path: pathlib.Path) -> None:
    again = [
        {"name": "bytescheduler_key", "ph": "M", "pid": 1, "args": {"key": k, "name": f"w{k}"}}
        for k in (1, 2, 0)
    ]
    about, *events = timeline(6)
    layers = layers_of(tmp_path / "t-r0.json", [about, *events[:-1], *again, events[-1]])
    assert [layer.name for layer in layers] == ["w1", "w2", "w0"]


def test_too_short_a_timeline_says_so(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t-r0.json"
    path.write_text("[\n" + ",\n".join(json.dumps(event) for event in timeline(3)) + "\n]\n")
    with pytest.raises(profile.ProfileError, match="only 2 whole steps recorded, want 3"):
        profile.from_timeline(path)


@pytest.mark.parametrize(
    ("bits", "rates"),
    [
        (1e10, "10gbit 10Gbps 10G 10g 10Gbit 10GBIT 10gbit/s 10Gb/s 10000mbit 0.01Tbit"),
        (2.5e9, "2.5gbit 2500M 2.5Gbits"),
        (64e3, "64kbit 64k 64Kbps"),
    ],
)
def test_rates_are_bits_a_second_in_usual_words(bits: float, rates: str) -> None:
    for rate in rates.split():
        assert bits_per_s(rate) == pytest.approx(bits), rate


@pytest.mark.parametrize(
    "rate",
    [
        "",
        "10",
        "G",
        "10GB",
        "10GB/s",
        "10GBps",
        "10gib",
        "-1gbit",
        "1e3gbit",
        "1 1gbit",
        "nan",
        "0G",
    ],
)
def test_bytes_and_nonsense_are_no_rates(rate: str) -> None:
    with pytest.raises(ValueError, match="want kbit, mbit or gbit, such as 300mbit or 2.5gbit"):
        bits_per_s(rate)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.1", 0.1),
        ("100ms", 0.1),
        ("100 ms", 0.1),
        ("2s", 2),
        ("2m", 120),
        ("1h", 3600),
        ("5us", 5e-6),
    ],
)
def test_times_have_units_or_are_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "ms", "1x", "1,5s", "soon", "1ms2", "nan", "nanms"])
def test_a_text_without_a_time_is_nan(text: str) -> None:
    assert math.isnan(seconds_of(text))
