"""Jobs whose workers host the servers: all processes of one are threads here."""

import ctypes
import os
import queue
import socket
import subprocess
import threading
import urllib.request
from typing import Callable, Dict, Iterator, List, Mapping, Optional

import pytest
from inline_snapshot import snapshot
from roles import in_threads, role
from sentences import masked

from bytescheduler import ConfigError, PeerLost, UsageError
from bytescheduler._native import Node, Worker
from bytescheduler._session.direct import (
    Listen,
    Root,
    _Hosted,
    by_workers,
    is_direct,
    open_worker,
)

QUIET = {"BYTESCHEDULER_LOG_LEVEL": "off"}
FLOAT32 = 0


class Job:
    """Opens the workers of a job of this size, each in a thread."""

    def __init__(self, size: int, agrees: bool, host: str = "", **more: str) -> None:
        self._size = size
        self._host = host  # that all agree on
        self._agrees = agrees
        self._more = more
        self._port: queue.Queue[int] = queue.Queue()
        self.workers: Dict[int, Worker] = {}

    def _agree(self, listen: Optional[Listen]) -> Root:
        port = self._port.get(timeout=60) if listen is None else listen(self._host)
        self._port.put(port)
        return Root(self._host, port)

    def _open(self, rank: int) -> None:
        variables = {"RANK": str(rank), "WORLD_SIZE": str(self._size), "MASTER_ADDR": "127.0.0.1"}
        variables["MASTER_PORT"] = "29500"
        agree = self._agree if self._agrees else None
        self.workers[rank] = open_worker(agree, {**variables, **self._more})

    def open(self) -> List[Worker]:
        """Return the workers by rank."""
        raised = in_threads([lambda rank=rank: self._open(rank) for rank in range(self._size)])
        assert not raised, raised
        return [self.workers[rank] for rank in range(self._size)]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


def summed(worker: Worker) -> List[float]:
    """Return the sum of three numbers over all workers."""
    sent, received = (ctypes.c_float * 3)(1, 2, worker.rank), (ctypes.c_float * 3)()
    nbytes = ctypes.sizeof(sent)
    worker.broadcast([(7, FLOAT32, ctypes.addressof(received), nbytes)], owner=received)
    addresses = ctypes.addressof(sent), ctypes.addressof(received)
    worker.start_push_pull(7, *addresses, nbytes, owner=(sent, received)).wait()
    return list(received)


@pytest.mark.parametrize("agrees", [True, False])
def test_workers_have_their_launchers_ranks_and_sums(
    agrees: bool, free_port: Callable[[], int]
) -> None:
    job = Job(3, agrees, **({} if agrees else {"DMLC_PS_ROOT_PORT": str(free_port())}))
    workers = job.open()
    assert [worker.rank for worker in workers] == [0, 1, 2]
    assert [worker.num_servers for worker in workers] == [3, 3, 3]
    sums: List[List[float]] = []
    raised = in_threads([lambda w=w: sums.append(summed(w)) for w in workers])
    assert not raised, raised
    assert sums == [[3, 6, 3]] * 3
    assert not in_threads([worker.close for worker in workers])


def test_an_address_that_processes_agree_on_replaces_the_launchers() -> None:
    workers = Job(2, True, host="127.0.0.1", MASTER_ADDR="127.0.0.2").open()
    assert [worker.rank for worker in workers] == [0, 1]
    listeners = subprocess.run(["ss", "-ltnH"], stdout=subprocess.PIPE, text=True, check=True)
    assert "127.0.0.2:" not in listeners.stdout
    assert not in_threads([worker.close for worker in workers])


def test_a_server_stays_until_the_last_worker_has_left() -> None:
    workers = Job(2, True).open()
    first = threading.Thread(target=workers[0].close)
    first.start()
    first.join(0.3)
    assert first.is_alive()
    workers[1].close()
    first.join(60)
    assert not first.is_alive()


