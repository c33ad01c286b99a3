"""The measurement of a link: what it finds, what bounds it, and what others may send instead."""

import contextlib
import json
import queue
import re
import socket
import subprocess
import sys
import threading
from typing import Callable, Iterator, List, Optional, Tuple

import pytest
from click.testing import Result
from click_runner import runner
from inline_snapshot import snapshot
from sentences import line_with, masked

from bytescheduler._doctor import link
from bytescheduler._doctor.findings import Finding
from bytescheduler._doctor.link import Answerer, LinkError, Measurement, measure
from bytescheduler.commands import doctor

LIMIT_S = 60
MIB = 1 << 20
HELLO = b"bytescheduler-doctor 1"


class Served:
    """An `Answerer` on a thread of its own, and whom it refused."""

    def __init__(self) -> None:
        self.refused: List[str] = []
        self._news: queue.Queue[str] = queue.Queue()
        self.peer: Optional[str] = None
        self._answerer = Answerer(0)
        self.address = ("127.0.0.1", self._answerer.port)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.peer = self._answerer.serve(LIMIT_S, self._refused)

    def _refused(self, line: str) -> None:
        self.refused.append(line)
        self._news.put(line)

    def next_refusal(self) -> str:
        """Wait for the next refusal."""
        return self._news.get(timeout=LIMIT_S)

    def say(self, data: bytes) -> bytes:
        """Send it on a connection of its own and return the answer."""
        with socket.create_connection(self.address, LIMIT_S) as connection:
            # It may have heard enough, and hung up, before all is said.
            with contextlib.suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while True:
                    more = connection.recv(1024)
                    if not more:
                        break
                    answer += more
            return answer

    def join(self) -> None:
        self._thread.join(2 * LIMIT_S)
        assert not self._thread.is_alive()
        self._answerer.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    # Ends when it has been measured, whatever came before: that is part of every test.
    assert isinstance(measure(made.address, time_s=4, most_bytes=4 * MIB), Measurement)
    made.join()
    assert made.peer == "127.0.0.1"


def test_a_link_is_measured_both_ways_within_its_bounds() -> None:
    served = Served()
    found = measure(served.address, time_s=4, most_bytes=4 * MIB)
    served.join()
    assert (served.peer, served.refused) == ("127.0.0.1", [])
    assert found.round_trip_us > 0
    assert found.to_peer_bits_per_s > 0
    assert found.from_peer_bits_per_s > 0
    assert 0 < found.bytes_moved <= 4 * MIB


def test_a_link_is_measured_by_ipv6_too() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
    served = Served()
    try:
        measure(("::1", served.address[1]), time_s=4, most_bytes=4 * MIB)
    finally:
        served.join()
    assert (served.peer, served.refused) == ("::1", [])


def test_an_answerer_without_a_peer_stops_waiting() -> None:
    answerer = Answerer(0)
    assert answerer.serve(0.01, pytest.fail) is None
    answerer.close()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "what came is no line of this measurement"),
        (bytes(range(11, 256)) + b"\n", "what came is no line"),
        (b"x" * 1000, "what came is no line of this measurement"),
        (b"bytescheduler", "hung up in the middle of a line"),
        (b"", "hung up"),
        (b"hello\n", "want a line such as bytescheduler-doctor 1 echo 1000 1048576"),
        (b"bytescheduler-doctor 2 echo 1 1\n", "want a line such as"),
        (HELLO + b" dance 1 1\n", "want echo, upload or download"),
        (HELLO + b" __class__ 1 1\n", "want echo, upload or download"),
        (HELLO + b" echo one 1\n", "want milliseconds and bytes as numbers"),
        (HELLO + b" echo -1 1\n", "want milliseconds and bytes as numbers"),
        (HELLO + b" echo 1 9999999999999999\n", "want milliseconds and bytes as numbers"),
        (HELLO + b" echo 1 268435457\n", "at most 10000 ms and 268435456 bytes"),
        (HELLO + b" download 10001 1\n", "at most 10000 ms"),
        (HELLO + b" upload 0 1\n", "at most 10000 ms"),
    ],
)
def test_a_wrong_request_is_refused_and_the_next_is_served(
    served: Served, data: bytes, said: str
) -> None:
    answer = served.say(data)
    assert not answer or answer.startswith(f"no: {said}".encode())
    assert [line[: len(said) + 11] for line in served.refused] == [f"127.0.0.1: {said}"]


def test_a_silent_peer_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_PATIENCE_S", 0.2)
    with socket.create_connection(served.address, LIMIT_S) as silent:
        assert silent.recv(100) == b"no: no line in 0.2 s\n"
    monkeypatch.undo()


def test_a_peer_that_uploads_nothing_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_PATIENCE_S", 2)
    with socket.create_connection(served.address, LIMIT_S) as silent:
        silent.sendall(HELLO + b" upload 100 1048576\n")
        assert silent.recv(3) == b"ok\n"
        assert silent.recv(1) == b""
    monkeypatch.undo()
    (line,) = served.refused
    assert line == "127.0.0.1: upload: timed out"


