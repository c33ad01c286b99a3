"""A node of the job in this process, and Python that updates weights for it."""

from libc.string cimport memcpy


cdef enum:
    FAILED_PRECONDITION = 5


cdef int _tell(bs_error* error, text) noexcept:
    # 0, or the code of what `text` says is wrong.
    if text is None:
        return 0
    encoded = str(text).encode("utf-8", "replace")[:sizeof(error.message) - 1]
    error.code = FAILED_PRECONDITION
    memcpy(error.message, <const char*>encoded, len(encoded))
    error.message[len(encoded)] = 0
    return FAILED_PRECONDITION


cdef int _set_optimizer(void* updater, const void* pickle, uint64_t size,
                        bs_error* error) noexcept with gil:
    """Run on the server's updater thread."""
    try:
        return _tell(error, (<object>updater).set_optimizer((<const char*>pickle)[:size]))
    except BaseException as failure:
        return _tell(error, repr(failure))


cdef object _optional(const double* number):
    return None if number == NULL else number[0]


cdef int _update(void* updater, const bs_server_update* update, bs_error* error) noexcept with gil:
    """Run on the server's updater thread."""
    try:
        rates = (_optional(update.learning_rate), _optional(update.weight_decay),
                 _optional(update.rescale_grad))
        return _tell(error, (<object>updater).update(
            update.key, update.about.decode("utf-8", "replace"), update.dtype,
            <uintptr_t>update.gradient, <uintptr_t>update.weights, update.size_bytes, rates))
    except BaseException as failure:
        return _tell(error, repr(failure))


cdef class Node:
    """A scheduler node or a server on threads of its own; made by `Node.start`."""

    cdef bs_node* node
    cdef object updater  # borrowed by the engine

    def __init__(self):
        raise TypeError("use Node.start()")

    @staticmethod
    def start(settings=None, *, updater=None):
        """Start the role of DMLC_ROLE and return.

        Parameters
        ----------
        settings : mapping of str to str, optional
            Settings that win over the environment.
        updater : object, optional
            Updates weights for a server, on a thread of the server's.  Its methods return None, or
            a text that says what failed: ``set_optimizer(pickle)`` takes bytes, and
            ``update(key, about, dtype, gradient, weights, size_bytes, rates)`` addresses and a
            triple of learning rate, weight decay and rescale_grad, each a number or None.

        Raises
        ------
        ConfigError
            A setting is missing or wrong.
        UsageError
            The scheduler's port is in use.
        """
        cdef _Settings c_settings = _Settings(settings)
        cdef Node self = Node.__new__(Node)
        cdef bs_error error
        cdef int code
        cdef bs_server_updater functions
        cdef bs_server_updater* pointer = NULL
        if updater is not None:
            functions.context = <void*>updater
            functions.set_optimizer = _set_optimizer
            functions.update = _update
            pointer = &functions
        with nogil:
            code = bs_node_start_updating(c_settings.rows, c_settings.count, pointer, &self.node,
                                          &error)
        _check(code, &error)
        if updater is not None:
            # Until the engine has closed; a node that is dropped lives on.
            Py_INCREF(updater)
            self.updater = updater
        return self

    cdef bs_node* handle(self) except NULL:
        if self.node == NULL:
            raise Closed("the node was closed", 3)
        return self.node

    @property
    def port(self):
        """The port this node listens on; 0 while it does not yet."""
        return bs_node_port(self.handle())

    def wait(self, timeout=None):
        """Block until the job is over, or until `timeout` seconds passed.

        Returns
        -------
        bool
            True if the job ended in good order, False if it still runs.

        Raises
        ------
        Error
            The job failed; which kind of error says how.
        """
        cdef bs_node* node = self.handle()
        cdef bs_error error
        cdef int over = 0
        cdef int64_t left_ms = -1 if timeout is None else <int64_t>(timeout * 1000)
        cdef int slice_ms
        while True:
            slice_ms = _next_slice(&left_ms)
            with nogil:
                over = bs_node_wait(node, slice_ms, &error)
            PyErr_CheckSignals()
            if over:
                _check(error.code, &error)
                return True
            if left_ms == 0:
                return False

    def measure(self, *, int timeout_ms=1000):
        """Return as `Metric` rows what the node has done and is doing (docs/operate/metrics.md).

        Blocks up to `timeout_ms`.  No other call may close the node meanwhile.

        Raises
        ------
        Timeout
            The engine is busy for longer.
        """
        cdef bs_node* node = self.handle()
        cdef bs_error error
        cdef int code
        rows = []
        cdef void* context = <void*>rows
        with nogil:
            code = bs_node_measure(node, timeout_ms, _add_metric, context, &error)
        _check(code, &error)
        return rows

    def close(self, str reason="it was closed"):
        """End the node; all other nodes are told `reason` unless the job is over.

        Blocks shortly.
        """
        cdef bs_node* node = self.node
        if node == NULL:
            return
        self.node = NULL
        text = reason.encode()
        cdef const char* pointer = text
        with nogil:
            bs_node_close(node, pointer)
        if self.updater is not None:
            Py_DECREF(self.updater)
            self.updater = None
