"""The strategy of Lightning: our optimizer carries gradients, and our backend all else.

A group of another backend is refused.
"""

import contextlib
from typing import Any, Callable, Dict, List, Optional, Type

import torch
import torch.distributed as dist

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
_HOOKS = ("on_after_backward", "on_before_optimizer_step")
_METHODS = (*_HOOKS, "configure_gradient_clipping", "backward", "optimizer_step")
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
    _overrides: Any  # Lightning's `is_overridden`
    _wrapper: Any  # Lightning's `LightningOptimizer`

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
        self._has_backward = False  # the module's own, which may look at gradients
        self._wrapped: List[DistributedOptimizer] = []
        self._has_failed = False

    # -- begin and end -------------------------------------------------------------------------

    def setup_environment(self) -> None:
        """Join the job: first torch.distributed, whose ranks Lightning knows.

        Raises
        ------
        UsageError
            The device is no CPU, or torch.distributed has a group of another backend.
        """
        if self.root_device.type != "cpu":
            raise _refused(
                f'it trains on CPUs, and the device is {self.root_device}; pass accelerator="cpu", '
                'or strategy="ddp"'
            )
        super().setup_environment()
        if dist.is_initialized():
            backends = dist.get_backend_config()
            if f"cpu:{NAME}" not in backends.split(","):
                raise _refused(
                    f"torch.distributed has a group of {backends} already; leave "
                    f'init_process_group out, or call init_process_group("{NAME}")'
                )
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
        self._has_backward = self._overrides("backward", module)
        self._has_hooks = any(self._overrides(name, module) for name in _METHODS) or any(
            self._overrides(hook, callback) for hook in _HOOKS for callback in trainer.callbacks
        )
        self._wrapped = [
            DistributedOptimizer(
                self._bare(optimizer),
                model=module,
                backward_passes_per_step=self._passes,
                **self._options,
            )
            for optimizer in self.optimizers
        ]
        self.optimizers = list(self._wrapped)

    def _bare(self, optimizer: Any) -> Any:  # noqa: ANN401
        """Return the optimizer within Lightning's wrapper, which passes for an optimizer too."""
        return optimizer._optimizer if isinstance(optimizer, self._wrapper) else optimizer

    def on_exception(self, exception: BaseException) -> None:
        """Take note of a failure, behind which sums may never come."""
        self._has_failed = True
        super().on_exception(exception)

    def teardown(self) -> None:
        """Make the last updates, and let gradients be this worker's own."""
        wrapped, self._wrapped = self._wrapped, []
        for optimizer in wrapped:
            if self._has_failed:
                with contextlib.suppress(Exception):  # the first error is the one to be seen
                    optimizer.close()
            else:
                optimizer.close()
        # Without a fit, or where one fails early, they are none of ours.
        bare = [self._bare(optimizer) for optimizer in self.optimizers]
        self.optimizers = [
            optimizer.inner if isinstance(optimizer, DistributedOptimizer) else optimizer
            for optimizer in bare
        ]
        super().teardown()

    # -- a step --------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: object, batch_idx: int) -> None:
        """Follow `accumulate_grad_batches`, which a callback may change between epochs."""
        passes = self.lightning_module.trainer.accumulate_grad_batches
        if passes != self._passes:
            self._passes = passes
            for optimizer in self._wrapped:
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
        trainer = module.trainer
        is_seen = self._has_hooks or trainer.gradient_clip_val
        # The module may call the closure by itself, and so outside a step.
        is_averaged = is_seen and not trainer.fit_loop._should_accumulate()
        loss = plugin.pre_backward(closure_loss, module)
        if is_averaged and self._has_backward and loss.requires_grad:
            loss.register_hook(self._average_at_end)
        plugin.backward(loss, module, optimizer, *args, **kwargs)
        if is_averaged:
            self._average()
        return plugin.post_backward(loss, module)

    def _average_at_end(self, _: torch.Tensor) -> None:
        """Average when this pass of backward ends, before its caller looks at gradients."""
        torch.autograd.Variable._execution_engine.queue_callback(self._average)

    def _average(self) -> None:
        for optimizer in self._wrapped:
            optimizer.synchronize()

    def optimizer_step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Step; the closure has the last pass of backward before it.

        Raises
        ------
        UsageError
            It is an optimizer that something has put into the place of ours.
        """
        if not any(optimizer is wrapped for wrapped in self._wrapped):
            raise _refused(
                f"trainer.optimizers has another {type(optimizer).__name__} since the fit began, "
                "whose gradients no other worker would get; change param_groups of the optimizer "
                f"that is there, or use {_INSTEAD}"
            )
        return super().optimizer_step(optimizer, *args, **kwargs)

    def optimizer_state(self, optimizer: Any) -> Any:  # noqa: ANN401
        """Return the state after the latest step, though gradients of the next are under way.

        Lightning saves at any moment: on an exception in backward, or on a signal.
        """
        bare = self._bare(optimizer)
        if not isinstance(bare, DistributedOptimizer):
            return super().optimizer_state(bare)
        _ = bare.state  # which makes all updates of that step
        return super().optimizer_state(bare.inner)


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
        _wrapper = package.core.optimizer.LightningOptimizer

    package.strategies.StrategyRegistry.register(
        NAME, ByteSchedulerStrategy, "forward begins while sums are under way", override=True
    )
    return ByteSchedulerStrategy
