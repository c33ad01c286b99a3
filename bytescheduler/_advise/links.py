"""The load of each link of a job, for any placement of its workers and servers.

A worker pushes each byte of the model to the server that has it, and that server sends each worker
the sum. What is on a host's own server does not cross its link. A host with a worker has the share
x of the model on its server. It sends 1 - x of it as gradients and (W - 1) x as sums, and receives
as much. In general, n workers and the share x load the link with n + (W - 2n) x each way.

The workers of a host may add their gradients up before one copy of them leaves, and share the sum
that comes back. Then a host with workers loads its link as one worker does.
"""

import math
from collections import Counter
from typing import Dict, List, Optional, Sequence, Tuple

from bytescheduler._advise.shape import Shape

__all__ = [
    "best_shares",
    "busiest_load",
    "crossing_s",
    "equal_shares",
    "loads",
    "model_bytes_per_s",
    "pushed_bytes_per_s",
    "ring_load",
]

_HALVINGS = 64


def equal_shares(shape: Shape) -> List[float]:
    """Return the share of the model of each server, where all have as much."""
    return [1 / shape.servers] * shape.servers


def loads(shape: Shape, shares: Sequence[float], *, host_copy: bool = False) -> Dict[int, float]:
    """Return how many models cross each host's link, each way, in a step.

    With `host_copy` one copy leaves a host, otherwise one each worker.
    """
    copies, servers = _copies(shape, host_copy), _by_host(shape, shares)
    total = sum(copies.values())
    return {
        host: copies[host] + (total - 2 * copies[host]) * servers.get(host, 0.0)
        for host in range(1, 1 + shape.hosts)
    }


def busiest_load(shape: Shape, *, host_copy: bool = False) -> float:
    """Return the largest of `loads`, with shares that make it the least; links are alike."""
    return max(loads(shape, best_shares(shape, host_copy=host_copy), host_copy=host_copy).values())


def ring_load(shape: Shape) -> float:
    """Return how many models cross a host's link each way if a ring of all workers sums."""
    return 0.0 if shape.hosts_of_workers == 1 else 2 * (shape.workers - 1) / shape.workers


def _copies(shape: Shape, host_copy: bool) -> "Counter[int]":
    """Return how many copies of the model each host with workers sends."""
    return Counter(set(shape.worker_hosts) if host_copy else shape.worker_hosts)


def _by_host(shape: Shape, shares: Sequence[float]) -> Dict[int, float]:
    share_of_host: Dict[int, float] = dict.fromkeys(shape.server_hosts, 0.0)
    for host, share in zip(shape.server_hosts, shares):
        share_of_host[host] += share
    return share_of_host


def _room(shape: Shape, copies: "Counter[int]", seconds: float) -> Dict[int, float]:
    """Return the share that a host's servers can have if its link has these seconds.

    Links move a model in a second, or `Shape.factors` of it.
    """
    rates, total = shape.rates(1.0), sum(copies.values())
    room = {}
    for host in set(shape.server_hosts):
        left = seconds * rates[host] - copies[host]
        more = total - 2 * copies[host]  # for each model on the host
        if more > 0:
            room[host] = min(1.0, max(0.0, left / more))
        else:  # its link carries no more if its servers have more
            room[host] = 1.0
    return room


def best_shares(shape: Shape, *, host_copy: bool = False) -> List[float]:
    """Return the share of each server with which the busiest link is the least busy.

    The load of a link grows with the share of its host. Only that of a host with more than half of
    the copies shrinks, and then all is best there. The more time, the larger the shares that fit;
    the least time in which all of the model fits is found by halving.
    """
    copies = _copies(shape, host_copy)
    total_copies = sum(copies.values())
    most = [host for host in shape.server_hosts if 2 * copies[host] > total_copies]
    if most:
        room = dict.fromkeys(shape.server_hosts, 0.0)
        room[most[0]] = 1.0
    else:
        # A worker's own load has to cross its link wherever the model is.
        rates = shape.rates(1.0)
        low = max(copies[host] / rates[host] for host in rates)
        high = low + max(total_copies / rates[host] for host in rates)
        if sum(_room(shape, copies, low).values()) >= 1:
            high = low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if sum(_room(shape, copies, middle).values()) >= 1:
                high = middle
            else:
                low = middle
        room = _room(shape, copies, high)
    total = sum(room.values())
    beside = Counter(shape.server_hosts)
    return [room[host] / total / beside[host] for host in shape.server_hosts]


