"""Measures images a second with the calls of Horovod's benchmarks; data is made up."""

import argparse
import statistics
import timeit

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn import functional


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--num-warmup-batches", type=int, default=2)
    parser.add_argument("--num-batches-per-iter", type=int, default=3)
    parser.add_argument("--num-iters", type=int, default=3)
    return parser.parse_args()


def log(line: str) -> None:
    if hvd.rank() == 0:
        print(line, flush=True)


def main() -> None:
    args = options()
    hvd.init()
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    images = torch.randn(args.batch_size, 3, 16, 16)
    labels = torch.randint(0, 10, (args.batch_size,))
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    log(f"batch size {args.batch_size}, {hvd.size()} workers")
    timeit.timeit(step, number=args.num_warmup_batches)
    rates = []
    for number in range(args.num_iters):
        seconds = timeit.timeit(step, number=args.num_batches_per_iter)
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
        log(f"iteration {number}: {rates[-1]:.1f} images a second for each worker")
    mean, spread = statistics.mean(rates), 1.96 * statistics.pstdev(rates)
    log(f"images a second of {hvd.size()} workers: {hvd.size() * mean:.1f} +-{spread:.1f}")
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"rank {hvd.rank()} ends with {weights.double().sum().item():.12e}", flush=True)


if __name__ == "__main__":
    main()
