"""READs by RDMA between two hosts, measured with probes that are no device's."""

import contextlib
import json
import queue
import socket
import threading
from typing import Callable, Iterator, List, Optional, Tuple

import pytest
from click.testing import Result
from click_runner import runner

from bytescheduler._doctor import link, reads
from bytescheduler._doctor.findings import split_cure
from bytescheduler._doctor.link import Answerer, LinkError
from bytescheduler._doctor.reads import Reads, answer_with, measure_reads
from bytescheduler.commands import doctor
from bytescheduler.errors import Error

LIMIT_S = 60
NO_DEVICE = "this host shows no RDMA device: load the driver"


class FakeProbe:
    """A probe whose READs take a microsecond and a nanosecond a byte."""

    def __init__(self, name: str, fails: str = "") -> None:
        self.offer = f"offer of {name}"
        self.joined = ""
        self._fails = fails

    def join(self, offer: str) -> None:
        if not offer.startswith("offer of "):
            raise Error("that is no offer: run the same version", 1)
        self.joined = offer

    def read(self, size_bytes: int, most_reads: int, limit_s: float) -> Tuple[int, float]:
        assert limit_s > 0
        if self._fails:
            raise Error(self._fails, 4)
        return most_reads, 1e-6 + size_bytes * 1e-9


def opens(probe: FakeProbe) -> Callable[[str], FakeProbe]:
    def open_probe(peer: str) -> FakeProbe:
        assert peer == "127.0.0.1"
        return probe

    return open_probe


def opens_none(peer: str) -> FakeProbe:
    del peer
    raise Error(NO_DEVICE, 4)


class Served:
    """The other host, with a probe or without."""

    def __init__(self, open_probe: reads.OpenProbe) -> None:
        self.refused: queue.Queue[str] = queue.Queue()
        self._answerer = Answerer(0, {reads.EXPERIMENT: answer_with(open_probe)})
        self.address = ("127.0.0.1", self._answerer.port)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._answerer.serve(LIMIT_S, self.refused.put)

    def end(self) -> None:
        """Measure the link, which ends the other host's part."""
        link.measure(self.address, time_s=4, most_bytes=1 << 20)
        self.close()

    def close(self) -> None:
        """Wait for the end."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        self._answerer.close()


@pytest.fixture
def serve() -> Iterator[Callable[[reads.OpenProbe], Served]]:
    made: List[Served] = []

    def begin(open_probe: reads.OpenProbe) -> Served:
        made.append(Served(open_probe))
        return made[-1]

    yield begin
    for served in made:
        served.end()


Serve = Callable[[reads.OpenProbe], Served]


def test_few_bytes_and_many_are_read_from_the_other_host(serve: Serve) -> None:
    here, there = FakeProbe("here"), FakeProbe("there")
    served = serve(opens(there))
    found = measure_reads(served.address, opens(here))
    assert (here.joined, there.joined) == ("offer of there", "offer of here")
    assert [each.size_bytes for each in found] == [4, 256 << 10]
    assert all(each.reads > 1 for each in found)
    assert found[1].bits_per_s == pytest.approx(8e9, rel=0.01)
    assert served.refused.empty()


def why_not(served: Served, open_probe: reads.OpenProbe) -> str:
    with pytest.raises(LinkError) as caught:
        measure_reads(served.address, open_probe)
    return str(caught.value)


def test_the_host_without_rdma_is_named_with_its_reason(serve: Serve) -> None:
    served = serve(opens_none)
    why = why_not(served, opens(FakeProbe("here")))
    assert why == f"the other host says: {NO_DEVICE}"
    assert served.refused.get(timeout=LIMIT_S) == f"127.0.0.1: rdma: {NO_DEVICE}"
    assert why_not(serve(opens(FakeProbe("there"))), opens_none) == NO_DEVICE


def test_a_read_that_fails_is_the_reason(serve: Serve) -> None:
    failed = "rxe0: transport retry counter exceeded: let packets of RDMA pass"
    served = serve(opens(FakeProbe("there")))
    assert why_not(served, opens(FakeProbe("here", failed))) == failed


@pytest.mark.parametrize(
    ("why", "cure"),
    [
        (
            "rxe0: transport retry counter exceeded (status 12, vendor 0x81)",
            "let packets of RDMA pass (for RoCE UDP port 4791), and none be lost (PFC, ECN)",
        ),
        ("mlx5_0: ibv_create_qp: Cannot allocate memory", ""),
        ("port 1 is DOWN", "bring its link up (ip link, ibstat)"),
        ("no colon", ""),
    ],
)
def test_the_cure_is_split_off_an_error_that_names_it(why: str, cure: str) -> None:
    assert split_cure(f"{why}: {cure}" if cure else why) == (why, cure)


def test_a_doctor_that_knows_no_rdma_says_so() -> None:
    answerer = Answerer(0)
    thread = threading.Thread(target=answerer.serve, args=(LIMIT_S, list), daemon=True)
    thread.start()
    address = ("127.0.0.1", answerer.port)
    with pytest.raises(LinkError, match="want echo, upload or download"):
        measure_reads(address, opens(FakeProbe("here")))
    link.measure(address, time_s=4, most_bytes=1 << 20)
    thread.join(LIMIT_S)
    answerer.close()


@pytest.mark.parametrize("said", [b"x" * 2000, b"", b"garbage\n"])
def test_a_malformed_offer_is_refused_and_the_next_is_served(serve: Serve, said: bytes) -> None:
    there = FakeProbe("there")
    served = serve(opens(there))
    with socket.create_connection(served.address, LIMIT_S) as connection:
        connection.sendall(b"bytescheduler-doctor 1 rdma 1000 4\n")
        assert connection.recv(3) == b"ok\n"
        connection.settimeout(LIMIT_S)
        with contextlib.suppress(OSError):  # it may have hung up by then
            connection.sendall(said)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1024)
    assert measure_reads(served.address, opens(FakeProbe("here")))
    assert served.refused.qsize() == 1


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what the command finds on this host out."""
    monkeypatch.setattr(doctor, "examine", list)


