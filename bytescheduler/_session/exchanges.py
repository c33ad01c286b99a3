"""Exchanges: rounds with a set of givers and a set of takers, which nothing declares."""

from typing import NamedTuple, Tuple

__all__ = ["MAX", "MIN", "PRODUCT", "SUM", "Exchange"]

# Operations, as the engine numbers them.
SUM, MIN, MAX, PRODUCT = range(4)


class Exchange(NamedTuple):
    """An exchange as one of its givers or takers starts it.

    Parameters
    ----------
    key : int
        64 bits; no other exchange of the job has it.
    givers, takers : tuple of int
        Ranks that contribute bytes, and ranks that receive the result.
    label : str
        At most 200 bytes, alike on all of them.
    home : int
        The rank that keeps the round, in a direct job.
    size : int
        Bytes; 0 if the exchange only compares labels.
    dtype, op : int
        The elements' type, and the operation on several contributions.
    send, receive : int
        Addresses; 0 if this rank gives, or takes, nothing.
    """

    key: int
    givers: Tuple[int, ...]
    takers: Tuple[int, ...]
    label: str
    home: int
    size: int = 0
    dtype: int = 0
    op: int = SUM
    send: int = 0
    receive: int = 0
