"""The steps of an optimizer in a job: with a barrier, or across it."""

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Optional, Set

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from bytescheduler._compression.log_lines import unsuited_line
from bytescheduler._process.say import say
from bytescheduler._settings import Settings
from bytescheduler.errors import UsageError
from bytescheduler.torch._crossing.compilers import tells_begin
from bytescheduler.torch._crossing.guards import Guards
from bytescheduler.torch._crossing.joint import why_joint, why_unseen
from bytescheduler.torch._crossing.self_check import why_not_separable
from bytescheduler.torch._crossing.updates import Updates
from bytescheduler.torch._crossing.waiting import GRAD
from bytescheduler.torch._gradients.checks import names_of
from bytescheduler.torch._gradients.gradients import Gradients, Member
from bytescheduler.torch._gradients.means import leave
from bytescheduler.torch._gradients.sender import GradientOptions
from bytescheduler.torch._gradients.slot import SUMMED
from bytescheduler.torch._job.job import TorchJoined
from bytescheduler.torch._optimizer.agreement import agree, give_model
from bytescheduler.torch._optimizer.closures import Evaluations, evaluation, mean_loss
from bytescheduler.torch._optimizer.optimizer_facts import OptimizerFacts
from bytescheduler.torch._optimizer.options import Options
from bytescheduler.torch._optimizer.places import Places
from bytescheduler.torch._optimizer.suited import check_momentum, learning_rates
from bytescheduler.torch._optimizer.watch import Watch

__all__ = ["Stepper"]