def test_a_process_without_a_launcher_is_alone(capfd: "pytest.CaptureFixture[str]") -> None:
    worker = open_worker(variables={})
    assert (worker.rank, worker.num_workers, worker.num_servers) == (0, 1, 1)
    assert summed(worker) == [1, 2, 0]
    worker.close()
    assert capfd.readouterr().err == ""  # the level is off


def test_hosted_nodes_show_metrics_too(
    monkeypatch: pytest.MonkeyPatch, free_port: Callable[..., int]
) -> None:
    port = free_port(following=2)
    monkeypatch.setenv("BYTESCHEDULER_METRICS", str(port))
    worker = open_worker(variables={})
    for beside, name in enumerate(["scheduler", "server"]):
        with urllib.request.urlopen(f"http://127.0.0.1:{port + beside}/metrics") as page:
            assert f'role="{name}"' in page.read().decode()
    worker.close()


def test_a_given_port_is_the_servers_and_the_next_one_the_workers(
    monkeypatch: pytest.MonkeyPatch, free_port: Callable[..., int]
) -> None:
    port = free_port(following=1)
    monkeypatch.setenv("DMLC_PORT", str(port))
    worker = open_worker(variables={})
    for listening in (port, port + 1):
        socket.create_connection(("127.0.0.1", listening), timeout=10).close()
    worker.close()


def test_a_failure_is_raised_by_workers_that_have_not_seen_it() -> None:
    workers = Job(2, True).open()
    workers[1].fail("its script raised")
    with pytest.raises(PeerLost, match="worker 1 gave up: its script raised"):
        workers[0].barrier()
    assert not in_threads([worker.close for worker in workers])

    workers = Job(2, True).open()
    raised: List[BaseException] = []
    left = threading.Thread(target=lambda: raised.extend(in_threads([workers[0].close])))
    left.start()
    left.join(0.3)
    workers[1].fail("its script raised")
    workers[1].close()
    left.join(60)
    assert len(raised) == 1
    assert str(raised[0]).startswith("worker 1 gave up: its script raised")


def test_lost_nodes_are_named_by_the_worker_of_their_process() -> None:
    lost = PeerLost("lost server 12 (10.0.0.1:9): connection closed (reported by server 1)", 4)
    named = by_workers(lost)
    assert type(named) is PeerLost
    assert named.code == 4
    assert str(named) == snapshot(
        "lost worker 12 (its server 10.0.0.1:9): connection closed (reported by server 1)"
    )
    root = by_workers(PeerLost("lost the scheduler node ([::1]:9): silent for 30 s", 4))
    assert str(root) == snapshot("lost worker 0 (its scheduler node [::1]:9): silent for 30 s")
    text = "key 7: no response from server 1 in 30 s"
    assert str(by_workers(PeerLost(text))) == text


def test_a_forked_child_ends_nothing() -> None:
    worker = open_worker(variables={})
    child = os.fork()
    if child == 0:
        worker.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    worker.barrier()
    worker.close()


