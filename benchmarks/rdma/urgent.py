"""An urgent tensor behind a full link by RDMA, beside TCP.

Thirty-two tensors are pushed and pulled again and again between a worker on the first host and a
server on the second one. Every 5 ms an urgent one of 4 KB is pushed and pulled besides. All sums
are checked. Arms: ``tcp`` and ``rdma``.

    python -m benchmarks.rdma.urgent --hosts 10.0.0.1,node2=10.0.0.2 --out urgent.json

It reports the MB/s of bulk each way, and the milliseconds to the urgent sum: medians over the
repeats, of the median and of the 99th percentile, with and without bulk. `bound_ms` is the goal for
the 99th percentile: twice the window at the rate of bulk, and 20 us.
"""

import argparse
import statistics
from typing import Any, Dict, List

from benchmarks.jobs.urgent import TENSOR_BYTES, TENSORS, medians, quantiles
from benchmarks.lab import arms, options
from benchmarks.rdma import hosts

URGENT_BYTES = 4096
WINDOW_BYTES = 128 << 10  # BYTESCHEDULER_RDMA_WINDOW
SLACK_MS = 0.02


def measure(arm: str, args: argparse.Namespace) -> Dict[str, Any]:
    """Run one job."""
    near, far = args.hosts[:2]
    words = ["urgent", str(TENSORS), str(TENSOR_BYTES), str(args.count), str(URGENT_BYTES)]
    window = {"BYTESCHEDULER_RDMA_WINDOW": str(WINDOW_BYTES)}
    env = {**hosts.CARRIERS[arm], **window}
    (found,) = hosts.results(args.native, words, hosts.Shape([near], [far]), env, args.timeout)
    return {
        "to_sum": quantiles(found["behind_s"]),
        "to_sum_idle": quantiles(found["idle_s"]),
        "bulk_mbytes_per_s": found["bulk_bytes_per_s"] / 1e6,
    }


def summary(runs: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Return medians over runs."""
    found: Dict[str, Any] = medians(runs, ("to_sum", "to_sum_idle"), 4)
    rate = statistics.median(run["bulk_mbytes_per_s"] for run in runs)
    bound = 2 * WINDOW_BYTES / (rate * 1e6) * 1e3 + SLACK_MS
    return {**found, "bulk_mbytes_per_s": round(rate, 2), "bound_ms": round(bound, 4)}


def main() -> None:
    """Run both arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    hosts.add_options(parser, list(hosts.CARRIERS))
    hosts.add_program_options(parser)
    parser.add_argument("--count", type=options.count(), default=2000, help="urgent tensors")
    args = parser.parse_args()
    hosts.require_devices(args.hosts[:2])
    arms.alternate(args, lambda arm: measure(arm, args), summary)


if __name__ == "__main__":
    main()