def model_bytes_per_s(
    shape: Shape,
    bytes_per_s: float,
    shares: Optional[Sequence[float]] = None,
    *,
    host_copy: bool = False,
) -> float:
    """Return how many bytes of the model all workers can push and get back in a second.

    Parameters
    ----------
    shape
        Workers, servers and their hosts.
    bytes_per_s
        What a link carries each way that has no factor.
    shares
        The share of the model of each server; None: those with which the busiest link is the least
        busy, which no placement can surpass.
    host_copy
        See `loads`.
    """
    if shares is None and not shape.together and not shape.factors and shape.per_host == 1:
        return bytes_per_s * min(1.0, shape.servers / shape.workers)
    if shares is None:
        shares = best_shares(shape, host_copy=host_copy)
    carried = loads(shape, shares, host_copy=host_copy)
    return _bytes_per_s(carried, shape.rates(bytes_per_s))


def crossing_s(shape: Shape, bytes_per_s: float, pushed_bytes: float, pulled_bytes: float) -> float:
    """Return the seconds in which all workers push gradients and get sums, which differ in size.

    Servers have the shares with which that takes the least time, found by halving. One copy leaves
    each worker. Gradients and sums of one size take what `model_bytes_per_s` says.
    """
    copies, rates = _copies(shape, host_copy=False), shape.rates(bytes_per_s)
    total, servers = sum(copies.values()), set(shape.server_hosts)

    def is_enough(seconds: float) -> bool:
        """Return whether shares that add up to 1 let each link carry its load in that time."""
        least_sum = most_sum = 0.0
        for host, rate in rates.items():
            here, elsewhere = copies[host], total - copies[host]
            sent = here * pushed_bytes, elsewhere * pulled_bytes - here * pushed_bytes
            received = here * pulled_bytes, elsewhere * pushed_bytes - here * pulled_bytes
            ways = [_shares_within(*way, seconds * rate) for way in (sent, received)]
            least = max(low for low, _ in ways)
            most = min(float(host in servers), *(high for _, high in ways))
            if least > most:
                return False
            least_sum, most_sum = least_sum + least, most_sum + most
        return least_sum <= 1 <= most_sum

    low = 0.0
    high = max(total * (pushed_bytes + pulled_bytes) / rate for rate in rates.values())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _shares_within(base: float, slope: float, most: float) -> Tuple[float, float]:
    """Return the least and the most share x for which ``base + slope * x`` is at most `most`."""
    if slope == 0:
        return (0.0, 1.0) if base <= most else (1.0, 0.0)
    edge = (most - base) / slope
    return (0.0, min(1.0, edge)) if slope > 0 else (max(0.0, edge), 1.0)


def pushed_bytes_per_s(shape: Shape, bytes_per_s: float, *, host_copy: bool = False) -> float:
    """Return how many bytes of the model all workers can push in a second, without pulls.

    They can pull as many without pushes. All servers have equal shares. `host_copy` is as in
    `loads`.
    """
    copies, servers = _copies(shape, host_copy), Counter(shape.server_hosts)
    total = sum(copies.values())
    carried = {}
    for host in range(1, 1 + shape.hosts):
        share = servers[host] / shape.servers
        sent, received = copies[host] * (1 - share), share * (total - copies[host])
        carried[host] = max(sent, received)
    return _bytes_per_s(carried, shape.rates(bytes_per_s))


def _bytes_per_s(carried: Dict[int, float], rates: Dict[int, float]) -> float:
    busiest = max(carried[host] / rate for host, rate in rates.items())
    return 1 / busiest if busiest > 0 else math.inf
