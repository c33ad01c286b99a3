"""`bytescheduler top`: rates of two readings, and what it says when nobody is there."""

import http.server
import json
import re
import socket
import socketserver
import threading
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from click.testing import Result
from click_runner import runner
from inline_snapshot import snapshot
from sentences import line_with

from bytescheduler import cli
from bytescheduler._metrics import reader
from bytescheduler._metrics.exporter import Exporter
from bytescheduler._native import Metric
from bytescheduler.commands import top

PLACE = ("127.0.0.1", 18600)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let who is there answer when he can, on a busy machine too."""
    monkeypatch.setattr(reader, "_PATIENCE_S", 60.0)


def invoke(*arguments: str) -> Result:
    return runner().invoke(cli._cli, ["top", *arguments])


def node(role: str, rank: Optional[int], when: float, values: reader.Values) -> reader.Node:
    return reader.Node(role, rank, True, when, values)


# -- what is read ------------------------------------------------------------------------------


def test_rates_are_growth_by_time() -> None:
    before = node("worker", 1, 10.0, {("steps_total", None): 4, ("pushed_bytes_total", 0): 100})
    now = node(
        "worker",
        1,
        12.0,
        {
            ("steps_total", None): 10,
            ("pushed_bytes_total", 0): 300,
            ("pushed_bytes_total", 1): 50,
            ("queued_bytes", 0): 7,
            ("queued_bytes", 1): 8,
            ("step_seconds", None): 0.25,
        },
    )
    (row,) = reader.report({PLACE: before}, {PLACE: now})["workers"]
    assert row["rank"] == 1
    assert row["steps_per_s"] == 3
    assert row["pushed_bytes_per_s"] == 125
    assert row["queued_bytes"] == 15
    assert row["step_s"] == 0.25


def test_a_process_that_began_anew_has_no_negative_rate() -> None:
    before = node("server", 0, 10.0, {("rounds_total", None): 1000})
    now = node("server", 0, 12.0, {("rounds_total", None): 10})
    (row,) = reader.report({PLACE: before}, {PLACE: now})["servers"]
    assert row["rounds_per_s"] == 0


def test_stragglers_are_added_up_over_servers_worst_first() -> None:
    def server(rank: int, factor: float) -> reader.Node:
        values: reader.Values = {}
        for worker, waited in ((0, 1.0), (1, 3.0), (2, 0.0)):
            values["waited_seconds_total", worker] = waited * factor
            values["came_last_total", worker] = 10.0 * factor
            values["awaited_rounds", worker] = float(worker)
        return node("server", rank, 10.0 + factor, values)

    places = [("a", 1), ("a", 2)]
    before = {place: server(rank, 1) for rank, place in enumerate(places)}
    now = {place: server(rank, 2) for rank, place in enumerate(places)}
    rows = reader.report(before, now)["stragglers"]
    assert [row["worker"] for row in rows] == [1, 0, 2]
    assert [row["waited_share"] for row in rows] == [0.75, 0.25, 0.0]
    assert rows[0]["wait_s"] == pytest.approx(0.3)
    assert rows[0]["awaited_rounds"] == 2


def scheduler(when: float, **silent: float) -> reader.Node:
    values: reader.Values = {("workers", None): 2.0, ("servers", None): 1.0}
    for name, seconds in silent.items():
        values[f"{name[:-1]}_silent_seconds", int(name[-1])] = seconds
    return node("scheduler", None, when, values)


def test_the_scheduler_node_lists_silent_nodes_the_longest_first() -> None:
    now = scheduler(2.0, worker0=0.5, worker1=3.0, server0=1.0)
    (row,) = reader.report({PLACE: scheduler(1.0)}, {PLACE: now})["schedulers"]
    assert (row["workers"], row["servers"]) == (2, 1)
    assert row["silent"] == [
        {"node": "worker 1", "silent_s": 3.0},
        {"node": "server 0", "silent_s": 1.0},
        {"node": "worker 0", "silent_s": 0.5},
    ]


def test_pages_of_other_programs_are_not_taken_for_ours() -> None:
    assert reader.parse("process_cpu_seconds_total 3\n", 0.0) is None
    for text in ("<html>hello</html>\n", "# TYPE x\n"):
        with pytest.raises(ValueError, match=r".+"):
            reader.parse(text, 0.0)


# -- what is shown -----------------------------------------------------------------------------


def one_of_each() -> reader.Values:
    return {
        ("waited_seconds_total", 0): 1.0,
        ("waited_seconds_total", 1): 0.0,
        ("came_last_total", 0): 4.0,
        ("awaited_rounds", 0): 2.0,
        ("value_bytes", None): 3e6,
    }


def test_the_text_is_a_table_for_each_kind() -> None:
    before = {("h", 1): node("worker", 0, 0.0, {}), ("h", 2): node("server", 0, 0.0, {})}
    worker = node("worker", 0, 1.0, {("credit_bytes", None): 524288.0, ("steps_total", None): 2.0})
    now = {("h", 1): worker, ("h", 2): node("server", 0, 1.0, one_of_each())}
    lines = top.text(reader.report(before, now)).splitlines()
    assert " ".join(lines[0].split()) == snapshot(
        "worker steps/s step pushed pulled queued in flight credit"
    )
    assert " ".join(lines[1].split()) == "0 2 - 0 B/s 0 B/s 0 B 0 B 524 KB"
    assert lines[4].split()[-2:] == ["3", "MB"]
    assert lines[7].split() == ["worker", "0", "100%", "250", "ms", "2"]


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        (scheduler(1.0, worker1=3.0), "2 1 worker 1, 3 s"),
        (scheduler(1.0)._replace(values={}), "0 0 - joining"),
        (scheduler(1.0)._replace(answers=False), "2 1 - busy"),
    ],
)
def test_the_scheduler_node_has_a_line(now: reader.Node, shown: str) -> None:
    head, line = top.text(reader.report({PLACE: now}, {PLACE: now})).splitlines()
    assert head.split() == ["scheduler", "workers", "servers", "longest", "silent"]
    assert " ".join(line.split()) == shown


@pytest.mark.parametrize(
    ("rank", "answers", "failed", "state"),
    [(0, True, 1, "failed"), (0, False, 0, "busy"), (None, True, 0, "joining"), (0, True, 0, "")],
)
def test_the_trouble_of_a_process_stands_behind_it(
    rank: Optional[int], answers: bool, failed: int, state: str
) -> None:
    one = reader.Node("server", rank, answers, 0.0, {("failed", None): float(failed)})
    shown = top.text(reader.report({PLACE: one}, {PLACE: one})).splitlines()[1]
    assert shown.endswith(state or "0 B")


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def worker_port() -> Iterator[int]:
    """Show a worker that makes a step each time somebody looks."""
    steps: List[int] = []

    def measure() -> List[Metric]:
        steps.append(1)
        failed = Metric("failed", None, float(len(steps) > 3))
        return [Metric("steps_total", None, float(len(steps))), failed]

    showing = Exporter(measure, "worker", 0, "127.0.0.1", 0)
    yield showing._server.server_port
    showing.close()


def test_one_look_in_json_is_one_line(worker_port: int) -> None:
    result = invoke("--json", "--once", "--interval", "0.2", str(worker_port))
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert [row["rank"] for row in found["workers"]] == [0]
    assert found["workers"][0]["steps_per_s"] > 0
    assert found["servers"] == found["stragglers"] == []


def test_a_node_that_has_failed_is_an_exit_code(worker_port: int) -> None:
    for code in (0, 1):  # of the looks 1 and 2, and 3 and 4
        result = invoke("--once", "--interval", "0.2", f"127.0.0.1:{worker_port}")
        assert result.exit_code == code, result.stderr
    assert "failed" in result.stdout


def test_the_port_of_the_environment_is_looked_at(
    worker_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_METRICS", f"0.0.0.0:{worker_port}")
    result = invoke("--once", "--interval", "0.2")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("worker  steps/s")


def test_it_ends_when_the_job_does() -> None:
    showing = Exporter(lambda: [], "worker", 0, "127.0.0.1", 0)
    place = ("127.0.0.1", showing._server.server_port)
    job = top._Job([place])
    job.look()
    assert job.nodes
    showing.close()
    assert top._watch(job, 0.0, False, True) == 0


class Looks(top._Job):
    """A job of which each look finds the next of these."""

    def __init__(self, *found: Dict[reader.Place, reader.Node]) -> None:
        self.nodes: Dict[reader.Place, reader.Node] = {}
        self._found = list(found)

    def look(self) -> Tuple[Dict[reader.Place, reader.Node], Dict[reader.Place, reader.Node]]:
        before, self.nodes = self.nodes, self._found.pop(0)
        return before, self.nodes


def test_a_job_has_ended_when_two_looks_find_no_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = {PLACE: node("worker", 0, 1.0, {})}
    job = Looks(there, {}, there, there, {}, {}, there)
    assert top._watch(job, 0.0, False, True) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), job._found) == (3, [there])
    assert err == snapshot("bytescheduler: the job has ended, or shows no metrics any more\n")
    assert top._watch(Looks({}), 0.0, True, True) == 1


def test_a_process_that_accepts_and_does_not_answer_is_busy_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    showing = Exporter(lambda: [], "worker", 3, "127.0.0.1", 0)
    place = ("127.0.0.1", showing._server.server_port)
    before = reader.scan([place], {})
    showing.close()
    monkeypatch.setattr(reader, "_PATIENCE_S", 0.2)  # with whom never does
    with socket.socket() as stopped:  # as a process is that was stopped
        stopped.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stopped.bind(place)
        stopped.listen(0)
        for _ in range(4):  # the later ones are not even taken
            now = reader.scan([place], before)
            assert top.text(reader.report(before, now)).splitlines()[1].endswith("busy")
            before = now
        assert reader.scan([place], {}) == {}
        monkeypatch.setattr(reader, "_SILENT_S", 0.0)
        assert reader.scan([place], before) == {}
    monkeypatch.setattr(reader, "_SILENT_S", 60.0)
    assert reader.scan([place], before) == {}


def test_a_port_without_a_job_is_a_sentence_and_an_exit_code(free_port: Callable[[], int]) -> None:
    port = free_port()
    result = invoke("--once", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert re.sub(rf"{port} to \d+", "PORT to LAST", result.stderr) == snapshot(
        "bytescheduler: no process of a job shows metrics at 127.0.0.1:PORT to LAST: is it "
        "running, and was it started with BYTESCHEDULER_METRICS?\n"
    )


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("nowhere.invalid", "Name or service not known|Temporary failure in name resolution"),
        ("a..b", "label empty"),
    ],
)
def test_a_host_that_has_no_address_is_named(
    free_port: Callable[[], int], host: str, why: str
) -> None:
    result = invoke(f"127.0.0.1:{free_port()}", f"{host}:18600")
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(f"bytescheduler: {host}: (.*{why}.*)\n", result.stderr)


def test_another_program_on_the_port_is_no_node() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        assert reader.read(("127.0.0.1", other.server_address[1])) is None
        thread.join()


@pytest.mark.parametrize("address", ["x", "0", "65536", "h:", ":9", "h:x"])
def test_addresses_that_are_none_are_refused(address: str) -> None:
    result = invoke("--once", address)
    assert result.exit_code == 2
    assert "want PORT or HOST:PORT, such as 18600" in result.stderr


@pytest.mark.parametrize("setting", ["0", "x", "h:99999"])
def test_a_setting_that_names_no_port_is_named(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_METRICS", setting)
    result = invoke("--once")
    assert result.exit_code == 2
    line = line_with("names no port", result.stderr)
    assert line.replace(f"={setting} ", "=SETTING ") == snapshot(
        "Error: BYTESCHEDULER_METRICS=SETTING names no port to look at: say which, such as "
        "bytescheduler top 18600"
    )


def test_without_an_address_top_says_how_to_call_it() -> None:
    result = invoke()
    assert result.exit_code == 2
    assert "bytescheduler top PORT" in result.stderr
