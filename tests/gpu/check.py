"""Checks the machine, starts two workers, and looks at their timeline; see run.sh."""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

HERE = pathlib.Path(__file__).resolve().parent
LARGEST_WHEEL = 40 << 20
LEAST_TORCH = (2, 11)
WORKERS = 2
LIMIT_S = 240

Process = Any  # subprocess.Popen


def why_not_wheel(wheel: pathlib.Path) -> Optional[str]:
    """Return why a machine without a network cannot use it, or None."""
    size = wheel.stat().st_size
    if size > LARGEST_WHEEL:
        return f"{wheel.name} has {size} bytes, want at most {LARGEST_WHEEL}"
    if "manylinux" not in wheel.name:
        return f"{wheel.name} does not carry its libraries; make wheel puts them into it"
    return None


def why_not_here(double: bool) -> Optional[str]:
    """Return why the workers cannot run here, or None."""
    try:
        import torch
    except ImportError as error:
        return f"{sys.executable} has no PyTorch ({error}); set PYTHON to one that has"
    if double:
        return None
    have = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if have < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        return f"PyTorch is {torch.__version__}, want {least} or later"
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is a build for the CPU: nothing ran on a GPU"
    if not torch.cuda.is_available():
        return "no GPU is on this machine: nothing ran on a GPU; --double runs without one"
    return None


def run_workers(command: List[str], count: int, out: pathlib.Path, **settings: str) -> None:
    """Run that many workers to a good end, and print what they printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("DMLC_")}
    environment.update(WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    environment.update(settings)
    out.mkdir(exist_ok=True)
    environment.update(BYTESCHEDULER_TIMELINE=str(out / "timeline.json"))
    paths = [out / f"worker-{rank}.txt" for rank in range(count)]
    workers = [
        start(command, {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, path)
        for rank, path in enumerate(paths)
    ]
    why = why_not_well(workers, LIMIT_S)
    for path in paths:
        sys.stdout.write(path.read_text())
    sys.stdout.flush()
    if why is not None:
        raise SystemExit(why)


def run_nccl(double: bool, out: pathlib.Path) -> bool:
    """Let NCCL sum: a rank alone, and two on one GPU, which it refuses; False: it has no double."""
    settings = {"BYTESCHEDULER_COMM": "nccl"}
    if double:
        fakes = os.environ.get("BS_FAKE_GPU_FOLDER")
        if not fakes:
            return False
        settings.update(LD_LIBRARY_PATH=f"{fakes}/whole", BS_FAKE_GPU="0")
    command = [sys.executable, str(HERE / "nccl.py"), *(["--double"] if double else [])]
    run_workers(command, 1, out / "nccl", **settings)
    run_workers([*command, "--together"], WORKERS, out / "nccl-together", **settings)
    print("NCCL: all is well")
    return True


def start(command: List[str], environment: Dict[str, str], path: pathlib.Path) -> Process:
    """Start a worker that prints to a file."""
    with path.open("w") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)


def why_not_well(workers: Sequence[Process], limit_s: float) -> Optional[str]:
    """Wait until all workers have ended, and end those that do not; return what is wrong."""
    end = time.monotonic() + limit_s
    try:
        for worker in workers:
            worker.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return f"a worker still runs after {limit_s} seconds"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    codes = [worker.returncode for worker in workers]
    return f"the workers ended with {codes}" if any(codes) else None


def copies_of(events: Sequence[Dict[str, Any]], name: str) -> List[float]:
    """Return when each copy of a tensor to the host was over, in microseconds; it travels then."""
    return sorted(
        event["ts"] + event["dur"]
        for event in events
        if event.get("cat") == "proxy" and event["name"] == name
    )


def overlapping(
    events: Sequence[Dict[str, Any]], late: str, early: str, least_us: float
) -> Tuple[int, int]:
    """Return in how many rounds `late` travels before the copy of `early` is over, and of all.

    Backward makes the gradient of `late` first, and then takes at least `least_us`.
    """
    pairs = list(zip(copies_of(events, late), copies_of(events, early)))
    return sum(one + least_us <= other for one, other in pairs), len(pairs)


def main() -> int:
    """Return the exit status: 2 where this machine cannot run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=pathlib.Path)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    why = why_not_wheel(options.wheel) if options.wheel else why_not_here(options.double)
    if why is not None:
        print(f"run.sh: {why}", file=sys.stderr)
        return 2
    if options.wheel:
        return 0
    command = [sys.executable, str(HERE / "worker.py"), *(["--double"] if options.double else [])]
    run_workers(command, WORKERS, options.out)
    from machine import Double, Gpu

    from bytescheduler._timeline.files import merge

    events = list(merge([options.out / "timeline-r0.json"]))
    pause_us = (Double if options.double else Gpu).pause_s * 1e6
    found, rounds = overlapping(events, "layers.last.weight", "layers.first.weight", pause_us)
    print(f"in {found} of {rounds} steps the last layer's gradient travels during other copies")
    if found * 2 <= rounds:  # the machine may pause a process for a while
        print("run.sh: copies do not overlap", file=sys.stderr)
        return 1
    has_nccl = run_nccl(options.double, options.out)
    print("all is well, on " + ("the double of a device" if options.double else "a GPU"))
    if not has_nccl:
        print("NCCL did not run: its double is needed, and BS_FAKE_GPU_FOLDER is not set")
    return 0


if __name__ == "__main__":
    sys.exit(main())
