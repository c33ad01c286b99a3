"""The strategy's own part, above a stand-in for Lightning's `DDPStrategy`."""

import pathlib
import types
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

pytest.importorskip("torch")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from bytescheduler.errors import UsageError  # noqa: E402
from bytescheduler.torch._lightning import strategy as strategies  # noqa: E402
from bytescheduler.torch._lightning.strategy import NAME, strategy_of  # noqa: E402
from bytescheduler.torch._optimizer.distributed import DistributedOptimizer  # noqa: E402

Anything = Any  # Lightning's types are not read


class LightningOptimizer:
    """Lightning's wrapper, which passes for the class of its optimizer."""

    def __init__(self, optimizer: Anything) -> None:
        self._optimizer = optimizer
        self.__class__ = type("Lightning", (type(self), type(optimizer)), {})


class Ddp:
    """Has the calls of Lightning's `DDPStrategy` that the strategy builds on."""

    def __init__(self, process_group_backend: str, **named: object) -> None:
        self.backend, self.named = process_group_backend, named
        self.root_device = torch.device("cpu")
        self.calls: List[str] = []
        self.lightning_module: Anything = Module()
        self.precision_plugin: Anything = Plugin(self.calls)
        self.optimizers: List[Anything] = []

    def setup_environment(self) -> None:
        self.calls.append("environment")

    def setup_optimizers(self, trainer: Anything) -> None:
        self.optimizers = [self.lightning_module.configure_optimizers()]

    def optimizer_step(self, optimizer: Anything, closure: Callable[[], object]) -> None:
        closure()
        self.calls.append("step")

    def optimizer_state(self, optimizer: Anything) -> Anything:
        return optimizer.state_dict()

    def on_train_batch_start(self, batch: object, batch_idx: int) -> None:
        self.calls.append("batch")

    def on_exception(self, exception: BaseException) -> None:
        self.calls.append("exception")

    def teardown(self) -> None:
        assert [type(optimizer) for optimizer in self.optimizers] == [torch.optim.SGD]
        self.calls.append("teardown")


class Plugin:
    """A precision plugin that notes its calls."""

    scaler = None

    def __init__(self, calls: List[str]) -> None:
        self._calls = calls

    def pre_backward(self, loss: Anything, module: Anything) -> Anything:
        return loss

    def backward(self, loss: torch.Tensor, module: "Module", *_: Anything) -> None:
        module.backward(loss)
        self._calls.append("backward")

    def post_backward(self, loss: Anything, module: Anything) -> Anything:
        self._calls.append("hooks")
        return loss


class Wrapped(DistributedOptimizer):
    """A DistributedOptimizer that notes the calls of the strategy, without a job."""

    def __init__(self, inner: Anything, *, compression: Anything, **_: Anything) -> None:
        if compression == "wrong":
            raise UsageError("compression: none has this name", 5)
        self.inner = inner
        self.calls: List[str] = []
        self.error = ""

    def synchronize(self) -> None:
        self.calls.append("means")

    def set_backward_passes_per_step(self, passes: int) -> None:
        self.calls.append(f"{passes} passes")

    @property
    def state(self) -> Anything:
        self.calls.append("updates")
        return self.inner.state

    def state_dict(self) -> Anything:
        raise UsageError("state_dict() came between backward and step()", 5)

    def close(self) -> None:
        self.calls.append("close")
        if self.error:
            raise RuntimeError(self.error)


class Module:
    """A module of Lightning, whose trainer has `callbacks`."""

    automatic_optimization = True

    def __init__(self, callbacks: Anything = (), **trainer: Anything) -> None:
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.accumulates = False  # what Lightning says of the pass under way
        loop = types.SimpleNamespace(_should_accumulate=lambda: self.accumulates)
        known = {"accumulate_grad_batches": 1, "gradient_clip_val": None, **trainer}
        self.trainer = types.SimpleNamespace(fit_loop=loop, callbacks=callbacks, **known)

    def configure_optimizers(self) -> Anything:
        return sgd(self.weight)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def optimizer_step(self) -> None: ...
    def on_after_backward(self) -> None: ...
    def on_before_optimizer_step(self) -> None: ...
    def configure_gradient_clipping(self) -> None: ...


