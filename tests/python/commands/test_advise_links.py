"""The ideal step of any placement, beside a simulation of each message that may take any order."""

import itertools
import math
import random
from typing import Dict, Iterator, List, Sequence, Tuple

import pytest

from bytescheduler._advise import links, models
from bytescheduler._advise.shape import Shape, factors_of

PIECES = 60  # of a model


def hosts_of(shape: Shape) -> Tuple[List[int], List[int]]:
    workers = [1 + rank // shape.per_host for rank in range(shape.workers)]
    apart = iter(range(1 + workers[-1], 1000))
    servers = [
        workers[rank] if rank < shape.together else next(apart) for rank in range(shape.servers)
    ]
    return workers, servers


class Network:
    """Moves a piece to all servers, and another back to all workers, message by message."""

    def __init__(self, shape: Shape, bytes_per_s: float, shares: Sequence[float]) -> None:
        self._workers, self._servers = hosts_of(shape)
        self._shares = shares
        own = dict(shape.factors)
        self._rates = {
            host: bytes_per_s * own.get(host, 1.0) for host in (*self._workers, *self._servers)
        }

    def took_s(self, pushed: float, pulled: float) -> float:
        """Return how long pieces of these bytes take, if they travel at the same time."""
        sent: Dict[Tuple[str, int], float] = {}
        for worker, (server, share) in itertools.product(
            self._workers, zip(self._servers, self._shares)
        ):
            if worker == server:
                continue
            for source, target, size in ((worker, server, pushed), (server, worker, pulled)):
                for way in (("out", source), ("in", target)):
                    sent[way] = sent.get(way, 0.0) + size * share
        return max((size / self._rates[host] for (_, host), size in sent.items()), default=0.0)


def simulated_s(steps: Sequence[models.Step], network: Network, order: Sequence[int]) -> float:
    """Return the time from one backward pass to the next; the first of `order` goes first.

    All messages of a step are there before its successor's backward begins.
    """
    now = 0.0
    ready = {}
    for layer in reversed(range(len(steps))):
        now += steps[layer].backward_s
        ready[layer] = now
    backward_s, now = now, 0.0
    size = sum(step.size_bytes for step in steps) / PIECES
    left = {layer: math.ceil(step.size_bytes / size) for layer, step in enumerate(steps)}
    size_of = {layer: step.size_bytes / max(1, left[layer]) for layer, step in enumerate(steps)}
    back = dict(left)
    there = {layer: ready[layer] for layer, count in left.items() if count == 0}
    while any(back.values()):
        push = next((k for k in order if left[k] and ready[k] <= now), None)
        pull = next((k for k in order if back[k] > left[k]), None)
        if push is None and pull is None:
            now = min(ready[layer] for layer, count in left.items() if count)
            continue
        now += network.took_s(
            0.0 if push is None else size_of[push], 0.0 if pull is None else size_of[pull]
        )
        if push is not None:
            left[push] -= 1
        if pull is not None:
            back[pull] -= 1
            if back[pull] == 0:
                there[pull] = now
    now = backward_s
    for layer, step in enumerate(steps):
        now = max(now, there[layer]) + step.forward_s
    return now


def shapes() -> Iterator[Shape]:
    yield from (Shape(*counts) for counts in ((2, 2), (3, 3), (4, 2), (8, 4), (2, 1), (1, 3)))
    yield from (Shape(n, n, n) for n in (1, 2, 3, 4))
    yield from (Shape(2, 4, 2), Shape(4, 2, 1), Shape(6, 4, 2), Shape(3, 2, 2))
    yield from (Shape(4, 2, per_host=2), Shape(4, 4, 4, per_host=2), Shape(5, 3, 1, per_host=2))
    for factors in ("1=0.5", "4=0.5", "3=0.25,4=2", "1=3"):
        yield from (Shape(3, 3, together, factors_of(factors)) for together in (0, 1, 2))


def model(dice: random.Random) -> List[models.Step]:
    def seconds() -> float:
        return dice.choice((0.0, dice.random()))

    count = dice.randint(1, 5)
    return [
        models.Step(str(k), round(dice.random() ** 2 * 1e6), seconds(), 2 * seconds())
        for k in range(count)
    ]


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_the_ideal_is_reached_and_nothing_is_faster(shape: Shape) -> None:
    dice = random.Random(shape.name)
    rate = 1e6
    for _ in range(6):
        steps = model(dice)
        size = sum(step.size_bytes for step in steps)
        ideal = models.ideal_s(steps, links.model_bytes_per_s(shape, rate))
        best = Network(shape, rate, links.best_shares(shape))
        reached = simulated_s(steps, best, range(len(steps)))
        # A layer waits for the piece before it, and its last piece is pulled after it is pushed.
        assert ideal - 1e-9 <= reached <= ideal + 3 * best.took_s(size / PIECES, size / PIECES)
        for _ in range(6):
            weights = [dice.choice((0.0, 0.1, 1.0)) * dice.random() for _ in range(shape.servers)]
            weights = weights if sum(weights) else [1.0] * shape.servers
            shares = [weight / sum(weights) for weight in weights]
            order = dice.sample(range(len(steps)), len(steps))
            tried = simulated_s(steps, Network(shape, rate, shares), order)
            assert tried >= ideal - 1e-9


def placements(shape: Shape) -> Iterator[Network]:
    """Yield links that move a byte a second, with shares of servers in tenths."""
    for first in itertools.product(range(11), repeat=shape.servers - 1):
        if sum(first) <= 10:
            yield Network(shape, 1.0, [*(part / 10 for part in first), 1 - sum(first) / 10])


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_no_placement_has_a_less_busy_link(shape: Shape) -> None:
    assert sum(links.best_shares(shape)) == pytest.approx(1)
    assert min(links.best_shares(shape)) >= 0
    best_s = 1 / links.model_bytes_per_s(shape, 1.0)
    tried = [placed.took_s(1.0, 1.0) for placed in placements(shape)]
    assert best_s <= min(tried) + 1e-9
    assert Network(shape, 1.0, links.best_shares(shape)).took_s(1.0, 1.0) == pytest.approx(best_s)


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_no_placement_is_faster_where_sums_are_larger_or_smaller(shape: Shape) -> None:
    for pushed, pulled in ((0.5, 1.0), (1.0, 0.1)):
        tried = [placed.took_s(pushed, pulled) for placed in placements(shape)]
        assert links.crossing_s(shape, 1.0, pushed, pulled) <= min(tried) + 1e-9
    alike_s = links.crossing_s(shape, 2.0, 3.0, 3.0)
    assert alike_s == pytest.approx(1.5 / links.model_bytes_per_s(shape, 1.0))


def test_the_link_of_a_worker_and_a_server_carries_half_of_pushes_and_half_of_pulls() -> None:
    assert links.crossing_s(Shape(2, 2), 1.0, 0.5, 1.0) == pytest.approx(1)
    assert links.crossing_s(Shape(2, 2, 2), 1.0, 0.5, 1.0) == pytest.approx(0.75)
    # All is on the link that is ten times as fast: it sends 3 sums, and the others push.
    assert links.crossing_s(Shape(3, 1, factors=((4, 10.0),)), 1.0, 0.5, 1.0) == pytest.approx(1)
    assert links.crossing_s(Shape(3, 1), 1.0, 0.5, 1.0) == pytest.approx(3)


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_the_load_of_a_link_is_the_total_of_its_messages(shape: Shape) -> None:
    shares = [2 / (shape.servers * (shape.servers + 1)) * (k + 1) for k in range(shape.servers)]
    for host, carried in links.loads(shape, shares).items():
        fast = tuple((other, 1e6) for other in range(1, 1 + shape.hosts) if other != host)
        took_s = Network(shape._replace(factors=fast), 1.0, shares).took_s(1.0, 1.0)
        assert took_s == pytest.approx(carried, abs=1e-4)


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_pushing_alone_takes_as_long_as_its_messages(shape: Shape) -> None:
    network = Network(shape, 10.0, links.equal_shares(shape))
    expected_s = max(network.took_s(1.0, 0.0), network.took_s(0.0, 1.0))
    assert 1 / links.pushed_bytes_per_s(shape, 10.0) == pytest.approx(expected_s)


def test_a_server_carries_as_many_models_as_workers_share_it() -> None:
    apart = Shape(4, 2)
    assert links.loads(apart, links.equal_shares(apart)) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2}
    assert links.model_bytes_per_s(apart, 10.0) == 5
    assert links.model_bytes_per_s(apart, 10.0, links.equal_shares(apart)) == 5
    # Of four, each on a host with a server: 3/4 of its own gradients, 3 times 1/4 of sums.
    together = Shape(4, 4, 4)
    assert links.loads(together, links.equal_shares(together)) == dict.fromkeys((1, 2, 3, 4), 1.5)
    assert links.model_bytes_per_s(Shape(1, 1, 1), 10.0) == math.inf
    # Servers beside workers get less: their links carry gradients too.
    beside, apart_from = links.best_shares(Shape(8, 8, 4))[3:5]
    assert 0 < beside < apart_from
    # A slow server gets less, a slow worker has to send all.
    assert links.best_shares(Shape(2, 2, 0, ((3, 0.5),))) == pytest.approx([1 / 3, 2 / 3])
    assert links.model_bytes_per_s(Shape(2, 2, 0, ((1, 0.5),)), 10.0) == pytest.approx(5)


