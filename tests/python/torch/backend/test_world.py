"""The default group joins a job, and knows the worker of each rank."""

import threading
import types
from datetime import timedelta
from typing import Any, Dict, List, Mapping, Optional

import pytest
import torch
import torch.distributed as dist
from fake_exchanges import FakeCarrier, FakeExchanges

from bytescheduler.errors import ConfigError, PeerLost
from bytescheduler.torch._backend import world as world_module
from bytescheduler.torch._backend.world import World, backends_at, check_settings_of

Options = Any  # c10d's
Session = Any


def options(rank: int, size: int, ranks: "tuple[int, ...]" = (), name: str = "0") -> Options:
    """Return what c10d gives the maker of a group."""
    return types.SimpleNamespace(
        store=dist.HashStore(),
        group_rank=ranks.index(rank) if ranks else rank,
        group_size=len(ranks) or size,
        timeout=timedelta(seconds=20),
        group_id=name,
        global_ranks_in_group=list(ranks),
    )


class Process:
    """A process with a rank of c10d, and another number among the workers."""

    def __init__(self, job: FakeExchanges, rank: int, worker: int) -> None:
        self.rank = rank
        self.session = FakeCarrier(job, worker)
        self.seen: List[Mapping[str, str]] = []
        self.world = World(self.open)

    def open(self, variables: Mapping[str, str], _: object) -> Session:
        self.seen.append(variables)
        return self.session

    def use(self, size: int) -> List[float]:
        group = self.world.create(options(self.rank, size))
        tensor = torch.tensor([float(self.rank)])
        group.broadcast([tensor], 1).wait()
        results = [tensor.item()]
        if self.rank != 1:
            sub = self.world.create(options(self.rank, size, (0, 2), "1"))
            outputs = [torch.zeros(1) for _ in "ab"]
            sub.allgather([outputs], [torch.tensor([float(self.rank)])]).wait()
            results += [output.item() for output in outputs]
            sub.shutdown()
        group.barrier().wait()
        group.shutdown()
        return results


