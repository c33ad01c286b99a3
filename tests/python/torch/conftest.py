"""A stepper in a fake job, for tests of PyTorch's side."""

from typing import Any, Callable

import pytest
import torch
from fake_job import FakeJob

from bytescheduler.torch._gradients import bundle
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.stepper import Stepper

Make = Callable[..., Stepper]


@pytest.fixture
def job() -> FakeJob:
    return FakeJob()


@pytest.fixture
def make_stepper(job: FakeJob) -> Make:
    def make(model: Any, inner: Any = None, **options: Any) -> Stepper:  # noqa: ANN401
        inner = inner or torch.optim.SGD(model.parameters(), 0.5)
        return Stepper(job, inner, Options(model=model, **options).checked())  # type: ignore[arg-type]

    return make


@pytest.fixture
def singly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each gradient travel in a round of its own, as large ones do."""
    monkeypatch.setattr(bundle, "SMALL_BYTES", 0)
