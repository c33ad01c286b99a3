"""Metrics over HTTP: what they are called, where they are, and that they disturb nobody."""

import contextlib
import ctypes
import functools
import json
import os
import pathlib
import re
import socket
import sys
import threading
import urllib.request
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import pytest
from inline_snapshot import snapshot
from prometheus_client.parser import text_string_to_metric_families
from roles import role

from bytescheduler import Timeout
from bytescheduler._metrics import addresses, exporter, serving, table
from bytescheduler._native import Metric, Node, Worker

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 30.0
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
Samples = Dict[Tuple[str, Tuple[Tuple[str, str], ...]], float]


def look(url: str) -> Samples:
    with DIRECT.open(url, timeout=LIMIT_S) as response:
        text = response.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(samples: Samples) -> "set[str]":
    return {name for name, _ in samples if name.startswith("bytescheduler_")}


def figures() -> List[Metric]:
    return [Metric("steps_total", None, 3.0), Metric("queued_bytes", 1, 4096.0)]


@pytest.fixture
def worker_metrics() -> Iterator[exporter.Exporter]:
    """Show three steps of worker 2 on any free port."""
    showing = exporter.Exporter(figures, "worker", 2, "127.0.0.1", 0)
    yield showing
    showing.close()


def test_figures_get_names_and_labels(worker_metrics: exporter.Exporter) -> None:
    samples = look(worker_metrics.url)
    assert samples["bytescheduler_worker_steps_total", (("rank", "2"),)] == 3
    labels = (("rank", "2"), ("server", "1"))
    assert samples["bytescheduler_worker_queued_bytes", labels] == 4096
    answers = ("bytescheduler_engine_answers", (("rank", "2"), ("role", "worker")))
    assert samples[answers] == 1
    (info,) = (dict(labels) for name, labels in samples if name == table.INFO)
    assert info["role"] == "worker"
    assert ("process_resident_memory_bytes", ()) in samples


def test_counters_and_gauges_have_types_and_descriptions(worker_metrics: exporter.Exporter) -> None:
    with DIRECT.open(worker_metrics.url, timeout=LIMIT_S) as response:
        text = response.read().decode()
    assert "# TYPE bytescheduler_worker_steps_total counter" in text
    assert "# TYPE bytescheduler_worker_queued_bytes gauge" in text
    assert (
        "# HELP bytescheduler_worker_queued_bytes bytes of partitions that wait for credit" in text
    )


def test_an_engine_that_is_busy_leaves_its_metrics_out() -> None:
    def busy() -> List[Metric]:
        raise Timeout("busy", 2)

    showing = exporter.Exporter(busy, "worker", 0, "127.0.0.1", 0)
    try:
        samples = look(showing.url)
    finally:
        showing.close()
    assert samples["bytescheduler_engine_answers", (("rank", "0"), ("role", "worker"))] == 0
    assert names(samples) == {table.INFO, table.ANSWERS}


def test_a_server_says_its_rank_once_it_has_one() -> None:
    told = [Metric("ready", None, 0.0), Metric("rank", None, -1.0)]
    showing = exporter.Exporter(lambda: told, "server", None, "127.0.0.1", 0)
    try:
        answers = "bytescheduler_engine_answers"
        assert (answers, (("rank", ""), ("role", "server"))) in look(showing.url)
        told[:] = [Metric("ready", None, 1.0), Metric("rank", None, 1.0)]
        assert (answers, (("rank", "1"), ("role", "server"))) in look(showing.url)
    finally:
        showing.close()


def test_processes_of_a_host_take_the_next_free_port() -> None:
    first = exporter.Exporter(figures, "worker", 0, "127.0.0.1", 0)
    port = int(first.url.split(":")[2].split("/")[0])
    second = exporter.Exporter(figures, "worker", 1, "127.0.0.1", port)
    try:
        assert first.url != second.url
        taken = int(second.url.split(":")[2].split("/")[0])
        assert port < taken < port + addresses.MOST_PORTS
        assert ("bytescheduler_worker_steps_total", (("rank", "1"),)) in look(second.url)
    finally:
        first.close()
        second.close()


def test_after_close_the_engine_is_not_asked_and_the_port_is_free() -> None:
    asked = threading.Event()

    def measure() -> List[Metric]:
        asked.set()
        return []

    showing = exporter.Exporter(measure, "worker", 0, "127.0.0.1", 0)
    host, port = showing._server.server_address[:2]
    showing.close()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
    assert list(showing._collector.collect())[1].samples[0].value == 0
    assert not asked.is_set()


