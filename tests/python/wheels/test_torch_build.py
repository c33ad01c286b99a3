"""Which build of PyTorch the set-up takes, and what it says before the download."""

import http.server
import threading
import time
from typing import Iterator, List, Sequence

import progress
import pytest
import torch_build
from inline_snapshot import snapshot
from torch_build import INDEX, Attempt, attempts

NO_MATCH = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"


def choices(*, present: str = "", gpu: bool = False, answers: bool = False) -> List[Attempt]:
    return attempts("2.13.0", present=present, gpu=gpu, answers=answers)


def test_a_machine_with_a_gpu_takes_cuda() -> None:
    for answers in (True, False):
        (only,) = choices(gpu=True, answers=answers)
        assert only == snapshot(
            Attempt(
                arguments=("torch==2.13.0",),
                sentence="PyTorch 2.13.0 with CUDA, as there is a GPU: about 2.5 GB to download",
            )
        )


def test_a_machine_without_gpu_takes_the_build_for_processors_from_its_index() -> None:
    first, last = choices(answers=True)
    assert first.arguments == ("--extra-index-url", INDEX, "torch==2.13.0+cpu")
    assert first.sentence == snapshot(
        "PyTorch 2.13.0 for processors, as there is no GPU: about 200 MB to download"
    )
    assert last == snapshot(
        Attempt(
            arguments=("torch==2.13.0",),
            sentence="no build of PyTorch 2.13.0 for processors is there: PyPI's has CUDA, about "
            "2.5 GB to download",
        )
    )


def test_a_silent_index_leaves_pips_own_and_one_line_says_so() -> None:
    first, last = choices(answers=False)
    assert first.arguments == ("torch==2.13.0+cpu",)
    assert first.sentence == snapshot(
        "PyTorch 2.13.0 for processors, as there is no GPU: about 200 MB to download, from pip's "
        "own index, as https://download.pytorch.org/whl/cpu does not answer"
    )
    assert last.arguments == ("torch==2.13.0",)


@pytest.mark.parametrize("present", ["2.13.0", "2.13.0+cpu", "2.13.0+cu130"])
def test_that_version_stays_whichever_build_it_is(present: str) -> None:
    (only,) = choices(present=present, answers=True)
    assert only == Attempt(("torch==2.13.0",), f"PyTorch {present} is installed already")


def test_an_older_version_is_replaced() -> None:
    assert choices(present="2.12.0+cpu", answers=True) == choices(answers=True)


class Pip:
    """Notes its calls and answers each as it was told."""

    def __init__(self, *answers: progress.Done) -> None:
        self.calls: List[List[str]] = []
        self._answers = list(answers)

    def __call__(self, arguments: Sequence[str]) -> progress.Done:
        self.calls.append(list(arguments))
        return self._answers.pop(0)


def test_pip_without_a_build_for_processors_gets_the_next_choice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pip = Pip(progress.Done(1, NO_MATCH), progress.Done(0, ""))
    assert torch_build.install(choices(), ["numpy<2.4"], pip) == 0
    assert pip.calls == [["torch==2.13.0+cpu", "numpy<2.4"], ["torch==2.13.0", "numpy<2.4"]]
    assert capsys.readouterr().out.splitlines() == [choice.sentence for choice in choices()]


def test_another_failure_is_told_and_ends_the_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    pip = Pip(progress.Done(1, "No space left on device\n"))
    assert torch_build.install(choices(), [], pip) == 1
    assert len(pip.calls) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["No space left on device"]


def test_pip_without_any_build_fails() -> None:
    pip = Pip(progress.Done(1, NO_MATCH), progress.Done(1, NO_MATCH))
    assert torch_build.install(choices(), [], pip) == 1


def test_no_index_is_asked_where_its_build_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch_build, "present_version", lambda: "")
    monkeypatch.setattr(torch_build, "has_gpu", lambda: True)
    monkeypatch.setattr(torch_build, "index_answers", lambda: pytest.fail("asked"))
    installed: List[List[str]] = []

    def install(found: Sequence[Attempt], beside: Sequence[str]) -> int:
        installed.append([*found[0].arguments, *beside])
        return 0

    monkeypatch.setattr(torch_build, "install", install)
    assert torch_build.main(["torch==2.13.0", "numpy<2.4"]) == 0
    assert installed == [["torch==2.13.0", "numpy<2.4"]]


@pytest.mark.parametrize("arguments", [[], ["torch>=2.1"], ["numpy"]])
def test_a_version_must_be_named(arguments: List[str]) -> None:
    with pytest.raises(SystemExit, match="usage: torch_build.py torch==VERSION"):
        torch_build.main(arguments)


class Index(http.server.BaseHTTPRequestHandler):
    """Answers by the path: /200 with that status, /silent after the test's end."""

    ended = threading.Event()

    def do_HEAD(self) -> None:
        if self.path == "/silent":
            self.ended.wait(30)
        else:
            self.send_response(int(self.path[1:]))
            self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Index.ended.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    Index.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_index_answers_or_not(index: str) -> None:
    assert torch_build.index_answers(f"{index}/200", 10)
    assert not torch_build.index_answers(f"{index}/404", 10)
    assert not torch_build.index_answers("http://127.0.0.1:9", 10)


def test_an_index_that_is_silent_is_not_waited_for(index: str) -> None:
    begin = time.monotonic()
    assert not torch_build.index_answers(f"{index}/silent", 0.2)
    assert time.monotonic() - begin < 10


def test_a_gpu_is_one_that_nvidias_driver_lists(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_program(text: str) -> bool:
        folder = tmp_path_factory.mktemp("bin")
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return torch_build.has_gpu()

    assert with_program("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'")
    assert not with_program("echo 'NVIDIA-SMI has failed'; exit 9")
    assert not with_program("echo 'No devices found'")
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    assert not torch_build.has_gpu()
