"""The wait for host names ends with their addresses, by a stop, or with an error."""

from typing import List, Mapping, Optional

import pytest

from bytescheduler._started import known_names
from bytescheduler.errors import ConfigError


class Names:
    """Names that are known at the third look, if at all."""

    def __init__(self, *, ever: bool = True) -> None:
        self.ever = ever
        self.looks: List[Optional[Mapping[str, str]]] = []
        self.waited_s: List[float] = []

    def known(self, settings: Optional[Mapping[str, str]], *, waited_s: float) -> bool:
        self.looks.append(settings)
        self.waited_s.append(waited_s)
        if not self.ever and len(self.looks) == 3:
            raise ConfigError("host: the name has no address", 1)
        return self.ever and len(self.looks) == 3


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_names, "_LOOK_EVERY_S", 0.001)


def test_the_wait_ends_when_the_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Names()
    monkeypatch.setattr(known_names, "names_known", late.known)
    assert known_names.await_names({"DMLC_ROLE": "server"})
    assert late.looks == [{"DMLC_ROLE": "server"}] * 3
    assert late.waited_s[0] == 0
    assert 0 < late.waited_s[1] < late.waited_s[2]


def test_a_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Names()
    monkeypatch.setattr(known_names, "names_known", late.known)
    assert not known_names.await_names(is_stopped=lambda: len(late.looks) == 2)


def test_a_name_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_names, "names_known", Names(ever=False).known)
    with pytest.raises(ConfigError, match="has no address"):
        known_names.await_names()