@pytest.mark.parametrize(("hosts", "per_host"), [(2, 1), (2, 2), (2, 4), (3, 2), (5, 3)])
def test_a_host_of_several_workers_has_its_copies_or_one(hosts: int, per_host: int) -> None:
    """The models that a host's link carries each way, by formula."""
    workers = hosts * per_host
    apart = Shape(workers, hosts, per_host=per_host)
    assert apart.hosts == 2 * hosts
    # The gradients of all meet at a server's host.
    assert links.busiest_load(apart) == pytest.approx(per_host)
    assert links.busiest_load(apart, host_copy=True) == pytest.approx(1)
    direct = apart.direct
    assert direct.hosts == hosts
    least = 2 * (hosts - 1) / hosts
    assert links.busiest_load(direct) == pytest.approx(per_host * least)
    assert links.busiest_load(direct, host_copy=True) == pytest.approx(least)
    assert links.ring_load(direct) == 2 * (workers - 1) / workers
    rate = links.model_bytes_per_s(direct, 10.0, host_copy=True)
    assert rate == pytest.approx(10 / least)
    pushed = links.pushed_bytes_per_s(direct, 10.0, host_copy=True)
    assert pushed == pytest.approx(20 / least)


def test_workers_of_one_host_load_no_link() -> None:
    alone = Shape(4, 4, 4, per_host=4)
    assert links.busiest_load(alone) == 0
    assert links.busiest_load(alone, host_copy=True) == 0
    assert links.ring_load(alone) == 0
    assert alone.name == "4+4 together, 4 a host"


def test_the_last_host_may_have_fewer_workers() -> None:
    shape = Shape(5, 2, 1, per_host=2)
    assert (shape.worker_hosts, shape.server_hosts, shape.hosts) == ([1, 1, 2, 2, 3], [1, 4], 4)
