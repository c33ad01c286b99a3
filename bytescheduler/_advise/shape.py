"""The shape of a job: how many workers and servers there are, and which of them share a host.

Hosts count from 1: first the hosts of the workers, then the hosts that servers have to themselves.
Workers that share a host have neighbouring ranks. A server that is beside a worker is beside the
worker of its rank.
"""

from typing import Dict, List, NamedTuple, Sequence, Tuple

from bytescheduler._process.numbers import shortened
from bytescheduler._process.say import counted

__all__ = ["Shape", "factors_of"]


def factors_of(text: str) -> Tuple[Tuple[int, float], ...]:
    """Return the host numbers and factors of a list such as "3=0.5,4=2".

    Raises
    ------
    ValueError
        It is no such list.
    """
    factors = []
    for word in text.split(","):
        host, _, factor = word.partition("=")
        try:
            factors.append((int(host), float(factor)))
        except ValueError:
            raise ValueError(
                f"{shortened(word)}: want a host and its part of the rate, such as 3=0.5"
            ) from None
    return tuple(factors)


class Shape(NamedTuple):
    """Workers, servers and their hosts."""

    workers: int = 2
    servers: int = 2
    together: int = 0  # servers that are beside a worker
    # The links of single hosts, as a factor of the usual rate.
    factors: Tuple[Tuple[int, float], ...] = ()
    per_host: int = 1  # workers on each of the hosts that have any; the last may have fewer

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.hosts_of_workers + self.servers - self.together

    @property
    def hosts_of_workers(self) -> int:
        """How many hosts have workers."""
        return -(-self.workers // self.per_host)

    @property
    def worker_hosts(self) -> List[int]:
        """The host of each worker."""
        return [1 + rank // self.per_host for rank in range(self.workers)]

    @property
    def server_hosts(self) -> List[int]:
        """The host of each server."""
        apart = range(1 + self.hosts_of_workers, 1 + self.hosts)
        return [*self.worker_hosts[: self.together], *apart]

    @property
    def direct(self) -> "Shape":
        """The same workers, each with a server beside it."""
        return Shape(self.workers, self.workers, self.workers, per_host=self.per_host)

    def rates(self, usual: float) -> Dict[int, float]:
        """Return the rate of each host's link; a host without a factor has the `usual` rate."""
        factor_of_host = dict(self.factors)
        return {host: factor_of_host.get(host, 1.0) * usual for host in range(1, 1 + self.hosts)}

    @property
    def usual_hosts(self) -> List[int]:
        """The hosts without a factor."""
        return [host for host, factor in self.rates(1.0).items() if factor == 1.0]

    @property
    def problem(self) -> str:
        """Return why there is no such job; empty if there is."""
        most = min(self.workers, self.servers)
        if not 0 <= self.together <= most:
            return f"{self.together} servers beside workers: want 0 to {most}"
        return _problem_of(self.factors, self.hosts)

    @property
    def name(self) -> str:
        """A short name, such as 4+2, 2+2 together or 2+4, 2 together."""
        words = f"{self.workers}+{self.servers}"
        if self.together:
            all_are = self.together == self.workers == self.servers
            words += " together" if all_are else f", {self.together} together"
        if self.per_host > 1:
            words += f", {self.per_host} a host"
        return words + "".join(f", host {host} at {of:g}" for host, of in self.factors)


def _problem_of(factors: Sequence[Tuple[int, float]], hosts: int) -> str:
    seen = set()
    for host, factor in factors:
        if not 1 <= host <= hosts:
            return f"the rate of host {host}: there are {counted(hosts, 'host')}"
        if host in seen:
            return f"the rate of host {host} is there twice"
        if not 0.001 <= factor <= 1000:
            return f"the rate of host {host}: want 0.001 to 1000 times that of the others"
        seen.add(host)
    return ""
