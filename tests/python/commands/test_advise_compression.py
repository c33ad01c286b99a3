"""`bytescheduler advise --compression`: the codes are what crosses the links."""

import json
import pathlib
from typing import Any, Dict, List

import pytest
from click.testing import Result
from click_runner import runner
from sentences import line_with

from bytescheduler import cli
from bytescheduler._advise import advice, models
from bytescheduler._advise.coded import SPEEDS, coded_job, coded_layers, method_of
from bytescheduler._compression.params import compression_of

LAYERS: List[models.Step] = [
    models.Step("conv", 1 << 20, 0.04, 0.08),
    models.Step("bias", 1000, 0.001, 0.002),
    models.Step("fc", 7 << 20, 0.001, 0.002),
]
CODED_BYTES = 8 << 20
RESULTS = pathlib.Path(__file__).parents[3] / "docs" / "results"
COMPUTE_S = 0.126


def cluster_of(bytes_per_s: float, **more: Any) -> advice.Cluster:  # noqa: ANN401
    rate = 8 * bytes_per_s / advice.GOODPUT
    return advice.Cluster(2, 2, rate, 1e-4, 128 << 10, 512 << 10)._replace(**more)


def seconds_of(*names: str) -> float:
    """Return the seconds that a core takes for a byte of gradient."""
    return sum(1 / (1e9 * SPEEDS[name]) for name in names)


@pytest.mark.parametrize(
    ("method", "share"),
    [
        ("bf16", 1 / 2),
        ("fp16", 1 / 2),
        ("int8", (1 + 4 / 256) / 4),
        ("onebit", 8196 / (4 * 65536)),
        ("topk=0.01", 655 * 6 / (4 * 65536)),
        ("randomk=0.03", 1966 * 4 / (4 * 65536)),
        ("dithering=7", (1 / 2 + 4 / 2048) / 4),
    ],
)
def test_codes_have_their_share_of_the_bytes(method: str, share: float) -> None:
    coded = coded_layers(LAYERS, method_of(method))
    assert [layer.size_bytes for layer in coded] == [share * (1 << 20), 1000, share * (7 << 20)]
    assert [layer.forward_s for layer in coded] == [layer.forward_s for layer in LAYERS]


@pytest.mark.parametrize("method", ["bf16", "onebit"])
def test_a_step_takes_the_time_of_the_formula_for_codes(method: str) -> None:
    coded = coded_layers(LAYERS, method_of(method))
    coded_bytes = sum(layer.size_bytes for layer in coded)
    # Codes take ten times the compute, and a tenth of it.
    for bytes_per_s in (0.1 * coded_bytes / COMPUTE_S, 10 * coded_bytes / COMPUTE_S):
        partition = coded_bytes // 64
        cluster = cluster_of(bytes_per_s, partition_bytes=partition, credit_bytes=4 * partition)
        ideal_s = models.ideal_s(coded, bytes_per_s)
        assert ideal_s <= cluster.predict(coded, "ours").step_s <= 1.1 * ideal_s


def test_the_table_and_the_text_tell_the_gain() -> None:
    slow = advice.advise(LAYERS, cluster_of(CODED_BYTES / COMPUTE_S / 4), compression="onebit")
    times = slow["step_s"]
    assert times["coded"] < 0.4 * times["ours"]
    assert line_with("with onebit  ", advice.table(slow))
    saved = round(100 * (1 - times["coded"] / times["ours"]))
    assert slow["text"].endswith(f" With onebit it takes {saved} % less.")
    coding_s = slow["compression"].pop("coding_s")
    assert slow["compression"] == {"method": "onebit", "bytes": 1000 + 32 * 8196}
    # A worker codes the model and decodes it; of two servers each adds two halves and codes one.
    assert coding_s["worker"] == pytest.approx(
        CODED_BYTES * seconds_of("encode/onebit/kept", "decode/onebit"), rel=1e-3
    )
    of_server_s = CODED_BYTES / 2 * seconds_of("add/onebit", "add/onebit", "encode/onebit/kept")
    assert coding_s["server"] == pytest.approx(of_server_s, rel=1e-3)


def test_speeds_of_coding_are_the_measured_figures() -> None:
    measured = json.loads((RESULTS / "coding.json").read_text())["gbytes_per_s"]
    assert {name: measured[name] for name in SPEEDS} == SPEEDS


