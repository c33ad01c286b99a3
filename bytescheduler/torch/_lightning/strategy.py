"""The strategy of Lightning: our optimizer carries gradients, and our backend all else."""

import contextlib
from typing import Any, Callable, Dict, Optional, Type

from bytescheduler.errors import UsageError
from bytescheduler.torch._api.basics import init
from bytescheduler.torch._optimizer.distributed import DistributedOptimizer
from bytescheduler.torch._sums.compression import Compression

__all__ = ["NAME", "strategy_of"]

NAME = "bytescheduler"
_INSTEAD = f'strategy=DDPStrategy(process_group_backend="{NAME}")'
_LIGHTNING = (
    *("accelerator", "parallel_devices", "cluster_environment"),
    *("checkpoint_io", "precision_plugin", "timeout"),
)
# A class that has them of its own looks at gradients, or changes them, before the step.
_HOOKS = ("on_after_backward", "on_before_optimizer_step", "configure_gradient_clipping")
_Base: Any = object  # Lightning's `DDPStrategy` stands behind this class


def _refused(text: str) -> UsageError:
    return UsageError(f'strategy="{NAME}": {text}', 5)


class Crossing(_Base):  # type: ignore[misc]  # types are not read
    """The difference from Lightning's `DDPStrategy`, which is the other base of the strategy.

    Parameters
    ----------
    compression, compression_params, crossing, find_unused, sparse_as_dense, on_gradient
        As of `bytescheduler.torch.DistributedOptimizer`.
    lightning : object
        The arguments that all strategies of Lightning for several processes have, and `timeout`.

    Raises
    ------
    UsageError
        An argument is one of DDP's.
    """

    strategy_name = NAME
    optimizers: Any

    def __init__(
        self,
        *,
        compression: Any = Compression.none,  # noqa: ANN401
        compression_params: Optional[Dict[str, Any]] = None,
        crossing: Any = "auto",  # noqa: ANN401
        find_unused: bool = True,
        sparse_as_dense: bool = False,
        on_gradient: Optional[Callable[[Any], None]] = None,
        **lightning: object,
    ) -> None:
        for name in lightning:
            if name not in _LIGHTNING:
                raise _refused(
                    f"{name} is no argument of it, as DDP does not carry the gradients; leave it "
                    f"out, or use {_INSTEAD}"
                )
        super().__init__(process_group_backend=NAME, **lightning)
        self._options = {
            "compression": compression,
            "compression_params": compression_params,
            "crossing": crossing,
            "find_unused": find_unused,
            "sparse_as_dense": sparse_as_dense,
            "on_gradient": on_gradient,
        }
        self._passes = 1  # calls of backward in each step
        self._has_hooks = False
        self._is_stepping = False
        self._has_failed = False

    # -- begin and end -------------------------------------------------------------------------

    def setup_environment(self) -> None:
        """Join the job: first torch.distributed, whose ranks Lightning knows.

        Raises
        ------
        UsageError
            The device is no CPU.
        """
        if self.root_device.type != "cpu":
            raise _refused(
                f'it trains on CPUs, and the device is {self.root_device}; pass accelerator="cpu", '
                'or strategy="ddp"'
            )
        super().setup_environment()
        init()

    def configure_ddp(self) -> None:
        """Leave the module as it is."""

    def setup_optimizers(self, trainer: Any) -> None:  # noqa: ANN401 - types are not read
        """Wrap the module's optimizer; all workers get worker 0's weights and buffers.

        Raises
        ------
        UsageError
            The module steps by itself, or losses are scaled.
        """
        module = self.lightning_module
        if not module.automatic_optimization:
            raise _refused(
                "automatic_optimization is False, and each step has to be Lightning's; use "
                f"{_INSTEAD} for manual optimization"
            )
        if getattr(self.precision_plugin, "scaler", None) is not None:
            raise _refused(
                f"{type(self.precision_plugin).__name__} scales losses, and so the gradients that "
                'travel; use precision="bf16-mixed"'
            )
        super().setup_optimizers(trainer)
        self._has_failed = False
        self._passes = trainer.accumulate_grad_batches
        self._has_hooks = any(
            self._overrides(hook, owner)
            for hook in _HOOKS
            for owner in (module, *trainer.callbacks)
        )
        self.optimizers = [
            DistributedOptimizer(
                optimizer, model=module, backward_passes_per_step=self._passes, **self._options
            )
            for optimizer in self.optimizers
        ]

    def on_exception(self, exception: BaseException) -> None:
        """Take note of a failure, behind which sums may never come."""
        self._has_failed = True
        super().on_exception(exception)

    def teardown(self) -> None:
        """Make the last updates, and let gradients be this worker's own."""
        optimizers, self.optimizers = self.optimizers, []
        for optimizer in optimizers:
            if self._has_failed:
                with contextlib.suppress(Exception):  # the first error is the one to be seen
                    optimizer.close()
            else:
                optimizer.close()
        self.optimizers = [optimizer.inner for optimizer in optimizers]
        super().teardown()

    # -- a step --------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: object, batch_idx: int) -> None:
        """Follow `accumulate_grad_batches`, which a callback may change between epochs."""
        passes = self.lightning_module.trainer.accumulate_grad_batches
        if passes != self._passes:
            self._passes = passes
            for optimizer in self.optimizers:
                optimizer.set_backward_passes_per_step(passes)
        super().on_train_batch_start(batch, batch_idx)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the module's `training_step` within its forward pass, for which its weights wait."""
        module = self.lightning_module
        with self.precision_plugin.train_step_context():
            return self._forward_redirection(module, module, "training_step", *args, **kwargs)

    def backward(
        self,
        closure_loss: Any,  # noqa: ANN401
        optimizer: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Do as Lightning; gradients are means before hooks and clipping see them."""
        module, plugin = self.lightning_module, self.precision_plugin
        loss = plugin.pre_backward(closure_loss, module)
        plugin.backward(loss, module, optimizer, *args, **kwargs)
        if self._is_stepping and (self._has_hooks or module.trainer.gradient_clip_val):
            for wrapped in self.optimizers:
                wrapped.synchronize()
        return plugin.post_backward(loss, module)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Step; the closure has the last pass of backward before it."""
        self._is_stepping = True
        try:
            return super().optimizer_step(*args, **kwargs)
        finally:
            self._is_stepping = False


def strategy_of(package: Any) -> Type[Any]:  # noqa: ANN401
    """Return the strategy for a package of Lightning, whose `Trainer` knows its name from now on.

    Parameters
    ----------
    package : module
        `lightning.pytorch`, or `pytorch_lightning`.
    """

    class ByteSchedulerStrategy(Crossing, package.strategies.DDPStrategy):  # type: ignore[misc]
        """Lightning's strategy whose forward pass begins while sums are under way."""

        _overrides = staticmethod(package.utilities.model_helpers.is_overridden)

    package.strategies.StrategyRegistry.register(
        NAME, ByteSchedulerStrategy, "forward begins while sums are under way", override=True
    )
    return ByteSchedulerStrategy
