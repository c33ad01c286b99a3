"""A worker without MXNet that prints its rank and the number that its launcher gave it."""

import os

from bytescheduler._native import Worker
from bytescheduler._session.view import View

GIVEN = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "DMLC_WORKER_ID")

worker = Worker.open()
number = next(os.environ[name] for name in GIVEN if name in os.environ)
print(
    f"rank {worker.rank} of {worker.num_workers}, {worker.num_servers} servers, process {number}",
    flush=True,
)
view = View(*worker.view())
print(f"worker {view.rank} is {view.local_rank} of {view.local_size} here", flush=True)
worker.barrier()
worker.close()
