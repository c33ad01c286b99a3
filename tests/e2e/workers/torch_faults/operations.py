"""Workers of which the first sums under a name, and the other one takes the least."""

import sys

import torch

import bytescheduler.torch as bps

WANT = {bps.Sum: 2.0, bps.Average: 1.0, bps.Min: 1.0}


def main() -> None:
    torch.set_num_threads(1)
    bps.init()
    ones = torch.ones(3)
    if sys.argv[1] == "later":
        for op in (bps.Sum, bps.Min, bps.Average, bps.Min):
            assert float(bps.allreduce(ones, name="loss", op=op)[0]) == WANT[op]
    bps.allreduce(ones, name="loss", op=(bps.Average, bps.Min)[bps.rank()])


main()
