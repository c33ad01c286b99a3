"""Each test gets a maker of jobs that ends what it made."""

import contextlib
import pathlib
from typing import Callable, Iterator

import pytest
from job import Job


@pytest.fixture
def make_job(tmp_path: pathlib.Path) -> "Iterator[Callable[..., Job]]":
    with contextlib.ExitStack() as stack:
        count = 0

        def make(**options: object) -> Job:
            nonlocal count
            count += 1
            folder = tmp_path / str(count)
            folder.mkdir()
            return stack.enter_context(Job(folder, **options))  # type: ignore[arg-type]

        yield make
