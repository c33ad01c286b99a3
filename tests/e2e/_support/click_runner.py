"""Calls commands of click in this process; click 8.2 lacks the option that older ones need."""

import inspect
from typing import Sequence, Union

import click
from click.testing import CliRunner, Result

__all__ = ["Runner", "runner"]

# A command keeps those of its first call, so that they must be the same in each.
_HELP = ["-h", "--help"]


class Runner(CliRunner):
    """A runner of click that calls each command as the program does."""

    def invoke(  # type: ignore[override]
        self, cli: click.Command, args: Union[str, Sequence[str], None] = None
    ) -> Result:
        """Call a command."""
        return super().invoke(cli, args, help_option_names=_HELP)


def runner() -> CliRunner:
    """Return a runner that keeps stdout and stderr apart; take `stdout`, not `output`."""
    if "mix_stderr" in inspect.signature(CliRunner).parameters:
        return Runner(mix_stderr=False)
    return Runner()
