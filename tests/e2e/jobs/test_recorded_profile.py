"""`bytescheduler launch --record`: a profile of a job of real processes, which advise takes."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Tuple

import pytest
from inline_snapshot import snapshot
from job import WORKERS
from sentences import line_with, masked

from bytescheduler._advise import profile

LIMIT_S = 120


def command(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if "BYTESCHEDULER" not in name}
    return subprocess.run(
        [sys.executable, "-m", "bytescheduler.cli", *arguments],
        env={**kept, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        text=True,
        check=False,
    )


def recorded(
    path: pathlib.Path, *script: str, servers: int = 1
) -> "subprocess.CompletedProcess[str]":
    options = ["--local", "-q", "-s", str(servers), "--record", str(path)]
    return command("launch", *options, "--", sys.executable, *script)


@pytest.mark.serial
def test_a_script_is_recorded_and_advised(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.json"
    run = recorded(path, str(WORKERS / "steps/paced_worker.py"), "8")
    assert run.returncode == 0, run.stderr
    assert f"{path}: 3 tensors, 1.6 MB" in run.stderr
    layers = profile.read(path).layers
    assert [layer.size_bytes for layer in layers] == [400_000, 800_000, 400_000]
    # The script computes 30, 20 and 10 ms of backward, the first layer's last, and 30 ms of
    # forward; a busy machine takes longer, and the script says how long.
    assert layers[0].backward_s >= 0.03
    assert layers[1].backward_s >= 0.02
    compute = sum(layer.forward_s + layer.backward_s for layer in layers)
    (line,) = (line for line in run.stdout.splitlines() if "slept" in line)
    seen = json.loads(line)
    assert 0.09 <= seen["slept"] <= seen["step"]
    assert max(0.08, 0.85 * seen["slept"]) <= compute <= 1.15 * seen["step"]
    advised = command("advise", str(path), "--rate", "100mbit", "--json")
    assert advised.returncode == 0, advised.stderr
    assert json.loads(advised.stdout)["layers"] == 3


@pytest.mark.serial
def test_a_script_without_mxnet_is_recorded_by_the_names_that_it_gives(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "model.json"
    # Its timeline is the worker's also where the process hosts a server.
    run = recorded(path, str(WORKERS / "steps/engine_worker.py"), "8", servers=0)
    assert run.returncode == 0, run.stderr
    layers = profile.read(path).layers
    # Its priorities are wrong, so the order is that of readiness.
    assert [layer.name for layer in layers] == [f"layer{key}.weight" for key in range(3)]
    assert [layer.size_bytes for layer in layers] == [400_000, 800_000, 400_000]


def block_of(name: str) -> str:
    """Return the part of a ResNet that a parameter belongs to."""
    return next(part for part in ("stage1", "stage2", "stage3", "stage4", "") if part in name)


@pytest.mark.parametrize("kind", ["module", "plain", "hybrid", "resnet"])
def test_a_models_layers_are_in_the_order_of_forward(kind: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.json"
    run = recorded(path, str(WORKERS / "steps/recorded_model.py"), kind, "8")
    assert run.returncode == 0, run.stderr
    (line,) = (line for line in run.stdout.splitlines() if "FORWARD" in line)
    forward = line.split("FORWARD ")[1].split()
    names = [layer.name for layer in profile.read(path).layers]
    assert sorted(names) == sorted(forward)
    if kind != "resnet":
        assert names == forward
        return
    # Of a block with a branch either branch may come first.
    assert list(map(block_of, names)) == list(map(block_of, forward))
    for weight in (name for name in names if "conv" in name):
        after = names[names.index(weight) + 1]
        assert after == weight.replace("conv", "batchnorm").replace("weight", "gamma")


def test_a_recording_ends_by_itself_after_its_steps(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.json"
    # The script would train for more than a quarter of an hour.
    words = ("--record", str(path), "--record-steps", "5", "--", sys.executable)
    run = command("launch", "--local", *words, str(WORKERS / "steps/paced_worker.py"), "10000")
    assert run.returncode == 0, run.stderr
    assert "bslaunch: enough steps; ending the job" in run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert "failed" not in run.stdout + run.stderr
    assert len(profile.read(path).layers) == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--local", "--record-steps", "9"), "--record-steps goes with --record FILE"),
        (("--record-steps", "9"), "--record-steps goes with --local"),
        (("--local", "--record", "x", "--record-steps", "4"), "--record-steps 4: want at least 5"),
    ],
)
def test_a_number_of_steps_that_means_nothing_is_refused(words: Tuple[str, ...], text: str) -> None:
    run = command("launch", *words, "--", "true")
    assert run.returncode == 2
    assert text in run.stderr


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (("steps/paced_worker.py", "2"), "whole step recorded, want 3 besides the first"),
        (("-c", "pass"), "worker 0 trained nothing natively: does the script use bytescheduler?"),
    ],
)
def test_a_script_that_trains_too_little_gives_no_profile_and_says_so(
    tmp_path: pathlib.Path, script: Tuple[str, ...], text: str
) -> None:
    words = [str(WORKERS / word) if word.endswith(".py") else word for word in script]
    run = recorded(tmp_path / "model.json", *words)
    assert run.returncode == 1
    assert "bytescheduler: no profile was recorded: " in run.stderr
    assert text in run.stderr
    assert not (tmp_path / "model.json").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    run = recorded(tmp_path / "no" / "model.json", str(WORKERS / "steps/paced_worker.py"), "8")
    assert run.returncode == 2
    assert masked(line_with("Error", run.stderr), FOLDER=tmp_path) == snapshot(
        "Error: --record FOLDER/no/model.json: FOLDER/no is no folder that can be written to"
    )


def test_a_recording_refuses_a_timeline_of_the_user() -> None:
    run = command(
        *("launch", "--local", "--record", "x", "--", "true"), BYTESCHEDULER_TIMELINE="t.json"
    )
    assert run.returncode == 2
    assert line_with("Error", run.stderr) == snapshot(
        "Error: --record needs BYTESCHEDULER_TIMELINE for itself; unset it"
    )


def test_recording_goes_with_local() -> None:
    run = command("launch", "--record", "x", "true")
    assert run.returncode == 2
    assert "--record goes with --local" in run.stderr