class Callback:
    """A callback of Lightning."""

    def on_after_backward(self) -> None: ...
    def on_before_optimizer_step(self) -> None: ...


def is_overridden(name: str, instance: Anything) -> bool:
    """Do as Lightning, which refuses a name that the class has from nowhere."""
    parent = Module if isinstance(instance, Module) else Callback
    if not hasattr(instance, name):
        return False
    if not hasattr(parent, name):
        raise ValueError("The parent should define the method")
    return getattr(type(instance), name) is not getattr(parent, name)


def sgd(weight: Optional[torch.nn.Parameter] = None) -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2)) if weight is None else weight])


REGISTERED: Dict[str, Anything] = {}
PACKAGE = types.SimpleNamespace(
    strategies=types.SimpleNamespace(
        DDPStrategy=Ddp,
        StrategyRegistry=types.SimpleNamespace(
            register=lambda name, kind, _, override: REGISTERED.update({name: kind})
        ),
    ),
    utilities=types.SimpleNamespace(
        model_helpers=types.SimpleNamespace(is_overridden=is_overridden)
    ),
    core=types.SimpleNamespace(
        optimizer=types.SimpleNamespace(LightningOptimizer=LightningOptimizer)
    ),
)
Strategy = strategy_of(PACKAGE)


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the strategy wrap optimizers without a job."""
    monkeypatch.setattr(strategies, "DistributedOptimizer", Wrapped)


def made(module: Optional[Module] = None, *, error: str = "") -> Anything:
    """Return a strategy whose fit has begun."""
    strategy = Strategy()
    strategy.lightning_module = module or Module()
    strategy.setup_optimizers(strategy.lightning_module.trainer)
    for wrapped in strategy.optimizers:
        wrapped.calls, wrapped.error = strategy.calls, error
    return strategy


def run_backward(strategy: Anything) -> None:
    strategy.backward(strategy.lightning_module.weight.sum(), None)


def step(strategy: Anything) -> List[str]:
    """Make a pass of backward alone, and another in a step; return the calls."""
    module = strategy.lightning_module
    module.accumulates = True
    run_backward(strategy)
    module.accumulates = False
    strategy.optimizer_step(strategy.optimizers[0], lambda: run_backward(strategy))
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


@pytest.fixture
def _gloo(tmp_path: pathlib.Path) -> Iterator[None]:
    """Let the process have a group of Gloo."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_gloo")
def test_a_group_of_another_backend_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has a group of cpu:gloo\S* already; leave"):
        Strategy().setup_environment()


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


def test_an_optimizer_in_the_wrapper_of_lightning_is_taken_out() -> None:
    module = Module()
    module.configure_optimizers = lambda: LightningOptimizer(sgd())  # type: ignore[method-assign]
    assert [type(wrapped.inner) for wrapped in made(module).optimizers] == [torch.optim.SGD]


class Looks(Module):
    """Has a hook."""

    def on_before_optimizer_step(self) -> None: ...


class Steps(Module):
    """Has a step of its own."""

    def optimizer_step(self) -> None: ...


class Clips(Module):
    """Clips gradients itself."""

    def configure_gradient_clipping(self) -> None: ...


class Watches(Callback):
    """Has a hook."""

    def on_after_backward(self) -> None: ...


class Tools(Callback):
    """Has methods whose names are those of a module's."""

    def backward(self) -> None: ...
    def configure_gradient_clipping(self) -> None: ...


def test_a_step_that_nothing_looks_into_does_not_wait() -> None:
    for module in (Module(), Module([Callback(), Tools()])):
        assert step(made(module)) == ["backward", "hooks", "backward", "hooks", "step"]


SEEING = {
    "clipping": lambda: Module(gradient_clip_val=0.5),
    "hook": Looks,
    "step": Steps,
    "clipping of its own": Clips,
    "callback": lambda: Module([Callback(), Watches()]),
}


