"""Workers of several jobs, one after the other, without importing MXNet for each."""

import os
import sys
from typing import Callable, List


def in_turn(jobs: "List[str]", run: "Callable[[List[str]], object]") -> None:
    """Call `run` with the cases of each "CASE+CASE=PORT", in a child that is in the job there."""
    for job in jobs:
        cases, port = job.split("=")
        pid = os.fork()
        if pid == 0:
            os.environ["DMLC_PS_ROOT_PORT"] = port
            run(cases.split("+"))
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0, job
