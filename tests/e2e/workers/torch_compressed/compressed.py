"""Training with each method of compression: ``compressed.py [PART] [waits]``.

PART is "random" for the weights of random methods alone, "apart" for the rest without what compares
all methods, and empty for all checks.  With "waits" random methods do not cross.
"""

import sys
import zlib
from typing import Any, Callable, Dict, List, Optional

import torch
from checks import refused_by, run_all
from methods import METHODS, ONEBIT, RANDOM, Params
from models import Model, groups, loss_of, new_model

import bytescheduler.torch as bps
from bytescheduler.errors import UsageError

STEPS = 9
Weights = Dict[str, torch.Tensor]
MOMENTUM = METHODS["momentum"]


def takes(step: int, rank: int) -> bool:
    """In some steps a layer is left out, by all workers or by all but worker 1."""
    return step % 4 != 2 and (step % 4 != 3 or rank == 1)


def sgd(model: Model, **options: Any) -> torch.optim.Optimizer:  # noqa: ANN401
    return torch.optim.SGD(groups(model), 0.05, **options)


def weights_of(model: Model) -> Weights:
    states = model.state_dict()  # makes the updates that wait
    return {name: states[name].clone() for name, _ in model.named_parameters()}


def train(model: Model, optimizer: Any, rank: int, forward: Any = None) -> Weights:  # noqa: ANN401
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.3)
    for step in range(STEPS):
        model.takes = takes(step, rank)
        optimizer.zero_grad()
        loss_of(forward or model, step, rank).backward()
        optimizer.step()
        scheduler.step()
    return weights_of(model)


def in_the_job(params: Optional[Params], crossing: bool, with_model: bool) -> Weights:
    model = new_model()
    optimizer = bps.DistributedOptimizer(
        sgd(model),
        model.named_parameters(),
        crossing=crossing,
        model=model if with_model else None,
        compression_params=params,
    )
    assert optimizer.crosses == crossing
    trained = train(model, optimizer, bps.rank())
    assert optimizer.crosses == crossing
    optimizer.close()
    return trained


def are_equal(one: Weights, other: Weights) -> bool:
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


def crosses_as_it_waits() -> None:
    plain = in_the_job(None, False, True)
    for name, params in METHODS.items():
        with_barrier = in_the_job(params, False, True)
        for crossing, with_model in ((True, True), (True, False), (False, False)):
            other = in_the_job(params, crossing, with_model)
            assert are_equal(with_barrier, other), (name, crossing, with_model)
        assert not are_equal(with_barrier, plain), f"{name} changes nothing"
        assert all(bool(torch.isfinite(weight).all()) for weight in with_barrier.values()), name
        print(f"{name} is the same")


def random_methods_weigh_alike_in_other_jobs() -> None:
    """Print what the test compares with another job, which waits where this one crosses."""
    for name, params in RANDOM.items():
        trained = in_the_job(params, "waits" not in sys.argv, True)
        weights = b"".join(weight.numpy().tobytes() for weight in trained.values())
        print(f"{name} weighs {zlib.crc32(weights)}")


def a_module_has_the_same_means() -> None:
    for name, params in METHODS.items():
        if "momentum" in params or params.get("ef") == "corrected":
            continue  # they need the optimizer
        model = new_model()
        ddp = bps.DistributedDataParallel(model, compression_params=params)
        trained = train(model, sgd(model), bps.rank(), ddp)
        ddp.close()
        assert are_equal(trained, in_the_job(params, False, True)), name


def momentum_is_that_of_nesterovs_sgd() -> None:
    """All workers' gradients in this process, and the optimizer's own momentum."""
    model = new_model()
    optimizer = sgd(model, momentum=0.9, nesterov=True)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.0
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.3)
    for step in range(STEPS):
        sums: Dict[str, torch.Tensor] = {}
        for rank in range(bps.size()):
            model.takes = takes(step, rank)
            model.zero_grad()
            loss_of(model, step, rank).backward()
            for name, param in model.named_parameters():
                if param.grad is not None:
                    known = sums.get(name)
                    sums[name] = param.grad.clone() if known is None else known + param.grad
        for name, param in model.named_parameters():
            param.grad = sums[name] / bps.size() if name in sums else None
        optimizer.step()
        scheduler.step()
    ours = in_the_job(MOMENTUM, True, True)
    for name, weight in weights_of(model).items():
        assert torch.allclose(ours[name], weight, rtol=1e-4, atol=1e-6), name


