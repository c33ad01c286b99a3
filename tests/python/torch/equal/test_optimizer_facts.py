"""The numbers of an optimizer as texts and digests: equal for equal numbers, whatever they are."""

from typing import Any, Dict, List

import numpy as np
import pytest
import torch
from torch import nn

from bytescheduler.torch._gradients.facts import NUMBERS, STATE, Fact
from bytescheduler.torch._optimizer import optimizer_facts as optimizer_facts_module
from bytescheduler.torch._optimizer.optimizer_facts import OptimizerFacts, _line_of, text_of


def names(params: List[nn.Parameter]) -> Dict[int, str]:
    return {id(param): f"p{at}" for at, param in enumerate(params)}


def adam(**options: Any) -> "tuple[Any, OptimizerFacts]":  # noqa: ANN401
    param = nn.Parameter(torch.ones(3))
    inner = torch.optim.AdamW([param], **{"lr": 0.1, **options})
    return inner, OptimizerFacts(inner, names)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.1, np.float64(0.1), torch.tensor(0.1, dtype=torch.float64)), "0.1"),
        ((1, 1.0, np.int64(1), np.float32(1), torch.tensor(1), torch.ones(1, 1)), "1"),
        (((0.9, 1), [0.9, 1.0], (torch.tensor(0.9, dtype=torch.float64), 1)), "(0.9, 1)"),
        ((True, torch.tensor(True)), "True"),
        ((None,), "None"),
        (("x",), "'x'"),
        ((float("nan"), torch.tensor(float("nan"))), "nan"),
        ((1 << 60,), str(1 << 60)),
        ((1 + 2j, torch.tensor(1 + 2j)), "(1+2j)"),
        (({"a": [1, None]},), "{a: (1, None)}"),
        ((len, abs), "a builtin_function_or_method"),
        ((torch.ones(2, device="meta"),), "a tensor of torch.float32 and shape (2,)"),
        ((torch.eye(2).to_sparse(),), "a tensor of torch.float32 and shape (2, 2)"),
    ],
)
def test_equal_numbers_have_one_text(values: "tuple[Any, ...]", text: str) -> None:
    assert [text_of(value) for value in values] == [text] * len(values)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (0.1, 0.1000000001),
        (True, False),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])),
        (torch.tensor(0.1), 0.1),  # a float32
        (2**60, 2**60 + 1),
        ("a", "b"),
        ((1,), (1, 2)),
    ],
)
def test_other_numbers_have_other_texts(one: Any, another: Any) -> None:  # noqa: ANN401
    assert text_of(one) != text_of(another)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", 0.2),
        ("betas", (0.9, 0.98)),
        ("foreach", True),
        ("fused", "yes"),
        ("mine", 3),
        ("lr", torch.tensor(0.3)),
    ],
)
def test_each_change_changes_the_digest_and_is_told(key: str, value: object) -> None:
    inner, optimizer_facts = adam()
    _, twin = adam()
    assert optimizer_facts.digest() == twin.digest() == optimizer_facts.digest()
    inner.param_groups[0][key] = value
    assert optimizer_facts.digest() != twin.digest()
    label = f"{key} of group 0 of the optimizer"
    assert optimizer_facts.numbers()[label] != twin.numbers().get(label)
    twin._inner.param_groups[0][key] = value
    assert optimizer_facts.digest() == twin.digest()
    assert optimizer_facts.numbers() == twin.numbers()


def test_a_rate_that_changes_in_place_changes_the_digest() -> None:
    inner, optimizer_facts = adam(lr=torch.tensor(0.5))
    before = optimizer_facts.digest()
    inner.param_groups[0]["lr"].fill_(0.25)
    assert optimizer_facts.digest() != before
    assert optimizer_facts.numbers()["lr of group 0 of the optimizer"] == Fact(NUMBERS, "0.25")
    inner.param_groups[0]["lr"].fill_(0.5)
    assert optimizer_facts.digest() == before


def test_the_order_of_keys_makes_no_difference() -> None:
    inner, optimizer_facts = adam()
    before = optimizer_facts.digest()
    inner.param_groups[0] = dict(reversed(inner.param_groups[0].items()))
    inner.param_groups[0]["lr"] = inner.param_groups[0].pop("lr")
    assert optimizer_facts.digest() == before


def test_a_new_group_changes_the_digest() -> None:
    inner, optimizer_facts = adam()
    before = optimizer_facts.digest()
    inner.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    after = optimizer_facts.digest()
    assert after != before
    inner.param_groups.pop()
    assert optimizer_facts.digest() == before


class Adapting(torch.optim.SGD):
    """Its steps change a number of its own."""

    def step(self, closure: Any = None) -> Any:  # noqa: ANN401
        self.param_groups[0]["d"] = self.param_groups[0].get("d", 0) + 1
        return super().step(closure)


def test_numbers_of_the_optimizers_own_are_left_out() -> None:
    inner = Adapting([nn.Parameter(torch.ones(2))], 0.5)
    optimizer_facts = OptimizerFacts(inner, names)
    inner.param_groups[0]["d"] = 7
    assert (
        "d of group 0 of the optimizer" in (optimizer_facts.digest(), optimizer_facts.numbers())[1]
    )
    with optimizer_facts.stepping():
        inner.step()
    before = optimizer_facts.digest()
    with optimizer_facts.stepping():
        inner.step()
    assert optimizer_facts.digest() == before
    assert "d of group 0 of the optimizer" not in optimizer_facts.numbers()
    inner.param_groups[0]["lr"] = 0.25
    assert optimizer_facts.digest() != before


def test_state_is_told_by_parameter() -> None:
    inner, optimizer_facts = adam()
    (param,) = inner.param_groups[0]["params"]
    assert optimizer_facts.state() == {}
    param.grad = torch.ones(3)
    inner.step()
    facts = optimizer_facts.state()
    assert list(facts) == [
        f"{key} of p0 in the optimizer's state" for key in ("step", "exp_avg", "exp_avg_sq")
    ]
    assert facts["step of p0 in the optimizer's state"] == Fact(STATE, "1")
    inner.state[param]["exp_avg"][1] += 1e-6
    changed = optimizer_facts.state()
    assert [label for label in facts if changed[label] != facts[label]] == [
        "exp_avg of p0 in the optimizer's state"
    ]


def test_a_scheduler_pays_for_the_groups_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, optimizer_facts = adam()
    inner.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    optimizer_facts.digest()
    rates = []

    def line_of(group: List[Any]) -> str:
        rates.append(dict(zip(group[::2], group[1::2]))["lr"])
        return _line_of(group)

    monkeypatch.setattr(optimizer_facts_module, "_line_of", line_of)
    for rate in (0.5, 0.5, 0.25):
        inner.param_groups[1]["lr"] = rate
        optimizer_facts.digest()
    assert rates == [0.5, 0.25]
