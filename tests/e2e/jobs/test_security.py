"""A job with a secret: its nodes work together, and nobody else gets in."""

import contextlib
import pathlib
import re
import socket
import struct
import threading
from typing import Callable, Iterator, List, Tuple

import pytest
from job import Job

from bytescheduler._launch.local_job import prefer_native

MakeJob = Callable[..., Job]
FreePort = Callable[[], int]


def secret_file(folder: pathlib.Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_nodes_that_share_a_secret_work_together(make_job: MakeJob, tmp_path: pathlib.Path) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    job = make_job(servers=2, env={"BYTESCHEDULER_SECRET_FILE": secret})
    job.run("cases/cases.py", "native", "sums", "order")


@pytest.mark.parametrize("backend", ["native", "auto"])
def test_the_line_of_the_readme_works_with_a_secret(
    make_job: MakeJob, tmp_path: pathlib.Path, backend: str
) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    job = make_job(env={"BYTESCHEDULER_SECRET_FILE": secret})
    for output in job.run("cases/one_line.py", "wrapped", env={"BYTESCHEDULER_BACKEND": backend}):
        assert "native back end carries the bytes (2 workers, 1 server" in output
        assert "sum 3.0" in output
    assert "refused a connection" not in job.all_output(), "it asks whose node it is in silence"


def test_a_store_that_is_not_wrapped_ends_its_worker_with_the_remedy(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    job = make_job(env={"BYTESCHEDULER_SECRET_FILE": secret})
    for _ in range(2):
        job.start_worker("cases/one_line.py", "stock")
    for worker in job.workers:
        assert worker.wait() != 0
        assert "BYTESCHEDULER_SECRET_FILE: add kvs = ScheduledKVS(kvs)" in worker.output()


def test_a_store_that_is_created_without_us_fails_under_bslaunch(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    secret = {"BYTESCHEDULER_SECRET_FILE": secret_file(tmp_path, "secret", "a secret of this test")}
    given = dict(secret)
    prefer_native(given)
    worker = make_job(workers=1, env=secret).start_worker("stock/stock_idle.py", env=given)
    worker.wait_for_line("Unsupported van type: none in a job with BYTESCHEDULER_SECRET_FILE")


def copy_all(source: socket.socket, sink: socket.socket, seen: List[bytes]) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            seen.append(data)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tapped(port: int) -> Iterator[Tuple[int, List[bytes]]]:
    """Yield another port for `port` of this host, and what passes there in either direction."""
    seen: List[bytes] = []
    ends: List[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def forward() -> None:
            with contextlib.suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    callee = socket.create_connection(("127.0.0.1", port))
                    ends.extend((caller, callee))
                    for pair in ((caller, callee), (callee, caller)):
                        threading.Thread(target=copy_all, args=(*pair, seen), daemon=True).start()

        threading.Thread(target=forward, daemon=True).start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.close()


@pytest.mark.parametrize("secret", [True, False])
def test_messages_of_nodes_with_a_secret_cannot_be_read_on_the_wire(
    make_job: MakeJob, free_port: FreePort, tmp_path: pathlib.Path, secret: bool
) -> None:
    port = free_port()
    file = secret_file(tmp_path, "secret", "a secret of this test") if secret else ""
    job = make_job(workers=1, env={"BYTESCHEDULER_SECRET_FILE": file}, ports=[port, 0])
    with tapped(port) as (other, seen):
        worker = job.start_worker("steps/join.py", env={"DMLC_PS_ROOT_PORT": str(other)})
        assert worker.wait() == 0, job.all_output()
        for process in job.processes:
            assert process.wait() == 0, job.all_output()
    said = b"".join(seen)
    assert len(said) > 100
    assert (b"BYTESCHEDULER_" in said) != secret  # the settings that all nodes must share


_ALL_PROTOCOLS = 3
_RCVBUF_FORCE = 33  # SO_RCVBUFFORCE, for which Python has no name


@contextlib.contextmanager
def overheard(port: int) -> Iterator[List[bytes]]:
    """Yield what processes of this host send to `port` and from it over the loopback interface."""
    heard: List[bytes] = []
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    except PermissionError:
        pytest.skip("needs root")
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            try:
                packet = tap.recv(1 << 17)
            except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                continue
            tcp = packet[14 + 4 * (packet[14] & 15) :]  # behind the headers of Ethernet and IPv4
            if port in struct.unpack("!HH", tcp[:4].ljust(4, b"\0")):
                heard.append(tcp)

    with tap:
        tap.bind(("lo", 0))
        tap.setsockopt(socket.SOL_SOCKET, _RCVBUF_FORCE, 32 << 20)  # more than passes in all
        tap.settimeout(0.1)
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield heard
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("secret", [True, False])
def test_gradients_of_a_job_with_a_secret_cannot_be_read_nor_are_they_in_shared_memory(
    make_job: MakeJob, free_port: FreePort, tmp_path: pathlib.Path, secret: bool
) -> None:
    file = secret_file(tmp_path, "secret", "a secret of this test") if secret else ""
    env = {"BYTESCHEDULER_SECRET_FILE": file, "BYTESCHEDULER_LOG_LEVEL": "debug"}
    if not secret:
        env["BYTESCHEDULER_SHARED_MEMORY"] = "0"
    port = free_port()
    job = make_job(workers=1, env=env, ports=[0, port])
    with overheard(port) as heard:
        job.run("steps/telling_worker.py", "Word")
    # A push and a pull of 400,000 bytes, which come twice: once sent, once received.
    assert sum(map(len, heard)) > 800_000
    assert any(b"WordWordWordWord" in packet for packet in heard) != secret
    assert "sharing memory" not in job.all_output()


def test_a_worker_without_the_secret_or_with_another_stays_outside(
    make_job: MakeJob, tmp_path: pathlib.Path
) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    other = secret_file(tmp_path, "other", "another secret of this test\n")
    job = make_job(
        env={"BYTESCHEDULER_SECRET_FILE": secret, "BYTESCHEDULER_TIMEOUT": "15s"},
    )
    job.start_worker("steps/join.py", env={"BYTESCHEDULER_SECRET_FILE": ""})
    job.start_worker("steps/join.py", env={"BYTESCHEDULER_SECRET_FILE": other})
    for process in job.processes:
        assert process.wait() != 0, job.all_output()
    for worker in job.workers[:2]:
        assert "refused the handshake: do both have the same" in worker.output(), worker.output()
    scheduler = job.processes[0].output()
    assert "refused a connection whose handshake failed" in scheduler
    assert "waiting for 2 of 2 workers" in scheduler
    assert not re.search("worker .* registered", scheduler)


@pytest.mark.parametrize("who", ["worker of MXNet", "server of MXNet", "server"])
def test_a_node_without_the_secret_is_not_served(
    make_job: MakeJob, tmp_path: pathlib.Path, who: str
) -> None:
    secret = secret_file(tmp_path, "secret", "a secret of this test\n")
    # MXNet takes seconds to import, many on a busy machine.
    timeout = "20s" if "MXNet" in who else "12s"
    env = {"BYTESCHEDULER_SECRET_FILE": secret, "BYTESCHEDULER_TIMEOUT": timeout}
    is_server = who.startswith("server")
    job = make_job(workers=1, servers=1, stock_servers=int(who == "server of MXNet"), env=env)
    stranger = job.servers[0]
    if who == "server":
        stranger.kill()
        stranger = job.start_server(0, "stranger", {"BYTESCHEDULER_SECRET_FILE": ""})
    elif who == "worker of MXNet":
        got = str(tmp_path / "got")
        stranger = job.start_worker("stock/stock_worker.py", "dist_sync", got, "dense")
    scheduler = job.processes[0]
    assert scheduler.wait() != 0, job.all_output()
    said = scheduler.output()
    refused = "refused a connection whose handshake failed" in said
    # MXNet's libzmq may hang up before its own greeting is read, and does not come again.
    assert refused or (who != "server" and "a caller hung up during the handshake" in said), said
    if is_server:
        assert "missing 1 of 1 worker, 1 of 1 server" in said
    else:
        assert "missing 1 of 1 worker; registered: server" in said
    # It waits for an answer that does not come, or says why there is none.
    if who == "server":
        assert stranger.wait() != 0
        assert "refused the handshake: do both have the same" in stranger.output()
    else:
        assert stranger.running(), stranger.output()
        stranger.kill()