def mean_of(params: Params, gradients: List[torch.Tensor], rate: float = 1.0) -> List[torch.Tensor]:
    """Return the means of a parameter's gradients, which are given for each step."""
    weight = torch.nn.Parameter(torch.zeros_like(gradients[0]))
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD([weight], rate), [("weight", weight)], compression_params=params
    )
    means = []
    for gradient in gradients:
        optimizer.zero_grad()
        weight.grad = gradient.clone()
        optimizer.synchronize()
        assert weight.grad is not None
        means.append(weight.grad.clone())
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] /= 2
    optimizer.close()
    return means


def half_precision_is_widened() -> None:
    gradient = torch.full((16, 16), -1.0)
    gradient[:8] = 3
    wide = mean_of({**ONEBIT, "ef": "vanilla"}, [gradient] * 3)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = mean_of({**ONEBIT, "ef": "vanilla"}, [gradient.to(dtype)] * 3)
        for one, other in zip(narrow, wide):
            assert one.dtype is dtype
            assert torch.equal(one.float(), other)
    # Worker and server send magnitudes of 2, 2 and 4, and keep the rest.
    assert [mean[0, 0].item() for mean in wide] == [2, 2, 4]
    assert [mean[-1, 0].item() for mean in wide] == [-2, 2, -4]


def sums_in_two_bits_bring_the_rest_later() -> None:
    gradient = torch.full((16, 16), 0.625)
    params: Params = {"type": "2bit", "threshold": 1, "pull": "same"}
    means = mean_of(params, [gradient] * 4)
    # Workers send 0, 1, 0, 1; of each sum 1 arrives in a round, as long as something is left.
    for mean, total in zip(means, (0.0, 1.0, 1.0, 1.0)):
        assert torch.equal(mean, torch.full((16, 16), total / bps.size())), (mean, total)


def residuals_follow_the_rate_of_their_group() -> None:
    gradient = torch.full((16, 16), -1.0)
    gradient[:8] = 3
    vanilla = mean_of({**ONEBIT, "ef": "vanilla"}, [gradient] * 2)
    corrected = mean_of({**ONEBIT, "ef": "corrected"}, [gradient] * 2)
    # The residual is {1, 1}, and the rate is halved: {5, 1} is sent in place of {4, 0}.
    assert vanilla[1].unique().tolist() == [2]
    assert corrected[1].unique().tolist() == [3]


def codes_are_made_of_momentum_and_residual() -> None:
    gradient = torch.full((16, 16), -1.0)
    gradient[:8] = 3
    onebit = {**ONEBIT, "momentum": "nesterov", "mu": 0.5}
    # m = 0.5 m + g; what is coded is g + 0.5 m, and with `ef` the residual.
    plain = mean_of(onebit, [torch.ones(16, 16)] * 2)
    vanilla = mean_of({**onebit, "ef": "vanilla"}, [gradient] * 3)
    corrected = mean_of({**onebit, "ef": "corrected"}, [gradient] * 2)
    assert [mean.unique().tolist() for mean in plain] == [[1.5], [1.75]]
    # From {4.5, -1.5}, {5.25, -1.75} and {5.625, -1.875}, with residuals of {1.5, 1.5} and then
    # {3.25, 3.25}, it sends {3, -3}, {3.5, -3.5} and {5.125, 5.125}.
    assert [mean[0, 0].item() for mean in vanilla] == [3, 3.5, 5.125]
    assert [mean[-1, 0].item() for mean in vanilla] == [-3, -3.5, 5.125]
    assert [mean.unique().numel() for mean in vanilla] == [2, 2, 1]
    # The rate is halved, so {5.25, -1.75} and twice {1.5, 1.5}: {8.25, 1.25}.
    assert corrected[1].unique().tolist() == [4.75]