def test_a_client_that_connects_and_goes_away_harms_nothing(
    worker_metrics: exporter.Exporter, capfd: "pytest.CaptureFixture[str]"
) -> None:
    address = worker_metrics._server.server_address[:2]
    for said in (b"", b"GARBAGE\r\n\r\n", b"GET /metrics HTTP/1.0\r\n\r\n"):
        with socket.create_connection(address, timeout=LIMIT_S) as client:
            client.sendall(said)
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # ends with a reset
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    assert look(worker_metrics.url)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("18600", ("127.0.0.1", 18600)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:18600", ("::1", 18600)),
        ("node7:18600", ("node7", 18600)),
    ],
)
def test_addresses_are_of_this_machine_unless_they_say_otherwise(
    text: str, address: "Tuple[str, int]"
) -> None:
    assert addresses.parse_address(text) == address


# -- the setting -------------------------------------------------------------------------------


def test_without_the_setting_there_is_nothing() -> None:
    assert serving.serve(figures, "worker", 0) is None


def test_the_place_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: "pytest.CaptureFixture[str]"
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_METRICS", "0")
    showing = serving.serve(figures, "worker", 7)
    assert showing is not None
    showing.close()
    said = capfd.readouterr().err
    assert said == f"bytescheduler: worker 7 shows metrics at {showing.url}\n"


