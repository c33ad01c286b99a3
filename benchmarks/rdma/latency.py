"""A blocking push-pull of 1 KB by RDMA, beside TCP.

A worker on the first host and a server on the second one. Arms: ``tcp`` and ``rdma`` sleep until
something comes; ``tcp-polling`` and ``rdma-polling`` look for it all the time.

    python -m benchmarks.rdma.latency --hosts 10.0.0.1,node2=10.0.0.2 --out latency.json

It reports the median of the microseconds of a push-pull.
"""

import argparse
import statistics
from typing import Dict, List

from benchmarks.jobs.small import SIZE_BYTES
from benchmarks.lab import arms, local_job, options
from benchmarks.rdma import hosts

_SLEEPS = {"BYTESCHEDULER_SPIN": "0"}
_POLLS = {"BYTESCHEDULER_SPIN": "1s"}
ARMS: Dict[str, Dict[str, str]] = {
    "tcp": {**hosts.CARRIERS["tcp"], **_SLEEPS},
    "rdma": {**hosts.CARRIERS["rdma"], **_SLEEPS},
    "tcp-polling": {**hosts.CARRIERS["tcp"], **_POLLS},
    "rdma-polling": {**hosts.CARRIERS["rdma"], **_POLLS},
}


def measure(arm: str, args: argparse.Namespace) -> float:
    """Return the median microseconds of a job's push-pulls."""
    near, far = args.hosts[:2]
    rows = local_job.run(
        [args.native, "node"],
        [args.native, "small", str(SIZE_BYTES), "1", str(args.rounds)],
        ARMS[arm],
        timeout_s=args.timeout,
        places=(near, far),
    )
    (blocking,) = (row for row in rows if row.name == "blocking")
    return statistics.median(blocking.seconds) * 1e6


def summary(runs: List[float]) -> Dict[str, float]:
    """Return an arm's median."""
    return {"blocking_us": round(statistics.median(runs), 2)}


def main() -> None:
    """Run all arms in turn, several times, and print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    hosts.add_options(parser, ARMS)
    hosts.add_program_options(parser)
    parser.add_argument("--rounds", type=options.count(), default=50, help="of 100 push-pulls")
    args = parser.parse_args()
    hosts.require_devices(args.hosts[:2])
    arms.alternate(args, lambda arm: measure(arm, args), summary)


if __name__ == "__main__":
    main()
