"""What stock workers pulled in a job, to be compared with what they should have, or did in another.

`CASES` are those of stock_worker.py in which servers of any kind do the same, bit for bit.
"""

import warnings
from typing import Callable, Dict, List

import numpy as np
from job import Job

Results = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]
CUT = {"MXNET_KVSTORE_BIGARRAY_BOUND": "1000"}  # the largest arrays are shared out
P3 = {
    "DMLC_PS_VAN_TYPE": "p3",
    "MXNET_KVSTORE_SLICE_THRESHOLD": "100",
    "MXNET_UPDATE_ON_KVSTORE": "0",
}
CASES = ("dense", "pushpull", "updates", "rows_updated", "two_bits")


def results_of(job: Job, *cases: str, store: str = "dist_sync", workers: int = 2) -> List[Results]:
    job.run("stock/stock_worker.py", store, str(job.folder / "got"), *cases)
    return [dict(np.load(job.folder / f"got-{rank}.npz")) for rank in range(workers)]


def assert_same(got: Results, wanted: Results) -> None:
    assert got.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)
        assert got[name].dtype == values.dtype, name


def run_two_stores(make_job: Callable[..., Job], **options: object) -> None:
    """Let one process be both workers of a job of two servers; everything must end well."""
    # One answer lets both stores go.  MXNet forgets it when the first has ended; the other, if it
    # has not looked by then, waits for ever: 1 of 140 runs, 1 of 25 on a busy machine.
    for may_hang in (True, True, False):
        job = make_job(servers=2, env=CUT, **options)
        worker = job.start_worker("stock/two_stores_worker.py")
        worker.wait_for_line("both agree")
        for process in job.processes:
            if process is not worker:
                assert process.wait() == 0, job.all_output()
        try:
            assert worker.wait(10) == 0, job.all_output()
        except AssertionError:
            if not worker.running() or not may_hang:
                raise
            warnings.warn("a store hung at its end", stacklevel=1)
            worker.kill()
        else:
            return
