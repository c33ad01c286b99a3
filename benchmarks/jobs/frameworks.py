"""The frameworks of the replay beside MXNet: their arms, and how a job of an arm runs."""

import pathlib
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from benchmarks.lab import lab_job, ranked
from benchmarks.pytorch import arms as torch_arms
from benchmarks.tensorflow import arms as tensorflow_arms
from bytescheduler._advise.shape import Shape

Run = Callable[[str, List[str], float, Shape, Optional[lab_job.Watch]], List[Any]]


def _no_library(_folder: pathlib.Path) -> pathlib.Path:
    return pathlib.Path()


class Framework(NamedTuple):
    """A framework whose layers the replay can play."""

    name: str
    arms: Mapping[str, ranked.Arm]
    usual: str  # the arms of a run that names none
    best: str  # the name of its fastest stock arm in tables
    run: Run  # runs a job
    worker: str  # the module whose `work` runs a worker
    compiled: Callable[[pathlib.Path], pathlib.Path] = _no_library  # makes its library of layers
    starts: float = 1.0  # the time that a worker takes to start, in that of PyTorch


FRAMEWORKS: Dict[str, Framework] = {
    "tensorflow": Framework(
        "TensorFlow",
        tensorflow_arms.ARMS,
        tensorflow_arms.USUAL,
        "the best stock arm",
        tensorflow_arms.run,
        "benchmarks.tensorflow.replayed",
        tensorflow_arms.compiled,
        starts=3.0,
    ),
    "torch": Framework(
        "PyTorch",
        torch_arms.ARMS,
        torch_arms.USUAL,
        "the best DDP",
        torch_arms.run,
        "benchmarks.pytorch.replayed",
    ),
}
