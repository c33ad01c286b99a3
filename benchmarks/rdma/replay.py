"""A training step of a model's layer profile by RDMA, beside TCP of the same hosts.

The first half of the hosts has a worker each, the second half a server each. Compute is a pause,
and all sums are checked, as in `benchmarks.jobs.replay`. Arms: ``tcp`` and ``rdma``.

    HOSTS=10.0.0.1,b=10.0.0.2,c=10.0.0.3,d=10.0.0.4
    python -m benchmarks.rdma.replay --model vgg16 --compute 0.2 --hosts $HOSTS --out replay.json

It reports the seconds of a step, as medians, and the step by TCP over that by RDMA.
"""

import argparse
import statistics
from typing import Any, Dict, List

from benchmarks.jobs.replay import SCALES
from benchmarks.lab import arms, options
from benchmarks.rdma import hosts
from bytescheduler._advise import models


def measure(arm: str, args: argparse.Namespace) -> float:
    """Return the median step of the slowest worker of a job."""
    half = len(args.hosts) // 2
    layers = models.scaled(args.model, args.scale, args.compute)
    words = ["replay", str(args.iterations)]
    words += [
        f"{layer.size_bytes}:{layer.forward_s * 1e6:.0f}:{layer.backward_s * 1e6:.0f}:{place}"
        for place, layer in enumerate(layers)
    ]
    shape = hosts.Shape(args.hosts[:half], args.hosts[half : 2 * half])
    found = hosts.results(args.native, words, shape, hosts.CARRIERS[arm], args.timeout)
    return max(statistics.median(worker["seconds"]) for worker in found)


def summary(runs: List[float]) -> Dict[str, float]:
    """Return an arm's median."""
    return {"step_s": round(statistics.median(runs), 5)}


def shares(ended: Dict[str, List[float]]) -> Dict[str, Any]:
    """Return how many times faster a step by RDMA is."""
    if not all(ended.get(arm) for arm in hosts.CARRIERS):
        return {}
    gain = statistics.median(ended["tcp"]) / statistics.median(ended["rdma"])
    return {"tcp_over_rdma": round(gain, 3)}


def main() -> None:
    """Run both arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    hosts.add_options(parser, list(hosts.CARRIERS))
    hosts.add_program_options(parser, 300)
    parser.add_argument("--model", choices=sorted(SCALES), default="vgg16")
    parser.add_argument(
        "--scale", type=options.count(), default=1, help="divide parameters by this"
    )
    parser.add_argument("--compute", type=options.seconds, default=0.2, help="seconds a step")
    parser.add_argument("--iterations", type=options.count(4), default=20, help="steps of a run")
    args = parser.parse_args()
    hosts.require_devices(args.hosts)
    about = {"model": args.model, "scale": args.scale, "compute_s": args.compute}
    arms.alternate(args, lambda arm: measure(arm, args), summary, about, together=shares)


if __name__ == "__main__":
    main()
