"""Whose scheduler node it is: what is sent to it, and what its answer means."""

import contextlib
import dataclasses
import pathlib
import socket
import threading
from typing import Iterator, List, Tuple

import pytest
from inline_snapshot import snapshot
from sentences import masked

from bytescheduler._session.whose import Whose, whose_scheduler
from bytescheduler._settings import Settings
from bytescheduler.errors import ConfigError, Timeout


def greeting(mechanism: bytes) -> bytes:
    return b"\xff" + b"\0" * 8 + b"\x7f\3\0" + mechanism.ljust(20, b"\0") + b"\0" * 32


def ready(*properties: Tuple[bytes, bytes]) -> bytes:
    body = b"\5READY"
    for name, value in properties:
        body += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
    return bytes([4, len(body)]) + body


ROUTER = (b"Socket-Type", b"ROUTER")
OURS = greeting(b"NULL") + ready(ROUTER, (b"Identity", b"bytescheduler"))
STOCK = greeting(b"NULL") + ready(ROUTER, (b"Identity", b""))


@contextlib.contextmanager
def node(*answers: bytes) -> Iterator[Tuple[Settings, List[bytes]]]:
    """Listen and give each caller the next of `answers`; yield where, and what each has sent."""
    sent: List[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def serve() -> None:
            for answer in answers:
                caller, _ = listener.accept()
                with caller:
                    caller.settimeout(10)
                    caller.sendall(answer)
                    got = b""
                    with contextlib.suppress(ConnectionResetError):
                        while more := caller.recv(4096):
                            got += more
                    sent.append(got)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        root = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
        yield Settings.of({**root, "BYTESCHEDULER_TIMEOUT": "10s"}), sent
        thread.join()


@pytest.mark.parametrize(
    ("answer", "whose"),
    [
        (OURS, Whose.OURS),
        (STOCK, Whose.STOCK),
        (greeting(b"NULL") + ready(ROUTER), Whose.STOCK),
        (greeting(b"NULL") + ready(ROUTER, (b"X-Memory", b"bytescheduler")), Whose.STOCK),
    ],
)
def test_the_other_end_shows_its_kind_and_gets_no_message(answer: bytes, whose: Whose) -> None:
    with node(answer) as (settings, sent):
        assert whose_scheduler(settings, print) is whose
    ours = ready((b"Socket-Type", b"DEALER"), (b"Identity", b""))
    assert sent == [greeting(b"NULL") + ours]


def test_only_ours_asks_for_a_secret_and_is_sent_no_mechanism() -> None:
    with node(greeting(b"CURVE")) as (settings, sent):
        settings = dataclasses.replace(settings, secret_file="secret")
        assert whose_scheduler(settings, print) is Whose.OURS
    assert sent == [greeting(b"NULL")[:12]]


def test_a_process_without_the_secret_of_the_job_is_refused_at_once() -> None:
    missing = pytest.raises(ConfigError, match="BYTESCHEDULER_SECRET_FILE is not set here")
    with node(greeting(b"CURVE")) as (settings, _), missing:
        whose_scheduler(settings, print)


def test_an_answer_without_zmtp_is_asked_again() -> None:
    no_zmtp = b"HTTP/1.1 400 Bad Request\r\n".ljust(100, b"-")
    with node(no_zmtp, OURS) as (settings, sent):
        assert whose_scheduler(settings, print) is Whose.OURS
    assert len(sent) == 2


def test_a_node_that_is_not_there_is_named_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    root = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    settings = Settings.of({**root, "BYTESCHEDULER_TIMEOUT": "300ms"})
    where = f"127.0.0.1:{port}"
    with pytest.raises(Timeout) as raised:
        whose_scheduler(settings, print)
    assert masked(str(raised.value), ADDRESS=where) == snapshot(
        "no response from the scheduler node at ADDRESS in 0.3 s "
        "(BYTESCHEDULER_RENDEZVOUS_TIMEOUT; latest attempt: ADDRESS: Connection refused)"
    )


@pytest.mark.parametrize("name", ["nosuch.invalid", "a..b"])
def test_a_name_without_an_address_is_the_reason_at_the_deadline(name: str) -> None:
    root = {"DMLC_PS_ROOT_URI": name, "DMLC_PS_ROOT_PORT": "1"}
    settings = Settings.of({**root, "BYTESCHEDULER_TIMEOUT": "100ms"})
    with pytest.raises(Timeout, match=f"the name {name} cannot be resolved: "):
        whose_scheduler(settings, print)


def test_a_file_is_asked_where_the_job_uses_files() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = pathlib.Path(f"/tmp/{port}")
    settings = Settings.of({"DMLC_LOCAL": "1", "DMLC_PS_ROOT_PORT": str(port)})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)

        def serve() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.sendall(STOCK)
                with contextlib.suppress(ConnectionResetError):
                    while caller.recv(4096):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert whose_scheduler(settings, print) is Whose.STOCK
        finally:
            thread.join()
            path.unlink()
