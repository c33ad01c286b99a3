"""Calls of c10d that send a tensor to one rank."""

from typing import Optional, Tuple

import torch

from bytescheduler.torch._backend import moves
from bytescheduler.torch._backend.arguments import Tensors, checked_rank, only
from bytescheduler.torch._backend.base import BaseGroup
from bytescheduler.torch._backend.devices.passage import Passage
from bytescheduler.torch._backend.labels import dtype_text
from bytescheduler.torch._backend.messages import Route, Search
from bytescheduler.torch._backend.plan import Plan
from bytescheduler.torch._backend.work import Work

__all__ = ["Messaging"]


class Messaging(BaseGroup):
    """send and recv."""

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        """Send a tensor to a rank."""
        route = (self._members.rank, checked_rank(dst, self._members.size), tag)
        self._check_message(tensors, route)
        number = self._messages.next_number(route)
        work = self._start(self._message(tensors, route, number), None)
        self._messages.tell(route)
        return work

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        """Receive a tensor from a rank."""
        route = (checked_rank(src, self._members.size), self._members.rank, tag)
        self._check_message(tensors, route)
        number = self._messages.next_number(route)
        return self._start(self._message(tensors, route, number), None)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receive a tensor from any rank."""

        def find() -> Optional[Tuple[Plan, int]]:
            message = self._messages.find(tag)
            if message is None:
                return None
            route, number = message
            return self._message(tensors, route, number, plan.passage), route[0]

        plan = self._new_plan(0, f"recv from any rank with tag {tag}")
        self._check_open(plan)
        plan.state(results=[only(tensors)])
        plan.passage.begin()
        search = Search(self._carrier, plan, find, self._timeout_s)
        self._count(search, plan)
        if self._completer is not None:
            token = self._completer.new_token()
            search.watch(self._completer.completions, token)
            self._completer.keep(search, token)
        return search

    def _check_message(self, tensors: Tensors, route: Route) -> None:
        """Raise an error before the message is counted: the other rank counts too."""
        source, taker, _ = route
        plan = self._new_plan(0, _kind(route))
        self._check_open(plan)
        plan.state(results=[only(tensors)])
        if source == taker:
            raise ValueError(f"{_kind(route)}: a rank sends none to itself; copy the tensor")

    def _message(
        self, tensors: Tensors, route: Route, number: int, passage: Optional[Passage] = None
    ) -> Plan:
        tensor = only(tensors)
        plan = Plan(self._members, number, _kind(route))
        plan.is_message = True
        plan.only_receives = route[1] == self._members.rank
        text = f"{tensor.numel()} elements of {dtype_text(tensor.dtype)}"
        plan.passage = Passage(self._stagings) if passage is None else passage
        plan.state(results=[tensor], text=text)
        with torch.inference_mode():
            moves.message(plan, tensor, route)
        return plan


def _kind(route: Route) -> str:
    source, taker, tag = route
    return f"message with tag {tag} from rank {source} to rank {taker}"
