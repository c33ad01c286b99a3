"""Trainings run in one job with one compression after another; tables of them end the output."""

import json
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence

import pytest
from job import Job

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

LIMIT_S = 1500.0  # for a job
TABLES: "pytest.StashKey[List[str]]" = pytest.StashKey()
Ends = List[Dict[str, Any]]  # what each worker has said, by the method's name


@pytest.fixture(scope="session")
def run_job(tmp_path_factory: pytest.TempPathFactory) -> "Callable[..., Ends]":
    """Run a job's workers to a good end; return their last lines, by rank or not."""

    def run(script: str, *arguments: str, workers: int, env: Dict[str, str]) -> Ends:
        folder: pathlib.Path = tmp_path_factory.mktemp("job")
        env = {"PYTHONPATH": "", **env}  # on_path hides scipy, which scikit-learn needs
        with Job(folder, workers=workers, servers=2, env=env) as job:
            for _ in range(workers):
                job.start_worker(script, *arguments)
            for worker in job.workers:
                assert worker.wait(LIMIT_S) == 0, job.all_output()
            return [json.loads(worker.output().splitlines()[-1]) for worker in job.workers]

    return run


@pytest.fixture(scope="session")
def show(request: pytest.FixtureRequest) -> "Callable[[str, Sequence[str], Any], None]":
    """Let a table stand at the end of the output: its title, its heads and its rows."""
    lines = request.config.stash.setdefault(TABLES, [])

    def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        cells = [heads, *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
        lines.extend(["", title])
        for name, *numbers in cells:
            aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:])]
            lines.append("  ".join([name.ljust(widths[0]), *aligned]))

    return table


def pytest_terminal_summary(terminalreporter: "TerminalReporter") -> None:
    """Print the tables."""
    for line in terminalreporter.config.stash.get(TABLES, []):
        terminalreporter.write_line(line)
