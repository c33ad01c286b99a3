"""Keys of the engine: every worker computes the same, and no two owners share one."""

from typing import Callable, Dict

import pytest
from fake_engine import FakeFramework, FakeOperations, FakeWorker, FrameworkError
from inline_snapshot import snapshot

from bytescheduler._native import FIRST_BOOKKEEPING_KEY
from bytescheduler._session import keys as engine_keys
from bytescheduler._session.keys import EngineKeys
from bytescheduler._session.session import Session
from bytescheduler.errors import UsageError


class NamingWorker(FakeWorker):
    """Notes the names that timelines get."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: Dict[int, str] = {}

    def name_key(self, key: int, name: str) -> None:
        self.shown[key] = name


@pytest.fixture
def worker() -> NamingWorker:
    return NamingWorker()


@pytest.fixture
def session(worker: NamingWorker) -> Session:
    session = Session(worker, FakeOperations(), FakeFramework())  # type: ignore[arg-type]
    session.close()  # keys are numbers alone
    return session


def test_numbers_stay_numbers_and_names_become_numbers(
    session: Session, worker: NamingWorker
) -> None:
    keys = EngineKeys(session)
    found = keys.of([3, 2**63 - 1])
    assert found == {3: 3, 2**63 - 1: 2**63 - 1}
    assert worker.shown == {}
    number = keys.of(["weight"])["weight"]
    assert number == 2538122460374986818  # as other versions compute it
    assert worker.shown == {number: "weight"}


@pytest.mark.parametrize(
    "call",
    [
        lambda keys: keys.of([3, "caf\udce9"]),
        lambda keys: keys.beside("caf\udce9", "bundle"),
        lambda keys: keys.bookkeeping("caf\udce9"),
    ],
)
def test_a_name_that_cannot_be_encoded_is_refused_by_its_own_text(
    session: Session, call: Callable[[EngineKeys], object]
) -> None:
    with pytest.raises(UsageError, match=r"the name 'caf\\udce9' has a character that UTF-8 lacks"):
        call(EngineKeys(session))


def test_each_owner_and_each_companion_has_numbers_of_its_own(session: Session) -> None:
    first, second = EngineKeys(session), EngineKeys(session)
    taken = [first.of([1])[1], second.of([1])[1], first.beside(1, "rows"), second.beside(1, "rows")]
    assert len(set(taken)) == 4
    assert first.beside(1, "rows") == taken[2]


def test_bookkeeping_has_keys_that_no_tensor_of_a_script_has(
    session: Session, worker: NamingWorker
) -> None:
    first, second = EngineKeys(session), EngineKeys(session)
    taken = [keys.bookkeeping(name) for keys in (first, second) for name in ("notes", "tally 1")]
    assert len(set(taken)) == 4
    assert all(FIRST_BOOKKEEPING_KEY <= number < 2**64 for number in taken)
    assert [worker.shown[number] for number in taken] == ["notes", "tally 1"] * 2
    assert first.bookkeeping("notes") == taken[0]
    named = [*first.of(["notes"]).values(), first.beside("notes", "rows"), 2**63 - 1]
    assert all(number < FIRST_BOOKKEEPING_KEY for number in named)


@pytest.mark.parametrize("key", [-1, 2**63])
def test_a_number_out_of_range_is_refused(session: Session, key: int) -> None:
    with pytest.raises(FrameworkError, match=f"key {key}: want 0 <= key"):
        EngineKeys(session).of([key])


def test_two_keys_of_one_number_are_refused_and_none_is_taken(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = EngineKeys(session)
    with monkeypatch.context() as patch:
        patch.setattr(engine_keys, "_number", lambda *_: 5)
        with pytest.raises(FrameworkError, match="'a' and 'b'") as raised:
            keys.of(["a", "b"])
        assert str(raised.value) == snapshot(
            "keys 'a' and 'b' have the same hash: rename one of them"
        )
    assert keys.of([5]) == {5: 5}


def test_all_keys_of_an_owner_are_given_back_once() -> None:
    worker = NamingWorker()
    session = Session(worker, FakeOperations(), FakeFramework())  # type: ignore[arg-type]
    keys = EngineKeys(session)
    numbers = {*keys.of(["weight", 3]).values(), keys.beside("weight", "rows")}
    keys.give_back(lambda: True)
    assert {key for key, _ in worker.given_back} == numbers
    keys.give_back(lambda: True)
    assert len(worker.given_back) == len(numbers)
    session.close()
