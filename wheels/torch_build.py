"""Installs PyTorch, in its build for processors where this machine has no GPU.

``torch_build.py torch==2.13.0 [REQUIREMENT...]`` says what comes and what it weighs, and runs pip.
PyPI's build brings CUDA.  PyTorch's own index has the other one, and so may pip's configuration.
"""

import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from importlib import metadata
from typing import Callable, List, NamedTuple, Sequence, Tuple

import progress

__all__ = ["Attempt", "attempts", "has_gpu", "index_answers", "install", "present_version"]

INDEX = "https://download.pytorch.org/whl/cpu"
# How long the index has, its name's look-up included: a machine behind a mirror waits no longer.
ANSWER_S = 3.0
# What PyTorch 2.13 downloads.
_CPU_WEIGHS, _CUDA_WEIGHS = "200 MB", "2.5 GB"


class Attempt(NamedTuple):
    """Arguments of ``pip install`` that may bring PyTorch, and the sentence to print before."""

    arguments: Tuple[str, ...]
    sentence: str


def attempts(version: str, *, present: str, gpu: bool, answers: bool) -> List[Attempt]:
    """Return what to try in turn, until pip finds that version.

    Parameters
    ----------
    version : str
        PyTorch's, such as 2.13.0.
    present : str
        The version that is installed already, such as 2.13.0+cpu; empty for none.
    gpu : bool
        This machine has a GPU of NVIDIA.
    answers : bool
        PyTorch's own index can be reached.
    """
    any_build = (f"torch=={version}",)
    if present.partition("+")[0] == version:
        return [Attempt(any_build, f"PyTorch {present} is installed already")]
    if gpu:
        sentence = (
            f"PyTorch {version} with CUDA, as there is a GPU: about {_CUDA_WEIGHS} to download"
        )
        return [Attempt(any_build, sentence)]
    for_processors = (f"torch=={version}+cpu",)
    weighs = (
        f"PyTorch {version} for processors, as there is no GPU: about {_CPU_WEIGHS} to download"
    )
    with_cuda = Attempt(
        any_build,
        f"no build of PyTorch {version} for processors is there: PyPI's has CUDA, about "
        f"{_CUDA_WEIGHS} to download",
    )
    if answers:
        return [Attempt(("--extra-index-url", INDEX, *for_processors), weighs), with_cuda]
    silent = f"{weighs}, from pip's own index, as {INDEX} does not answer"
    return [Attempt(for_processors, silent), with_cuda]


def present_version() -> str:
    """Return the version of PyTorch that this Python has; empty for none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def has_gpu() -> bool:
    """Return whether NVIDIA's driver lists a GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run(
            [program, "-L"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU " in listed.stdout


def index_answers(url: str = f"{INDEX}/torch/", limit_s: float = ANSWER_S) -> bool:
    """Return whether an index answers within that time."""
    answers: List[bool] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(request, timeout=limit_s) as response:
                answers.append(response.status == 200)
        except OSError:  # no name, no route, no certificate, or an error of HTTP
            pass

    # The time limit of urllib does not cover the look-up of the name.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(limit_s)
    return answers == [True]


def install(
    choices: Sequence[Attempt],
    beside: Sequence[str],
    pip_install: Callable[[Sequence[str]], progress.Done] = progress.pip_install,
) -> int:
    """Try in turn until pip finds PyTorch, beside other requirements; return pip's exit status."""
    done = progress.Done(1, "")
    for attempt in choices:
        print(attempt.sentence, flush=True)
        done = pip_install([*attempt.arguments, *beside])
        # Any other failure, such as a full disk, is no reason for a larger download.
        if "No matching distribution found for torch==" not in done.output:
            break
    if done.status != 0:
        print(done.output, end="", flush=True)
    return done.status


def main(arguments: List[str]) -> int:
    """Install PyTorch and what stands beside it, and return the exit status."""
    named = re.fullmatch(r"torch==(\d[\w.]*)", arguments[0] if arguments else "")
    if named is None:
        raise SystemExit("usage: torch_build.py torch==VERSION [REQUIREMENT...]")
    version, present, gpu = named.group(1), present_version(), has_gpu()
    answers = not present and not gpu and index_answers()
    choices = attempts(version, present=present, gpu=gpu, answers=answers)
    return install(choices, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
