"""The steps of an optimizer in a job: with a barrier, or across it."""

from typing import Any, Callable, Dict, List, Mapping, Optional, Set

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from bytescheduler._process.say import say
from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.compilers import tells_begin
from bytescheduler.torch._crossing.guards import Guards
from bytescheduler.torch._crossing.joint import why_joint, why_unseen
from bytescheduler.torch._crossing.self_check import why_not_separable
from bytescheduler.torch._crossing.shadow import needs_closure
from bytescheduler.torch._crossing.updates import Updates
from bytescheduler.torch._gradients.checks import names_of
from bytescheduler.torch._gradients.gradients import GradientOptions, Gradients, Member
from bytescheduler.torch._gradients.slot import SUMMED
from bytescheduler.torch._job.job import TorchJoined
from bytescheduler.torch._optimizer.agreement import agree, give_model
from bytescheduler.torch._optimizer.beliefs import OptimizerBeliefs
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.places import Places
from bytescheduler.torch._sums.tensor_sums import Call

__all__ = ["Stepper"]

_Optimizer = Any  # torch.optim.Optimizer
_Closure = Optional[Callable[[], Any]]


class Stepper:
    """Averages gradients between backward and an optimizer's step.

    Parameters
    ----------
    job : TorchJoined
        Of at least two workers.
    inner : Optimizer
        Makes the updates.
    options : Options
        Checked.
    """

    def __init__(self, job: TorchJoined, inner: _Optimizer, options: Options) -> None:
        self._job = job
        self._inner = inner
        self._options = options
        self._has_stepped = False
        self._shows_order = False  # the names of parameters were told in the order of forward
        self._looked_for_nothing = False  # synchronize() came before any gradient
        self._told: Set[str] = set()
        self._has_looked = False  # a forward pass showed, or shows, which weights it uses
        self._is_checked = False  # the optimizer is known to be separable, or not
        self.skips = False  # step() must not wait for sums
        self._evaluates = needs_closure(inner)
        may_cross = self._may_cross()
        members = self._members(inner.param_groups)
        self._beliefs = OptimizerBeliefs(inner, lambda params: self._names(params, all_named=False))
        agree(job, inner, self._beliefs, options, [member[:2] for member in members])
        self.gradients = Gradients(
            job,
            members,
            GradientOptions(
                options.compression,
                options.average,
                options.passes,
                options.sparse_as_dense,
                options.find_unused,
            ),
            self._on_first,
            self._beliefs,
        )
        self._make_equal()
        self._places = Places(inner)
        self._places.take(self.gradients.slots)
        self._updates: Optional[Updates] = None
        self._guards: Optional[Guards] = None
        if may_cross and not self._stays_joint():
            self._install()

    def _make_equal(self) -> None:
        """Let the model be worker 0's, and let the first step compare frozen weights too."""
        model = self._options.model
        try:
            if model is not None:
                give_model(self._job, model)
        except Exception:
            self.gradients.close()
            raise
        params = [param for group in self._inner.param_groups for param in group["params"]]
        names = self._names(params, all_named=True)
        named = {} if model is None else dict(model.named_parameters())
        named.update({names[id(param)]: param for param in params})
        watched = {id(slot.param) for slot in self.gradients.slots}
        further = [(name, param) for name, param in named.items() if id(param) not in watched]
        self.gradients.agreement.watch(further)

    def _members(self, groups: List[Any], *, all_named: bool = True) -> List[Member]:
        names = self._names(
            [param for group in groups for param in group["params"]], all_named=all_named
        )
        members = [
            (names[id(param)], param, at)
            for at, group in enumerate(groups)
            for param in group["params"]
            if param.requires_grad
        ]
        order = {key: place for place, key in enumerate(names)}
        return sorted(members, key=lambda member: order[id(member[1])])

    def _names(self, params: List[torch.nn.Parameter], *, all_named: bool) -> Dict[int, str]:
        options = self._options
        return names_of(params, options.named_parameters, options.model, all_named=all_named)

    # -- crossing ------------------------------------------------------------------------------

    def _may_cross(self) -> bool:
        if self._options.crossing is False:
            return False
        if self._evaluates:
            self._stay("its step evaluates the loss itself")
            return False
        if self._options.model is None and not tells_begin():
            self._stay("with this PyTorch, code may be compiled unseen, which needs model=model")
            return False
        return True

    def _stays_joint(self) -> bool:
        slots = self.gradients.slots
        reason = why_joint(slots) or why_unseen(slots)
        if reason is not None:
            self._stay(reason)
        return reason is not None

    def _stay(self, reason: str) -> None:
        """Keep the barrier, and say so; an error if crossing was asked for."""
        kind = type(self._inner).__name__
        text = f"{kind} cannot cross the barrier: {reason}"
        if self._options.crossing is True:
            raise UsageError(f"{text}; pass crossing=False, or give another optimizer", 5)
        self._tell(f"{text}; each step waits for all sums")

    def _tell(self, text: str) -> None:
        """Print a line, once, on worker 0."""
        if self._job.rank == 0 and text not in self._told:
            say(f"bytescheduler: {text}")
        self._told.add(text)

    def _install(self) -> None:
        options, slots = self._options, list(self.gradients.slots)
        self._updates = Updates(
            self._inner,
            self.gradients,
            options.on_gradient,
            self._job.unflushed,
            guarded=options.model is not None,
        )
        if options.model is not None:
            self._guards = Guards(options.model, self._updates, slots)
            self._look()

    def _look(self) -> None:
        """Look at the next forward pass; without guards not at the first, which may be traced."""
        if self._updates is not None and not self._has_looked:
            self._has_looked = True
            self._updates.look.begin(self.gradients.slots)

    def _uninstall(self) -> None:
        if self._guards is not None:
            self._guards.close()
        if self._updates is not None:
            self._updates.close()
        self._guards = self._updates = None

    @property
    def crosses(self) -> bool:
        """True if forward may begin while sums are under way."""
        return self._updates is not None

    def guard(self, module: torch.nn.Module, params: List[torch.nn.Parameter]) -> None:
        """Let `module` wait for weights that it uses and does not own."""
        if self._guards is not None:
            self._guards.guard(module, params)

    def _on_first(self) -> None:
        """See `Gradients`: the first gradient of a round."""
        self._looked_for_nothing = False
        if self._has_looked and self._updates is not None and not self._shows_order:
            self._shows_order = True
            self.gradients.show_order()  # profiles have it too

    # -- a step --------------------------------------------------------------------------------

    def step(self, closure: _Closure) -> Any:  # noqa: ANN401
        """Do as the optimizer's `step`, with means over all workers."""
        if self._evaluates:
            return self._step_evaluating(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_begun()
        self._check_places()
        if self.gradients.has_state(SUMMED):
            self._step_summed()
        elif self.skips:
            raise UsageError(
                "step() in skip_synchronize(): the gradients are this worker's own; call "
                "optimizer.synchronize() first",
                5,
            )
        elif self._does_cross():
            self._step_across()
        else:
            self.synchronize(always=True)
            self._step_summed()
        self._has_stepped = True
        self._look()
        return loss

    def _check_begun(self) -> None:
        if self.gradients.has_any or self.gradients.has_state(SUMMED):
            return
        if not self._has_stepped:
            raise UsageError(
                "step() came before any gradient; a function that only makes the optimizer's "
                "state, such as torch.distributed.checkpoint's, takes optimizer.inner",
                5,
            )
        if self._looked_for_nothing:
            raise UsageError(
                "step() and synchronize() came without a gradient on this worker, which cannot "
                "tell whether others wait in synchronize(); call backward on every worker",
                5,
            )

    def _check_places(self) -> None:
        """Look at what a script did to the groups and to frozen parameters."""
        if self._places.have_changed():
            self.flush()  # each update is made with the numbers of its group of then
            self._places.take(self.gradients.slots)
        self._places.check_left_out(lambda params: self._names(params, all_named=False))

    def _does_cross(self) -> bool:
        if self._updates is None or not self._has_looked:
            return False
        if self._guards is not None and not self._is_checked:
            self._guards.cover_uncalled()
        reason = self._updates.why_blind()
        if not self._is_checked:
            self._is_checked = True
            reason = reason or why_not_separable(self._inner)
        if reason is not None:
            self._uninstall()
            self._stay(reason)
        return reason is None

    def _step_across(self) -> None:
        assert self._updates is not None
        inner = self._inner
        for hook in _in_order(_global_optimizer_pre_hooks, inner._optimizer_step_pre_hooks):
            hook(inner, (), {})
        self._updates.arm()
        inner._opt_called = True  # else a scheduler believes that step() was left out
        hooks = _in_order(inner._optimizer_step_post_hooks, _global_optimizer_post_hooks)
        if hooks:
            self._tell("a hook comes after each step, which waits for all sums, as it sees weights")
            self.flush()
        for hook in hooks:
            hook(inner, (), {})

    def _step_summed(self) -> None:
        if self._options.on_gradient is not None:
            for slot in self.gradients.slots:
                if slot.param.grad is not None:
                    self._options.on_gradient(slot.param)
        with self._beliefs.stepping():
            self._inner.step()
        self.gradients.forget_sums()

    def _step_evaluating(self, closure: _Closure) -> Any:  # noqa: ANN401
        if closure is None:
            return self._inner.step()  # raises the optimizer's own error

        def evaluate() -> Any:  # noqa: ANN401
            with torch.enable_grad():
                loss = closure()
            self._check_places()
            self.synchronize(always=True)
            # Decisions of the optimizer must be alike on all workers.
            value = torch.as_tensor(loss).detach().to(torch.float64)
            sums = self._job.sums
            mean = sums.finish(sums.start(value, Call(name="loss of a closure")))
            return loss.detach().new_tensor(float(mean)) if torch.is_tensor(loss) else float(mean)

        result = self._inner.step(evaluate)
        self.gradients.forget_sums()
        self._has_stepped = True
        return result

    # -- in between ----------------------------------------------------------------------------

    def synchronize(self, *, always: bool = False) -> None:
        """Let every gradient be the mean, or make updates that wait.  Blocks.

        Without `always`, where backward has made no gradient since the latest step, only the
        latter.
        """
        self.flush()
        if self.gradients.has_state(SUMMED) and not self.gradients.has_any:
            return
        if not always and not self.gradients.has_any:
            self._looked_for_nothing = True
            return
        self.gradients.sum_up()

    def before_groups(self) -> None:
        """Let gradients be means before something reads the groups, as GradScaler does."""
        if not self.gradients.is_under_way:
            return
        if self.crosses:
            self._tell(
                "param_groups were read between backward and step(), as GradScaler does: that "
                "step waits for all sums"
            )
        self.gradients.sum_up()

    def flush(self) -> None:
        """Make updates that wait.  Blocks."""
        if self._updates is not None:
            self._updates.flush()

    def zero_grad(self, set_to_none: bool) -> None:
        """Do as the optimizer's `zero_grad`; sums under way are left to their end."""
        if self.gradients.discard():
            self._tell("zero_grad() came after backward and before step(): no update is made")
        self.gradients.forget_sums()
        if type(self._inner).zero_grad is torch.optim.Optimizer.zero_grad:
            with torch._C.DisableTorchFunctionSubclass():  # it uses no weight, and asks for each
                self._inner.zero_grad(set_to_none)
        else:
            self._inner.zero_grad(set_to_none)
        for slot in self.gradients.slots:
            slot.passes = 0

    def check_settled(self, call: str) -> None:
        """Raise UsageError if gradients are under way, else make updates that wait."""
        if self.gradients.is_under_way:
            raise UsageError(f"{call} came between backward and step(): call step() first", 5)
        self.flush()

    def refresh(self, named: Any) -> None:  # noqa: ANN401
        """Take parameters that were frozen, or are new.  Blocks until all workers do so."""
        self.check_settled("refresh()")
        if named is not None:
            self._options = self._options._replace(named_parameters=list(named))
        param_ids = {id(slot.param) for slot in self.gradients.slots}
        members = self._members(self._inner.param_groups, all_named=False)
        new = [member for member in members if id(member[1]) not in param_ids]
        if not new:
            self._places.take(self.gradients.slots)
            return
        before = len(self.gradients.slots)
        self.gradients.add(new)
        if self._updates is not None and self._stays_joint():
            self._uninstall()
        elif self._updates is not None:
            if self._has_looked:
                self._updates.look.begin(self.gradients.slots[before:])
            if self._guards is not None:
                self._guards.add(self.gradients.slots[before:])
        self._places.take(self.gradients.slots)

    def close(self) -> None:
        """Make updates that wait, and average nothing any more."""
        self._uninstall()
        self.gradients.close()


def _in_order(first: Mapping[int, Any], then: Mapping[int, Any]) -> List[Any]:
    return [*first.values(), *then.values()]
