"""The functions of the module: the job, sums, and what is sent to all workers."""
