"""Optimizers of a user, in a module that servers can import."""

import threading

import mxnet as mx


class Halfway(mx.optimizer.Optimizer):
    """Looks at shapes, keeps state, scales its own rate, and has a constant of its own."""

    def __init__(self, strength: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.strength = strength

    def create_state(self, index: object, weight: mx.nd.NDArray) -> mx.nd.NDArray:
        return mx.nd.zeros((weight.shape[0], 1))

    def _get_lrs(self, indices: "list[object]") -> "list[float]":
        return [0.5 * lr for lr in super()._get_lrs(indices)]

    def update(
        self, index: object, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: mx.nd.NDArray
    ) -> None:
        self._update_count(index)
        grad = grad * self.rescale_grad + self._get_wd(index) * weight
        state[:] += grad.square().mean(axis=1, keepdims=True)
        scale = self.strength / mx.nd.sqrt(state + 1e-3)
        weight[:] -= self._get_lr(index) * scale * grad


class Endless(mx.optimizer.Test):
    """Never returns from an update."""

    def update(
        self, index: object, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: object
    ) -> None:
        print("an endless update begins", flush=True)
        threading.Event().wait()


class Stumbling(mx.optimizer.Test):
    """Fails at the third update of a key."""

    def update(
        self, index: object, weight: mx.nd.NDArray, grad: mx.nd.NDArray, state: object
    ) -> None:
        super().update(index, weight, grad, state)
        self._update_count(index)
        if self._index_update_count[index] == 3:
            raise RuntimeError("three is too many")
