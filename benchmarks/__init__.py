"""Benchmarks: each prints JSON, such as `python -m benchmarks.jobs.replay`.

`jobs` runs whole jobs, `engine` its parts in C++, `pytorch` and `tensorflow` what trains with them,
and `rdma` jobs on machines with RDMA devices; all use `lab`.
"""

import os

# `python -m benchmarks.replay` works too, but for `rdma`.  Code imports from the rooms.
__path__ += [
    os.path.join(__path__[0], room) for room in ("jobs", "engine", "pytorch", "tensorflow")
]
