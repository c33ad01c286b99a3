"""Names and keys of variables, in a job that is played."""

import gc
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple

import pytest
from inline_snapshot import snapshot

pytest.importorskip("tensorflow")

import tensorflow as tf  # noqa: E402

from bytescheduler.errors import ConfigError, Error  # noqa: E402
from bytescheduler.tensorflow._sums.variables import Gradient, Variables  # noqa: E402


class FakeSession:
    """A session that notes which keys are declared and given back."""

    error = Error

    def __init__(self) -> None:
        self.declared: List[int] = []
        self.given_back: List[int] = []

    def new_key_space(self) -> int:
        return 0

    def name(self, engine_key: int, key: object) -> None:
        """Errors do not matter here."""

    show = name

    def declare_zeros(self, tensors: Sequence[Tuple[int, int, int]]) -> None:
        self.declared += [key for key, _, _ in tensors]

    def tune(self) -> None:
        """Nothing is slow here."""

    def is_idle(self) -> bool:
        return True

    def give_back(self, keys: Iterable[int], is_idle: Callable[[], bool]) -> None:
        assert is_idle()
        self.given_back += keys


class FakeObjects:
    """Objects of this worker, which is worker 0, and of peers."""

    def __init__(self, *peers: Any) -> None:  # noqa: ANN401
        self._peers = peers

    def gather(self, value: Any) -> List[Any]:  # noqa: ANN401
        return [value, *self._peers]


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def variables(session: FakeSession) -> Variables:
    return Variables(session, FakeObjects())  # type: ignore[arg-type]


def gradient(variable: tf.Variable, dtype: str = "float32", code: int = 0) -> Gradient:
    return Gradient(variable, dtype, code, (2,), 8, is_here=True)


def agree(variables: Variables, gradients: List[Gradient]) -> None:
    assert all(variables.agree(gradients, lambda is_new: is_new))


def test_keys_of_a_variable_that_is_gone_are_given_back(
    session: FakeSession, variables: Variables
) -> None:
    kept, dropped = (tf.Variable([1.0, 2.0], name="kernel") for _ in range(2))
    agree(variables, [gradient(kept), gradient(dropped)])
    agree(variables, [gradient(dropped, "float16", 2)])
    first, *others = session.declared
    assert len(others) == 2
    del dropped
    gc.collect()
    assert sorted(session.given_back) == sorted(others)
    again = tf.Variable([1.0, 2.0], name="kernel")
    agree(variables, [gradient(kept), gradient(again)])
    assert variables.name_of(again) == f"{variables.name_of(kept)} (3)"
    assert len(session.declared) == 4
    assert session.declared[3] not in [first, *others]


def test_a_variable_is_declared_once_after_its_key_was_asked_for(
    session: FakeSession, variables: Variables
) -> None:
    variable = tf.Variable([1.0, 2.0], name="bias")
    key = variables.key_of(variables.name_of(variable))
    for _ in range(2):
        agree(variables, [gradient(variable)])
    assert session.declared == [key]


def test_a_variable_that_was_never_summed_gives_nothing_back(
    session: FakeSession, variables: Variables
) -> None:
    variable = tf.Variable([1.0, 2.0], name="unused")
    variables.key_of(variables.name_of(variable))
    del variable
    gc.collect()
    assert session.given_back == []


Fact = Tuple[str, Tuple[int, ...], bool]
KERNEL: Fact = ("float32", (2,), True)


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        (
            {"kernel:0": KERNEL, "bias:0": ("float32", (3,), True)},
            snapshot(
                "gradient of 'bias:0': it is float32 of shape (2,) on worker 0 and float32 of "
                "shape (3,) on worker 2; build the same model on every worker"
            ),
        ),
        (
            {"kernel:0": ("float16", (2,), True), "bias:0": KERNEL},
            snapshot(
                "gradient of 'kernel:0': it is float32 of shape (2,) on worker 0 and float16 of "
                "shape (2,) on worker 2; build the same model on every worker"
            ),
        ),
        (
            {"kernel:0": KERNEL},
            snapshot(
                "gradient of 'bias:0': it is float32 of shape (2,) on worker 0 and absent on "
                "worker 2; build the same model on every worker"
            ),
        ),
        (
            {"kernel:0": KERNEL, "bias:0": KERNEL, "scale:0": KERNEL},
            snapshot(
                "gradient of 'scale:0': it is absent on worker 0 and float32 of shape (2,) on "
                "worker 2; build the same model on every worker"
            ),
        ),
        (
            {"bias:0": KERNEL, "kernel:0": KERNEL},
            snapshot(
                "worker 2 has variables in another order; build the same model on every worker"
            ),
        ),
    ],
)
def test_workers_with_other_variables_are_named(
    session: FakeSession, theirs: Dict[str, Fact], sentence: str
) -> None:
    alike = {"kernel:0": KERNEL, "bias:0": ("float32", (2,), False)}
    variables = Variables(session, FakeObjects(alike, theirs))  # type: ignore[arg-type]
    ours = [tf.Variable([1.0, 2.0], name=name) for name in ("kernel", "bias")]
    with pytest.raises(ConfigError) as raised:
        agree(variables, [gradient(variable) for variable in ours])
    assert str(raised.value) == sentence
    assert "worker 2" in sentence
    assert session.declared == []
