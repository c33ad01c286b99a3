"""A model of Keras whose layers take their time and no processor, and an optimizer that copies.

A layer holds one weight.  Forward compares some of its numbers with the sum of the step before.
"""

from typing import Any, Dict, Sequence

import tensorflow as tf

from benchmarks.tensorflow.device import Device
from bytescheduler._advise.models import Step

# One number of a weight in 4096 is updated and compared, and numbers of a gradient repeat after a
# period: see kEvery and kPeriod in layers.cc.
EVERY, PERIOD = 4096, 1021
NEVER = -1


class Timed(tf.keras.layers.Layer):  # type: ignore[misc] - Keras has no types
    """One layer of a profile."""

    def __init__(self, device: Device, step: Step, layer: int, layers: int) -> None:
        super().__init__(name=f"layer{layer}")
        self._device = device
        self._step = step
        self._place = (layer, layers)

    def build(self, _shape: object) -> None:
        """See `keras.layers.Layer`."""
        count = self._step.size_bytes // 4
        self.kernel = self.add_weight(name="kernel", shape=(count,), initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return `x` when the layer would have been computed."""
        weight = tf.convert_to_tensor(self.kernel)
        return self._device.forward(x, weight, self._step, *self._place)

    def compute_output_shape(self, shape: Any) -> Any:  # noqa: ANN401 - Keras has no types
        """See `keras.layers.Layer`."""
        return shape


def model_of(device: Device, steps: Sequence[Step]) -> Any:  # noqa: ANN401 - Keras has no types
    """Return the layers of a profile, one after another."""
    layers = [Timed(device, step, place, len(steps)) for place, step in enumerate(steps)]
    model = tf.keras.Sequential(layers)
    model.build((None, 1))
    return model


def loss(_labels: tf.Tensor, results: tf.Tensor) -> tf.Tensor:
    """Return what needs all layers."""
    return tf.reduce_mean(results)


class TakeSum(tf.keras.optimizers.SGD):  # type: ignore[misc] - Keras has no types
    """Writes sums into weights: one number in `EVERY`, which takes next to no processor.

    Parameters
    ----------
    last : int
        The step that writes all numbers.
    """

    def __init__(self, last: int = NEVER, learning_rate: float = 1.0, **config: object) -> None:
        super().__init__(learning_rate, **config)
        self._last = last

    def update_step(self, gradient: tf.Tensor, variable: Any, *_rate: object) -> None:  # noqa: ANN401
        """Take what has come."""
        every = tf.where(tf.equal(tf.cast(self.iterations, tf.int64), self._last), 1, EVERY)
        inner = variable if isinstance(variable, tf.Variable) else variable.value
        tf.raw_ops.ResourceStridedSliceAssign(
            ref=inner.handle,
            begin=[0],
            end=[0],
            strides=[every],
            value=gradient[::every],
            begin_mask=1,
            end_mask=1,
        )

    def get_config(self) -> Dict[str, Any]:
        """See `keras.optimizers.Optimizer`."""
        return {**super().get_config(), "last": self._last}
