"""Calls of c10d that reduce tensors."""

from typing import Any, List, Sequence

import torch

from bytescheduler.torch._backend import sums
from bytescheduler.torch._backend.arguments import (
    Tensors,
    check_like,
    check_pairs,
    check_size,
    flat,
    only,
    operation_of,
    root_of,
    shards_of,
)
from bytescheduler.torch._backend.base import BaseGroup
from bytescheduler.torch._backend.memory import check_alike
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.reductions import Reduction, name_of, reduction_of
from bytescheduler.torch._backend.work import Work

__all__ = ["Reducing"]

_Options = Any  # PyTorch's types are not read
_Lists = Any  # tensors; c10d nests them in several ways


def _reduction(options: _Options, tensors: Sequence[torch.Tensor]) -> Reduction:
    check_alike(tensors, tensors[0].dtype)
    return reduction_of(operation_of(options), tensors[0].dtype)


def _text_of(options: _Options) -> str:
    return f"op {name_of(operation_of(options))}"


class Reducing(BaseGroup):
    """Reductions to all ranks, to one, or a shard to each."""

    def allreduce(self, tensors: Tensors, opts: _Options = None, timeout: object = None) -> Work:
        """Reduce in place."""

        def build(plan: Plan) -> None:
            self._build_all_reduce(plan, [only(tensors)], opts)

        return self._begin("all_reduce", opts, build, timeout)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: _Options = None) -> Work:
        """Reduce several tensors in place."""

        def build(plan: Plan) -> None:
            self._build_all_reduce(plan, list(tensors), opts)

        return self._begin("all_reduce_coalesced", opts, build)

    @staticmethod
    def _build_all_reduce(plan: Plan, tensors: List[torch.Tensor], options: _Options) -> None:
        plan.state(tensors, tensors, text=_text_of(options))
        for part, tensor in enumerate(tensors):
            sums.all_reduce(plan, part, tensor, _reduction(options, [tensor]))

    def reduce(
        self, tensors: Tensors, opts: _Options = None, op: object = None, timeout: object = None
    ) -> Work:
        """Reduce to the root's tensor; `opts` may be the root, with `op` behind it."""
        operation = op if op is not None else getattr(opts, "reduceOp", None)

        def build(plan: Plan) -> None:
            tensor, root = only(tensors), root_of(opts, self._members.size)
            plan.state([tensor], [tensor], text=f"{_text_of(operation)} to rank {root}")
            sums.reduce(plan, 0, tensor, root, _reduction(operation, [tensor]))

        return self._begin("reduce", opts, build, timeout)

    def reduce_scatter(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
        timeout: object = None,
    ) -> Work:
        """Reduce lists of tensors; each rank gets the result of its place."""

        def build(plan: Plan) -> None:
            output, sources = only(output_tensors), flat(input_tensors)
            plan.state(sources, [output], text=_text_of(opts), written=[output])
            check_like(sources, self._members.size, output.dtype)
            check_size(output, sources[self._members.rank])
            sums.reduce_scatter(plan, 0, output, sources, _reduction(opts, [output]))

        return self._begin("reduce_scatter", opts, build, timeout)

    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - c10d's name
        opts: _Options = None,
    ) -> Work:
        """Reduce a tensor; each rank gets a shard."""
        return self._reduce_scatter("reduce_scatter_tensor", [output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: _Options = None
    ) -> Work:
        """Do as `reduce_scatter_single` with several tensors."""
        return self._reduce_scatter("reduce_scatter_tensor_coalesced", outputs, inputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter(
        self,
        kind: str,
        outputs: Sequence[torch.Tensor],
        sources: Sequence[torch.Tensor],
        options: _Options,
    ) -> Work:
        def build(plan: Plan) -> None:
            plan.state(sources, outputs, text=_text_of(options), written=outputs)
            check_pairs(outputs, sources)
            for part, (output, source) in enumerate(zip(outputs, sources)):
                shards = shards_of(source, output, self._members.size)
                reduction = _reduction(options, [output])
                sums.reduce_scatter(plan, part, output, shards, reduction)

        return self._begin(kind, options, build)
