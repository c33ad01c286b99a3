"""Calls commands of click in this process; click 8.2 lacks the option that older ones need."""

import inspect

from click.testing import CliRunner

__all__ = ["runner"]


def runner() -> CliRunner:
    """Return a runner that keeps stdout and stderr apart; take `stdout`, not `output`."""
    if "mix_stderr" in inspect.signature(CliRunner).parameters:
        return CliRunner(mix_stderr=False)
    return CliRunner()
