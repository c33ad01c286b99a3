"""Every metric there is: its name, its kind, and what it means.

``python -m bytescheduler._metrics.table`` prints the table of docs/operate/metrics.md.
"""

from typing import Dict, NamedTuple, Optional, Tuple

__all__ = ["ANSWERS", "INFO", "ROWS", "Row", "find", "markdown"]

INFO = "bytescheduler_info"
ANSWERS = "bytescheduler_engine_answers"


class Row(NamedTuple):
    """A metric of one role.

    The engine calls it `metric`.  `of` is the label that names one of several peers, or None.
    """

    role: str
    metric: str
    of: Optional[str]
    sentence: str

    @property
    def name(self) -> str:
        """The name that Prometheus sees."""
        return f"bytescheduler_{self.role}_{self.metric}"

    @property
    def kind(self) -> str:
        """`counter` or `gauge`."""
        return "counter" if self.metric.endswith("_total") else "gauge"

    @property
    def labels(self) -> Tuple[str, ...]:
        """Names of its labels; the scheduler node has no rank."""
        node_labels = () if self.role == "scheduler" else ("rank",)
        return node_labels if self.of is None else (*node_labels, self.of)


_SENT = (
    ("sent_messages_total", None, "messages to other nodes; none where a stock store sends"),
    (
        "sent_fused_total",
        None,
        "messages to other nodes that travelled inside another one (BYTESCHEDULER_FUSION)",
    ),
    (
        "sent_tcp_bytes_total",
        None,
        "bytes that left through TCP, with heads and everything; none where libzmq or a stock "
        "store sends",
    ),
    ("sent_shared_bytes_total", None, "bytes that went to nodes of this host by shared memory"),
    ("rdma_links", None, "connections that use RDMA now"),
    ("rdma_sent_bytes_total", None, "bytes of gradients and sums that left by RDMA"),
    ("rdma_received_bytes_total", None, "bytes of gradients and sums that came by RDMA"),
    ("rdma_reads_total", None, "READs of this node's RDMA device that are complete"),
    ("rdma_bounced_bytes_total", None, "bytes that were copied so that a device could read them"),
    ("rdma_moved_bytes_total", None, "bytes that were copied after a READ"),
    ("rdma_pinned_bytes", None, "memory that the RDMA device may use now"),
    ("rdma_window_bytes", None, "bytes that this node may be reading now, all peers together"),
    (
        "rdma_breaks_total",
        "status",
        "connections whose RDMA broke, by the number that libibverbs gives the failure: 12 is "
        "`transport retry counter exceeded`. 0: no request failed, such as when the port went down",
    ),
)
_WORKER = (
    ("steps_total", None, "steps: rounds of the largest tensor, which a model uses once in each"),
    ("step_seconds", None, "length of the latest step, 0 before the second"),
    ("tensors_total", None, "tensors whose sum has come"),
    (
        "pushed_bytes_total",
        "server",
        "bytes that the server has acknowledged, as they travel; those of tensors up to 16 KiB "
        "count when their sum comes",
    ),
    ("pushed_partitions_total", "server", "partitions that the server has acknowledged"),
    (
        "push_seconds_total",
        "server",
        "seconds from sending a partition to its acknowledgement, added up over partitions; for "
        "tensors up to 16 KiB until the network has them. Divided by pushed_partitions_total it is "
        "the mean of a push",
    ),
    ("pulled_bytes_total", "server", "bytes of sums and weights that came from the server"),
    ("pulled_partitions_total", "server", "partitions that came from the server"),
    (
        "pull_seconds_total",
        "server",
        "seconds from the push of a partition to the arrival of its sum, added up over partitions: "
        "the push, the wait for other workers, the way back",
    ),
    ("repeats_total", "server", "requests that were sent again because no response came"),
    (
        "queued_partitions",
        "server",
        "partitions that wait for credit, for more urgent ones, or for another server's",
    ),
    (
        "queued_bytes",
        "server",
        "bytes of partitions that wait for credit, for more urgent ones, or for another server's",
    ),
    (
        "in_flight_bytes",
        "server",
        "bytes sent and not acknowledged; of tensors up to 16 KiB what the network has not taken",
    ),
    (
        "partition_bytes",
        None,
        "the largest partition of a tensor; worker 0 decides it, and another worker shows its own "
        "setting until it partitions a tensor anew",
    ),
    ("credit_bytes", None, "bytes that may be in flight to each server"),
    ("pending_requests", None, "requests to servers that are not over"),
    (
        "coding_seconds_total",
        None,
        "seconds in which the engine's thread coded gradients and decoded sums; 0 without "
        "compression",
    ),
    ("library_operations_total", None, "operations of MPI or NCCL"),
    ("library_bytes_total", None, "bytes of gradients that the library has summed"),
    (
        "library_copied_bytes_total",
        None,
        "bytes copied between the GPU and the host, both ways, with BYTESCHEDULER_LOCAL_SUMS=nccl",
    ),
    *_SENT,
    ("failed", None, "1 once the worker has failed for good"),
)
_SERVER = (
    ("rounds_total", None, "partitions summed over all workers"),
    ("open_rounds", None, "partitions that some workers have pushed and others not"),
    ("awaited_rounds", "worker", "partitions that other workers have pushed and this one has not"),
    ("came_last_total", "worker", "partitions that this worker was the last to push"),
    (
        "waited_seconds_total",
        "worker",
        "seconds from the first push of a partition to the last, which was this worker's, added up "
        "over partitions",
    ),
    (
        "sum_seconds_total",
        None,
        "seconds from the last push of a partition to its sum, added up over partitions",
    ),
    (
        "coding_seconds_total",
        None,
        "seconds in which threads added codes and coded sums, added up over threads; 0 without "
        "compression",
    ),
    ("pushes_total", "worker", "pushes and gives of this worker; a repeat does not count again"),
    ("pushed_bytes_total", "worker", "bytes of pushes and gives of this worker, as they travel"),
    ("pulls_total", "worker", "responses to this worker with sums, weights or results"),
    ("pulled_bytes_total", "worker", "bytes of sums, weights and results sent to this worker"),
    ("refused_total", None, "requests that were refused, or not taken for want of room"),
    *_SENT,
    ("partitions", None, "partitions kept; keys that all workers have given back have none"),
    ("value_bytes", None, "memory for sums and weights, without states of optimizers"),
    ("held_bytes", None, "contributions that wait for those of lower ranks (BYTESCHEDULER_HOLD)"),
    ("exchanges", None, "exchanges between some workers that are under way"),
    ("exchange_partitions", None, "their partitions that a worker has asked for"),
    ("ended_exchanges", None, "exchanges that are over; their outcomes are kept for late requests"),
    ("failed", None, "1 once the job has failed"),
)
_SCHEDULER = (
    ("workers", None, "workers of the complete job that have not left; 0 before it is complete"),
    ("servers", None, "servers of the complete job that have not left; 0 before it is complete"),
    (
        "worker_silent_seconds",
        "worker",
        "seconds since this worker was heard last; native workers only",
    ),
    ("server_silent_seconds", "server", "seconds since this server was heard last"),
)
ROWS = tuple(
    Row(role, *row)
    for role, rows in (("worker", _WORKER), ("server", _SERVER), ("scheduler", _SCHEDULER))
    for row in rows
)
_BY_METRIC: Dict[Tuple[str, str], Row] = {(row.role, row.metric): row for row in ROWS}


def find(role: str, metric: str) -> Optional[Row]:
    """Return the row of a metric of the engine, or None if the table has none."""
    return _BY_METRIC.get((role, metric))


def markdown() -> str:
    """Return the table of docs/operate/metrics.md."""
    head = "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
    common = (
        f"| `{INFO}` | gauge | role, rank, version | always 1; rank is empty before the job is "
        "complete, and of the scheduler node |\n"
        f"| `{ANSWERS}` | gauge | role, rank | 1 if the engine returned its metrics, 0 if its "
        "thread was busy for a second: then those below are missing |\n"
    )
    rows = (
        f"| `{row.name}` | {row.kind} | {', '.join(row.labels) or '–'} | {row.sentence} |\n"
        for row in ROWS
    )
    return head + common + "".join(rows)


if __name__ == "__main__":
    print(markdown(), end="")
