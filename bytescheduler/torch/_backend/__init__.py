"""The backend of torch.distributed: c10d's collectives as exchanges of the engine."""

import torch

__all__ = ["add_backend"]


def add_backend() -> None:
    """Let `init_process_group("bytescheduler")` find the backend, if this PyTorch has c10d."""
    if torch.distributed.is_available():
        from bytescheduler.torch._backend.registration import register

        register()
