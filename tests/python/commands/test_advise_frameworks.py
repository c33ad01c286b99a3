"""`bytescheduler advise` compares with the data parallel training of the profile's framework."""

import json
import pathlib
from typing import Any, Dict

import pytest
from click_runner import runner
from inline_snapshot import snapshot

from bytescheduler import cli
from bytescheduler._advise import advice, ddp, models, profile

RATE = ("--rate", "1gbit")
LAYERS = models.scaled("uniform", 1, 0.7)  # buckets of 4 MB suit it


def saved(folder: pathlib.Path, framework: str) -> str:
    path = folder / f"{framework}.json"
    profile.write(profile.Profile(LAYERS, framework), path)
    return str(path)


def advised(*arguments: str) -> Dict[str, Any]:
    result = runner().invoke(cli._cli, ["advise", "--json", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    found: Dict[str, Any] = json.loads(result.stdout)
    return found


SHARDED = {"fsdp", "fsdp_reshard", "fsdp_backend", "fsdp_reshard_backend"}
TORCH = {"no_overlap", "ddp", "ddp_best", *SHARDED, "fifo", "ours", "ideal"}
TENSORFLOW = {"no_overlap", "mirrored", "fifo", "ours", "ideal"}
MXNET = {"no_overlap", "dist_sync", "fifo", "p3", "ours", "ideal"}


def test_a_profile_of_pytorch_is_compared_with_ddp(tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path, "torch")
    layers = profile.read(path).layers
    found = advised(path, *RATE)
    assert (found["framework"], found["step_s"].keys()) == ("torch", TORCH)
    ring = advice.Cluster(2, 2, 1e9, 5e-5).ring
    times = found["step_s"]
    assert times["ddp"] == ddp.step_s(layers, ring)
    assert (found["bucket_mb"], times["ddp_best"]) == ddp.best_bucket(layers, ring)
    assert times["ours"] < times["ddp_best"] < times["ddp"]
    assert found["compared_with"] == "ddp_best"


def test_a_profile_of_pytorch_has_fsdp2_over_gloo_and_over_ours(tmp_path: pathlib.Path) -> None:
    shape = ("-w", "4", "-s", "4", "--together", "4", "--per-host", "2", "--factors", "2=0.5")
    times = advised(saved(tmp_path, "torch"), *RATE, *shape)["step_s"]
    # Host 2 carries, in 20 gathers and 20 scatters: of Gloo's ring 3/4 and 3/2 of the model,
    # in 3 and 6 messages; of ours 1 model each, in a round trip each.
    model_s = sum(layer.size_bytes for layer in LAYERS) / (0.5 * 0.953 * 1e9 / 8)
    gloo, gather = 0.7 + 2.25 * model_s + 180 * 5e-5, 0.75 * model_s + 60 * 5e-5
    ours, our_gather = 0.7 + 2 * model_s + 80 * 5e-5, model_s + 40 * 5e-5
    assert {name: times[name] for name in sorted(SHARDED)} == pytest.approx(
        {
            "fsdp": gloo,
            "fsdp_backend": ours,
            "fsdp_reshard": gloo + gather,
            "fsdp_reshard_backend": ours + our_gather,
        }
    )


def test_a_profile_of_tensorflow_is_compared_with_one_sum_of_all_gradients(
    tmp_path: pathlib.Path,
) -> None:
    path = saved(tmp_path, "tensorflow")
    found = advised(path, *RATE, "-w", "4", "-s", "4")
    assert (found["framework"], found["step_s"].keys()) == ("tensorflow", TENSORFLOW)
    assert found["compared_with"] == "mirrored"
    size = sum(layer.size_bytes for layer in LAYERS)
    # Each link carries 3/2 of the model behind 0.7 s of compute, in six messages.
    expected = 0.7 + 1.5 * size / (0.953 * 1e9 / 8) + 6 * 5e-5
    assert found["step_s"]["mirrored"] == pytest.approx(expected)
    assert "than with TensorFlow's strategy" in found["text"]


@pytest.mark.parametrize("framework", ["", "mxnet"])
def test_a_profile_of_mxnet_or_an_older_one_is_compared_with_dist_sync(
    tmp_path: pathlib.Path, framework: str
) -> None:
    found = advised(saved(tmp_path, framework), *RATE)
    assert (found["framework"], found["step_s"].keys()) == ("mxnet", MXNET)
    assert found["compared_with"] == "dist_sync"


def test_the_framework_can_be_chosen(tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path, "mxnet")
    assert advised(path, "--framework", "torch", *RATE)["step_s"].keys() == TORCH
    known = ("--model", "resnet50", "--compute", "1", "--rate", "10gbit")
    assert advised(*known)["framework"] == "torch"
    assert advised(*known, "--framework", "mxnet")["step_s"].keys() == MXNET


def test_a_table_has_ddps_own_buckets_and_the_bucket_that_suits_best(
    tmp_path: pathlib.Path,
) -> None:
    result = runner().invoke(cli._cli, ["advise", saved(tmp_path, "torch"), *RATE])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line[:26].strip() for line in lines[2:12]] == snapshot(
        [
            "no overlap",
            "DDP in buckets of 25 MB",
            "DDP in buckets of 4 MB",
            "FSDP2 over Gloo",
            "FSDP2 over Gloo, reshard",
            "FSDP2 over ours",
            "FSDP2 over ours, reshard",
            "first come first served",
            "bytescheduler",
            "ideal",
        ]
    )
    times = advised(saved(tmp_path, "torch"), *RATE)["step_s"]
    saving = f"{100 * (1 - times['ours'] / times['ddp_best']):.0f} %"
    text = f"It will help: a step takes {saving} less than with DDP in buckets of 4 MB"
    assert text in result.stdout
    assert "MXNet" not in result.stdout


def test_where_no_bucket_is_better_than_ddps_own_one_line_has_it(tmp_path: pathlib.Path) -> None:
    # A worker that is alone sums nothing.
    words = ["advise", saved(tmp_path, "torch"), *RATE, "-w", "1", "-s", "1"]
    result = runner().invoke(cli._cli, words)
    assert result.stdout.count("\n  DDP in buckets of") == 1


def test_alone_it_shows_an_example() -> None:
    result = runner().invoke(cli._cli, ["advise"])
    assert (result.exit_code, result.stdout) == (2, "")
    commands = [line.strip() for line in result.stderr.splitlines() if line.startswith("  ")]
    assert commands == snapshot(
        [
            "bytescheduler launch --local --record model.json --record-steps 20 -- python train.py",
            "bytescheduler advise model.json --rate 10gbit --workers 8 --servers 8",
            "bytescheduler advise --model resnet50 --compute 0.25 --rate 10gbit",
        ]
    )
