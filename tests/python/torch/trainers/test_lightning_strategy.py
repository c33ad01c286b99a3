"""The strategy's own part, above a stand-in for Lightning's `DDPStrategy`."""

import types
from typing import Any, Callable, Dict, List

import pytest

pytest.importorskip("torch")

import torch  # noqa: E402

from bytescheduler.errors import UsageError  # noqa: E402
from bytescheduler.torch._lightning.strategy import NAME, strategy_of  # noqa: E402

Anything = Any  # Lightning's types are not read


class Ddp:
    """Has the calls of Lightning's `DDPStrategy` that the strategy builds on."""

    def __init__(self, process_group_backend: str, **named: object) -> None:
        self.backend, self.named = process_group_backend, named
        self.root_device = torch.device("cpu")
        self.calls: List[str] = []
        self.lightning_module = module_with()
        self.precision_plugin: Anything = Plugin(self.calls)
        self.optimizers: List[Anything] = []

    def optimizer_step(self, optimizer: Anything, closure: Callable[[], object]) -> None:
        closure()
        self.calls.append("step")

    def on_train_batch_start(self, batch: object, batch_idx: int) -> None:
        self.calls.append("batch")

    def on_exception(self, exception: BaseException) -> None:
        self.calls.append("exception")

    def teardown(self) -> None:
        self.calls.append("teardown")


class Plugin:
    """A precision plugin that notes its calls."""

    scaler = None

    def __init__(self, calls: List[str]) -> None:
        self._calls = calls

    def pre_backward(self, loss: Anything, module: Anything) -> Anything:
        return loss

    def backward(self, *_: Anything) -> None:
        self._calls.append("backward")

    def post_backward(self, loss: Anything, module: Anything) -> Anything:
        self._calls.append("hooks")
        return loss


class Wrapped:
    """An optimizer that notes the calls of the strategy."""

    inner = "the optimizer itself"

    def __init__(self, calls: List[str], error: str = "") -> None:
        self._calls, self._error = calls, error

    def synchronize(self) -> None:
        self._calls.append("means")

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._calls.append(f"{passes} passes")

    def close(self) -> None:
        self._calls.append("close")
        if self._error:
            raise RuntimeError(self._error)


def module_with(**trainer: Anything) -> Anything:
    known = {"accumulate_grad_batches": 1, "gradient_clip_val": None, "callbacks": [], **trainer}
    return types.SimpleNamespace(
        automatic_optimization=True, trainer=types.SimpleNamespace(**known)
    )


REGISTERED: Dict[str, Anything] = {}
PACKAGE = types.SimpleNamespace(
    strategies=types.SimpleNamespace(
        DDPStrategy=Ddp,
        StrategyRegistry=types.SimpleNamespace(
            register=lambda name, kind, _, override: REGISTERED.update({name: kind})
        ),
    ),
    utilities=types.SimpleNamespace(
        model_helpers=types.SimpleNamespace(is_overridden=lambda hook, owner: hook in vars(owner))
    ),
)
Strategy = strategy_of(PACKAGE)


def made(error: str = "", **trainer: Anything) -> Anything:
    strategy = Strategy()
    strategy.lightning_module = module_with(**trainer)
    strategy.optimizers = [Wrapped(strategy.calls, error)]
    return strategy


def step(strategy: Anything) -> List[str]:
    """Make a pass of backward alone, and another in a step; return the calls."""
    strategy.backward(1.0, None)
    strategy.optimizer_step(None, lambda: strategy.backward(1.0, None))
    calls: List[str] = strategy.calls
    return calls


def test_lightning_knows_the_strategy_by_its_name() -> None:
    assert {NAME: Strategy} == REGISTERED
    assert Strategy().backend == NAME


def test_an_argument_of_ddp_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match='strategy="bytescheduler": bucket_cap_mb is no argument'):
        Strategy(bucket_cap_mb=1)
    assert Strategy(timeout=7, compression="fp16").named == {"timeout": 7}


def test_a_gpu_is_refused() -> None:
    strategy = Strategy()
    strategy.root_device = torch.device("cuda", 1)
    with pytest.raises(UsageError, match='device is cuda:1; pass accelerator="cpu"'):
        strategy.setup_environment()


def test_manual_optimization_is_refused() -> None:
    strategy = Strategy()
    strategy.lightning_module.automatic_optimization = False
    with pytest.raises(UsageError, match="automatic_optimization is False"):
        strategy.setup_optimizers(strategy.lightning_module.trainer)


def test_a_plugin_that_scales_losses_is_refused() -> None:
    strategy = Strategy()
    strategy.precision_plugin.scaler = object()
    with pytest.raises(UsageError, match="Plugin scales losses"):
        strategy.setup_optimizers(strategy.lightning_module.trainer)


def test_a_step_that_nothing_looks_into_does_not_wait() -> None:
    assert step(made()) == ["backward", "hooks", "backward", "hooks", "step"]


def test_clipping_and_hooks_see_means_in_the_last_pass_alone() -> None:
    hooked = made()
    hooked._has_hooks = True
    for strategy in (made(gradient_clip_val=0.5), hooked):
        assert step(strategy) == ["backward", "hooks", "backward", "means", "hooks", "step"]


def test_a_change_of_accumulation_is_followed_once() -> None:
    strategy = made(accumulate_grad_batches=1)
    strategy.on_train_batch_start(None, 0)
    strategy.lightning_module.trainer.accumulate_grad_batches = 4
    strategy.on_train_batch_start(None, 1)
    strategy.on_train_batch_start(None, 2)
    assert strategy.calls == ["batch", "4 passes", "batch", "batch"]


def test_teardown_makes_the_last_updates() -> None:
    strategy = made()
    strategy.teardown()
    assert strategy.calls == ["close", "teardown"]
    assert strategy.optimizers == [Wrapped.inner]
    with pytest.raises(RuntimeError, match="lost"):
        made("lost").teardown()


def test_teardown_after_a_failure_leaves_its_error_to_be_seen() -> None:
    strategy = made("lost")
    strategy.on_exception(ValueError("the first"))
    strategy.teardown()
    assert strategy.calls == ["exception", "close", "teardown"]
    assert strategy.optimizers == [Wrapped.inner]
