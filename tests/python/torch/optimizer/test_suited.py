"""The part of an optimizer in compression: rates of groups, and momenta that clash."""

import gc
import weakref
from typing import Any, Dict, Optional

import pytest
import torch
from fake_job import FakeJob
from torch import nn

from bytescheduler._native import Coding
from bytescheduler.errors import UsageError
from bytescheduler.torch._ddp.arguments import tell_without_rates
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._optimizer.suited import check_momentum, check_unscaled, learning_rates
from bytescheduler.torch._sums.choice import Choice, choice_of
from bytescheduler.torch._sums.compression import Compression

NESTEROV = {"momentum": "nesterov", "mu": 0.9}


def two_groups(**options: Any) -> torch.optim.Optimizer:  # noqa: ANN401
    groups = [{"params": [nn.Parameter(torch.ones(2))]} for _ in range(2)]
    return torch.optim.SGD([groups[0], {**groups[1], "lr": 0.25}], 0.5, **options)


def test_a_rate_is_that_of_the_group_now() -> None:
    inner = two_groups()
    rate_of = learning_rates(inner)
    assert (rate_of(0), rate_of(1)) == (0.5, 0.25)
    inner.load_state_dict(
        {**inner.state_dict(), "param_groups": two_groups().state_dict()["param_groups"]}
    )
    inner.param_groups[1]["lr"] = torch.tensor(0.125)
    assert (rate_of(0), rate_of(1)) == (0.5, 0.125)


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), None])
def test_a_rate_that_is_no_number_is_nought(rate: Any) -> None:  # noqa: ANN401
    inner = two_groups()
    if rate is None:
        del inner.param_groups[0]["lr"]
    else:
        inner.param_groups[0]["lr"] = rate
    assert learning_rates(inner)(0) == 0


def test_the_function_keeps_no_optimizer_alive() -> None:
    inner = two_groups()
    alive, rate_of = weakref.ref(inner), learning_rates(inner)
    del inner
    gc.collect()
    assert alive() is None
    assert rate_of(0) == 0


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (two_groups(momentum=0.5), "group 0 of SGD has momentum 0.5 of its own; take an opti"),
        (
            torch.optim.Adam([nn.Parameter(torch.ones(2))]),
            r"group 0 of Adam has betas \(0.9, 0.999",
        ),
    ],
)
def test_a_momentum_of_the_optimizer_is_refused_beside_ours(inner: Any, text: str) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match=text):
        check_momentum(inner, choice_of(None, NESTEROV), evaluates=False)
    check_momentum(inner, Choice(), evaluates=False)


def test_an_optimizer_that_evaluates_the_loss_is_refused() -> None:
    with pytest.raises(UsageError, match="a step of SGD evaluates the loss itself"):
        check_momentum(two_groups(), choice_of(None, NESTEROV), evaluates=True)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (NESTEROV, "momentum 'nesterov' of compression_params does not go with GradScaler"),
        ({"type": "2bit"}, "gradients that are compressed to two bits .* do not go with GradSc"),
        ({"compressor": "2bit"}, "take another compressor, such as 'bf16'"),
    ],
)
def test_a_scaler_is_refused_where_its_skipped_steps_would_stay(
    params: Dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        check_unscaled(choice_of(None, params))


def test_a_scaler_is_refused_beside_the_two_bits_of_compression() -> None:
    with pytest.raises(UsageError, match="two bits with threshold 0.25 do not go with GradScaler"):
        check_unscaled(choice_of(Compression.two_bit(0.25), None))
    check_unscaled(choice_of(Compression.fp16, None))


@pytest.mark.parametrize("params", [None, {"compressor": "topk", "k": 0.1}, {"compressor": None}])
def test_a_scaler_goes_with_codes_that_tell_an_overflow(
    params: Optional[Dict[str, object]],
) -> None:
    check_unscaled(choice_of(None, params))


def test_a_momentum_that_comes_later_is_found_in_the_next_step(job: FakeJob) -> None:
    model = nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), 0.5)
    options = Options(model=model, choice=choice_of(None, NESTEROV)).checked()
    stepper = Stepper(job, inner, options)  # type: ignore[arg-type]
    model(torch.ones(1, 2)).sum().backward()
    stepper.step(None)
    stepper.synchronize()
    before = [param.detach().clone() for param in model.parameters()]
    inner.param_groups[0]["momentum"] = 0.5
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(UsageError, match="group 0 of SGD has momentum 0.5 of its own"):
        stepper.step(None)
    for param, weight in zip(model.parameters(), before):
        assert torch.equal(param, weight)
    inner.param_groups[0]["momentum"] = 0
    stepper.step(None)
    stepper.close()