@pytest.mark.parametrize("address", ["192.0.2.7:18600", "nosuch.invalid:18600", "ü..x:18600"])
def test_a_place_that_cannot_be_had_is_one_warning(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: "pytest.CaptureFixture[str]"
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_METRICS", address)
    assert serving.serve(figures, "server") is None
    said = capfd.readouterr().err
    assert said.startswith(f"bytescheduler: BYTESCHEDULER_METRICS={address}: cannot listen: ")
    assert said.rpartition("; ")[2] == snapshot("the job goes on, a server shows no metrics\n")
    assert said.count("\n") == 1


def test_no_port_of_all_being_free_is_said() -> None:
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # then somebody else has it
            taken.bind(("127.0.0.1", 65535))
            taken.listen()
        with pytest.raises(OSError, match="ports 65535 to 65535 are all taken"):
            exporter.Exporter(figures, "worker", 0, "127.0.0.1", 65535)


def test_a_missing_library_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, capfd: "pytest.CaptureFixture[str]"
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_METRICS", "0")
    monkeypatch.setitem(sys.modules, "bytescheduler._metrics.exporter", None)
    assert serving.serve(figures, "worker", 3) is None
    said = capfd.readouterr().err
    assert said[said.index("the job goes on") :] == snapshot(
        "the job goes on, worker 3 shows no metrics: pip install prometheus-client\n"
    )
    assert said.count("\n") == 1


# -- a real engine -----------------------------------------------------------------------------


def of_role(name: str) -> "set[str]":
    return {row.name for row in table.ROWS if row.role == name}


def test_every_metric_of_the_table_is_shown_and_no_other() -> None:
    scheduler = Node.start(role("scheduler", 0, workers=1, BYTESCHEDULER_METRICS="0"))
    server = Node.start(role("server", scheduler.port, workers=1, BYTESCHEDULER_METRICS="0"))
    worker = Worker.open(role("worker", scheduler.port, workers=1, BYTESCHEDULER_METRICS="0"))
    shown: List[exporter.Exporter] = []
    try:
        array = (ctypes.c_float * 4)()
        item = (1, 0, ctypes.addressof(array), 16)
        worker.broadcast([item], owner=array)
        received = (ctypes.c_float * 4)()
        addresses = (item[2], ctypes.addressof(received))
        worker.start_push_pull(1, *addresses, 16, owner=(array, received)).wait()
        nodes = (
            (worker.measure, "worker", 0),
            (server.measure, "server", None),
            (scheduler.measure, "scheduler", None),
        )
        for measure, name, rank in nodes:
            patient = functools.partial(measure, timeout_ms=int(LIMIT_S * 1000))
            told = {figure.name for figure in patient()} - {"ready", "rank"}
            assert told == {row.metric for row in table.ROWS if row.role == name}
            shown.append(exporter.Exporter(patient, name, rank, "127.0.0.1", 0))
        for showing, name in zip(shown, ("worker", "server", "scheduler")):
            samples = look(showing.url)
            assert names(samples) == of_role(name) | {table.INFO, table.ANSWERS}
        pushed = ("bytescheduler_worker_pushed_bytes_total", (("rank", "0"), ("server", "0")))
        assert look(shown[0].url)[pushed] == 32
        rounds = ("bytescheduler_server_rounds_total", (("rank", "0"),))
        assert look(shown[1].url)[rounds] == 1
        assert look(shown[2].url)["bytescheduler_scheduler_workers", ()] == 1
    finally:
        for showing in shown:
            showing.close()
        worker.close(drain_ms=0)
        server.close()
        scheduler.close()


def test_a_forked_child_leaves_the_port_to_its_parent(worker_metrics: exporter.Exporter) -> None:
    child = os.fork()
    if child == 0:
        worker_metrics.forget()
        os._exit(0 if worker_metrics._server.socket.fileno() == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert look(worker_metrics.url)


# -- the documents -----------------------------------------------------------------------------


def test_the_page_has_the_table() -> None:
    assert table.markdown() in (ROOT / "docs" / "operate" / "metrics.md").read_text()


# What can become less, by its figure; all else only grows.
GAUGES = (
    "step_seconds queued_partitions queued_bytes in_flight_bytes partition_bytes credit_bytes "
    "pending_requests failed open_rounds awaited_rounds partitions value_bytes held_bytes workers "
    "servers worker_silent_seconds server_silent_seconds rdma_links rdma_pinned_bytes "
    "rdma_window_bytes exchanges exchange_partitions ended_exchanges"
)


def test_names_follow_the_conventions() -> None:
    assert {row.metric for row in table.ROWS if row.kind == "gauge"} == set(GAUGES.split())
    for row in table.ROWS:
        assert re.fullmatch(r"bytescheduler_[a-z_]+", row.name), row.name
        for wrong in ("_ms", "_mb", "_kb", "_us"):
            assert wrong not in row.name


def load_dashboard() -> Any:  # noqa: ANN401
    return json.loads((ROOT / "docs" / "operate" / "grafana.json").read_text())


def dashboard_expressions() -> List[str]:
    panels = load_dashboard()["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def unknown_metric(expression: str) -> Optional[str]:
    """Return a name in `expression` that no process shows, or a label that it has not."""
    known: Dict[str, Sequence[str]] = {row.name: row.labels for row in table.ROWS}
    known[table.ANSWERS] = ("role", "rank")
    for name in re.findall(r"bytescheduler_\w+", expression):
        if name not in known:
            return name
        for labels in re.findall(r"by \(([\w, ]+)\)", expression):
            for label in labels.split(","):
                if label.strip() not in (*known[name], "job", "instance"):  # Prometheus has these
                    return label
    return None


def test_the_dashboard_asks_for_existing_metrics() -> None:
    expressions = dashboard_expressions()
    assert len(expressions) > 10
    for expression in expressions:
        assert "bytescheduler_" in expression
        assert unknown_metric(expression) is None, expression


def test_the_rule_on_the_dashboard_can_fail() -> None:
    assert unknown_metric("rate(bytescheduler_worker_stepz_total[1m])")
    assert unknown_metric("sum by (shard) (bytescheduler_worker_queued_bytes)") == "shard"


def test_the_dashboard_keeps_jobs_and_instances_apart() -> None:
    dashboard = load_dashboard()
    variables = {row["name"]: row for row in dashboard["templating"]["list"]}
    assert variables["job"]["type"] == variables["instance"]["type"] == "query"
    for expression in dashboard_expressions():
        chosen = re.findall(
            r'bytescheduler_\w+\{job=~"\$job", instance=~"\$instance"\}', expression
        )
        assert len(chosen) == len(re.findall(r"bytescheduler_\w+", expression)), expression
        for labels in re.findall(r"by \(([\w, ]+)\)", expression):
            assert "job" in labels.split(", "), expression


def test_shares_on_the_dashboard_end_at_one() -> None:
    for panel in load_dashboard()["panels"]:
        assert panel["description"].endswith(".")
        if "hare" in panel["title"]:
            limits = panel["fieldConfig"]["defaults"]
            assert (limits["unit"], limits["min"], limits["max"]) == ("percentunit", 0, 1)


# Words that need the text of the row above.
LEANS = re.compile(r"\b(of these|of them|the same|those below|over all of)\b")


def test_the_help_of_a_metric_stands_alone() -> None:
    assert LEANS.search("bytes of these")
    for row in table.ROWS:
        assert not LEANS.search(row.sentence), row.name


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = load_dashboard()
    taken: Set[Tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in dashboard["panels"]):
        columns = range(place["x"], place["x"] + place["w"])
        rows = range(place["y"], place["y"] + place["h"])
        squares = {(column, row) for column in columns for row in rows}
        assert not squares & taken
        assert place["x"] + place["w"] <= 24
        taken |= squares
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
