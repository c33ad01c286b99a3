"""A session with MXNet's tensors, and with operations that run in MXNet's engine."""

from typing import Dict, Iterable, List, Mapping, Optional, Tuple

import mxnet as mx

from bytescheduler._native import Coding, MXNetCopier, MXNetPlugin, MXNetRounds, Worker
from bytescheduler._session.session import Session, clamped
from bytescheduler.errors import Error
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._sessions.framework import MXNet
from bytescheduler.mxnet._types import Arrays, Key, Keys

__all__ = ["Rates", "TensorSession", "Usual"]

Usual = Dict[Key, MXNetRounds]
Rates = Tuple[float, float, float]  # learning rate, weight decay, rescale_grad


class TensorSession(Session):
    """A `Session` that declares MXNet's tensors and registers their rounds.

    Parameters
    ----------
    worker : Worker
        Owned from now on.
    plugin : MXNetPlugin
        Owned from now on.
    framework : MXNet, optional
        MXNet beside this session; without a stock store if not given.
    """

    framework_name = "mxnet"
    counts_rows = True  # numbers of rows can travel beside tensors that are compressed
    leaves_small_plain = True  # False: once compressed, all tensors are, for good
    compares_codings = True  # servers refuse workers with different codings

    def __init__(
        self, worker: Worker, plugin: MXNetPlugin, framework: Optional[MXNet] = None
    ) -> None:
        super().__init__(worker, plugin, framework or MXNet())
        self._plugin = plugin

    def broadcast_whole(self, tensors: "List[Tuple[Tensor, str, bool]]") -> None:
        """Do as `broadcast` for asynchronous keys that servers may update by their Python.

        Each comes with the text that their Python gets about the key, and with True if no other
        code can update it.
        """
        items = [
            (t.engine_key, t.code, t.address(), t.size_bytes, about, hosted)
            for t, about, hosted in tensors
        ]
        with self.translated():
            self._worker.broadcast_whole(items, owner=tensors)

    def broadcast(
        self,
        tensors: Iterable[Tensor],
        *,
        asynchronous: bool = False,
        coding: Optional[Coding] = None,
    ) -> None:
        """Declare keys; every worker gets rank 0's `recv` arrays.  Blocks.

        `coding` is that of later rounds.
        """
        tensors = list(tensors)
        items = [(t.engine_key, t.code, t.address(), t.size_bytes) for t in tensors]
        self.declare(items, owner=tensors, asynchronous=asynchronous, coding=coding)

    def push_pull(
        self,
        tensor: Tensor,
        priority: int,
        coding: Optional[Coding] = None,
        rates: Optional[Rates] = None,
    ) -> None:
        """Register the next round of `tensor`: from its `send`, so coded, to its `recv`.

        What `coding` keeps from the round before follows `rates`.
        """
        with self.translated():
            self._plugin.push_pull(tensor.rounds, clamped(priority), coding=coding, rates=rates)

    def exchange(
        self,
        copier: MXNetCopier,
        usual: Usual,
        keys: Keys,
        values: Arrays,
        outs: Arrays,
        priority: int,
        copies_out: bool = True,
    ) -> bool:
        """Register a push-pull of a fitting array for each of the `usual` keys.

        Without `copies_out` the sums are not copied to `outs`, which fit all the same.
        Returns False, and has registered nothing, for any other arguments, good or bad.
        """
        try:
            return self._plugin.exchange(
                copier, usual, keys, values, outs, clamped(priority), copies_out
            )
        except Error:
            with self.translated():
                raise

    def update(
        self,
        tensor: Tensor,
        priority: int,
        *,
        pushes: bool,
        pulls: bool,
        rates: Optional[Rates] = None,
        coding: Optional[Coding] = None,
    ) -> None:
        """Register a use of an asynchronous key: push its `send`, so coded, pull its `recv`."""
        with self.translated():
            self._plugin.update(
                tensor.rounds,
                clamped(priority),
                pushes=pushes,
                pulls=pulls,
                rates=rates,
                coding=coding,
            )

    def set_optimizer(self, text: str, pickle: bytes = b"") -> None:
        """Tell every server how to update asynchronous keys.  Blocks."""
        try:
            self._worker.set_optimizer(text, pickle)
        except Error as error:  # also an optimizer that the servers refuse: no setting is wrong
            raise mx.base.MXNetError(str(error)) from error

    def compress(self, params: Mapping[str, object], coding: Coding, tensors: List[Tensor]) -> None:
        """Prepare for pushes in `coding`, for which `params` ask, of these and later tensors."""