def test_rates_travel_with_codes_that_keep_a_rest(
    job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_MIN_COMPRESS", "1")
    model = nn.Linear(2, 2)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.25}]
    inner = torch.optim.SGD(groups, 0.5)
    params = {"compressor": "onebit", "scaling": True, "ef": "corrected"}
    options = Options(model=model, choice=choice_of(None, params)).checked()
    stepper = Stepper(job, inner, options)  # type: ignore[arg-type]
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        stepper.step(None)
        inner.param_groups[0]["lr"] = 0.125
    stepper.close()
    names = job.session.names
    rates = [(names[r.key], r.call.rates) for r in job.session.rounds if r.call.coding is not None]
    assert sorted(rates) == [
        ("bias", (0.25, 0.0, 1.0)),
        ("bias", (0.25, 0.0, 1.0)),
        ("weight", (0.125, 0.0, 1.0)),
        ("weight", (0.5, 0.0, 1.0)),
    ]
    assert job.session.cut_for == {options.choice.params.coding: ["weight", "bias"]}


def test_an_optimizer_that_suits_badly_is_told_once(
    job: FakeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(2, 2)
    for kind, params, count in (
        (torch.optim.Adam, {"compressor": "onebit", "scaling": True}, 1),
        (torch.optim.Adam, {"compressor": "bf16"}, 0),
        (torch.optim.SGD, {"compressor": "onebit", "scaling": True}, 0),
    ):
        options = Options(model=model, choice=choice_of(None, params)).checked()
        stepper = Stepper(job, kind(model.parameters(), 0.1), options)  # type: ignore[arg-type, operator]
        stepper.close()
        said = capsys.readouterr().err
        assert said.count("divides by the size of gradients, so what onebit loses") == count
        assert said.count("compressing none of 2 tensors to") == 1


@pytest.mark.parametrize(
    ("params", "feedback"),
    [
        ({"compressor": "onebit", "scaling": True, "ef": "corrected"}, "corrected"),
        ({"compressor": "randomk", "k": 0.1, "ef": "sparse"}, "sparse"),
        ({"compressor": "randomk", "k": 0.1, "ef": "vanilla"}, None),
    ],
)
def test_feedback_without_an_optimizer_is_told(
    params: Dict[str, object], feedback: Optional[str], capsys: pytest.CaptureFixture[str]
) -> None:
    tell_without_rates(choice_of(None, params))
    line = f"ef '{feedback}' of compression_params follows the learning rate of the optimizer"
    assert capsys.readouterr().err.count(line) == (feedback is not None)


def test_keys_are_cut_for_the_share_that_each_size_has(
    job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCHEDULER_MIN_COMPRESS", "1")
    model = nn.Linear(50, 4)
    model.bias.data = model.bias.data.half()
    params = {"compressor": "topk", "k": 1, "fp16": True}
    options = Options(model=model, choice=choice_of(None, params)).checked()
    stepper = Stepper(job, torch.optim.SGD(model.parameters(), 0.5), options)  # type: ignore[arg-type]
    stepper.close()
    assert job.session.cut_for == {
        Coding("topk", {"k": "1/200", "fp16": "True"}): ["weight"],
        Coding("topk", {"k": "1/4", "fp16": "True"}): ["bias"],
    }
