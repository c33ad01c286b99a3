"""What stock workers pulled in a job, to be compared with what they should have, or did in another.

`CASES` are those of stock_worker.py in which servers of any kind do the same, bit for bit.
"""

from typing import Dict, List

import numpy as np
from job import Job

Results = Dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]
CUT = {"MXNET_KVSTORE_BIGARRAY_BOUND": "1000"}  # the largest arrays are shared out
CASES = ("dense", "pushpull", "updates", "rows_updated")


def results_of(job: Job, *cases: str, store: str = "dist_sync", workers: int = 2) -> List[Results]:
    job.run("stock_worker.py", store, str(job.folder / "got"), *cases)
    return [dict(np.load(job.folder / f"got-{rank}.npz")) for rank in range(workers)]


def assert_same(got: Results, wanted: Results) -> None:
    assert got.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)
        assert got[name].dtype == values.dtype, name
