"""Two-bit compression on stock servers: the wrapped store carries and compresses whole tensors."""

import struct
from typing import Dict, Iterable, Mapping

import mxnet as mx
import numpy as np

from bytescheduler._native import Coding
from bytescheduler._session.sums import Numbers
from bytescheduler.mxnet._arrays.tensor import Tensor
from bytescheduler.mxnet._types import Array, Store

# Higher keys may hold partitions from before the store compressed.  Taken from the end, as the
# small ones may have been in use before the store was wrapped.
_MAX_KEYS = 65536
_BITS_OF_NUMBER = 64
# The share of the threshold that the store keeps of each bit, so that rounding changes no bit.
_LEFT = 0.25
# The codec of MXNet's own compression; its parameters are the threshold, a float32.
_TWO_BIT = 1


def threshold_for_stock(coding: Coding) -> float:
    """Return the threshold of two-bit compression, the only one that stock servers know.

    Raises
    ------
    MXNetError
        The codec is another, sums are to travel coded, or the servers, which are told six decimals,
        would get 0.
    """
    if coding.codec != _TWO_BIT:
        raise mx.base.MXNetError(
            f"stock servers cannot add gradients that are {coding}, only MXNet's own "
            "{'type': '2bit'}: use that, or start the job with bslaunch"
        )
    threshold: float = struct.unpack("=f", coding.parameters)[0]
    if coding != Coding("2bit", {"threshold": repr(threshold)}):
        raise mx.base.MXNetError(
            "pull of gradient compression: sums of stock servers travel plain, so leave it out, or "
            "start the job with bslaunch"
        )
    if float(f"{threshold:f}") == 0:
        raise mx.base.MXNetError(
            f"threshold {threshold:g} of gradient compression: stock servers are told six "
            "decimals of it, which are 0; want more than 5e-7, or start the job with bslaunch"
        )
    return threshold


class _Bits:
    """Numbers that one worker each sends, in a form for two-bit compression: bit by bit.

    Parameters
    ----------
    number : int
        The key in the stock store.
    elements : int
        How many float64 numbers.
    """

    def __init__(self, number: int, elements: int) -> None:
        self.number = number
        self.relay = mx.nd.zeros((elements * _BITS_OF_NUMBER,), ctx=mx.cpu())
        self._left = 0.0

    def fill(self, numbers: Numbers, t: float) -> None:
        """Give the store `t` and a quarter for a bit that is 1, and a quarter for one that is 0.

        The store then sends `t`, or nothing, and keeps a quarter of `t`.
        """
        bits = np.unpackbits(np.frombuffer(numbers.tobytes(), np.uint8))
        self.relay[:] = mx.nd.array(bits * t + (_LEFT * t - self._left))
        self._left = _LEFT * t


class Sum:
    """Numbers that are on their way; see `_session.sums.Sum`.

    Parameters
    ----------
    relay : NDArray
        The bits' sum, once it is there.
    total : ndarray
        Where the numbers go.
    """

    def __init__(self, relay: Array, total: Numbers) -> None:
        self._bits = relay.copy()
        self._total = total

    def over(self) -> bool:
        """Return False: MXNet does not say whether an array is there."""
        return False

    def wait(self) -> None:
        """Return when the numbers are there."""
        octets = np.packbits(self._bits.asnumpy() > 0).tobytes()
        self._total[...] = np.frombuffer(octets).reshape(self._total.shape)

    def wait_for(self, timeout_ms: int) -> bool:
        """Do as `wait`, and return True."""
        self.wait()
        return True


class CompressedKeys:
    """Tensors as keys of a stock store that compresses what it pushes.

    A stock store compresses no pushpull.  It sends a push without waiting for an earlier pull of
    its key, and the pull may then return the later sum.  So both go through one array of each
    tensor, `send`: MXNet's engine keeps their order, and no thread waits.

    Parameters
    ----------
    inner : KVStore
        A synchronous dist store of MXNet; those of its keys below 65536 that are in use are small.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._threshold = 0.0
        self._numbers: Dict[int, int] = {}
        self._bits: Dict[int, _Bits] = {}

    def check_room(self, tensors: Iterable[Tensor]) -> None:
        """Raise MXNetError if `tensors` would be too many beside those that are declared."""
        taken = len(self._numbers) + len(self._bits)
        if taken + sum(1 for tensor in tensors if tensor.size_bytes) > _MAX_KEYS:
            raise mx.base.MXNetError(
                f"with compression on stock servers a store has at most {_MAX_KEYS} keys"
            )

    def compress(self, params: Mapping[str, object], threshold: float) -> None:
        """Compress from now on, as `params` say; `threshold` is theirs."""
        self._inner.set_gradient_compression(params)
        self._threshold = threshold

    def declare(self, tensors: Iterable[Tensor]) -> None:
        """Copy rank 0's `recv` arrays to every worker.  Blocks until all workers do so.

        Raises
        ------
        MXNetError
            There are too many.
        """
        filled = [tensor for tensor in tensors if tensor.size_bytes]
        self.check_room(filled)
        taken = len(self._numbers) + len(self._bits)
        numbers = [_MAX_KEYS - 1 - taken - i for i in range(len(filled))]
        relays = [self._relay(tensor, number) for tensor, number in zip(filled, numbers)]
        if not filled:
            return
        self._inner.init(numbers, relays)
        if self._inner.rank == 0:
            return
        self._inner.pull(numbers, out=relays)
        for tensor, relay in zip(filled, relays):
            if not tensor.one_sender:
                _take_floats(tensor, relay)

    def _relay(self, tensor: Tensor, number: int) -> Array:
        if tensor.one_sender:
            elements = int(np.prod(tensor.shape, dtype=np.int64))
            bits = self._bits[tensor.engine_key] = _Bits(number, elements)
            return bits.relay
        self._numbers[tensor.engine_key] = number
        return _floats(tensor)

    def push_pull(self, tensor: Tensor, priority: int) -> None:
        """Register the next round of `tensor`: from its `send` to its `recv`."""
        if not tensor.size_bytes:
            return
        self._exchange(self._numbers[tensor.engine_key], tensor.send, priority)
        tensor.send.copyto(tensor.recv)

    def _exchange(self, number: int, relay: Array, priority: int) -> None:
        self._inner.push(number, relay, priority)
        self._inner.pull(number, relay, priority)

    def barrier(self) -> None:
        """Wait until every worker called it."""
        self._inner._barrier()

    def start_sum(self, engine_key: int, numbers: Numbers, total: Numbers) -> Sum:
        """Begin to add up all workers' `numbers`; in each place all but one are 0."""
        bits = self._bits[engine_key]
        bits.fill(numbers, self._threshold)
        self._exchange(bits.number, bits.relay, 0)
        return Sum(bits.relay, total)


def _floats(tensor: Tensor) -> Array:
    """Return rank 0's value of `tensor` as the one dtype that a compressing store takes."""
    if tensor.send.dtype == np.float32:
        tensor.recv.copyto(tensor.send)
        return tensor.send
    octets = tensor.recv.asnumpy().tobytes()
    octets += bytes(-len(octets) % 4)
    return mx.nd.array(np.frombuffer(octets, np.float32), ctx=mx.cpu())


def _take_floats(tensor: Tensor, relay: Array) -> None:
    if relay is tensor.send:
        tensor.send.copyto(tensor.recv)
        return
    octets = relay.asnumpy().tobytes()[: tensor.size_bytes]
    value = np.frombuffer(octets, tensor.recv.dtype).reshape(tensor.shape)
    tensor.recv[:] = mx.nd.array(value, dtype=value.dtype)