def small_gradients_and_their_bundles_stay_exact() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model=model, compression_params=ONEBIT
    )
    for param in model.parameters():
        param.grad = torch.full_like(param, 0.1 + bps.rank())
    optimizer.synchronize()
    rank_sum = bps.size() * (bps.size() - 1) // 2
    for param in model.parameters():
        expected = (0.1 * bps.size() + rank_sum) / bps.size()
        assert torch.allclose(param.grad, torch.full_like(param, expected)), param.grad
    optimizer.step()
    optimizer.close()


def an_overflow_is_seen_by_all_and_gone_with_its_step() -> None:
    names = ("bf16", "fp16", "onebit, vanilla", "onebit, corrected", "topk")
    chosen = {name: METHODS[name] for name in (*names, "topk, whole k, halves, vanilla")}
    for name, params in {**chosen, **RANDOM}.items():
        model = new_model()
        optimizer = bps.DistributedOptimizer(sgd(model), model=model, compression_params=params)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
        for step in range(6):
            optimizer.zero_grad()
            before = weights_of(model)
            loss = loss_of(model, step, bps.rank())
            if step == 2 and bps.rank() == 1:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            assert are_equal(before, weights_of(model)) == (step == 2), (name, step)
        assert scaler.get_scale() == 2.0, name
        for key, weight in weights_of(model).items():
            assert bool(torch.isfinite(weight).all()), (name, key)
        optimizer.close()


def a_scaler_is_refused_beside_what_keeps_its_skipped_steps() -> None:
    for name, text in (
        ("onebit, corrected, momentum", "does not go with GradScaler"),
        ("two bits", "do not go with GradScaler: codes cannot say that a gradient overflows"),
    ):
        model = new_model()
        optimizer = bps.DistributedOptimizer(
            sgd(model), model=model, compression_params=METHODS[name]
        )
        scaler = torch.amp.GradScaler("cpu")
        before = weights_of(model)
        scaler.scale(loss_of(model, 0, bps.rank())).backward()
        refused_by(UsageError, text, scaler.step, optimizer)
        assert are_equal(before, weights_of(model))
        assert optimizer._step_supports_amp_scaling is False, "Lightning reads it without a scaler"
        optimizer.zero_grad()
        train(model, optimizer, bps.rank())
        optimizer.close()


def gradients_that_no_step_uses_leave_no_momentum() -> None:
    for crossing in (True, False):
        weight = torch.nn.Parameter(torch.zeros(16, 16))
        optimizer = bps.DistributedOptimizer(
            torch.optim.SGD([weight], 1.0),
            [("weight", weight)],
            crossing=crossing,
            compression_params=MOMENTUM,
        )
        for end in (lambda: None, optimizer.synchronize):
            weight.sum().backward()
            end()
            optimizer.zero_grad()
            (weight * 0).sum().backward()
            optimizer.step()
            assert not bool(weight.any()), crossing
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(weight.sum()).backward()
        refused_by(UsageError, "does not go with GradScaler", scaler.step, optimizer)
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        assert torch.allclose(weight, torch.full((16, 16), -1.9)), weight
        optimizer.close()


def compression_may_be_another_for_the_next_optimizer() -> None:
    model = new_model()
    for params in ({"compressor": "bf16"}, None, ONEBIT, {"type": "2bit"}):
        optimizer = bps.DistributedOptimizer(sgd(model), model=model, compression_params=params)
        train(model, optimizer, bps.rank())
        optimizer.close()


ALL_METHODS: List[Callable[[], None]] = [crosses_as_it_waits, a_module_has_the_same_means]
APART: List[Callable[[], None]] = [
    momentum_is_that_of_nesterovs_sgd,
    half_precision_is_widened,
    sums_in_two_bits_bring_the_rest_later,
    residuals_follow_the_rate_of_their_group,
    codes_are_made_of_momentum_and_residual,
    small_gradients_and_their_bundles_stay_exact,
    an_overflow_is_seen_by_all_and_gone_with_its_step,
    a_scaler_is_refused_beside_what_keeps_its_skipped_steps,
    gradients_that_no_step_uses_leave_no_momentum,
    compression_may_be_another_for_the_next_optimizer,
]
PARTS: Dict[str, List[Callable[[], None]]] = {
    "random": [],
    "apart": APART,
    "": [*ALL_METHODS, *APART],
}
run_all(bps, [random_methods_weigh_alike_in_other_jobs, *PARTS[(*sys.argv, "")[1]]])
