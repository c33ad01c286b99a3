"""A process group of c10d whose calls are exchanges of the engine."""

from typing import Any, List, Optional, Sequence, Tuple

import torch

from bytescheduler.torch._backend import moves, sums
from bytescheduler.torch._backend.base import BaseGroup, Call
from bytescheduler.torch._backend.labels import dtype_text, tensors_text
from bytescheduler.torch._backend.memory import check_alike, check_tensors
from bytescheduler.torch._backend.messages import Route, Search
from bytescheduler.torch._backend.options import (
    Tensors,
    flat,
    listed,
    operation_of,
    root_of,
)
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.reductions import Reduction, name_of, reduction_of
from bytescheduler.torch._backend.work import Work

__all__ = ["CALLS", "Group"]

_Options = Any  # PyTorch's types are not read
_Lists = Any  # tensors; c10d nests them in several ways

# c10d's calls, by all names that its versions have.
CALLS = (
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)


def _shards_of(tensor: torch.Tensor, like: torch.Tensor, count: int) -> List[torch.Tensor]:
    """Cut a tensor into one shard a rank, each with the elements of `like`.

    Raises
    ------
    ValueError
        Its size is not that of all shards.
    """
    if tensor.numel() != like.numel() * count:
        raise ValueError(
            f"{tensors_text([tensor])} does not hold {count} times {tensors_text([like])}"
        )
    if not tensor.numel():
        return [tensor.detach().reshape(-1)] * count
    if tensor.is_contiguous():
        return list(tensor.detach().view(count, -1).unbind(0))
    if tensor.dim() and tensor.shape[0] == count * (like.shape[0] if like.dim() else 1):
        return list(tensor.detach().chunk(count, 0))
    raise ValueError(f"{tensors_text([tensor])} is not contiguous; hand over tensor.contiguous()")


def _check_like(tensors: Sequence[torch.Tensor], count: int, dtype: torch.dtype) -> None:
    if len(tensors) != count:
        raise ValueError(f"{len(tensors)} tensors for {count} ranks; give one for each")
    check_alike(tensors, dtype)


def _check_size(tensor: torch.Tensor, like: torch.Tensor) -> None:
    if tensor.numel() != like.numel():
        raise ValueError(
            f"{tensors_text([tensor])} does not have the size of {tensors_text([like])}"
        )


def _only(tensors: Tensors) -> Any:  # noqa: ANN401 - a tensor, or a list
    """Return the only item of a list.

    Raises
    ------
    ValueError
        There are more, as for several devices in a process.
    """
    items = listed(tensors)
    if len(items) != 1:
        raise ValueError(f"{len(items)} tensors where a process has one; call once for each")
    return items[0]


