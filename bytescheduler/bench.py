"""`bytescheduler bench`, by its public name; the body stands in `commands`."""

from bytescheduler._process import stdout
from bytescheduler.commands.bench import bench

__all__ = ["bench"]

if __name__ == "__main__":
    stdout.run(bench, None, "bytescheduler bench")