@pytest.mark.parametrize("seeing", SEEING.values(), ids=SEEING)
def test_clipping_and_hooks_see_means_in_the_last_pass_alone(
    seeing: Callable[[], Module],
) -> None:
    calls = step(made(seeing()))
    assert calls == ["backward", "hooks", "backward", "means", "hooks", "step"]


def test_a_module_that_calls_the_closure_outside_a_step_sees_means() -> None:
    strategy = made(Steps())
    run_backward(strategy)
    assert strategy.calls == ["backward", "means", "hooks"]


def test_backward_of_the_module_sees_means_when_its_pass_returns() -> None:
    class Own(Module):
        def backward(self, loss: torch.Tensor) -> None:
            loss.backward()
            strategy.calls.append("seen")

    strategy = made(Own())
    last = ["means", "seen", "backward", "means", "hooks", "step"]
    assert step(strategy) == ["seen", "backward", "hooks", *last]


def test_an_optimizer_in_the_place_of_ours_is_refused_before_its_closure() -> None:
    strategy = made()
    with pytest.raises(UsageError, match=r"trainer\.optimizers has another SGD since"):
        strategy.optimizer_step(sgd(), lambda: run_backward(strategy))
    assert strategy.calls == []
    strategy.optimizers = [sgd()]
    strategy.teardown()
    assert strategy.calls == ["close", "teardown"]


@pytest.mark.parametrize("wrapper", [lambda optimizer: optimizer, LightningOptimizer])
def test_a_checkpoint_has_the_state_of_the_latest_step(wrapper: Callable[..., Anything]) -> None:
    strategy = made()
    optimizer = strategy.optimizers[0]
    state = strategy.optimizer_state(wrapper(optimizer))
    assert state == optimizer.inner.state_dict()
    assert strategy.calls == ["updates"]


def test_a_change_of_accumulation_is_followed_once() -> None:
    strategy = made()
    strategy.on_train_batch_start(None, 0)
    strategy.lightning_module.trainer.accumulate_grad_batches = 4
    strategy.on_train_batch_start(None, 1)
    strategy.on_train_batch_start(None, 2)
    assert strategy.calls == ["batch", "4 passes", "batch", "batch"]


def test_teardown_makes_the_last_updates() -> None:
    strategy = made()
    inner = strategy.optimizers[0].inner
    strategy.teardown()
    assert strategy.calls == ["close", "teardown"]
    assert strategy.optimizers == [inner]


def test_teardown_without_a_fit_leaves_optimizers_alone() -> None:
    strategy = made()
    strategy.teardown()
    strategy.calls.clear()
    strategy.teardown()  # as after `test`
    assert strategy.calls == ["teardown"]


def test_teardown_takes_an_optimizer_out_of_the_wrapper_of_lightning() -> None:
    strategy = made()
    strategy.optimizers = [LightningOptimizer(strategy.optimizers[0])]
    strategy.teardown()
    assert strategy.calls == ["close", "teardown"]


def test_teardown_raises_its_error_once() -> None:
    strategy = made(error="lost")
    with pytest.raises(RuntimeError, match="lost"):
        strategy.teardown()
    strategy.on_exception(RuntimeError("lost"))
    strategy.teardown()
    assert strategy.calls == ["close", "exception", "teardown"]


def test_teardown_after_a_failure_leaves_its_error_to_be_seen() -> None:
    strategy = made(error="lost")
    strategy.on_exception(ValueError("the first"))
    strategy.teardown()
    assert strategy.calls == ["exception", "close", "teardown"]


def test_an_option_that_the_optimizer_refuses_is_the_error_to_be_seen() -> None:
    strategy = Strategy(compression="wrong")
    with pytest.raises(UsageError, match="none has this name") as raised:
        strategy.setup_optimizers(strategy.lightning_module.trainer)
    strategy.on_exception(raised.value)
    strategy.teardown()
    assert strategy.calls == ["exception", "teardown"]
