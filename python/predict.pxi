"""Predictions of the engine (src/predict) for Python."""

Prediction = namedtuple("Prediction", [
    "step_s", "simulated_workers", "partitions", "messages", "most_waiting", "server_waiting",
    "worker_busy", "server_busy",
])


def predict(layers, *, workers, servers, policy, bytes_per_second, latency_s, partition_bytes,
            credit_bytes, steps=6, most_workers=8, coding_s=(0.0, 0.0, 0.0, 0.0), places=None):
    """Return how a job will run that replays `layers`; src/predict/predict.h says how it is found.

    Blocks without the GIL, for as long as the processor takes.

    Parameters
    ----------
    layers : sequence of (int, float, float)
        Bytes, seconds of forward and seconds of backward, in the order of forward.
    policy : int
        0 ours, 1 first come first served, 2 P3, 3 dist_sync.
    coding_s : sequence of four floats, optional
        The seconds for each byte that travels in which a worker codes gradients, a server adds
        them, a server codes the sum (once), and a worker decodes it.
    places : sequence of (int, float), optional
        The host of each worker and then of each server, and the bytes a second of its link. Nodes
        with the same host share it. By default each has a host of its own.

    Raises
    ------
    UsageError
        This is no job.
    """
    cdef size_t count = len(layers)
    cdef bs_layer* rows = <bs_layer*>calloc(max(count, 1), sizeof(bs_layer))
    cdef size_t nodes = 0 if places is None else len(places)
    cdef bs_place* hosts = <bs_place*>calloc(max(nodes, 1), sizeof(bs_place))
    cdef bs_job_to_predict job
    cdef bs_prediction prediction
    cdef bs_error error
    cdef int code
    try:
        if rows == NULL or hosts == NULL:
            raise MemoryError()
        if places is not None and nodes != workers + servers:
            raise UsageError("want a place for each worker and each server", 1)
        for index, (host, rate) in enumerate(places or ()):
            hosts[index].host = host
            hosts[index].bytes_per_second = rate
        for index, (size_bytes, forward_s, backward_s) in enumerate(layers):
            rows[index].size_bytes = size_bytes
            rows[index].forward_s = forward_s
            rows[index].backward_s = backward_s
        job.layers = rows
        job.num_layers = count
        job.num_workers = workers
        job.num_servers = servers
        job.policy = policy
        job.bytes_per_second = bytes_per_second
        job.latency_s = latency_s
        job.partition_bytes = partition_bytes
        job.credit_bytes = credit_bytes
        job.steps = steps
        job.most_workers = most_workers
        job.coding_s[0], job.coding_s[1], job.coding_s[2], job.coding_s[3] = coding_s
        job.places = NULL
        if places is not None:
            job.places = hosts
        with nogil:
            code = bs_predict(&job, &prediction, &error)
        _check(code, &error)
    finally:
        free(rows)
        free(hosts)
    return Prediction(prediction.step_s, prediction.simulated_workers, prediction.partitions,
                      prediction.messages, prediction.most_waiting, prediction.server_waiting,
                      prediction.worker_busy, prediction.server_busy)


def partition_and_credit(
    *, double bytes_per_second, double round_trip_s, int servers, bint adds_up=False
):
    """Return partition and credit, in bytes, that a job takes for such links if neither is set.

    Parameters
    ----------
    bytes_per_second, round_trip_s : float
        The links.
    servers : int
        1 to 65536.
    adds_up : bool, optional
        Whether the workers of a host add up first.

    Raises
    ------
    UsageError
        There are no such links.
    """
    cdef uint64_t partition_bytes
    cdef uint64_t credit_bytes
    cdef bs_error error
    cdef bs_links links = bs_links(bytes_per_second, round_trip_s, servers, adds_up)
    _check(bs_partition_and_credit(&links, &partition_bytes, &credit_bytes, &error), &error)
    return partition_bytes, credit_bytes
