"""Which optimizers step one parameter after the other with the bits of a whole step."""

from typing import Any, Dict, Optional, Type

import pytest

torch = pytest.importorskip("torch")
from bytescheduler.torch._crossing.self_check import why_not_separable  # noqa: E402


class Descends(torch.optim.SGD):  # type: ignore[name-defined,misc]  # types are not read
    """Steps by a rate of its own, which classes below change."""

    def rate(self) -> float:
        return -0.1

    def step(self, closure: None = None) -> None:
        rate = self.rate()
        for group in self.param_groups:
            for param in group["params"]:
                param.add_(param.grad, alpha=rate)


class Counts(Descends):
    """Keeps a number of its own, which each of our steps would begin anew."""

    count = 0

    def rate(self) -> float:
        self.count += 1
        return -0.1


class BeginsSlowly(Descends):
    """Takes another first step than all others."""

    began = False

    def rate(self) -> float:
        rate, self.began = (-0.2, True) if self.began else (-0.1, True)
        return rate


class ByNorm(Descends):
    """Divides by the norm of all gradients, as clipping inside an optimizer does."""

    def rate(self) -> float:
        params = [param for group in self.param_groups for param in group["params"]]
        return -0.1 / float(sum(param.grad.norm() for param in params))


APART = "an update of one parameter depends on others"


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (torch.optim.SGD, {"momentum": 0.9}, None),
        (torch.optim.SGD, {"fused": True}, None),
        (torch.optim.Adagrad, {"fused": True}, None),
        (torch.optim.Adam, {"fused": True}, None),
        (torch.optim.AdamW, {"foreach": True}, None),
        (Descends, {}, None),
        (Counts, {}, "its steps change numbers of its own"),
        (BeginsSlowly, {}, APART),
        (ByNorm, {}, APART),
    ],
)
def test_an_optimizer_is_found_separable_or_not(
    kind: Type[Any], options: Dict[str, Any], why: Optional[str]
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    assert why_not_separable(kind(model.parameters(), lr=0.1, **options)) == why