def test_coding_that_is_slower_than_the_links_is_the_limit() -> None:
    layers = [layer._replace(forward_s=0.0, backward_s=1e-6) for layer in LAYERS]
    coded = coded_job(layers, method_of("topk=0.01"), "topk")
    fast = cluster_of(100e9, latency_s=1e-6)
    worker_s = fast.coding_times(coded)["worker"]
    assert worker_s == pytest.approx(
        CODED_BYTES * seconds_of("encode/topk/kept", "decode/topk"), rel=1e-3
    )
    step_s = fast.predict_coded(coded).step_s
    # A server codes the last sum behind the last gradient, and the worker decodes it.
    assert worker_s <= step_s <= 1.5 * worker_s
    assert fast.predict(coded.layers, "ours").step_s < 0.1 * worker_s


def test_a_slow_link_hides_coding() -> None:
    coded = coded_job(LAYERS, method_of("int8"), "int8")
    slow = cluster_of(CODED_BYTES / COMPUTE_S / 40)
    partition, credit = coded.sizes(*slow.sizes)
    alike = slow._replace(partition_bytes=partition, credit_bytes=credit)
    without_s = alike.predict(coded.layers, "ours").step_s
    assert without_s <= slow.predict_coded(coded).step_s <= 1.02 * without_s


@pytest.mark.parametrize(
    ("method", "credit_units"), [("bf16", 4), ("int8", 8), ("onebit", 4), ("topk=0.01", 4)]
)
def test_codes_are_cut_into_units_and_counted_as_the_engine_does(
    method: str, credit_units: int
) -> None:
    """Small codes count with an eighth of their gradient, so that there are fewer in flight."""
    compression = method_of(method)
    coded = coded_job(LAYERS, compression, method.partition("=")[0])
    counted = credit_units * max(coded.unit_bytes, 32 << 10)
    partition, credit = coded.sizes(128 << 10, counted)
    assert partition == coded.unit_bytes
    assert coded.sizes(1 << 20, counted) == (4 * coded.unit_bytes, credit)
    assert credit == pytest.approx(credit_units * coded.unit_bytes, rel=0.01)


def test_sums_that_travel_plain_are_not_coded() -> None:
    params = {"compressor": "bf16", "pull": "plain"}
    coded = coded_job(LAYERS, compression_of(params, 65536), "bf16")
    assert [seconds > 0 for seconds in coded.coding_s] == [True, True, False, False]
    params = {"compressor": "onebit", "scaling": True, "pull": "bf16"}
    halves = coded_job(LAYERS, compression_of(params, 65536), "onebit")
    ratio = seconds_of("encode/bf16/alone") / seconds_of("decode/bf16")
    assert halves.coding_s[2] / halves.coding_s[3] == pytest.approx(ratio)


def test_the_workers_of_a_host_send_the_codes_of_their_sum() -> None:
    coded = coded_job(LAYERS, method_of("bf16"), "bf16")
    hosts = cluster_of(CODED_BYTES / COMPUTE_S / 4, workers=4, servers=2, together=2, per_host=2)
    times = advice.advise(LAYERS, hosts, compression="bf16")["step_s"]
    assert times["coded"] == hosts.predict_coded(coded).step_s
    assert times["coded"] < 0.7 * times["ours"]


def invoke(path: pathlib.Path, *arguments: str) -> Result:
    layers = [
        {
            "name": layer.name,
            "bytes": layer.size_bytes,
            "forward_s": layer.forward_s,
            "backward_s": layer.backward_s,
        }
        for layer in LAYERS
    ]
    path.write_text(json.dumps({"bytescheduler_profile": 1, "layers": layers}))
    return runner().invoke(cli._cli, ["advise", str(path), "--rate", "10gbit", *arguments])


def test_where_the_link_is_no_limit_it_gains_nothing(tmp_path: pathlib.Path) -> None:
    result = invoke(tmp_path / "model.json", "--compression", "topk=0.01", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: Dict[str, Any] = json.loads(result.stdout)
    assert found["text"].endswith(" With topk=0.01 it takes as long as without.")


@pytest.mark.parametrize("method", ["topk=0.0001", "topk=1", "randomk=0.00001"])
def test_few_elements_of_a_tensor_take_no_time(tmp_path: pathlib.Path, method: str) -> None:
    result = invoke(tmp_path / "model.json", "--compression", method)
    assert (result.exit_code, result.stderr) == (0, "")
    assert line_with(f"with {method}  ", result.stdout)


@pytest.mark.parametrize("method", ["zip", "topk", "onebit=3", "", "=", "topk=", "topk=2.5\n"])
def test_a_wrong_method_is_refused(tmp_path: pathlib.Path, method: str) -> None:
    result = invoke(tmp_path / "model.json", "--compression", method)
    assert result.exit_code == 2
    assert "want " in result.stderr
    assert result.stderr.count("\n") == 1