class Group(BaseGroup):
    """A process group, by the exchanges of its ranks; see `BaseGroup`."""

    # -- calls that move -----------------------------------------------------------------------

    def broadcast(self, tensors: Tensors, opts: _Options = None, timeout: object = None) -> Work:
        """Overwrite tensors with the root's."""
        items, root = flat(tensors), root_of(opts)

        def build(plan: Plan) -> None:
            for part, tensor in enumerate(items):
                moves.broadcast(plan, part, tensor, root)

        return self._begin(Call("broadcast", items, items, opts, f"from rank {root}"), build)

    def allgather(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
    ) -> Work:
        """Write each rank's tensor to a list."""
        outputs = listed(output_tensors)
        if outputs and not isinstance(outputs[0], torch.Tensor):
            outputs = listed(_only(outputs))
        source = _only(input_tensors)

        def build(plan: Plan) -> None:
            _check_like(outputs, self._members.size, source.dtype)
            _check_size(source, outputs[self._members.rank])
            moves.all_gather(plan, 0, outputs, source)

        return self._begin(Call("all_gather", outputs, outputs, opts), build)

    def all_gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        opts: _Options = None,  # noqa: A002
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
            for part, (output, source) in enumerate(zip(outputs, sources)):
                check_alike([output], source.dtype)
                places = _shards_of(output, source, self._members.size)
                moves.all_gather(plan, part, places, source)

        return self._begin(Call(kind, outputs, outputs, options), build)

    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[torch.Tensor]],
        input_list: Sequence[torch.Tensor],
        opts: _Options = None,
    ) -> Work:
        """Write each rank's tensors to its list."""

        def build(plan: Plan) -> None:
            for part, source in enumerate(input_list):
                outputs = [places[part] for places in output_lists]
                _check_like(outputs, self._members.size, source.dtype)
                _check_size(source, outputs[self._members.rank])
                moves.all_gather(plan, part, outputs, source)

        tensors = flat(output_lists)
        return self._begin(Call("all_gather_coalesced", tensors, tensors, opts), build)

    def gather(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
    ) -> Work:
        """Write each rank's tensor to the root's list."""
        root, source = root_of(opts), _only(input_tensors)
        outputs = flat(output_tensors) if output_tensors else []

        def build(plan: Plan) -> None:
            if self._members.rank == root:
                _check_like(outputs, self._members.size, source.dtype)
                for output in outputs:
                    _check_size(output, source)
            moves.gather(plan, 0, outputs, source, root)

        text = f"to rank {root}"
        return self._begin(Call("gather", [source], outputs, opts, text), build)

    def scatter(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
    ) -> Work:
        """Give each rank a tensor of the root's list."""
        root, output = root_of(opts), _only(output_tensors)
        sources = flat(input_tensors) if input_tensors else []

        def build(plan: Plan) -> None:
            if self._members.rank == root:
                _check_like(sources, self._members.size, output.dtype)
                for source in sources:
                    _check_size(source, output)
            moves.scatter(plan, 0, output, sources, root)

        text = f"from rank {root}"
        return self._begin(Call("scatter", [output], [output], opts, text), build)

    def alltoall(
        self,
        output_tensors: Sequence[torch.Tensor],
        input_tensors: Sequence[torch.Tensor],
        opts: _Options = None,
    ) -> Work:
        """Give each rank a tensor, and take a tensor of each."""
        outputs, sources = list(output_tensors), list(input_tensors)

        def build(plan: Plan) -> None:
            _check_like(outputs, self._members.size, sources[0].dtype)
            _check_like(sources, self._members.size, sources[0].dtype)
            moves.all_to_all(plan, 0, outputs, sources)

        text = dtype_text(sources[0].dtype)
        return self._begin(Call("all_to_all", [], outputs, opts, text), build)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - c10d's name
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: _Options = None,
    ) -> Work:
        """Give each rank rows of a tensor, and take rows of each."""

        def build(plan: Plan) -> None:
            check_alike([output], input.dtype)
            outputs = self._rows(output, output_split_sizes)
            moves.all_to_all(plan, 0, outputs, self._rows(input, input_split_sizes))

        text = dtype_text(input.dtype)
        return self._begin(Call("all_to_all_single", [], [output], opts, text), build)

    alltoall_base = all_to_all_single

    def _rows(self, tensor: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
        size, rows = self._members.size, tensor.shape[0] if tensor.dim() else 0
        if not sizes and rows % size:
            raise ValueError(f"{rows} rows cannot be shared by {size} ranks; give split sizes")
        counts = list(sizes) or [rows // size] * size
        if len(counts) != size or sum(counts) != rows:
            raise ValueError(f"split sizes {counts} do not share {rows} rows among {size} ranks")
        parts: Sequence[torch.Tensor] = tensor.detach().split(counts)
        return parts

    def barrier(self, opts: _Options = None) -> Work:
        """Wait for all ranks, and for the calls of this group that are under way here."""

        def build(plan: Plan) -> None:
            plan.earlier += self.exchanging()

        return self._begin(Call("barrier", [], [], opts), build)

    # -- calls that reduce ---------------------------------------------------------------------

    def _reduction(self, options: _Options, tensors: Sequence[torch.Tensor]) -> Reduction:
        check_alike(tensors, tensors[0].dtype)
        return reduction_of(operation_of(options), tensors[0].dtype)

    def _text_of(self, options: _Options) -> str:
        return f"op {name_of(operation_of(options))}"

    def allreduce(self, tensors: Tensors, opts: _Options = None, timeout: object = None) -> Work:
        """Reduce in place."""
        return self._all_reduce("all_reduce", [_only(tensors)], opts)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: _Options = None) -> Work:
        """Reduce several tensors in place."""
        return self._all_reduce("all_reduce_coalesced", list(tensors), opts)

    def _all_reduce(self, kind: str, tensors: List[torch.Tensor], options: _Options) -> Work:
        def build(plan: Plan) -> None:
            for part, tensor in enumerate(tensors):
                sums.all_reduce(plan, part, tensor, self._reduction(options, [tensor]))

        text = self._text_of(options)
        return self._begin(Call(kind, tensors, tensors, options, text), build)

    def reduce(self, tensors: Tensors, opts: _Options = None) -> Work:
        """Reduce to the root's tensor."""
        tensor, root = _only(tensors), root_of(opts)

        def build(plan: Plan) -> None:
            sums.reduce(plan, 0, tensor, root, self._reduction(opts, [tensor]))

        text = f"{self._text_of(opts)} to rank {root}"
        return self._begin(Call("reduce", [tensor], [tensor], opts, text), build)

    def reduce_scatter(
        self,
        output_tensors: _Lists,
        input_tensors: _Lists,
        opts: _Options = None,
    ) -> Work:
        """Reduce lists of tensors; each rank gets the result of its place."""
        output = _only(output_tensors)
        sources = flat(input_tensors)

        def build(plan: Plan) -> None:
            _check_like(sources, self._members.size, output.dtype)
            _check_size(output, sources[self._members.rank])
            reduction = self._reduction(opts, [output, *sources])
            sums.reduce_scatter(plan, 0, output, sources, reduction)

        text = self._text_of(opts)
        return self._begin(Call("reduce_scatter", sources, [output], opts, text), build)

    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        opts: _Options = None,  # noqa: A002
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
            for part, (output, source) in enumerate(zip(outputs, sources)):
                check_alike([output], source.dtype)
                shards = _shards_of(source, output, self._members.size)
                reduction = self._reduction(options, [output])
                sums.reduce_scatter(plan, part, output, shards, reduction)

        text = self._text_of(options)
        return self._begin(Call(kind, sources, outputs, options, text), build)

    # -- messages ------------------------------------------------------------------------------

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        """Send a tensor to a rank."""
        route = (self._members.rank, dst, tag)
        number = self._messages.next_number(route)
        work = self._start(self._message(tensors, route, number), None)
        self._messages.tell(route, number)
        return work

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        """Receive a tensor from a rank."""
        route = (src, self._members.rank, tag)
        number = self._messages.next_number(route)
        return self._start(self._message(tensors, route, number), None)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receive a tensor from any rank."""

        def find() -> Optional[Tuple[Plan, int]]:
            route = self._messages.find(tag)
            if route is None:
                return None
            return self._message(tensors, route, self._messages.number_of(route)), route[0]

        plan = Plan(self._members, 0, (f"recv from any rank with tag {tag}",), flat(tensors))
        self._check_open(plan)
        check_tensors(plan.results)
        search = Search(self._carrier, plan, find, self._timeout_s)
        self._count(search)
        if self._completer is not None:
            token = self._completer.new_token()
            search.watch(self._completer.completions, token)
            self._completer.keep(search, token)
        return search

    def _message(self, tensors: Tensors, route: Route, number: int) -> Plan:
        source, taker, tag = route
        tensor = _only(tensors)
        kind = f"message with tag {tag} from rank {source} to rank {taker}"
        text = f"{tensor.numel()} elements of {dtype_text(tensor.dtype)}"
        plan = Plan(self._members, number, (kind, text), [tensor])
        self._check_open(plan)
        if source == taker:
            raise ValueError(f"{plan.title}: a rank sends no message to itself; copy the tensor")
        with torch.inference_mode():
            moves.message(plan, tensor, route)
        return plan
