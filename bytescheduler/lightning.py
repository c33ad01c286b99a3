"""Lightning: a strategy whose forward pass begins before all gradients have arrived.

Change one argument of a training script::

    import bytescheduler.lightning

    trainer = Trainer(strategy="bytescheduler")
"""

from bytescheduler.torch._lightning.packages import found
from bytescheduler.torch._lightning.strategy import strategy_of

__all__ = ["ByteSchedulerStrategy"]

_STRATEGIES = [strategy_of(package) for package in found()]
ByteSchedulerStrategy = _STRATEGIES[0]
