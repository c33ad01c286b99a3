"""Updates that wait for their means: a step begins the means, and the next step makes them."""

import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from bytescheduler._session.round_session import RoundSession
from bytescheduler.errors import UsageError
from bytescheduler.tensorflow._crossing.alone import step_alone
from bytescheduler.tensorflow._engine.unconverted import unconverted
from bytescheduler.tensorflow._gradients.means import Means
from bytescheduler.tensorflow._library.loading import held

__all__ = ["WaitingUpdates"]


class WaitingUpdates:
    """The updates of an optimizer, each of which waits for the mean of one gradient.

    See `Updates` of the optimizer, and `Flushes` of the job.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Built; it can step each variable by itself.
    means : Means
        Averages its gradients.
    variables : callable
        Returns the variables that it steps.
    session : RoundSession
        The session that carries the gradients.
    """

    def __init__(
        self,
        optimizer: Any,  # noqa: ANN401
        means: Means,
        variables: Callable[[], Sequence[Any]],
        session: RoundSession,
    ) -> None:
        self.optimizer = optimizer
        self._means = means
        self._variables = variables
        self._session = session
        self._counters: Dict[int, Any] = {}  # by the id of a variable
        # The learning rate of the step whose updates wait: a callback may set the next one's.
        self._rate = tf.Variable(tf.convert_to_tensor(optimizer.learning_rate), trainable=False)
        self._is_begun = tf.Variable(False, trainable=False)
        self._head: Optional[weakref.ref[Any]] = None  # the graph of the latest `head`
        self._not_begun: List[Any] = []  # variables of that graph without a gradient so far
        self._catch_up_all = tf.function(self.catch_up, autograph=False)

    # -- in a step -----------------------------------------------------------------------------

    @unconverted
    def head(self) -> None:
        """Make the updates of the step before; the step that is made now begins its own."""
        if tf.executing_eagerly():
            self.flush_now()
            self._head = None
            return
        self.catch_up()
        self._head = weakref.ref(_graph())
        self._not_begun = list(self._variables())

    def catch_up(self) -> None:
        """Make all updates that wait, each when its mean is there."""
        for variable in self._variables():
            mean, is_there = self._means.awaited(variable)
            tf.cond(is_there, self._update(variable, mean), lambda: tf.constant(True))
        tf.cond(self._is_begun.read_value(), self._count, lambda: tf.constant(True))

    def _update(self, variable: Any, mean: tf.Tensor) -> Callable[[], tf.Tensor]:  # noqa: ANN401
        counter = self._counters.get(id(variable))
        if counter is None:
            with tf.init_scope():
                dtype = self.optimizer.iterations.dtype
                counter = self._counters[id(variable)] = tf.Variable(
                    0, trainable=False, dtype=dtype
                )

        def update() -> tf.Tensor:
            step_alone(self.optimizer, mean, variable, counter, self._rate)
            return tf.constant(True)

        return update

    def _count(self) -> tf.Tensor:
        self.optimizer.iterations.assign_add(1)
        self._is_begun.assign(False)
        return tf.constant(True)

    def are_due(self) -> bool:
        """See `Updates`; other steps come behind all updates that wait."""
        graph = None if self._head is None else self._head()
        if graph is not None and not tf.executing_eagerly() and graph in _graphs():
            return True
        self.flush_now()
        return False

    def begin(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """See `Updates`.

        Raises
        ------
        UsageError
            A variable is not in the model, or the step has had a gradient of it before.
        """
        for variable in variables:
            at = next((at for at, v in enumerate(self._not_begun) if v is variable), None)
            if at is None:
                raise UsageError(
                    f"cross_barrier: a step applies a gradient of {variable.name!r} twice, or it "
                    "is no trainable variable of the model; leave cross_barrier out for this model",
                    5,
                )
            del self._not_begun[at]
        self._means.begin(gradients, variables)
        compute = getattr(self.optimizer, "_compute_current_learning_rate", None)
        if compute is not None:  # Keras 2 keeps the rate of a schedule in a variable
            compute()
        self._rate.assign(tf.cast(self.optimizer.learning_rate, self._rate.dtype))
        self._is_begun.assign(True)

    # -- between steps -------------------------------------------------------------------------

    def flush_now(self) -> None:
        """Make all updates that wait; those of a job that has ended are lost.  Blocks."""
        if self._session.is_open and (held() or self._is_begun_now()):
            with tf.init_scope():
                self._catch_up_all()

    def _is_begun_now(self) -> bool:
        with tf.init_scope():
            return bool(self._is_begun.numpy())

    def flush(self) -> None:
        """See `Flushes`: an error of the job is the engine's own.

        Raises
        ------
        Error
            The job failed.
        """
        try:
            self.flush_now()
        except tf.errors.OpError:
            failure = self._session.failure
            if failure is None:
                raise
            raise failure from None


def _graph() -> Any:  # noqa: ANN401
    return tf.compat.v1.get_default_graph()


def _graphs() -> List[Any]:
    """Return the graph that is made now, and those around it."""
    graphs = [_graph()]
    while getattr(graphs[-1], "outer_graph", None) is not None:
        graphs.append(graphs[-1].outer_graph)
    return graphs
