"""How processes learn where the scheduler node is: one store, and threads that stand for them."""

import datetime
from typing import Dict, List, Optional

import pytest
from inline_snapshot import snapshot
from roles import in_threads
from sentences import masked
from torch.distributed import HashStore, TCPStore

from bytescheduler._session.direct import Root
from bytescheduler.errors import ConfigError, Error, Timeout
from bytescheduler.torch._job import meeting
from bytescheduler.torch._job.meeting import Meeting

PORT = 4711
AGENTS = {"TORCHELASTIC_USE_AGENT_STORE": "True"}  # torchrun's store outlives its workers
NEAR, FAR = "10.7.7.7", "10.9.9.9"  # an address of this host, and one of another host


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "is_own", lambda address: address == NEAR)
    monkeypatch.setenv("BYTESCHEDULER_LOG_LEVEL", "off")


class Processes:
    """The processes of a job, each with its value of MASTER_ADDR."""

    def __init__(
        self, hosts: List[str], store: Optional[meeting.Store] = None, **more: str
    ) -> None:
        kept = store or HashStore()
        self.meetings = [
            Meeting(
                {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(hosts)),
                    "MASTER_ADDR": host,
                    "MASTER_PORT": "29500",
                    **more,
                },
                lambda *_: kept,
            )
            for rank, host in enumerate(hosts)
        ]
        self.listened: List[str] = []

    def _listen(self, host: str) -> int:
        self.listened.append(host)
        return PORT

    def meet(self) -> List[Root]:
        """Return the results by rank."""
        roots: Dict[int, Root] = {}

        def agree(rank: int) -> None:
            roots[rank] = self.meetings[rank].agree(None if rank else self._listen)

        ranks = range(len(self.meetings))
        raised = in_threads([lambda rank=rank: agree(rank) for rank in ranks])
        assert not raised, raised
        return [roots[rank] for rank in ranks]

    def refusal(self) -> str:
        """Return why process 0 refuses, whose peers do not come."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BYTESCHEDULER_TIMEOUT", "1")
            with pytest.raises(Error) as raised:
                self.meetings[0].agree(self._listen)
        return str(raised.value)


def test_all_learn_the_port_of_process_0_as_often_as_they_meet() -> None:
    processes = Processes([FAR] * 3)
    for _ in range(3):
        assert processes.meet() == [Root("", PORT)] * 3
    assert processes.listened == [""] * 3


def leave(store: HashStore, *questions: str) -> None:
    """Leave questions of an earlier life in the store."""
    for question in questions:
        number = store.add("bytescheduler asked", 1)
        store.set(f"bytescheduler question {number}", question)
        store.set(f"bytescheduler answer {number}", f"token 1 {FAR}")
    store.set("bytescheduler token 1", "")


def test_an_earlier_life_neither_answers_nor_confirms() -> None:
    store = HashStore()
    leave(store, f"1 {FAR}", f"2 {FAR}", f"1 {FAR}")
    assert Processes([FAR] * 3, store).meet() == [Root("", PORT)] * 3
    alone = Processes([FAR] * 3, store)
    assert "still missing: RANK 1, 2" in alone.refusal()


def test_a_loopback_name_of_process_0_gives_way_to_an_address_of_its_peers() -> None:
    store = HashStore()
    leave(store, f"2 {FAR}")  # process 0 was elsewhere
    processes = Processes(["localhost", "127.0.1.1", NEAR], store, **AGENTS)
    assert processes.meet() == [Root(NEAR, PORT), Root(NEAR, PORT), Root("", PORT)]
    assert processes.listened == [NEAR]


@pytest.mark.parametrize("more", [{}, {"LOCAL_WORLD_SIZE": "2"}])
def test_where_all_are_local_loopback_is_right(more: Dict[str, str]) -> None:
    processes = Processes(["localhost", "::1"], **more)
    assert processes.meet() == [Root("", PORT)] * 2
    assert processes.listened == [""]


@pytest.mark.parametrize("name", ["LOCAL_WORLD_SIZE", "DMLC_PS_ROOT_URI"])
def test_where_all_are_local_or_the_address_is_given_no_question_decides(name: str) -> None:
    store = HashStore()
    leave(store, f"1 {NEAR}")
    processes = Processes(["localhost", "localhost"], store, **{name: "2"})
    assert processes.meet() == [Root("", PORT)] * 2


@pytest.mark.parametrize("agents", [{}, AGENTS])
def test_an_address_that_is_not_of_this_host_is_refused(agents: Dict[str, str]) -> None:
    store = HashStore()
    leave(store, f"1 {FAR}")
    processes = Processes(["localhost", "localhost"], store, **agents)
    assert processes.refusal() == snapshot(
        "MASTER_ADDR=localhost leads to this host alone, and at other hosts to 10.9.9.9, which is "
        "no address of this host: set DMLC_PS_ROOT_URI in all processes to an address of process 0"
    )
    assert processes.listened == []


@pytest.mark.parametrize("host", ["localhost", NEAR])
def test_processes_that_do_not_come_are_named(host: str) -> None:
    processes = Processes([host] * 3)
    text = processes.refusal()
    assert masked(text, HOST=host) == snapshot(
        "process RANK=0 waits for the others at HOST:29500 (MASTER_ADDR, MASTER_PORT); start all 3 "
        "(WORLD_SIZE) with equal values; still missing: RANK 1, 2"
    )


def test_an_error_of_the_scheduler_node_is_no_time_out() -> None:
    def listen(_: str) -> int:
        raise ConfigError("the cause", 1)

    with pytest.raises(ConfigError, match="^the cause$"):
        Processes([NEAR] * 2).meetings[0].agree(listen)


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
def test_agents_that_count_restarts_apart_meet_all_the_same(host: str) -> None:
    of_agent = TCPStore(
        host.strip("[]"), 0, None, True, datetime.timedelta(seconds=60), wait_for_workers=False
    )
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": str(of_agent.port)}
    roots: List[Optional[Root]] = [None, None]

    def agree(rank: int) -> None:
        own = {**AGENTS, "RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(rank)}
        roots[rank] = Meeting({**variables, **own}).agree(None if rank else lambda _: PORT)

    for _ in range(2):
        assert not in_threads([lambda rank=rank: agree(rank) for rank in range(2)])
        assert roots == [Root("", PORT)] * 2


def test_a_store_that_ends_is_a_time_out_with_its_reason() -> None:
    class Broken(HashStore):
        def add(self, key: str, number: int) -> int:
            raise RuntimeError("connection reset\nand much more")

    processes = Processes([FAR] * 2, Broken())
    with pytest.raises(Timeout, match="with equal values; connection reset$"):
        processes.meetings[1].agree(None)
