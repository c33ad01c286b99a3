"""The end of jobs, labs and programs that a test holds for a ``with`` block."""

import abc
from typing import TypeVar

_E = TypeVar("_E", bound="Ended")


class Ended(abc.ABC):
    """Calls `end` when the ``with`` block is left, after an error too."""

    def __enter__(self: _E) -> _E:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @abc.abstractmethod
    def end(self) -> None:
        """End the processes and folders of the object; it is called once."""
