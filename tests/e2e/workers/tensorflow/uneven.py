"""A worker that makes one step more than the other, and a worker that comes late to a step."""

import pathlib
import time
from typing import Callable, List

import tensorflow as tf

import bytescheduler.tensorflow as bps

_LONG_S = 120.0


def _step_of(name: str) -> Callable[[], List[tf.Tensor]]:
    weight = tf.Variable(tf.ones([3]), name=name)

    @tf.function
    def step() -> List[tf.Tensor]:
        tape = bps.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = tf.reduce_sum(weight * weight)
        return tape.gradient(loss, [weight])

    step()
    return step


def one_step_more() -> None:
    """Make a step on worker 0 alone, while worker 1 leaves the job."""
    step = _step_of("uneven")
    if bps.rank() != 0:
        return
    try:
        step()
    except tf.errors.UnavailableError as error:
        print(f"one step more: {error.message}", flush=True)
        return
    raise AssertionError("a step of one worker had an end")


def one_step_late() -> None:
    """Make a step on worker 0 for which worker 1 comes too late."""
    step = _step_of("late")
    given_up = pathlib.Path("given up")
    if bps.rank() == 0:
        try:
            step()
        except tf.errors.DeadlineExceededError as error:
            print(f"one step late: {error.message}", flush=True)
            given_up.touch()
            return
        raise AssertionError("a step of one worker had an end")
    end = time.monotonic() + _LONG_S
    while not given_up.exists():
        if time.monotonic() > end:
            raise TimeoutError("worker 0 waits on")
        time.sleep(0.05)