_Optimizer = Any  # torch.optim.Optimizer
_Closure = Optional[Callable[[], Any]]
_EVALUATES = "its step evaluates the loss itself"
# Stages of the knowledge that a step needs before it may cross.
_NEW = 0  # nothing
_LOOKS = 1  # a forward pass showed, or shows, which weights it uses
_DECIDED = 2  # the optimizer is separable, or no step crosses


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
        self._stage = _NEW
        self.skips = False  # step() must not wait for sums
        self._evaluations = Evaluations(inner)
        self._has_shown = False  # `on_gradient` had the means
        may_cross = self._may_cross()
        members = self._members(inner.param_groups)
        self._optimizer_facts = OptimizerFacts(
            inner, lambda params: self._names(params, all_named=False)
        )
        agree(job, inner, self._optimizer_facts, options, [member[:2] for member in members])
        self._check_momentum()
        self.gradients = Gradients(
            job,
            members,
            GradientOptions(
                options.choice,
                options.average,
                options.passes,
                options.sparse_as_dense,
                options.find_unused,
                learning_rates(inner),
            ),
            self._on_first,
            self._optimizer_facts,
        )
        line = unsuited_line(options.choice.params.coding, type(inner).__name__)
        if line is not None:
            self._tell(line)
        self.gradients.flush = self.flush
        self._make_equal()
        self._places = Places(inner)
        self._places.take(self.gradients.slots)
        self._updates: Optional[Updates] = None
        self._guards: Optional[Guards] = None
        if may_cross and not self._stays_joint():
            self._install()
        # Alone, its own step is as good.
        loaded = self.gradients.agreement.ask
        self._watch = Watch(inner, self.flush, loaded) if job.size > 1 else None

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
        if self._evaluations.are_made:
            self._stay(_EVALUATES)
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
        if self._updates is not None and self._stage == _NEW:
            self._stage = _LOOKS
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

    def _on_first(self) -> None:
        """See `Gradients`: the first gradient of a round."""
        self._looked_for_nothing = False
        if self._stage != _NEW and self._updates is not None and not self._shows_order:
            self._shows_order = True
            self.gradients.show_order()  # profiles have it too

    # -- a step --------------------------------------------------------------------------------

    def step(self, closure: _Closure) -> Any:  # noqa: ANN401
        """Do as the optimizer's `step`, with means over all workers."""
        if self._gets(closure):
            return self._step_evaluating(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.gradients.leave_dropped()
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
        has_gradient = any(slot.param.grad is not None for slot in self.gradients.slots)
        if not self._has_stepped and not has_gradient:
            raise UsageError(
                "step() came before backward(): no parameter has a gradient; call backward() "
                "first, or put gradients of your own in p.grad",
                5,
            )
        if self._looked_for_nothing and not self.gradients.has_made:
            raise UsageError(
                "step() and synchronize() came without a gradient on this worker, which cannot "
                "tell whether others wait in synchronize(); call backward on every worker",
                5,
            )

    def _check_places(self) -> None:
        """Look at what a script did to the groups and to frozen parameters."""
        self._check_momentum()
        if self._places.have_changed():
            self.flush()  # each update is made with the numbers of its group of then
            self._places.take(self.gradients.slots)
        self._places.check_left_out(lambda params: self._names(params, all_named=False))

    def _check_momentum(self) -> None:
        check_momentum(self._inner, self._options.choice, evaluates=self._evaluations.are_made)

    def _does_cross(self) -> bool:
        if self._updates is None or self._stage == _NEW:
            return False
        is_first = self._stage == _LOOKS
        if is_first and not (self.gradients.has_any or self._updates.look.has_seen):
            self._updates.look.pause()  # no forward pass has come
            return False
        if is_first and self._guards is not None:
            self._guards.cover_uncalled()
        reason = self._updates.why_blind()
        if is_first:
            self._stage = _DECIDED
            reason = reason or why_not_separable(self._inner)
        if reason is not None:
            self._uninstall()
            self._stay(reason)
            return False
        outside = self._updates.at_once
        if outside:
            self._tell(
                f"{outside[0].name} is used in no call of a module that has it, where code that "
                "Python does not see could use it too; each step waits for its sum"
            )
        elif is_first and Settings.read().is_talkative:
            kind = type(self._inner).__name__
            self._tell(f"{kind} crosses the barrier: forward begins while sums are under way")
        return True

    def _step_across(self) -> None:
        assert self._updates is not None
        inner = self._inner
        with self._stepping():
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
        self._show_means()
        with self._stepping(), self._optimizer_facts.stepping():
            self._inner.step()
        self.gradients.forget_sums()

    def _stepping(self) -> ContextManager[None]:
        """Let the optimizer step meanwhile, which is an error where a script does it."""
        return contextlib.nullcontext() if self._watch is None else self._watch.stepping()

    def _sum_up(self) -> None:
        self.gradients.sum_up()
        self._has_shown = False

    def _show_means(self) -> None:
        """Call `on_gradient`, once, with all that have a mean."""
        if self._options.on_gradient is not None and not self._has_shown:
            self._has_shown = True
            for slot in self.gradients.slots:
                if slot.param.grad is not None:
                    self._options.on_gradient(slot.param)

    def _gets(self, closure: _Closure) -> bool:
        """Return whether the optimizer gets `closure`; then no step crosses."""
        gets = self._evaluations.need(closure)
        self._check_momentum()
        if self._evaluations.are_made and self._updates is not None:
            self._uninstall()
            self._stay(_EVALUATES)
        return gets

    def _step_evaluating(self, closure: _Closure) -> Any:  # noqa: ANN401
        if closure is None:
            with self._stepping():
                return self._inner.step()  # raises the optimizer's own error
        with self._optimizer_facts.stepping():
            result = self.call(self._inner.step, self.evaluation(closure))
        self.gradients.forget_sums()
        self._has_stepped = True
        return result

    def call(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:  # noqa: ANN401
        """Call a method of the optimizer that may step: gradients are means, updates are made.

        A closure among the arguments leaves means too.  Blocks.
        """
        if self._updates is not None:
            self._updates.look.pause()  # it is no forward pass
        self.synchronize(at_will=True)
        self._check_places()
        if self.gradients.has_state(SUMMED):
            self._show_means()
        before = [slot.param._version for slot in self.gradients.slots]
        with self._stepping():
            result = method(*args, **named)
        if before != [slot.param._version for slot in self.gradients.slots]:
            self.gradients.forget_sums()
            self._has_stepped = True
        return result

    def evaluation(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure for `call`, which leaves means."""

        def average() -> None:
            self._check_places()
            self.synchronize(always=True)
            self._show_means()

        def evaluate() -> Any:  # noqa: ANN401
            with self._optimizer_facts.outside_step():
                return closure()

        return evaluation(evaluate, average, lambda loss: mean_loss(self._job.sums, loss))

    # -- in between ----------------------------------------------------------------------------

    def synchronize(self, *, always: bool = False, at_will: bool = False) -> None:
        """Let every gradient be the mean, or make updates that wait.  Blocks.

        Without `always`, where neither backward nor the script has made a gradient since the latest
        step, only the latter.  With `at_will`, others need not call it then.
        """
        self.flush()
        self.gradients.leave_dropped()
        if self.gradients.has_state(SUMMED) and not self.gradients.has_any:
            return
        if not (always or self.gradients.has_any or self.gradients.has_made):
            self._looked_for_nothing |= not at_will
            return
        self._sum_up()

    def before_groups(self) -> None:
        """Let gradients be means before something reads the groups, as GradScaler does."""
        if not self.gradients.is_under_way or self.gradients.leave_dropped():
            return
        self.flush()
        if self.crosses:
            self._tell(
                "param_groups were read between backward and step(), as GradScaler does: that "
                "step waits for all sums"
            )
        self._sum_up()

    def flush(self) -> None:
        """Make updates that wait, and judge the latest round.  Blocks."""
        if self._updates is not None:
            self._updates.flush()
        self.gradients.settle()

    def zero_grad(self, set_to_none: bool) -> None:
        """Do as the optimizer's `zero_grad`; sums under way are left to their end."""
        if self.gradients.discard(to_zeros=not set_to_none):
            self._tell("zero_grad() came after backward and before step(): no update is made")
        self.gradients.forget_sums(unused=True)
        if set_to_none and self._updates is not None:
            self._updates.drop_gradients()
        inner = self._inner
        is_own = type(inner).zero_grad is torch.optim.Optimizer.zero_grad
        if set_to_none and is_own and "zero_grad" not in vars(inner):
            # PyTorch's own, which uses no weight, would ask each that waits for its gradient.
            with torch._C.DisableTorchFunctionSubclass():
                for group in inner.param_groups:
                    for param in group["params"]:
                        GRAD.__set__(param, None)
        else:
            inner.zero_grad(set_to_none)
        for slot in self.gradients.slots:
            slot.passes = 0
            if not set_to_none:
                leave(slot.param)

    def check_settled(self, call: str) -> None:
        """Raise UsageError if gradients are under way, else make updates that wait."""
        if self.gradients.is_under_way and not self.gradients.leave_dropped():
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
            if self._stage != _NEW:
                self._updates.look.begin(self.gradients.slots[before:])
            if self._guards is not None:
                self._guards.add(self.gradients.slots[before:])
        self._places.take(self.gradients.slots)

    def close(self) -> None:
        """Make updates that wait, judge the latest round, and average nothing any more."""
        if self._watch is not None:
            self._watch.close()
        self._uninstall()
        self.gradients.close()
        self.gradients.settle()


def _in_order(first: Mapping[int, Any], then: Mapping[int, Any]) -> List[Any]:
    return [*first.values(), *then.values()]
