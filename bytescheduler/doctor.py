"""`bytescheduler doctor`, by its public name; the body stands in `commands`."""

from bytescheduler._process import stdout
from bytescheduler.commands.doctor import command, examine

__all__ = ["command", "examine"]

if __name__ == "__main__":
    stdout.run(command, None, "bytescheduler doctor")
