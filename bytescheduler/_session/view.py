"""The view of a job: its workers, their hosts and its servers, as a worker sees them."""

import dataclasses
from typing import List, Protocol, Tuple

from bytescheduler.errors import UsageError

__all__ = ["HasView", "View"]

_NOT_KNOWN = -1


@dataclasses.dataclass(frozen=True)
class View:
    """A job at a time, as a worker of it sees it.

    Attributes
    ----------
    epoch : int
        Counts the changes of membership; today no job changes, so it is 0.
    rank : int
        Position of this worker among the workers, from 0.
    hosts : tuple of int
        A number of each worker's host, by rank; equal numbers are the same host.  It is -1
        where the job does not tell the host.
    num_servers : int
        How many servers the job has.
    """

    epoch: int
    rank: int
    hosts: Tuple[int, ...]
    num_servers: int

    @property
    def num_workers(self) -> int:
        """How many workers the job has."""
        return len(self.hosts)

    @property
    def local_rank(self) -> int:
        """Position among the workers of this host, from 0.

        Raises
        ------
        UsageError
            The servers are stock servers, which do not tell where workers run.
        """
        return self.hosts[: self.rank].count(self._own_host())

    @property
    def local_size(self) -> int:
        """How many workers this host has; raises as `local_rank` does."""
        return self.hosts.count(self._own_host())

    @property
    def cross_rank(self) -> int:
        """Position among the workers that have this one's `local_rank`, by host, from 0.

        Raises as `local_rank` does.
        """
        return self._hosts_that_reach(self.local_rank).index(self._own_host())

    @property
    def cross_size(self) -> int:
        """How many hosts have a worker of this one's `local_rank`; raises as that does."""
        return len(self._hosts_that_reach(self.local_rank))

    @property
    def is_homogeneous(self) -> bool:
        """True if all hosts have equally many workers; raises as `local_rank` does."""
        self._own_host()
        return len({self.hosts.count(host) for host in self.hosts}) == 1

    def _hosts_that_reach(self, local_rank: int) -> List[int]:
        """Return the hosts with more workers than `local_rank`, in the order of first ranks."""
        return [host for host in dict.fromkeys(self.hosts) if self.hosts.count(host) > local_rank]

    def _own_host(self) -> int:
        host = self.hosts[self.rank]
        if host == _NOT_KNOWN:
            raise UsageError(
                "where workers run: stock servers know nothing of it; start the job with bslaunch",
                5,
            )
        return host


class HasView(Protocol):
    """An object that knows the job: a session, or the belongings of a worker in the job."""

    @property
    def view(self) -> View:
        """The job as this worker sees it now."""
