"""READ beside WRITE on a device by itself, for messages of 64 KiB to 1 MiB.

A receiver of ours READs; where WRITEs are more than 5 % faster, they could carry sums. It measures
with perftest, which is needed, from the first host to the second one.

    python -m benchmarks.rdma.reads --hosts 10.0.0.1,node2=10.0.0.2 --out reads.json

It reports for each size the GB/s of ``ib_read_bw`` and ``ib_write_bw``, as medians, and READ as a
part of WRITE.
"""

import argparse
import statistics
from typing import Any, Dict, List

from benchmarks.jobs import throughput
from benchmarks.lab import arms, options
from benchmarks.rdma import hosts, perftest

ARMS = {"read": "ib_read_bw", "write": "ib_write_bw"}
Figures = Dict[str, float]  # size -> GB/s


def measure(arm: str, args: argparse.Namespace) -> Figures:
    """Run an arm once, with all sizes."""
    near, far = args.hosts[:2]
    return {
        str(size): perftest.gbytes_per_s(ARMS[arm], (near, far), size, args.count)
        for size in args.sizes
    }


def summary(runs: List[Figures]) -> Figures:
    """Return an arm's medians by size."""
    return {size: round(statistics.median(run[size] for run in runs), 4) for size in runs[0]}


def shares(ended: Dict[str, List[Figures]]) -> Dict[str, Any]:
    """Return the rate of READ as a part of that of WRITE, by size."""
    if not all(ended.get(arm) for arm in ARMS):
        return {}
    read, write = summary(ended["read"]), summary(ended["write"])
    return {"read_of_write": {size: round(read[size] / write[size], 3) for size in read}}


def main() -> None:
    """Run both arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    hosts.add_options(parser, ARMS)
    parser.add_argument("--sizes", type=throughput.bytes_of, default="64K,128K,256K,512K,1M")
    parser.add_argument("--count", type=options.count(5), default=5000, help="messages of a run")
    args = parser.parse_args()
    hosts.require_devices(args.hosts[:2])
    arms.alternate(args, lambda arm: measure(arm, args), summary, together=shares)


if __name__ == "__main__":
    main()
