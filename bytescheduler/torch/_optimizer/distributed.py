"""`DistributedOptimizer`: any optimizer of PyTorch, with means of gradients over all workers."""

import contextlib
import inspect
import sys
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional

import torch

from bytescheduler.errors import UsageError
from bytescheduler.torch._api.push_pull import Average, averages
from bytescheduler.torch._job.job import current
from bytescheduler.torch._optimizer.alone import Alone
from bytescheduler.torch._optimizer.methods import with_means
from bytescheduler.torch._optimizer.options import (
    Crossing,
    Groups,
    Named,
    Options,
    accepted,
    check_passes,
)
from bytescheduler.torch._optimizer.stepper import Stepper
from bytescheduler.torch._optimizer.suited import check_unscaled
from bytescheduler.torch._sums.choice import CompressionParams, choice_of
from bytescheduler.torch._sums.compression import Chosen, Compression

__all__ = ["DistributedOptimizer"]

_Optimizer = Any  # torch.optim.Optimizer
_Closure = Optional[Callable[[], Any]]


class DistributedOptimizer(torch.optim.Optimizer):  # type: ignore[misc]  # types are not read
    """An optimizer whose gradients are means over all workers.

    The next forward pass begins while the last sums are still on their way: each weight is updated
    when something uses it first.  Weights are those of the optimizer itself, bit for bit.
    It shares groups and state with the optimizer, so schedulers, scalers and checkpoints take it.

    Parameters
    ----------
    optimizer : Optimizer
        Any of PyTorch's, or a class of your own.
    named_parameters : iterable of pairs, optional
        `model.named_parameters()`; those of `model` if not given.
    compression : Compressor or str
        The form in which gradients travel, such as Compression.fp16 or "fp16".
    backward_passes_per_step : int
        How often backward accumulates before gradients are sent.
    op : str
        Average, or Sum.
    crossing : bool or "auto"
        Whether forward may begin before all sums are there; "auto": where it can.
    model : Module, optional
        Gets worker 0's parameters and buffers.  Its modules wait for all their weights at once,
        which is faster; compiled code needs it.
    on_gradient : callable, optional
        Gets each parameter when its gradient is the mean, before its update; may clip it.
    find_unused : bool
        Whether backward may leave parameters out; False makes that an error.
    sparse_as_dense : bool
        Whether sparse gradients travel as dense ones, rather than being refused.
    gradient_predivide_factor : float
        Gradients are divided by it before they travel, and multiplied by it when they are means.
    num_groups, groups
        Accepted for scripts of Horovod: small gradients travel together in any case.
    staleness : int
        Accepted for scripts of BytePS, which pass 0.
    compression_params : dict, optional
        The way in which the engine compresses gradients and their sums, in place of `compression`,
        such as {"compressor": "onebit", "scaling": True, "ef": "vanilla"}.

    Raises
    ------
    ValueError
        `init` was not called.
    UsageError
        A parameter or an option cannot be used, or differs on another worker; the message names it.
    """

    def __init__(
        self,
        optimizer: _Optimizer,
        named_parameters: Optional[Named] = None,
        compression: Chosen = Compression.none,
        backward_passes_per_step: int = 1,
        op: str = Average,
        crossing: Crossing = "auto",
        model: Optional[torch.nn.Module] = None,
        *,
        on_gradient: Optional[Callable[[torch.nn.Parameter], None]] = None,
        find_unused: bool = True,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Optional[Groups] = None,
        staleness: int = 0,
        compression_params: CompressionParams = None,
    ) -> None:
        if isinstance(optimizer, DistributedOptimizer):
            raise UsageError("optimizer: it is a DistributedOptimizer already; wrap it once", 5)
        if not isinstance(optimizer, torch.optim.Optimizer):
            cure = ""
            if isinstance(optimizer, torch.nn.Module):
                cure = "; give it first and the model as model=model"
            raise UsageError(
                f"optimizer: want a torch.optim.Optimizer, got {type(optimizer).__name__}{cure}", 5
            )
        # The base's own start is left out: groups, state and hooks are the inner optimizer's.
        self.inner = optimizer
        named = None if named_parameters is None else list(named_parameters)
        options = Options(
            named,
            accepted(
                choice_of(compression, compression_params),
                averages(op),
                gradient_predivide_factor,
                num_groups if groups is None else groups,
                staleness,
            ),
            backward_passes_per_step,
            averages(op),
            crossing,
            model,
            on_gradient,
            find_unused,
            sparse_as_dense,
        ).checked()
        self._choice = options.choice
        job = current().get()
        current().flush()  # these parameters may have had another optimizer
        self._stepper = None if job.carrier is None else Stepper(job, optimizer, options)
        self._alone = Alone(optimizer, options)  # where there is no stepper

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return what the optimizer itself has; a method of its class that may step gets means."""
        if name == "inner":
            raise AttributeError(name)
        value = getattr(self.inner, name)
        stepper = self.__dict__.get("_stepper")
        is_method = inspect.ismethod(value) and value.__self__ is self.inner
        if stepper is None or not is_method or hasattr(torch.optim.Optimizer, name):
            return value
        return with_means(value, stepper)

    def __repr__(self) -> str:
        """Return the optimizer's own text."""
        return f"DistributedOptimizer({self.inner!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:  # noqa: ANN401
        """Refuse: a copy would have no part in the job."""
        raise UsageError(
            "a DistributedOptimizer cannot be copied or pickled: save optimizer.state_dict(), and "
            "load it into one that is made anew",
            5,
        )

    # -- as of any optimizer -------------------------------------------------------------------

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Always False: GradScaler, which reads this in each step, unscales gradients before it.

        Raises
        ------
        UsageError
            GradScaler asks, and gradients have a momentum or codes that it would spoil.
        """
        # Lightning asks too, when it clips without a scaler.
        if sys._getframe(1).f_globals.get("__name__", "").endswith("grad_scaler"):
            check_unscaled(self._choice)
        return False

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """The optimizer's groups; after backward their gradients are means first.  May block."""
        if self._stepper is not None:
            self._stepper.before_groups()
        return self.inner.param_groups  # type: ignore[no-any-return]

    @param_groups.setter
    def param_groups(self, groups: List[Dict[str, Any]]) -> None:
        self.inner.param_groups = groups

    @property
    def state(self) -> Any:  # noqa: ANN401
        """The optimizer's state, after all updates.  May block."""
        if self._stepper is not None:
            self._stepper.flush()
        return self.inner.state

    @state.setter
    def state(self, state: Any) -> None:  # noqa: ANN401
        self.inner.state = state

    def step(self, closure: _Closure = None) -> Any:  # noqa: ANN401
        """Update all parameters with the means of their gradients.

        Across the barrier it returns at once; the first use of a weight, or of its gradient,
        waits for the mean.
        """
        if self._stepper is not None:
            return self._stepper.step(closure)
        return self._alone.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients; those that were sent and not used make no update."""
        if self._stepper is not None:
            self._stepper.zero_grad(set_to_none)
        else:
            self._alone.zero_grad(set_to_none)

    def state_dict(self) -> Dict[str, Any]:
        """Return the optimizer's state after all updates.  May block."""
        self._settle("state_dict()")
        return self.inner.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load the optimizer's state."""
        self._settle("load_state_dict()")
        self.inner.load_state_dict(state_dict)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Add parameters, on all workers alike.  Blocks."""
        self._settle("add_param_group()")
        self.inner.add_param_group(param_group)
        self.refresh()

    def _settle(self, call: str) -> None:
        if self._stepper is not None:
            self._stepper.check_settled(call)

    # -- beyond it -----------------------------------------------------------------------------

    @property
    def crosses(self) -> bool:
        """True if forward may begin while sums are under way."""
        return self._stepper is not None and self._stepper.crosses

    def synchronize(self) -> None:
        """Make `grad` of every parameter the mean, or, after step(), make all updates.  Blocks.

        To be called before gradients are clipped.
        """
        if self._stepper is not None:
            self._stepper.synchronize()
        else:
            self._alone.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Let step() take gradients as `synchronize` has left them."""
        stepper = self._stepper
        if stepper is None:
            yield
            return
        stepper.skips = True
        try:
            yield
        finally:
            stepper.skips = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how often backward accumulates before gradients are sent."""
        check_passes(passes)
        if self._stepper is not None:
            self._stepper.check_settled("set_backward_passes_per_step()")
            self._stepper.gradients.passes = passes

    def refresh(self, named_parameters: Optional[Named] = None) -> None:
        """Take parameters that were frozen when this was made.  Blocks; all workers call it."""
        if self._stepper is not None:
            self._stepper.refresh(named_parameters)

    def close(self) -> None:
        """Make all updates; gradients stay this worker's own from now on."""
        if self._stepper is not None:
            self._stepper.close()
            self._stepper = None
