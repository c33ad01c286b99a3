"""Steps of small models, with torch's own optimizer or with ours; torch is imported by workers."""

from typing import Any, Callable

__all__ = ["step_of", "wrapped"]


def wrapped(optimizer: Any, model: Any, prefix: str, mode: str) -> Any:  # noqa: ANN401 - no types
    """Return our optimizer around `optimizer`.

    Parameters
    ----------
    optimizer, model : object
        Torch's.
    prefix : str
        Tells the names of parameters from the names of another model in the job.
    mode : str
        "barrier", "crossing", or "modelless", which crosses without `model=`.
    """
    import bytescheduler.torch as bps

    return bps.DistributedOptimizer(
        optimizer,
        named_parameters=[(f"{prefix}.{of}", param) for of, param in model.named_parameters()],
        model=None if mode == "modelless" else model,
        crossing=mode != "barrier",
    )


def step_of(model: Any, optimizer: Any, width: int) -> Callable[[], None]:  # noqa: ANN401 - no types
    """Return what makes one step with a sample of `width` numbers."""
    import torch

    batch = torch.ones(1, width)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step
