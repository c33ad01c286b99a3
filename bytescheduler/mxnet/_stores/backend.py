"""The interface of a back end of ScheduledKVS; the meaning of each method is MXNet's own."""

from typing import Mapping, Optional, Protocol

from bytescheduler.mxnet._types import Arrays, Handle, Keys, Optimizer, RowIds, Updater


class Backend(Protocol):
    """Carries a store's bytes.  Called on the thread that calls the store."""

    @property
    def handle(self) -> Handle:
        """Handle of the stock store, or a null one."""

    @property
    def updater(self) -> Updater:
        """The function that changes weights in this process, or None."""

    @property
    def is_p3(self) -> bool:
        """True if the stock store says that its servers cannot update."""

    @property
    def updates_here(self) -> bool:
        """True if weights are updated in this process, not by servers."""

    @property
    def type(self) -> str:
        """The name that decides how MXNet treats the store."""

    @property
    def rank(self) -> int:
        """Position among the workers, from 0."""

    @property
    def num_workers(self) -> int:
        """How many workers there are."""

    def agree_on_rescaling(self) -> None:
        """Learn the number in rank 0's rescale_grad, if that may differ; all workers call it."""

    def follow(self, optimizer: Optimizer) -> None:
        """Let residuals of compression follow the rates of an optimizer outside of the store."""

    def retune(self, partition_bytes: int, credit_bytes: int) -> None:
        """Change partitions and credit of all workers, if there are any that can change."""

    def init(self, key: Keys, value: Arrays) -> None:
        """Give keys their first values."""

    def broadcast(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        """Give keys rank 0's values and pull them."""

    def push(self, key: Keys, value: Arrays, priority: int) -> None:
        """Add to the current round."""

    def pull(self, key: Keys, out: Arrays, priority: int, ignore_sparse: bool) -> None:
        """Copy the stored values out."""

    def pushpull(self, key: Keys, value: Arrays, out: Arrays, priority: int) -> None:
        """Push, then pull."""

    def row_sparse_pull(self, key: Keys, out: Arrays, priority: int, row_ids: RowIds) -> None:
        """Copy some rows out."""

    def set_gradient_compression(self, params: Mapping[str, object]) -> None:
        """Compress what is pushed."""

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Update weights with this optimizer from now on."""

    def set_updater(self, updater: Updater) -> None:
        """Update weights with this function from now on."""

    def is_capable(self, capability: str) -> bool:
        """Return whether the store can do something."""

    def save_optimizer_states(self, fname: str, dump_optimizer: bool) -> None:
        """Write the updater's states."""

    def load_optimizer_states(self, fname: str) -> None:
        """Read the updater's states."""

    def barrier(self) -> None:
        """Wait until every worker called it."""

    def send_command_to_servers(self, head: int, body: str) -> None:
        """Send a command to the stock servers, if there are any."""

    def close(self, drain_s: Optional[float]) -> None:
        """Give up the back end; the stock store stays."""

    def drop(self) -> None:
        """Give it up without its owner's `close`; the process may make others."""