def test_a_launcher_without_a_store_is_not_asked_to_agree() -> None:
    # MASTER_ADDR and MASTER_PORT may be there under mpirun; PyTorch's store wants RANK too.
    variables = {"OMPI_COMM_WORLD_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    variables.update(OMPI_COMM_WORLD_SIZE="1", OMPI_COMM_WORLD_LOCAL_SIZE="1")

    def agree(listen: Optional[Listen]) -> Root:
        raise AssertionError(listen)

    worker = open_worker(agree, variables)
    assert (worker.rank, worker.num_workers) == (0, 1)
    worker.close()


def test_a_port_in_use_names_the_setting(free_port: Callable[[], int]) -> None:
    port = str(free_port())
    settings = {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
    other = Node.start({**settings, "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": port})
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    with pytest.raises(UsageError, match="DMLC_PS_ROOT_PORT") as raised:
        open_worker(variables={**variables, "DMLC_PS_ROOT_PORT": port})
    assert masked(str(raised.value), PORT=port) == snapshot(
        "tcp://127.0.0.1:PORT: the port is in use: end what listens there (a job that still "
        "runs?), or give all nodes of this job another DMLC_PS_ROOT_PORT"
    )
    other.close()


@pytest.fixture
def scheduler() -> Iterator[Node]:
    """A scheduler node of two workers that host the servers."""
    node = Node.start(role("scheduler", 0, servers=0))
    yield node
    node.close()


def by_hand(scheduler: Node, **more: str) -> Dict[str, str]:
    return role("worker", scheduler.port, servers=0, **more)


def opened(variables: "List[Dict[str, str]]") -> "List[Worker]":
    """Return the workers with these variables, by rank."""
    workers: List[Worker] = []
    calls = [lambda own=own: workers.append(open_worker(variables=own)) for own in variables]
    assert not in_threads(calls)
    return sorted(workers, key=lambda worker: worker.rank)


def test_workers_host_the_servers_of_a_scheduler_node_elsewhere(scheduler: Node) -> None:
    workers = opened([by_hand(scheduler, DMLC_WORKER_ID=rank) for rank in ("1", "0")])
    assert [worker.num_servers for worker in workers] == [2, 2]
    sums: List[List[float]] = []
    assert not in_threads([lambda w=w: sums.append(summed(w)) for w in workers])
    assert sums == [[2, 4, 1]] * 2
    first = threading.Thread(target=workers[0].close)
    first.start()
    first.join(0.3)
    assert first.is_alive()  # the other one may need its server
    workers[1].close()
    first.join(60)
    assert not first.is_alive()
    assert scheduler.wait(60)


def test_a_server_has_the_rank_of_its_worker_though_none_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers: Dict[int, Node] = {}
    workers: Dict[int, Worker] = {}
    start = _Hosted.start

    def kept(self: _Hosted, role: str, settings: Mapping[str, str]) -> Node:
        node = servers[threading.get_ident()] = start(self, role, settings)
        return node

    monkeypatch.setattr(_Hosted, "start", kept)
    node = Node.start(role("scheduler", 0, workers=4, servers=0))
    variables = role("worker", node.port, workers=4, servers=0)

    def open_one() -> None:
        workers[threading.get_ident()] = open_worker(variables=variables)

    assert not in_threads([open_one] * 4)
    for thread, worker in workers.items():
        ranks = [metric.value for metric in servers[thread].measure() if metric.name == "rank"]
        assert ranks == [worker.rank]
    assert not in_threads([worker.close for worker in workers.values()])
    node.close()


def test_a_job_by_variables_alone_is_checked(scheduler: Node) -> None:
    with pytest.raises(ConfigError, match="want 0 to 1") as raised:
        open_worker(variables=by_hand(scheduler, DMLC_WORKER_ID="2"))
    assert str(raised.value) == snapshot("DMLC_WORKER_ID=2: the job has 2 workers, so want 0 to 1")
    without = {name: text for name, text in by_hand(scheduler).items() if "WORKER" not in name}
    with pytest.raises(ConfigError, match="DMLC_NUM_WORKER is not set"):
        open_worker(variables=without)


def test_a_role_or_a_wrong_variable_is_no_direct_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_direct({"RANK": "0", "DMLC_PS_ROOT_URI": "a"})
    assert is_direct({"RANK": "0", "DMLC_NUM_SERVER": "0"})
    assert is_direct({"DMLC_ROLE": "worker", "DMLC_NUM_SERVER": "0"})
    assert not is_direct({"DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "0"})
    assert not is_direct({"RANK": "0", "DMLC_ROLE": "worker"})
    monkeypatch.setenv("DMLC_ROLE", "worker")
    assert not is_direct()
    with pytest.raises(ConfigError, match="DMLC_NUM_WORKER is not set"):
        open_worker()
    with pytest.raises(ConfigError, match="RANK=2 of WORLD_SIZE=2") as raised:
        open_worker(variables={"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a"})
    assert str(raised.value) == snapshot("RANK=2 of WORLD_SIZE=2: want a number from 0 to 1")
