"""The optimizer that users hold, in a fake job."""

from typing import Any

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler.torch._optimizer import distributed


class Current:
    """See `Job`."""

    def get(self) -> FakeJob:
        return FakeJob()

    def flush(self) -> None:
        pass


def scaled(optimizer: Any, model: nn.Module) -> torch.Tensor:  # noqa: ANN401
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return model.weight.detach()


def test_a_fused_optimizer_gets_gradients_without_their_scale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(distributed, "current", Current)
    models = [nn.Linear(2, 1, bias=False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    inner, plain = (torch.optim.SGD(each.parameters(), 0.5, fused=True) for each in models)
    wrapped = distributed.DistributedOptimizer(inner, model=models[0])
    assert torch.equal(scaled(wrapped, models[0]), scaled(plain, models[1]))
