"""The agreement of all workers on what they wrap: the call, the model, the optimizer."""

from typing import Any, Iterable, List, Tuple

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._gradients.facts import (
    CALL,
    GROUPS,
    MODEL,
    NUMBERS,
    Fact,
    Facts,
    difference,
)
from bytescheduler.torch._job.job import TorchJoined
from bytescheduler.torch._optimizer.optimizer_facts import OptimizerFacts
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._sums.choice import ARGUMENTS
from bytescheduler.torch._sums.octets import has_octets

__all__ = ["agree", "give_model"]

_Optimizer = Any  # torch.optim.Optimizer
_Named = Iterable[Tuple[str, torch.Tensor]]
_ROOT = 0


def agree(
    job: TorchJoined,
    inner: _Optimizer,
    optimizer_facts: OptimizerFacts,
    options: Options,
    params: _Named,
) -> None:
    """Raise UsageError on every worker if workers wrap something else.  Blocks.

    Where only some workers have loaded a checkpoint into their optimizers, numbers may differ until
    the first step: `broadcast_optimizer_state` may come in between.

    Parameters
    ----------
    job : TorchJoined
        Of at least two workers.
    inner : Optimizer
        The optimizer to wrap.
    optimizer_facts : OptimizerFacts
        Those of `inner`.
    options : Options
        Checked.
    params : iterable of pairs
        The parameters whose gradients travel.
    """
    optimizer_facts.digest(thorough=True)
    facts = {
        **_of_call(options),
        **_of_groups(inner),
        **_of_model(options, params),
        **optimizer_facts.numbers(),
    }
    by_rank: List[Any] = job.objects.gather_unequal((_has_state(inner), facts))
    facts_by_rank: List[Facts] = [facts for _, facts in by_rank]
    if len({has_state for has_state, _ in by_rank}) > 1:
        facts_by_rank = [_without_numbers(facts) for facts in facts_by_rank]
    reason = difference(facts_by_rank)
    if reason is not None:
        raise UsageError(reason, 5)


def give_model(job: TorchJoined, model: torch.nn.Module) -> None:
    """Let parameters and buffers be worker 0's; all workers have them alike.  Blocks."""
    named = [*model.named_parameters(), *model.named_buffers()]
    tensors = [(name, tensor) for name, tensor in named if has_octets(tensor)]
    job.objects.broadcast_tensors(tensors, _ROOT)


def _has_state(inner: _Optimizer) -> bool:
    return any(not isinstance(state, dict) or state for state in inner.state.values())


def _without_numbers(facts: Facts) -> Facts:
    return {label: fact for label, fact in facts.items() if fact.kind != NUMBERS}


def _of_call(options: Options) -> Facts:
    values = {
        "op": "Average" if options.average else "Sum",
        ARGUMENTS: str(options.choice),
        "backward_passes_per_step": str(options.passes),
        "crossing": "False" if options.crossing is False else "not False",
        "model": "None" if options.model is None else "a model",
        "find_unused": str(bool(options.find_unused)),
        "sparse_as_dense": str(bool(options.sparse_as_dense)),
    }
    return {f"the argument {name}": Fact(CALL, value) for name, value in values.items()}


def _of_groups(inner: _Optimizer) -> Facts:
    groups = inner.param_groups
    facts = {
        "the optimizer's class": Fact(GROUPS, type(inner).__qualname__),
        "the number of the optimizer's groups": Fact(GROUPS, str(len(groups))),
    }
    for at, group in enumerate(groups):
        label = f"the number of parameters in group {at} of the optimizer"
        facts[label] = Fact(GROUPS, str(len(group["params"])))
    return facts


def _of_model(options: Options, params: _Named) -> Facts:
    facts = {name: _kind_of(param) for name, param in params}
    if options.model is not None:
        facts.update({name: _kind_of(param) for name, param in options.model.named_parameters()})
        for name, buffer in options.model.named_buffers():
            facts[f"buffer {name}"] = _kind_of(buffer)
    return facts


def _kind_of(tensor: torch.Tensor) -> Fact:
    if not has_octets(tensor):
        return Fact(MODEL, f"a {type(tensor).__name__}")  # it may be without a shape
    is_frozen = isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad
    frozen = " and frozen" if is_frozen else ""
    return Fact(MODEL, f"{tensor.dtype} of shape {tuple(tensor.shape)}{frozen}")
