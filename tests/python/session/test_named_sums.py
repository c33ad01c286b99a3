"""Names of sums have keys, and handles of rounds are good once."""

from typing import Iterator, List

import pytest
from fake_engine import FakeWorker

from bytescheduler._native import FIRST_BOOKKEEPING_KEY
from bytescheduler._session.named_sums import NamedSums
from bytescheduler._session.round_session import RoundSession
from bytescheduler.errors import UsageError

Sums = NamedSums[str]


class Round:
    """A round that ends when it is waited for."""

    def __init__(self) -> None:
        self.is_over = False

    def over(self) -> bool:
        return self.is_over

    def wait(self) -> None:
        self.is_over = True


@pytest.fixture
def sums() -> Iterator[Sums]:
    session = RoundSession(FakeWorker())  # type: ignore[arg-type]
    made: Sums = NamedSums(session)
    yield made
    session.close()


def test_a_handle_gives_its_result_once(sums: Sums) -> None:
    pending = Round()
    handle = sums.keep(pending, lambda: f"over: {pending.is_over}")
    assert not sums.over(handle)
    assert sums.unfinished() == [pending]
    assert sums.finish(handle) == "over: True"
    assert not sums.unfinished()
    with pytest.raises(UsageError, match="no such push-pull is under way"):
        sums.finish(handle)


def test_a_name_is_declared_once_and_keeps_its_size(sums: Sums) -> None:
    declared: List[int] = []
    key = sums.key_of("weight", "float32", 4, declared.append)
    assert sums.key_of("weight", "float32", 4, declared.append) == key
    assert declared == [key]
    with pytest.raises(UsageError, match="'weight': 5 elements of float32, before it had 4"):
        sums.key_of("weight", "float32", 5, declared.append)


def test_bookkeeping_has_other_keys_than_tensors_of_the_same_name(sums: Sums) -> None:
    declared: List[int] = []
    book = sums.bookkeeping_key("weight", declared.append)
    assert sums.bookkeeping_key("weight", declared.append) == book
    tensor = sums.key_of("weight", "float32", 4, declared.append)
    assert declared == [book, tensor]
    assert tensor < FIRST_BOOKKEEPING_KEY <= book


def test_tensors_without_a_name_take_turns(sums: Sums) -> None:
    keys = [sums.key_of(None, "float32", 4, lambda key: None) for _ in range(16)]
    assert len(set(keys)) == 8
    assert keys[:8] == keys[8:]
    assert sums.key_of(None, "float32", 5, lambda key: None) not in keys


def test_a_name_that_is_empty_is_refused(sums: Sums) -> None:
    with pytest.raises(UsageError, match="declare: want a name"):
        sums.declare("")
    with pytest.raises(UsageError, match="has a character that UTF-8 lacks"):
        sums.declare("caf\udce9")


def test_several_rounds_have_one_handle(sums: Sums) -> None:
    rounds = [Round(), Round()]
    handles = [sums.keep(pending, lambda: "one") for pending in rounds]
    handles.append(sums.keep(None, lambda: "nothing was sent"))
    handle = sums.together(handles)
    assert not sums.over(handle)
    rounds[0].is_over = True
    assert not sums.over(handle)
    assert sums.finish(handle) == ["one", "one", "nothing was sent"]
    assert rounds[1].is_over
    with pytest.raises(UsageError, match="no such push-pull is under way"):
        sums.finish(handles[0])
    assert sums.finish(sums.together([])) == []


def test_the_result_of_a_round_can_be_changed(sums: Sums) -> None:
    pending = Round()
    handle = sums.change(sums.keep(pending, lambda: f"over: {pending.is_over}"), str.upper)
    assert not sums.over(handle)
    assert sums.finish(handle) == "OVER: TRUE"


class RestingSession(RoundSession):
    """Notes the keys that rest."""

    def __init__(self) -> None:
        super().__init__(FakeWorker())  # type: ignore[arg-type]
        self.resting: List[int] = []

    def let_rest(self, key: int) -> None:
        self.resting.append(key)


def use(sums: Sums, name: str) -> int:
    return sums.key_of(name, "float32", 4, lambda key: None)


def test_of_many_names_ten_are_kept() -> None:
    session = RestingSession()
    sums: Sums = NamedSums(session)
    keys = [use(sums, f"metric{at}") for at in range(600)]
    assert session.resting == keys[:590]


def test_bookkeeping_rests_as_names_do() -> None:
    session = RestingSession()
    sums: Sums = NamedSums(session)
    book = sums.bookkeeping_key("metric0", lambda key: None)
    keys = [use(sums, f"metric{at}") for at in range(10)]
    assert session.resting == [book]
    assert sums.bookkeeping_key("metric0", lambda key: None) == book
    assert session.resting == [book, keys[0]]


def test_names_that_come_again_and_again_rest_once() -> None:
    session = RestingSession()
    sums: Sums = NamedSums(session)
    keys = [use(sums, f"layer{at}") for _ in range(5) for at in range(50)][:50]
    # Nothing is known of their gaps in the first pass.
    assert len(session.resting) == 50
    assert set(session.resting) == set(keys)
    for at in range(199):
        use(sums, f"metric{at}")
    assert keys[-1] not in session.resting[50:]
    use(sums, "metric")
    assert keys[-1] in session.resting[50:], "four times its gap"


def test_a_name_that_is_in_use_never_rests() -> None:
    session = RestingSession()
    sums: Sums = NamedSums(session)
    loss = use(sums, "loss")
    for at in range(300):
        use(sums, f"metric{at}")
        assert use(sums, "loss") == loss
    assert loss not in session.resting