def test_echoes_are_bounded_by_the_requested_bytes(served: Served) -> None:
    assert served.say(HELLO + b" echo 1000 32\n" + b"x" * 64) == b"ok\n" + b"x" * 32


def test_a_peer_that_downloads_without_reading_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_PATIENCE_S", 2)
    with socket.create_connection(served.address, LIMIT_S) as lazy:
        lazy.sendall(HELLO + b" download 1 268435456\n")
        # Ends when the other side hangs up, long before all of it has come.
        received = 0
        assert lazy.recv(3) == b"ok\n"
        assert served.next_refusal() == "127.0.0.1: download: timed out"
        while True:
            more = lazy.recv(MIB)
            if not more:
                break
            received += len(more)
    monkeypatch.undo()
    assert received < 256 * MIB


def test_a_flood_of_strangers_is_not_told_line_by_line(served: Served) -> None:
    for _ in range(2 * link._MOST_REFUSALS):
        served.say(b"x\n")
    assert len(served.refused) == link._MOST_REFUSALS


# -- a peer that is none -----------------------------------------------------------------------

Answers = List[Callable[[socket.socket], None]]


@contextlib.contextmanager
def pretender(answers: Answers) -> Iterator[Tuple[str, int]]:
    """Listen, and give each connection to the next of `answers`."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(4)
        listening.settimeout(LIMIT_S)

        def serve() -> None:
            for answer in answers:
                # The asking side hangs up whenever it has seen enough.
                with contextlib.suppress(OSError):
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(LIMIT_S)
                        answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
            thread.join(LIMIT_S)
        assert not thread.is_alive()


def says(data: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(MIB):
            pass

    return answer


def hangs(connection: socket.socket) -> None:
    while connection.recv(MIB):
        pass


def echoes(connection: socket.socket) -> None:
    connection.recv(link._LINE_BYTES)
    connection.sendall(b"ok\n")
    while True:
        data = connection.recv(16)
        if not data:
            return
        connection.sendall(data)


def reports(text: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"ok\n")
        connection.recv(link._LINE_BYTES)
        connection.recv(1)  # the first bytes of the upload
        connection.sendall(text)
        while connection.recv(MIB):
            pass

    return answer


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([says(b"HTTP/1.1 400 Bad Request\r\n\r\n")], "no line of this measurement"),
        ([says(b"\xff" * 4096)], "no line of this measurement"),
        ([says(b"hello\n")], "what answers is no doctor --listen"),
        ([says(b"no: busy\n")], "no: busy"),
        ([says(b"")], "hung up"),
        ([says(b"ok\n" + b"x" * 16)], "the echo is not what was sent"),
        ([says(b"ok\n")], "the echo is not what was sent"),
        ([echoes, reports(b"many few\n")], "the report is not two numbers"),
        ([echoes, reports(b"-5 1000\n")], "the report is not two numbers"),
        ([echoes, reports(b"1 2 3\n")], "the report is not two numbers"),
        ([echoes, reports(b"9" * 19 + b" 1000\n")], "the report says more than was sent"),
        ([echoes, reports(b"1 " + b"9" * 19 + b"\n")], "the report says more than was sent"),
        ([echoes, reports(b"1 1000\n"), says(b"ok\n")], "too little arrived to measure"),
        ([echoes, reports(b"0 0\n"), says(b"ok\nxx")], "too little arrived to measure"),
    ],
)
def test_a_peer_that_is_none_gets_an_error(answers: Answers, said: str) -> None:
    with pretender(answers) as address, pytest.raises(LinkError, match=said):
        measure(address, time_s=0.1, most_bytes=MIB)


def test_a_peer_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_PATIENCE_S", 0.3)
    with pretender([hangs]) as address, pytest.raises(LinkError, match="no line in 0.3 s"):
        measure(address, time_s=0.1, most_bytes=MIB)


def test_a_peer_that_never_reports_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_PATIENCE_S", 2)
    with pretender([reports(b"")]) as address, pytest.raises(LinkError, match="no report"):
        link._upload(address, 100, MIB)


def test_a_peer_that_sends_without_end_is_cut_off() -> None:
    def floods(connection: socket.socket) -> None:
        connection.sendall(b"ok\n")
        while True:
            connection.sendall(bytes(MIB))

    with pretender([floods]) as address:
        rate = link._download(address, LIMIT_S * 1000, 3 * MIB)
    assert rate.size_bytes < 3 * MIB


def test_a_peer_that_stops_in_the_middle_is_measured_up_to_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stops(connection: socket.socket) -> None:
        connection.sendall(b"ok\n")
        for _ in range(3):
            connection.sendall(bytes(link._CHUNK_BYTES))
        hangs(connection)

    with pretender([stops]) as address:
        rate = link._download(address, 1000, 3 * MIB)
    assert 0 < rate.size_bytes < 3 * link._CHUNK_BYTES


def test_a_port_without_a_listener_is_an_error() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = listening.getsockname()
    with pytest.raises(ConnectionRefusedError):
        measure(address, time_s=0.1)


# -- the commands ------------------------------------------------------------------------------


def invoke(*arguments: str) -> Result:
    return runner().invoke(doctor.command, list(arguments))


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what is not about the link."""
    monkeypatch.setattr(doctor, "examine", list)


