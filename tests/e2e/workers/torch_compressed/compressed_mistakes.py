"""Wrong arguments of compression: an error on every worker, before weights change."""

from typing import Any, Callable, List, Type

import torch
from checks import refused_by, run_all
from methods import METHODS, ONEBIT
from models import Model, new_model

import bytescheduler.torch as bps
from bytescheduler.errors import ConfigError, UsageError

BF16 = {"compressor": "bf16"}


def wrap(model: Model, inner: Any = None, **options: Any) -> Any:  # noqa: ANN401
    inner = inner or torch.optim.SGD(model.parameters(), 0.1)
    return bps.DistributedOptimizer(inner, model=model, **options)


def is_refused(
    error: Type[Exception],
    text: str,
    kind: Callable[..., Any],
    model: Model,
    **options: Any,  # noqa: ANN401
) -> None:
    """Check that this is an error, and that no weight has changed."""
    before = {name: param.clone() for name, param in model.named_parameters()}
    refused_by(error, text, kind, model, **options)
    for name, param in model.named_parameters():
        assert torch.equal(param, before[name]), name


def workers_that_differ_are_told_both(rank: int) -> None:
    pairs: List[Any] = [
        (
            [{"compression_params": BF16}, {"compression_params": ONEBIT}],
            "compressed to bf16, from",
        ),
        ([{"compression_params": BF16}, {}], "compressed to bf16, from"),
        ([{"compression_params": BF16}, {"compression": "bf16"}], "compressed to bf16, from"),
        (
            [{}, {"compression_params": METHODS["momentum"]}],
            "it is Compression.none on worker 0 and",
        ),
        (
            [{"compression_params": {**METHODS["momentum"], "mu": mu}} for mu in (0.5, 0.25)],
            "'nesterov' of 0.5 on worker 0 and with momentum 'nesterov' of 0.25 on worker 1",
        ),
        (
            [{"compression_params": {"type": "2bit", "threshold": t}} for t in (1, 2)],
            "two bits with threshold 1 on worker 0 and compressed to two bits with threshold 2 on",
        ),
    ]
    model = new_model()
    for options, text in pairs:
        is_refused(UsageError, text, wrap, model, **options[rank])
        if "momentum" not in str(options):
            is_refused(UsageError, text, bps.DistributedDataParallel, model, **options[rank])


def wrong_arguments_are_refused_on_every_worker(rank: int) -> None:
    momentum = METHODS["momentum"]
    wrong: List[Any] = [
        (ConfigError, {"compressor": "topp"}, "Unknown compressor of gradients 'topp'"),
        (ConfigError, {"compressor": "bf16", "kk": 1}, "no option 'kk'"),
        (ConfigError, {"compressor": "bf16", "scaling": True}, "scaling"),
        (ConfigError, {"compressor": "bf16", "type": "2bit"}, "beside BytePS's keys"),
        (ConfigError, {"compressor": "onebit", "ef": "no"}, "ef 'no'"),
        (ConfigError, {"compressor": "bf16", "mu": 0.9}, "without 'momentum'"),
        (ConfigError, {"momentum": "nesterov", "mu": 2}, "mu 2"),
        (UsageError, {"momentum": "nesterov"}, "add 'mu': 0.9"),
        (UsageError, "bf16", "want a dictionary"),
    ]
    model = new_model()
    for error, params, text in wrong:
        is_refused(error, text, wrap, model, compression_params=params)
    refused_by(
        UsageError, "pass one of them", wrap, model, compression="fp16", compression_params=BF16
    )
    adam = torch.optim.Adam(model.parameters())
    refused_by(UsageError, "Adam has betas", wrap, model, adam, compression_params=momentum)
    refused_by(
        UsageError,
        "does not see the optimizer",
        bps.DistributedDataParallel,
        model,
        compression_params=momentum,
    )


def a_dtype_that_cannot_be_coded_is_refused_by_name(rank: int) -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 2)).double()
    for kind in (wrap, bps.DistributedDataParallel):
        refused_by(
            UsageError, "0.weight: torch.float64 cannot be", kind, model, compression_params=BF16
        )


def training_goes_on(rank: int) -> None:
    model = new_model()
    optimizer = wrap(model, compression_params=ONEBIT)
    for param in model.parameters():
        param.grad = torch.ones_like(param) if param.requires_grad else None
    optimizer.step()
    optimizer.close()


run_all(
    bps,
    [
        workers_that_differ_are_told_both,
        wrong_arguments_are_refused_on_every_worker,
        a_dtype_that_cannot_be_coded_is_refused_by_name,
        training_goes_on,
    ],
    with_rank=True,
)
