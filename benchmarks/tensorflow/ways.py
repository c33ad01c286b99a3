"""The ways to train that arms stand for: a strategy, an optimizer, and what a model needs."""

import contextlib
import json
import os
from typing import Any, Callable, Dict, Iterator, NamedTuple

import tensorflow as tf

from benchmarks.tensorflow.arms import Arm

_MIB = 1 << 20


class Way(NamedTuple):
    """How a model trains with other workers."""

    strategy: Any  # the model is made in the scope of it
    wrapped: Callable[[Any], Any]  # makes an optimizer of one of Keras
    prepare: Callable[[Any], None]  # takes the compiled model
    rank: int
    size: int


def _as_it_is(optimizer: Any) -> Any:  # noqa: ANN401 - Keras has no types
    return optimizer


def _nothing(_model: object) -> None:
    pass


@contextlib.contextmanager
def _alone(_arm: Arm, _scale: int) -> Iterator[Way]:
    yield Way(tf.distribute.get_strategy(), _as_it_is, _nothing, 0, 1)


def _stock(implementation: str) -> Any:  # noqa: ANN401
    """Return what begins a way whose sums MultiWorkerMirroredStrategy makes."""

    @contextlib.contextmanager
    def begin(arm: Arm, scale: int) -> Iterator[Way]:
        communication = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[implementation],
            bytes_per_pack=round(arm.pack_mb * _MIB / scale),
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
        rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        yield Way(strategy, _as_it_is, _nothing, rank, strategy.num_replicas_in_sync)

    return begin


def _ours(prepare: Callable[[Any], None]) -> Any:  # noqa: ANN401
    @contextlib.contextmanager
    def begin(_arm: Arm, _scale: int) -> Iterator[Way]:
        import bytescheduler.tensorflow as bps

        def wrapped(optimizer: Any) -> Any:  # noqa: ANN401
            return bps.DistributedOptimizer(optimizer, op=bps.Sum)

        bps.init()
        yield Way(tf.distribute.get_strategy(), wrapped, prepare, bps.rank(), bps.size())
        bps.shutdown()

    return begin


def _cross(model: Any) -> None:  # noqa: ANN401
    import bytescheduler.keras as bps

    bps.cross_barrier(model)


WAYS: Dict[str, Callable[[Arm, int], Any]] = {
    "alone": _alone,
    "mwms-ring": _stock("RING"),
    "mwms-auto": _stock("AUTO"),
    "barrier": _ours(_nothing),
    "crossing": _ours(_cross),
}


def begin(arm: Arm, scale: int) -> Any:  # noqa: ANN401
    """Join the other workers; the job is left at the end of a ``with`` block.

    Parameters
    ----------
    scale
        What the parameters of the model are divided by, and so the packs of stock arms.
    """
    return WAYS[arm.kind](arm, scale)
