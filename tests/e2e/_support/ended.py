"""The end of jobs, labs and programs that a test holds for a ``with`` block."""

from typing import TypeVar

_E = TypeVar("_E", bound="Ended")


class Ended:
    """Calls `end` when the ``with`` block is left, after an error too."""

    def __enter__(self: _E) -> _E:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End what the object holds; it is called once."""
        raise NotImplementedError