def at_once(processes: List[Process], size: int) -> List[Any]:
    results: Dict[int, Any] = {}

    def body(process: Process) -> None:
        try:
            results[process.rank] = process.use(size)
        except Exception as error:
            results[process.rank] = error

    threads = [threading.Thread(target=body, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return [results[rank] for rank in range(len(processes))]


def test_workers_may_have_other_ranks_than_c10d() -> None:
    job = FakeExchanges(3)
    processes = [Process(job, rank, worker) for rank, worker in enumerate((2, 0, 1))]
    expected = [[1.0, 0.0, 2.0], [1.0], [1.0, 0.0, 2.0]]
    assert at_once(processes, 3) == expected
    labels = set(job.labels)
    assert any("of group 1 (ranks 0, 2)" in label for label in labels), labels
    # Another world of the same processes has other keys, and the same session.
    assert at_once(processes, 3) == expected
    assert [len(process.seen) for process in processes] == [1, 1, 1]
    assert threading.active_count() == 1 or not any(
        thread.name == "bytescheduler-calls" for thread in threading.enumerate()
    )


def test_keys_do_not_depend_on_the_names_that_c10d_gives_groups() -> None:
    """With local synchronisation they may come again, or differ between the ranks."""
    job = FakeExchanges(3)
    processes = [Process(job, rank, rank) for rank in range(3)]

    def use(process: Process) -> None:
        process.world.create(options(process.rank, 3))
        for _ in range(3):
            if process.rank != 1:
                for name in ("hash", f"of rank {process.rank}"):
                    group = process.world.create(options(process.rank, 3, (0, 2), name))
                    tensor = torch.ones(1)
                    group.allreduce([tensor]).wait()  # the fake checks that no key comes twice
                    assert tensor.item() == 2
                    group.shutdown()

    for process in processes:
        process.use = lambda _, process=process: use(process)  # type: ignore[method-assign]
    for outcome in at_once(processes, 3):
        assert not isinstance(outcome, Exception), outcome


def test_a_process_ends_though_a_message_never_comes() -> None:
    job = FakeExchanges(2)
    processes = [Process(job, rank, rank) for rank in range(2)]

    def use(process: Process) -> int:
        group = process.world.create(options(process.rank, 2))
        received = group.recv([torch.zeros(1)], 1 - process.rank)
        assert process.world.unfinished() == []
        call = group.allreduce([torch.ones(1)], opts=dist.AllreduceOptions())
        call.wait()
        assert not received.is_completed()
        group.abort()
        return 1

    for process in processes:
        process.use = lambda _, process=process: use(process)  # type: ignore[method-assign]
    assert at_once(processes, 2) == [1, 1]


def test_processes_meet_though_one_of_them_was_alone_before() -> None:
    job = FakeExchanges(3)
    processes = [Process(job, rank, rank) for rank in range(3)]
    processes[1].world.create(options(0, 1)).shutdown()
    assert at_once(processes, 3) == [[1.0, 0.0, 2.0], [1.0], [1.0, 0.0, 2.0]]


@pytest.mark.parametrize("kind", ["a long name", "many ranks"])
def test_labels_of_large_groups_name_the_call(kind: str) -> None:
    size = 60
    job = FakeExchanges(size)
    process = Process(job, 0, 0)
    process.world._ranks = tuple(range(size))
    process.world._session = process.session  # type: ignore[assignment]
    process.world._groups = [None]  # type: ignore[list-item]  # the default group
    name = "0123abcd" * 30 if kind == "a long name" else "1"
    group = process.world.create(options(0, size, tuple(range(size)), name))
    group.alltoall_base(torch.ones(60), torch.ones(60))  # the fake checks the labels' length
    group.allreduce([torch.ones(3)])
    title = "local group 1" if kind == "a long name" else "group 1"
    text = f"all_reduce #2 of {title} (60 ranks from 0 to 59), op SUM, float32 [3]"
    assert text in job.labels


def test_a_group_beside_a_default_group_of_another_backend_is_refused() -> None:
    process = Process(FakeExchanges(2), 0, 0)
    for _ in range(2):
        with pytest.raises(ConfigError, match="the default group has another backend"):
            process.world.create(options(0, 2, (0, 1), "1"))
        process.world.create(options(0, 1)).shutdown()  # after its end it is so again


def test_a_failed_job_is_left_for_another() -> None:
    process = Process(FakeExchanges(1), 0, 0)
    left: List[None] = []
    process.session.close = lambda: left.append(None)  # type: ignore[attr-defined]
    process.session.num_workers = 2
    process.world._session = process.session  # type: ignore[assignment]
    process.session.failure = PeerLost("lost worker 1", 4)
    fresh = FakeCarrier(FakeExchanges(1), 0)
    process.session, old = fresh, process.session
    with pytest.raises(ConfigError, match="world_size is 2, and the job has 1 worker"):
        process.world.create(options(0, 2))
    assert left == [None]
    assert old.failure is not None


def test_a_rank_that_two_processes_have_is_an_error() -> None:
    job = FakeExchanges(2)
    processes = [Process(job, 0, 0), Process(job, 0, 1)]
    errors: List[Optional[Exception]] = [None, None]

    def body(at: int) -> None:
        try:
            processes[at].use(2)
        except ConfigError as error:
            errors[at] = error

    threads = [threading.Thread(target=body, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for error in errors:
        assert "have the ranks [0, 0]" in str(error)


def test_a_single_rank_joins_nothing() -> None:
    process = Process(FakeExchanges(1), 0, 0)
    group = process.world.create(options(0, 1))
    tensor = torch.ones(2)
    group.allreduce([tensor]).wait()
    assert tensor.tolist() == [1, 1]
    assert process.seen == []
    group.shutdown()


def test_arguments_of_init_process_group_stand_for_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "7")
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "error")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    given = options(1, 2)
    given.store = dist.PrefixStore("a", dist.PrefixStore("b", store))
    variables = world_module._variables(given)
    assert variables["RANK"] == "1"
    assert variables["WORLD_SIZE"] == "2"
    assert variables["MASTER_ADDR"] == "127.0.0.1"
    assert variables["BYTESCHEDULER_LOG_LEVEL"] == "error"
    assert "SLURM_PROCID" not in variables


@pytest.mark.parametrize("comm", ["mpi", "nccl"])
def test_a_library_that_sums_is_refused(monkeypatch: pytest.MonkeyPatch, comm: str) -> None:
    monkeypatch.setenv("BYTESCHEDULER_COMM", comm)
    with pytest.raises(ConfigError, match=f"BYTESCHEDULER_COMM={comm} lets that library sum"):
        check_settings_of({})
    monkeypatch.setenv("BYTESCHEDULER_COMM", "direct")
    check_settings_of({"cpu": "bytescheduler"})


def test_a_backend_for_each_device_is_refused() -> None:
    backend_config = dist.distributed_c10d.BackendConfig("cpu:gloo")
    assert backends_at(1) == {"cpu": "gloo"}
    backend_config = 3
    assert backends_at(1) == {}
    assert backend_config == 3
    with pytest.raises(ConfigError, match='"cpu:bytescheduler,cuda:nccl".*forgets nccl'):
        check_settings_of({"cpu": "bytescheduler", "cuda": "nccl"})
