"""Crosses the barrier with the calls that scripts of BytePS make; data is made up."""

import argparse
import timeit

import byteps.torch.cross_barrier as bps
import torch
from torch import nn
from torch.nn import functional


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--num-warmup-batches", type=int, default=2)
    parser.add_argument("--num-batches-per-iter", type=int, default=3)
    parser.add_argument("--num-iters", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    args = options()
    bps.init()
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = args.num_warmup_batches + args.num_iters * args.num_batches_per_iter
    optimizer = bps.CrossBarrier(
        model,
        optimizer,
        named_parameters=model.named_parameters(),
        compression=bps.Compression.none,
        num_steps=steps,
    )
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    data, labels = torch.randn(args.batch_size, 32), torch.randint(0, 10, (args.batch_size,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(data), labels).backward()
        optimizer.step()

    timeit.timeit(step, number=args.num_warmup_batches)
    for number in range(args.num_iters):
        seconds = timeit.timeit(step, number=args.num_batches_per_iter)
        if bps.rank() == 0:
            rate = args.batch_size * args.num_batches_per_iter / seconds
            print(f"iteration {number}: {rate:.1f} samples a second", flush=True)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"rank {bps.rank()} ends with {weights.double().sum().item():.12e}", flush=True)


if __name__ == "__main__":
    main()