@pytest.mark.usefixtures("nothing_else")
def test_two_hosts_measure_their_link() -> None:
    listening = subprocess.Popen(
        [sys.executable, "-m", "bytescheduler.cli", "doctor", "--listen", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with listening:
        assert listening.stderr is not None
        first = listening.stderr.readline()
        match = re.search(r"doctor --peer THIS-HOST:(\d+)$", first)
        assert match is not None, first
        port = match.group(1)
        result = invoke("--peer", f"127.0.0.1:{port}", "--seconds", "4", "--json")
        out, err = listening.communicate(timeout=LIMIT_S)
    assert (listening.returncode, err) == (0, "")
    assert json.loads(out) == {"port": int(port), "peer": "127.0.0.1"}
    report = json.loads(result.stdout)
    rows = [Finding(**row) for row in report["findings"]]
    assert [row.name for row in rows] == ["round_trip", "goodput"]
    assert set(report["link"]) == set(Measurement._fields)
    assert report["link"]["bytes_moved"] <= link.LARGEST_BYTES
    assert result.exit_code == 0


@pytest.mark.usefixtures("nothing_else")
def test_a_peer_that_does_not_answer_is_a_problem() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    result = invoke("--peer", f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert masked(line_with("not measured", result.stdout), PORT=port) == snapshot(
        "  problem  the link to 127.0.0.1:PORT was not measured: Connection refused"
    )
    assert "-> run bytescheduler doctor --listen PORT there" in result.stdout


@pytest.mark.usefixtures("nothing_else")
def test_a_peer_that_speaks_something_else_is_a_problem() -> None:
    with pretender([says(b"SSH-2.0-OpenSSH_9.2\r\n")]) as (host, port):
        result = invoke("--peer", f"{host}:{port}", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["link"] is None
    assert masked(report["findings"][0]["text"], PORT=port) == snapshot(
        "the link to 127.0.0.1:PORT was not measured: what came is no line of this measurement"
    )


@pytest.mark.usefixtures("nothing_else")
def test_a_peer_with_an_unknown_name_is_a_problem() -> None:
    for options in ([], ["--rdma"]):
        result = invoke("--peer", "nosuch.invalid.:9", *options)
        assert result.exit_code == 1
        assert result.stdout.count("the link to nosuch.invalid.:9 was not measured: ") == 1
        assert "-> correct the name of the host" in result.stdout
        assert "--listen" not in result.stdout


@pytest.mark.usefixtures("nothing_else")
def test_a_peer_that_cannot_be_a_name_is_a_problem() -> None:
    result = invoke("--peer", "a..b:1")
    assert result.exit_code == 1
    assert line_with("a..b:1", result.stdout) == snapshot(
        "  problem  the link to a..b:1 was not measured: this is no host name"
    )


def test_a_link_that_is_slower_one_way_is_a_warning() -> None:
    rows = doctor._link_findings("b:1", Measurement(150.0, 2.5e9, 1e9, 1))
    assert rows[0].text == "0.15 ms to b:1 and back"
    assert (rows[1].level, rows[1].text) == (
        "warning",
        "2.5 Gbit/s to b:1, 1 Gbit/s from it",
    )
    rows = doctor._link_findings("b:1", Measurement(150.0, 9.5e8, 9e8, 1))
    assert (rows[1].level, rows[1].text) == ("ok", "950 Mbit/s to b:1, 900 Mbit/s from it")


def test_listening_in_vain_is_a_failure() -> None:
    result = invoke("--listen", "--wait", "0.1", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["peer"] is None
    assert "no host measured the link in 0.1 s" in result.stderr


def test_lack_of_descriptors_ends_the_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    def lack(_: socket.socket) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", lack)
    result = invoke("--listen")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == snapshot(
        ["bytescheduler: cannot accept a connection: Too many open files"]
    )


def test_a_port_that_is_taken_is_a_failure() -> None:
    with socket.socket() as listening:
        listening.bind(("0.0.0.0", 0))
        listening.listen(1)
        port = listening.getsockname()[1]
        result = invoke("--listen", str(port))
    assert result.exit_code == 1
    assert masked(result.stderr, PORT=port) == snapshot(
        "bytescheduler: cannot listen on port PORT: Address already in use\n"
    )