def run(served: Served, *arguments: str) -> Result:
    peer = f"127.0.0.1:{served.address[1]}"
    return runner().invoke(doctor.command, ["--peer", peer, "--rdma", *arguments])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("failing", [False, True])
def test_the_command_shows_each_size(monkeypatch: pytest.MonkeyPatch, *, failing: bool) -> None:
    served = Served(opens_none if failing else opens(FakeProbe("there")))
    monkeypatch.setattr(doctor, "_open_probe", opens(FakeProbe("here")))
    result = run(served, "--seconds", "0.2", *([] if failing else ["--json"]))
    served.close()
    assert result.exit_code == int(failing), result.output
    if failing:
        assert "was not measured: the other host says: this host shows no" in result.output
        assert "-> load the driver" in result.output
        return
    report = json.loads(result.stdout)
    names = [finding["name"] for finding in report["findings"]]
    assert names[:2] == ["rdma_read_4", "rdma_read_262144"]
    text: Optional[str] = report["findings"][1]["text"]
    assert text is not None
    assert text.endswith("by RDMA: 0.263 ms, 7.97 Gbit/s")
    assert [Reads(**each).size_bytes for each in report["rdma"]] == [4, 262144]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("there", [False, True])
def test_a_reason_without_a_cure_stays_whole(
    monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    why = "rxe0: ibv_create_qp: Cannot allocate memory"

    def refuses(peer: str) -> FakeProbe:
        del peer
        raise Error(why, 4)

    served = Served(refuses if there else opens(FakeProbe("there")))
    monkeypatch.setattr(doctor, "_open_probe", opens(FakeProbe("here")) if there else refuses)
    result = run(served, "--seconds", "0.2")
    served.close()
    said = f"the other host says: {why}" if there else why
    assert f"was not measured: {said}\n" in result.output
    assert "-> run bytescheduler doctor --listen PORT there" in result.output


@pytest.mark.parametrize("arguments", [["--rdma"], ["--listen", "--rdma"]])
def test_rdma_goes_with_a_peer(arguments: List[str]) -> None:
    assert runner().invoke(doctor.command, arguments).exit_code == 2
