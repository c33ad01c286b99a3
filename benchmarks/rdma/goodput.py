"""The speed of large tensors by RDMA, beside TCP and the device itself.

A worker on the first host and a server on the second one push and pull one tensor, again and again;
all sums are checked. Arms: ``read`` (perftest's ``ib_read_bw`` with 64 KiB, one way), ``read-both``
(the same, both ways at once), ``tcp`` and ``rdma`` (our engine without a framework: the program
``wire_benchmark`` of a build with ``-DBS_BUILD_BENCHMARKS=ON``). It needs perftest.

    python -m benchmarks.rdma.goodput --hosts 10.0.0.1,node2=10.0.0.2 --out goodput.json

It reports the GB/s each way, as medians, and what part of the others' that is. Where both hosts are
this machine, it reports the processor-seconds of all processes too, for each GB that is pushed and
pulled.
"""

import argparse
import statistics
from typing import Any, Dict, List

from benchmarks.jobs import throughput
from benchmarks.lab import arms, local_job, options
from benchmarks.rdma import hosts, perftest

ARMS = ("read", "read-both", *hosts.CARRIERS)
READ_BYTES = 64 << 10
Figures = Dict[str, float]


def push_pulls(arm: str, args: argparse.Namespace) -> Figures:
    """Return what push-pulls of a job come to."""
    near, far = args.hosts[:2]
    (size,) = args.bytes
    (row,) = local_job.run(
        [args.native, "node"],
        [args.native, "throughput", f"{size}:{args.rounds}"],
        hosts.CARRIERS[arm],
        timeout_s=args.timeout,
        places=(near, far),
    )
    found = {"gbytes_per_s": size / 1e9 / statistics.median(row.seconds)}
    if not near.prefix and not far.prefix:
        found["cpu_s_per_gbyte"] = row.cpu_s / (size / 1e9 * args.rounds)
    return found


def measure(arm: str, args: argparse.Namespace) -> Figures:
    """Run an arm once."""
    if arm in hosts.CARRIERS:
        return push_pulls(arm, args)
    near, far = args.hosts[:2]
    both_ways = arm == "read-both"
    rate = perftest.gbytes_per_s("ib_read_bw", (near, far), READ_BYTES, args.reads, both_ways)
    return {"gbytes_per_s": rate}


def summary(runs: List[Figures]) -> Figures:
    """Return an arm's medians."""
    return {name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]}


def shares(ended: Dict[str, List[Figures]]) -> Dict[str, Any]:
    """Return the rate by RDMA as a part of the other arms'."""
    rates = {arm: summary(runs)["gbytes_per_s"] for arm, runs in ended.items() if runs}
    others = [arm for arm in rates if arm != "rdma"]
    if "rdma" not in rates:
        return {}
    return {"rdma_of": {arm: round(rates["rdma"] / rates[arm], 3) for arm in others}}


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    hosts.add_options(parser, ARMS)
    hosts.add_program_options(parser)
    parser.add_argument("--bytes", type=throughput.bytes_of, default="64M", help="of the tensor")
    parser.add_argument("--rounds", type=options.count(), default=16, help="push-pulls of a run")
    parser.add_argument("--reads", type=options.count(5), default=5000, help="of a run of perftest")
    args = parser.parse_args()
    if len(args.bytes) != 1:
        parser.error("--bytes: want one size")
    hosts.require_devices(args.hosts[:2])
    about = {"bytes": args.bytes[0], "read_bytes": READ_BYTES}
    arms.alternate(args, lambda arm: measure(arm, args), summary, about, together=shares)


if __name__ == "__main__":
    main()
