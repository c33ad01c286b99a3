"""Calls of c10d that move tensors."""

from typing import Any, Sequence

import torch

from bytescheduler.torch._backend import moves
from bytescheduler.torch._backend.arguments import (
    Tensors,
    check_like,
    check_pairs,
    check_size,
    flat,
    listed,
    only,
    root_of,
    rows_of,
    shards_of,
)
from bytescheduler.torch._backend.base import BaseGroup
from bytescheduler.torch._backend.labels import dtype_text
from bytescheduler.torch._backend.memory import check_alike
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.work import Work

__all__ = ["Moving"]

_Options = Any  # PyTorch's types are not read
_Lists = Any  # tensors; c10d nests them in several ways


class Moving(BaseGroup):
    """Broadcast, gather, scatter, all to all, and the barrier."""

    def broadcast(self, tensors: Tensors, opts: _Options = None, timeout: object = None) -> Work:
        """Overwrite tensors with the root's."""

        def build(plan: Plan) -> None:
            items, root = flat(tensors), root_of(opts, self._members.size)
            plan.state(items, items, text=f"from rank {root}")
            for part, tensor in enumerate(items):
                moves.broadcast(plan, part, tensor, root)

        return self._begin("broadcast", opts, build, timeout)

    def allgather(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
        timeout: object = None,
    ) -> Work:
        """Write each rank's tensor to a list."""

        def build(plan: Plan) -> None:
            outputs = listed(output_tensors)
            if outputs and not isinstance(outputs[0], torch.Tensor):
                outputs = listed(only(outputs))
            source = only(input_tensors)
            plan.state(outputs, outputs, written=outputs)
            check_like(outputs, self._members.size, source.dtype)
            check_size(source, outputs[self._members.rank])
            moves.all_gather(plan, 0, outputs, source)

        return self._begin("all_gather", opts, build, timeout)

    def all_gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - c10d's name
        opts: _Options = None,
    ) -> Work:
        """Write each rank's tensor to its place in one tensor."""
        return self._all_gather("all_gather_into_tensor", [output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: _Options = None
    ) -> Work:
        """Do as `all_gather_single` with several tensors."""
        return self._all_gather("all_gather_into_tensor_coalesced", outputs, inputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _all_gather(
        self,
        kind: str,
        outputs: Sequence[torch.Tensor],
        sources: Sequence[torch.Tensor],
        options: _Options,
    ) -> Work:
        def build(plan: Plan) -> None:
            size = self._members.size
            plan.state(outputs, outputs)
            check_pairs(outputs, sources)
            places = [shards_of(*pair, size) for pair in zip(outputs, sources)]
            plan.state(outputs, outputs, written=flat(places))
            for part, source in enumerate(sources):
                moves.all_gather(plan, part, places[part], source)

        return self._begin(kind, options, build)

    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[torch.Tensor]],
        input_list: Sequence[torch.Tensor],
        opts: _Options = None,
    ) -> Work:
        """Write each rank's tensors to its list."""

        def build(plan: Plan) -> None:
            size, tensors = self._members.size, flat(output_lists)
            plan.state(tensors, tensors, written=tensors)
            for places in output_lists:
                check_pairs(places, input_list)
            for part, source in enumerate(input_list):
                outputs = [places[part] for places in output_lists]
                check_like(outputs, size, source.dtype)
                check_size(source, outputs[self._members.rank])
                moves.all_gather(plan, part, outputs, source)

        return self._begin("all_gather_coalesced", opts, build)

    def gather(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
        timeout: object = None,
    ) -> Work:
        """Write each rank's tensor to the root's list."""

        def build(plan: Plan) -> None:
            root, source = root_of(opts, self._members.size), only(input_tensors)
            outputs = flat(output_tensors) if output_tensors else []
            plan.state([source], outputs, text=f"to rank {root}", written=outputs)
            if self._members.rank == root:
                check_like(outputs, self._members.size, source.dtype)
                for output in outputs:
                    check_size(output, source)
            moves.gather(plan, 0, outputs, source, root)

        return self._begin("gather", opts, build, timeout)

    def scatter(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
        timeout: object = None,
    ) -> Work:
        """Give each rank a tensor of the root's list."""

        def build(plan: Plan) -> None:
            root, output = root_of(opts, self._members.size), only(output_tensors)
            sources = flat(input_tensors) if input_tensors else []
            plan.state([output], [output], text=f"from rank {root}", written=[output])
            if self._members.rank == root:
                check_like(sources, self._members.size, output.dtype)
                for source in sources:
                    check_size(source, output)
            moves.scatter(plan, 0, output, sources, root)

        return self._begin("scatter", opts, build, timeout)

    def alltoall(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[torch.Tensor],
        opts: _Options = None,
        timeout: object = None,
    ) -> Work:
        """Give each rank a tensor, and take a tensor of each."""

        def build(plan: Plan) -> None:
            rank, size = self._members.rank, self._members.size
            outputs, sources = list(output_tensors), list(input_tensors)
            dtype = (sources or outputs or [torch.empty(0)])[0].dtype
            plan.state([], outputs, text=dtype_text(dtype), written=outputs)
            check_like(outputs, size, dtype)
            check_like(sources, size, dtype)
            check_size(sources[rank], outputs[rank])
            moves.all_to_all(plan, 0, outputs, sources)

        return self._begin("all_to_all", opts, build, timeout)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - c10d's name
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: _Options = None,
        timeout: object = None,
    ) -> Work:
        """Give each rank rows of a tensor, and take rows of each."""

        def build(plan: Plan) -> None:
            rank, size = self._members.rank, self._members.size
            plan.state([], [output], text=dtype_text(input.dtype))
            check_alike([output], input.dtype)
            outputs = rows_of(output, output_split_sizes, size)
            sources = rows_of(input, input_split_sizes, size)
            check_size(sources[rank], outputs[rank])
            plan.state([], [output], text=dtype_text(input.dtype), written=outputs)
            moves.all_to_all(plan, 0, outputs, sources)

        return self._begin("all_to_all_single", opts, build, timeout)

    alltoall_base = all_to_all_single

    def barrier(self, opts: _Options = None, timeout: object = None) -> Work:
        """Wait for all ranks, and for the collectives of this group that are under way here."""

        def build(plan: Plan) -> None:
            plan.earlier += [call for call in self.exchanging() if not call.is_message]

        return self._begin("barrier", opts, build, timeout)
