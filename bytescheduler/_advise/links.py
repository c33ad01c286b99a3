"""The load of each link of a job, for any placement of its workers and servers.

A worker pushes each byte of the model to the server that has it, and that server sends each worker
the sum. What is on a host's own server does not cross its link. A host with a worker has the share
x of the model on its server. It sends 1 - x of it as gradients and (W - 1) x as sums, and receives
as much. In general, n workers and the share x load the link with n + (W - 2n) x each way.
"""

import math
from collections import Counter
from typing import Dict, List, Optional, Sequence

from bytescheduler._advise.shape import Shape

__all__ = ["best_shares", "equal_shares", "loads", "model_bytes_per_s", "pushed_bytes_per_s"]

_HALVINGS = 200


def equal_shares(shape: Shape) -> List[float]:
    """Return the share of the model of each server, where all have as much."""
    return [1 / shape.servers] * shape.servers


def loads(shape: Shape, shares: Sequence[float]) -> Dict[int, float]:
    """Return how many models cross each host's link, each way, in a step."""
    workers, servers = Counter(shape.worker_hosts), _by_host(shape, shares)
    return {
        host: workers[host] + (shape.workers - 2 * workers[host]) * servers.get(host, 0.0)
        for host in range(1, 1 + shape.hosts)
    }


def _by_host(shape: Shape, shares: Sequence[float]) -> Dict[int, float]:
    share_of_host: Dict[int, float] = dict.fromkeys(shape.server_hosts, 0.0)
    for host, share in zip(shape.server_hosts, shares):
        share_of_host[host] += share
    return share_of_host


def _room(shape: Shape, seconds: float) -> Dict[int, float]:
    """Return the share that a host's servers can have if its link has these seconds.

    Links move a model in a second, or `Shape.factors` of it.
    """
    workers, rates = Counter(shape.worker_hosts), shape.rates(1.0)
    room = {}
    for host in set(shape.server_hosts):
        left = seconds * rates[host] - workers[host]
        more = shape.workers - 2 * workers[host]  # for each model on the host
        if more > 0:
            room[host] = min(1.0, max(0.0, left / more))
        else:  # its link carries no more if its servers have more
            room[host] = 1.0
    return room


def best_shares(shape: Shape) -> List[float]:
    """Return the share of each server with which the busiest link is the least busy.

    The load of a link grows with the share of its host. Only that of a host with more than half of
    the workers shrinks, and then all is best there. The more time, the larger the shares that fit;
    the least time in which all of the model fits is found by halving.
    """
    workers = Counter(shape.worker_hosts)
    most = [host for host in shape.server_hosts if 2 * workers[host] > shape.workers]
    if most:
        room = dict.fromkeys(shape.server_hosts, 0.0)
        room[most[0]] = 1.0
    else:
        # A worker's own load has to cross its link wherever the model is.
        rates = shape.rates(1.0)
        low = max(workers[host] / rates[host] for host in rates)
        high = low + max(shape.workers / rates[host] for host in rates)
        if sum(_room(shape, low).values()) >= 1:
            high = low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if sum(_room(shape, middle).values()) >= 1:
                high = middle
            else:
                low = middle
        room = _room(shape, high)
    total = sum(room.values())
    beside = Counter(shape.server_hosts)
    return [room[host] / total / beside[host] for host in shape.server_hosts]


def model_bytes_per_s(
    shape: Shape, bytes_per_s: float, shares: Optional[Sequence[float]] = None
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
    """
    if shares is None and not shape.together and not shape.factors:
        return bytes_per_s * min(1.0, shape.servers / shape.workers)
    carried = loads(shape, best_shares(shape) if shares is None else shares)
    return _bytes_per_s(carried, shape.rates(bytes_per_s))


def pushed_bytes_per_s(shape: Shape, bytes_per_s: float) -> float:
    """Return how many bytes of the model all workers can push in a second, without pulls.

    They can pull as many without pushes. All servers have equal shares.
    """
    workers, servers = Counter(shape.worker_hosts), Counter(shape.server_hosts)
    carried = {}
    for host in range(1, 1 + shape.hosts):
        share = servers[host] / shape.servers
        sent, received = workers[host] * (1 - share), share * (shape.workers - workers[host])
        carried[host] = max(sent, received)
    return _bytes_per_s(carried, shape.rates(bytes_per_s))


def _bytes_per_s(carried: Dict[int, float], rates: Dict[int, float]) -> float:
    busiest = max(carried[host] / rate for host, rate in rates.items())
    return 1 / busiest if busiest > 0 else math.inf
