"""Gradients whose sums tell where they belong, and what must come back of them to one worker."""

import ctypes
import time
from typing import TYPE_CHECKING, Any, Callable, List, Tuple

import numpy as np

if TYPE_CHECKING:  # only workers import it
    import mxnet as mx

POISON = -1.0  # no gradient is negative
# The distance of numbers that change from round to round: one in each partition of 64 KiB.
STRIDE = 1 << 14


def view_of(array: "mx.nd.NDArray") -> "np.ndarray[Any, np.dtype[np.float32]]":
    """Return the memory of a dense float32 array that MXNet has not laid out its own way.

    Nothing of MXNet's may be about to read or write the array while the view is used.
    """
    from mxnet.base import _LIB, check_call

    array.wait_to_read()
    pointer = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    floats = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(floats, shape=array.shape)


class Sums:
    """The gradient of one key, and the place where its sum over one worker comes back.

    Before each round some numbers of the gradient change. They then differ from those of the round
    before, of other places and of other keys. The same places are spoilt in the memory for the sum.
    That takes microseconds; `change_all` changes all numbers. The written numbers are kept apart:
    MXNet's store overwrites the gradient with the sum, and that might be wrong.

    Parameters
    ----------
    key
        The tensor's number.
    grad, out
        Arrays of one dimension and the same size.

    """

    def __init__(
        self,
        key: int,
        grad: "np.ndarray[Any, np.dtype[np.float32]]",
        out: "np.ndarray[Any, np.dtype[np.float32]]",
    ) -> None:
        self._key, self._grad, self._out = key, grad, out
        self._wanted = np.empty_like(grad)
        self._some_grads, self._some_outs = grad[::STRIDE], out[::STRIDE]
        self._some_wanted = self._wanted[::STRIDE]
        self._places = np.arange(len(self._some_grads), dtype=np.float32)
        self._round = 0
        self.change_all()

    def change(self) -> None:
        """Begin a round with some numbers that are new."""
        self._round += 1
        # The range is another than that of change_all, and exact in float32.
        value = 256 + (257 * self._round + self._key) % 65536
        np.add(self._places, value, out=self._some_wanted)
        self._wanted[-1] = value + len(self._places)
        self._some_grads[:] = self._some_wanted
        self._grad[-1] = self._wanted[-1]
        self._some_outs.fill(POISON)
        self._out[-1] = POISON

    def change_all(self) -> None:
        """Begin a round in which every number is new."""
        self._round += 1
        few = (np.arange(251) + 7 * self._key + 31 * self._round) % 251
        self._wanted[:] = np.resize(few.astype(np.float32), self._wanted.shape)
        self._grad[:] = self._wanted
        self._out.fill(POISON)

    def check(self) -> None:
        """Look at the sums of what `change` has changed.

        Raises
        ------
        SystemExit
            One is wrong.
        """
        last_is_right = self._out[-1] == self._wanted[-1]
        if not last_is_right or not np.array_equal(self._some_outs, self._some_wanted):
            self.check_all()

    def check_all(self) -> None:
        """Look at every sum, and raise as `check` does."""
        wrong = np.flatnonzero(self._out != self._wanted)
        if len(wrong):
            at = int(wrong[0])
            raise SystemExit(
                f"{len(wrong)} sums of key {self._key} are wrong in its round {self._round}: "
                f"number {at} is {self._out[at]}, want {self._wanted[at]}"
            )


def rounds(
    tensors: List[Sums], push_pull: Callable[[], float], count: int
) -> Tuple[List[float], float]:
    """Push and pull the tensors so often, every time with other gradients, and check the sums.

    Return the seconds of each, as `push_pull` has them, and the processor time of this thread that
    changes and checks took.
    """
    seconds, aside_s = [], 0.0
    for _ in range(count):
        begin = time.thread_time()
        for tensor in tensors:
            tensor.change()
        aside_s += time.thread_time() - begin
        seconds.append(push_pull())
        begin = time.thread_time()
        for tensor in tensors:
            tensor.check()
        aside_s += time.thread_time() - begin
    return seconds, aside_s


def last_round(tensors: List[Sums], push_pull: Callable[[], float]) -> None:
    """Check all sums of the latest round, and of one more in which every number is new."""
    for tensor in tensors:
        tensor.check_all()
        tensor.change_all()
    push_pull()
    for tensor in tensors:
        tensor.check_all()
