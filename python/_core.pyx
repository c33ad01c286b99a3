# cython: language_level=3, binding=True, embedsignature=True
"""The engine for Python: buffers in, errors out, no decisions.

Blocking calls give up the GIL and look for signals four times a second, so that Ctrl-C works.  No
callback of the engine ever needs the GIL: completions are counted by the engine itself.
"""

from collections import namedtuple

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from libcpp cimport bool
from libcpp.algorithm cimport sort
from libcpp.vector cimport vector

from c_api cimport *

from bytescheduler.errors import Closed, ConfigError, Error, UsageError, _from_code

# How long a blocking call stays away from Python's signal handlers.
cdef enum:
    SLICE_MS = 250

# Up to here the price of an operation in MXNet's engine counts more than an early end of the push.
cdef enum:
    JOINED_BYTES = 64 * 1024

Setting = namedtuple("Setting", ["name", "kind", "unit", "default", "scope", "sentence"])
Value = namedtuple("Value", ["name", "value", "origin"])


cdef object _raise(bs_error* error):
    raise _from_code(error.code, error.message.decode("utf-8", "replace"))


cdef int _check(int code, bs_error* error) except -1:
    if code != 0:
        _raise(error)
    return 0


cdef class _Settings:
    """Overrides as a C array; owns the texts the array points to."""

    cdef bs_setting* rows
    cdef size_t count
    cdef list texts

    def __cinit__(self, overrides):
        pairs = [] if overrides is None else list(overrides.items())
        self.texts = []
        self.count = len(pairs)
        self.rows = <bs_setting*>calloc(max(self.count, 1), sizeof(bs_setting))
        if self.rows == NULL:
            raise MemoryError()
        for index, (name, value) in enumerate(pairs):
            if not isinstance(name, str) or not isinstance(value, str):
                raise ConfigError(f"setting {name!r}={value!r}: want names and values as str", 1)
            encoded_name, encoded_value = name.encode(), value.encode()
            self.texts += [encoded_name, encoded_value]
            self.rows[index].name = encoded_name
            self.rows[index].value = encoded_value

    def __dealloc__(self):
        free(self.rows)


cdef void _add_setting(void* rows, const char* name, const char* kind, const char* unit,
                       const char* fallback, const char* scope,
                       const char* sentence) noexcept:
    (<list>rows).append(Setting(name.decode(), kind.decode(), unit.decode(), fallback.decode(),
                                scope.decode(), sentence.decode()))


cdef void _add_value(void* rows, const char* name, const char* value,
                     const char* origin) noexcept:
    (<list>rows).append(Value(name.decode(), value.decode("utf-8", "replace"), origin.decode()))


def version():
    """Return the version of the engine."""
    return bs_version().decode()


def fail_exit():
    """Let this process end with 1 where it would end with 0."""
    bs_fail_exit()


def settings():
    """Return every setting there is, in the order of the table."""
    rows = []
    bs_settings_all(_add_setting, <void*>rows)
    return rows


def values(overrides=None):
    """Return every setting as it stands, with where it comes from; never fails."""
    cdef _Settings given = _Settings(overrides)
    rows = []
    bs_settings_values(given.rows, given.count, _add_value, <void*>rows)
    return rows


def check_settings(overrides=None):
    """Check all settings without starting anything.

    Raises
    ------
    ConfigError
        A required one is missing, one is malformed, or a name is unknown.
    """
    cdef _Settings given = _Settings(overrides)
    cdef bs_error error
    _check(bs_settings_check(given.rows, given.count, &error), &error)


@cython.no_gc_clear
cdef class _Waiter:
    """Counts completions of the engine.

    What is dropped before all have come (an interrupted call on a worker that nobody closed) is
    never freed: the engine still writes to it.
    """

    cdef bs_waiter* waiter
    cdef size_t unstarted
    cdef object owner  # what the engine borrows meanwhile

    def __cinit__(self, size_t count, owner):
        self.unstarted = count
        self.owner = owner
        self.waiter = bs_waiter_new(count)
        if self.waiter == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.waiter == NULL or bs_waiter_wait(self.waiter, 0, NULL):
            bs_waiter_free(self.waiter)
        else:
            Py_INCREF(self.owner)

    cdef void skip(self) noexcept nogil:
        # Stands in for operations that were never started.
        while self.unstarted > 0:
            self.unstarted -= 1
            bs_waiter_done(self.waiter, 0, b"")

    cdef int wait(self) except -1:
        """Block until all have come; raise the first error."""
        cdef bs_error error
        cdef int over = 0
        while not over:
            with nogil:
                over = bs_waiter_wait(self.waiter, SLICE_MS, &error)
            PyErr_CheckSignals()
        return _check(error.code, &error)


cdef class Pending:
    """An operation under way; made by `Worker.start_push_pull`."""

    cdef _Waiter waiter

    def __init__(self):
        raise TypeError("use Worker.start_push_pull()")

    def over(self):
        """Return whether it has ended; raise what it failed with."""
        cdef bs_error error
        if not bs_waiter_wait(self.waiter.waiter, 0, &error):
            return False
        _check(error.code, &error)
        return True

    def wait(self):
        """Block until it has ended; raise what it failed with."""
        self.waiter.wait()


cdef class Worker:
    """A training process's place in the job; made by `Worker.open`.

    Thread-safe, but `close` waits for no other call: close it once, when no other call runs.  Of no
    use in a forked child, where every call raises `UsageError` and `close` does nothing.  A worker
    that is dropped without `close` stays in the job until the process ends: to leave could block
    the garbage collector for as long as the network takes.
    """

    cdef bs_worker* worker
    cdef list abandoned  # waiters of interrupted calls: the engine still counts on them
    cdef int users  # plug-ins that borrow the handle
    cdef object carrier  # what carries the bytes, if not our own servers

    def __init__(self):
        raise TypeError("use Worker.open()")

    @staticmethod
    def open(settings=None, *, int wanted_rank=-1):
        """Join the job and return when every node is there.

        Parameters
        ----------
        settings : mapping of str to str, optional
            Settings that win over the environment.
        wanted_rank : int
            The rank of the stock worker in this process to attach to; -1 takes the rank that the
            scheduler node gives.

        Raises
        ------
        ConfigError
            A setting is missing or wrong.
        Timeout
            Not everyone came within BYTESCHEDULER_TIMEOUT; the message says who is missing.
        PeerLost
            A peer was lost meanwhile.
        """
        cdef _Settings given = _Settings(settings)
        cdef Worker self = Worker.__new__(Worker)
        cdef bs_error error
        self.abandoned = []
        with nogil:
            code = bs_worker_start(given.rows, given.count, wanted_rank, &self.worker, &error)
        _check(code, &error)
        self._wait_until_ready()
        return self

    @staticmethod
    def open_carried(MXNetStore store, int rank, settings=None):
        """Begin to schedule what `store` carries; a barrier of the store must follow.

        Parameters
        ----------
        store : MXNetStore
            Kept alive.
        rank : int
            This worker's rank in the store.
        settings : mapping of str to str, optional
            Settings that win over the environment.

        Raises
        ------
        ConfigError
            A setting is missing or wrong.
        Timeout
            The store did not take its first values within BYTESCHEDULER_TIMEOUT.
        """
        cdef _Settings given = _Settings(settings)
        cdef Worker self = Worker.__new__(Worker)
        cdef bs_error error
        cdef bs_mxnet_store* context = store.handle()
        self.abandoned = []
        self.carrier = store
        with nogil:
            code = bs_worker_start_carried(given.rows, given.count, rank, bs_mxnet_store_carry,
                                           context, &self.worker, &error)
        _check(code, &error)
        self._wait_until_ready()
        return self

    cdef int _wait_until_ready(self) except -1:
        cdef bs_error error
        cdef int ready = 0
        try:
            while not ready:
                with nogil:
                    ready = bs_worker_ready(self.worker, SLICE_MS, &error)
                PyErr_CheckSignals()
            _check(error.code, &error)
        except BaseException:
            self.close(drain_ms=0)
            raise
        return 0

    cdef bs_worker* handle(self) except NULL:
        if self.worker == NULL:
            raise Closed("the worker was closed", 3)
        return self.worker

    @property
    def rank(self):
        """Position among the workers, from 0."""
        return bs_worker_rank(self.handle())

    @property
    def num_workers(self):
        """How many workers the job has."""
        return bs_worker_num_workers(self.handle())

    @property
    def num_servers(self):
        """How many servers the job has."""
        return bs_worker_num_servers(self.handle())

    @property
    def closed(self):
        """Whether the handle was closed."""
        return self.worker == NULL

    def broadcast(self, items, *, owner=None, bint asynchronous=False):
        """Declare keys and copy rank 0's bytes into everyone's memory; blocks.

        Parameters
        ----------
        items : iterable of (int, int, int, int)
            Key, code of the element type (MXNet's), address and size in bytes; the memory stays
            valid and is only written until this returns.
        owner : object
            Kept alive while the engine uses the memory, even if the call is interrupted.
        asynchronous : bool
            Servers update these keys with every push as it comes.
        """
        cdef bs_worker* worker = self.handle()
        rows = [(<uint64_t>key, <int>dtype, <uintptr_t>address, <uint64_t>size)
                for key, dtype, address, size in items]
        cdef _Waiter waiter = _Waiter(len(rows), owner)
        cdef bs_error error
        cdef int code = 0
        cdef uint64_t key, size
        cdef uintptr_t address
        cdef int dtype
        for key, dtype, address, size in rows:
            with nogil:
                if asynchronous:
                    code = bs_worker_broadcast_async(worker, key, dtype, <void*>address, size,
                                                     bs_waiter_done, waiter.waiter, &error)
                else:
                    code = bs_worker_broadcast(worker, key, dtype, <void*>address, size,
                                               bs_waiter_done, waiter.waiter, &error)
            if code != 0:
                break
            waiter.unstarted -= 1
        waiter.skip()
        self._wait(waiter)
        _check(code, &error)

    def broadcast_whole(self, items, *, owner=None):
        """Do as `broadcast` for asynchronous keys that stay in one piece; blocks.

        Parameters
        ----------
        items : iterable of (int, int, int, int, str, bool)
            As of `broadcast`; then what the servers' updater is told about the key, and whether
            nobody else can update it.
        owner : object
            As of `broadcast`.
        """
        cdef bs_worker* worker = self.handle()
        rows = [(<uint64_t>key, <int>dtype, <uintptr_t>address, <uint64_t>size, about.encode(),
                 1 if hosted else 0) for key, dtype, address, size, about, hosted in items]
        cdef _Waiter waiter = _Waiter(len(rows), owner)
        cdef bs_error error
        cdef bs_whole_key whole
        cdef int code = 0
        for row in rows:
            whole.key, whole.dtype = row[0], row[1]
            whole.value = <void*><uintptr_t>row[2]
            whole.size_bytes = row[3]
            whole.about = row[4]
            whole.hosted = row[5]
            with nogil:
                code = bs_worker_broadcast_whole(worker, &whole, bs_waiter_done, waiter.waiter,
                                                 &error)
            if code != 0:
                break
            waiter.unstarted -= 1
        waiter.skip()
        self._wait(waiter)
        _check(code, &error)

    def set_optimizer(self, str text, bytes pickle=b""):
        """Tell every server how to update asynchronous keys, such as "sgd momentum=0.9"; blocks.

        Parameters
        ----------
        text : str
            Name and numbers; "hosted NAME" if only the servers' updaters can do it.
        pickle : bytes
            What these load.
        """
        cdef bs_worker* worker = self.handle()
        cdef _Waiter waiter = _Waiter(1, None)
        cdef bs_error error
        cdef int code
        encoded = text.encode()
        cdef bs_optimizer optimizer
        optimizer.text = encoded
        optimizer.pickle = <const char*>pickle
        optimizer.pickle_bytes = len(pickle)
        with nogil:
            code = bs_worker_set_optimizer(worker, &optimizer, bs_waiter_done,
                                           waiter.waiter, &error)
        if code == 0:
            waiter.unstarted = 0
        waiter.skip()
        self._wait(waiter)
        _check(code, &error)

    def barrier(self):
        """Wait until every worker called it."""
        cdef bs_worker* worker = self.handle()
        cdef _Waiter waiter = _Waiter(1, None)
        cdef bs_error error
        cdef int code
        with nogil:
            code = bs_worker_barrier_start(worker, bs_waiter_done, waiter.waiter, &error)
        if code == 0:
            waiter.unstarted = 0
        waiter.skip()
        self._wait(waiter)
        _check(code, &error)

    def start_push_pull(self, uint64_t key, uintptr_t send, uintptr_t recv, uint64_t size, *,
                        owner):
        """Register one round of `key` from `send` to `recv`; returns at once.

        Parameters
        ----------
        key : int
            Declared by `broadcast`.
        send, recv : int
            Addresses of `size` bytes each.
        size : int
            Bytes.
        owner : object
            Kept alive while the engine uses the memory.

        Returns
        -------
        Pending
        """
        cdef bs_worker* worker = self.handle()
        cdef Pending pending = Pending.__new__(Pending)
        cdef bs_push_pull request
        cdef bs_error error
        cdef int code
        pending.waiter = _Waiter(2, owner)
        request.key = key
        request.priority = 0
        request.sent = <const void*>send
        request.received = <void*>recv
        request.size_bytes = size
        request.pushed = bs_waiter_done
        request.pulled = bs_waiter_done
        request.context = <void*>pending.waiter.waiter
        request.threshold = 0
        with nogil:
            code = bs_worker_push_pull(worker, &request, &error)
        if code == 0:
            pending.waiter.unstarted = 0
        pending.waiter.skip()
        _check(code, &error)
        return pending

    cdef int _wait(self, _Waiter waiter) except -1:
        # After Ctrl-C the engine still uses what the waiter holds, until the worker is closed.
        self.abandoned.append(waiter)
        try:
            waiter.wait()
        except Error:
            self.abandoned.remove(waiter)
            raise
        self.abandoned.remove(waiter)
        return 0

    def fail(self, str why):
        """Fail the whole job: everyone is told `why`."""
        cdef bs_worker* worker = self.handle()
        text = why.encode()
        cdef const char* pointer = text
        with nogil:
            bs_worker_fail(worker, pointer)

    def status(self):
        """Return the error that failed the worker, or None while it is well."""
        cdef bs_error error
        if bs_worker_status(self.handle(), &error) == 0:
            return None
        return _from_code(error.code, error.message.decode("utf-8", "replace"))

    def close(self, *, int drain_ms=10000):
        """Finish pending operations for up to `drain_ms`, fail what is left, leave the job.

        Blocks.  A second call does nothing, and so does any call in a forked child.
        """
        cdef bs_worker* worker = self.worker
        cdef bs_error error
        cdef int code
        if worker == NULL:
            return
        if self.users > 0:
            raise UsageError("close the plug-in before its worker", 5)
        self.worker = NULL
        with nogil:
            code = bs_worker_close(worker, drain_ms, &error)
        self.abandoned.clear()
        if self.carrier is not None and code != 0:
            # Left behind: the engine may still use the carrier.
            Py_INCREF(self.carrier)
            return
        _check(code, &error)


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
    except BaseException as why:
        return _tell(error, repr(why))


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
    except BaseException as why:
        return _tell(error, repr(why))


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
        cdef _Settings given = _Settings(settings)
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
            code = bs_node_start_updating(given.rows, given.count, pointer, &self.node, &error)
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
            slice_ms = SLICE_MS if left_ms < 0 or left_ms > SLICE_MS else <int>left_ms
            with nogil:
                over = bs_node_wait(node, slice_ms, &error)
            PyErr_CheckSignals()
            if over:
                _check(error.code, &error)
                return True
            if left_ms >= 0:
                left_ms -= slice_ms
                if left_ms <= 0:
                    return False

    def close(self, str why="it was closed"):
        """End the node; unless the job is over, everyone else is told `why`.  Blocks shortly."""
        cdef bs_node* node = self.node
        if node == NULL:
            return
        self.node = NULL
        text = why.encode()
        cdef const char* pointer = text
        with nogil:
            bs_node_close(node, pointer)
        if self.updater is not None:
            Py_DECREF(self.updater)
            self.updater = None


cdef class MXNetRounds:
    """What all rounds of one key have in common.

    Parameters
    ----------
    key : int
        The engine's key.
    name : str
        What errors call the key.
    send_handle, recv_handle : int
        NDArray handles of the private staging arrays, which must outlive this.
    size : int
        Bytes of each.

    Attributes
    ----------
    position : int
        The key's place among those of one call, which register in this order; 0 at first.
    """

    cdef bs_mxnet_round round
    cdef bytes name
    cdef public int64_t position

    def __init__(self, uint64_t key, str name, uintptr_t send_handle, uintptr_t recv_handle,
                 uint64_t size):
        self.name = name.encode()
        self.round.key = key
        self.round.name = self.name
        self.round.priority = 0
        self.round.send_stage = <void*>send_handle
        self.round.recv_stage = <void*>recv_handle
        self.round.size_bytes = size
        self.round.threshold = 0
        self.round.joined = size <= JOINED_BYTES

    @property
    def key(self):
        """Return the engine's key."""
        return self.round.key

    @property
    def text(self):
        """Return what errors call the key."""
        return self.name.decode()

    @property
    def stages(self):
        """Return the NDArray handles of what is sent and received, and the bytes of each."""
        return (<uintptr_t>self.round.send_stage, <uintptr_t>self.round.recv_stage,
                self.round.size_bytes)


cdef struct _Exchange:
    int64_t position
    bs_mxnet_round round
    void* value
    void* out


cdef bool _before(const _Exchange& a, const _Exchange& b) noexcept nogil:
    return a.position < b.position


cdef int _register(bs_mxnet* plugin, bs_mxnet_copier* copier, const _Exchange* exchange,
                   bs_error* error) noexcept nogil:
    cdef const bs_mxnet_round* round = &exchange.round
    cdef int code = bs_mxnet_copier_copy(copier, exchange.value, round.send_stage, round.priority,
                                         error)
    if code == 0:
        code = bs_mxnet_push_pull(plugin, round, error)
    if code == 0:
        code = bs_mxnet_copier_copy(copier, round.recv_stage, exchange.out, round.priority, error)
    return code


cdef void* _handle(MXNetCopier copier, arrays) except? NULL:
    """Return the handle of an array, or of the only one of a list; NULL for anything else."""
    if isinstance(arrays, (list, tuple)) and len(arrays) == 1:
        arrays = arrays[0]
    if not isinstance(arrays, copier.array_type):
        return NULL
    return <void*><uintptr_t>arrays.handle.value


cdef bint _exchange(MXNetCopier copier, dict usual, key, value, out, _Exchange* exchange) except -1:
    """Fill in what goes to and fro; return whether it is one fitting array each way."""
    if not isinstance(key, (int, str)):
        return False
    found = usual.get(key)
    if found is None:
        return False
    cdef MXNetRounds rounds = found
    exchange.position = rounds.position
    exchange.round = rounds.round
    exchange.value = _handle(copier, value)
    exchange.out = exchange.value if out is value else _handle(copier, out)
    return copier.takes(exchange.value, exchange.round.send_stage) and (
        exchange.out == exchange.value or copier.takes(exchange.out, exchange.round.recv_stage))


cdef bint _exchanges(MXNetCopier copier, dict usual, keys, values, outs,
                     vector[_Exchange]* exchanges) except -1:
    """As above for parallel lists, in the order of the keys' positions."""
    cdef size_t count = len(keys), index
    for arrays in (values, outs):
        if not isinstance(arrays, (list, tuple)) or <size_t>len(arrays) != count:
            return False
    exchanges.resize(count)
    for index in range(count):
        if not _exchange(copier, usual, keys[index], values[index], outs[index],
                         &exchanges[0][index]):
            return False
    sort(exchanges.begin(), exchanges.end(), _before)
    for index in range(1, count):
        if exchanges[0][index].position == exchanges[0][index - 1].position:
            return False  # a key that appears twice has more devices
    return True


cdef class MXNetPlugin:
    """Dependency proxies in MXNet's engine.

    Parameters
    ----------
    worker : Worker
        Kept alive, and not to be closed before this.
    push_async_nd, get_data, last_error : int
        Addresses of MXEnginePushAsyncND, MXNDArrayGetData and MXGetLastError.
    """

    cdef bs_mxnet* plugin
    cdef Worker worker

    def __init__(self, Worker worker, push_async_nd, get_data, last_error):
        cdef bs_mxnet_functions functions
        cdef bs_error error
        if self.plugin != NULL:
            raise UsageError("the plug-in is open already", 5)
        functions.push_async_nd = <void*><uintptr_t>push_async_nd
        functions.get_data = <void*><uintptr_t>get_data
        functions.last_error = <void*><uintptr_t>last_error
        _check(bs_mxnet_open(worker.handle(), &functions, &self.plugin, &error), &error)
        self.worker = worker
        worker.users += 1

    cdef bs_mxnet* handle(self) except NULL:
        if self.plugin == NULL:
            raise Closed("the plug-in was closed", 3)
        return self.plugin

    def push_pull(self, MXNetRounds rounds, int priority, *, float threshold=0):
        """Register one round; returns at once.

        Parameters
        ----------
        rounds : MXNetRounds
            Of a key that was declared by `Worker.broadcast`.
        priority : int
            Larger goes first.
        threshold : float
            Send two bits an element, of float32 arrays; 0 sends them as they are.
        """
        cdef bs_mxnet* plugin = self.handle()
        cdef bs_mxnet_round round = rounds.round
        cdef bs_error error
        cdef int code
        round.priority = priority
        round.threshold = threshold
        # With NaiveEngine the call runs the proxies and waits for them.
        with nogil:
            code = bs_mxnet_push_pull(plugin, &round, &error)
        _check(code, &error)

    def exchange(self, MXNetCopier copier, dict usual, keys, values, outs, int priority):
        """Register a push-pull of one fitting array for each key: copy, round, copy.

        The usual call, without the price of the whole grammar.  Returns at once.

        Parameters
        ----------
        copier : MXNetCopier
            Tells what fits, and copies.
        usual : dict of int or str to MXNetRounds
            The keys that may go this way: their sum is what `outs` get.
        keys, values, outs
            As of KVStore.pushpull; `outs` None stands for `values`.

        Returns
        -------
        bool
            False, and nothing is registered, if the arguments are anything else, good or bad.
        """
        cdef bs_mxnet* plugin = self.handle()
        cdef vector[_Exchange] exchanges
        cdef bs_error error
        cdef int code = 0
        if outs is None:
            outs = values
        if not isinstance(keys, (list, tuple)):
            exchanges.resize(1)
            if not _exchange(copier, usual, keys, values, outs, &exchanges[0]):
                return False
        elif not _exchanges(copier, usual, keys, values, outs, &exchanges):
            return False
        # With NaiveEngine the calls run what they register and wait for it.
        with nogil:
            for exchange in exchanges:
                exchange.round.priority = priority
                code = _register(plugin, copier.copier, &exchange, &error)
                if code != 0:
                    break
        _check(code, &error)
        return True

    def update(self, MXNetRounds rounds, int priority, *, bint pushes, bint pulls, rates=None,
               float threshold=0):
        """Register one use of an asynchronous key; returns at once.

        Parameters
        ----------
        rounds, priority
            As of `push_pull`.
        pushes, pulls : bool
            Whether the gradient in the send stage is pushed, and the weights are then pulled into
            the receive stage.
        rates : (float, float, float), optional
            Learning rate, weight decay and rescale_grad of this push; the optimizer's own if None.
        threshold
            As of `push_pull`.
        """
        cdef bs_mxnet* plugin = self.handle()
        cdef bs_mxnet_update_request request
        cdef bs_rates given
        cdef bs_error error
        cdef int code
        request.round = rounds.round
        request.round.priority = priority
        request.round.threshold = threshold
        request.pushes = pushes
        request.pulls = pulls
        request.rates = NULL
        if rates is not None:
            given.learning_rate, given.weight_decay, given.rescale_grad = rates
            request.rates = &given
        with nogil:
            code = bs_mxnet_update(plugin, &request, &error)
        _check(code, &error)

    def pending(self):
        """Return how many operations are registered and not ended."""
        return bs_mxnet_pending(self.handle())

    def drain(self, timeout=None):
        """Take no more operations and wait up to `timeout` seconds until none is pending.

        Returns
        -------
        bool
            Whether none is pending.
        """
        cdef bs_mxnet* plugin = self.handle()
        cdef int64_t left_ms = -1 if timeout is None else <int64_t>(timeout * 1000)
        cdef int slice_ms
        cdef int over = 0
        while True:
            slice_ms = SLICE_MS if left_ms < 0 or left_ms > SLICE_MS else <int>left_ms
            with nogil:
                over = bs_mxnet_drain(plugin, slice_ms)
            PyErr_CheckSignals()
            if over:
                return True
            if left_ms >= 0:
                left_ms -= slice_ms
                if left_ms <= 0:
                    return False

    def close(self):
        """Give up the plug-in; no operation may be pending."""
        if self.plugin == NULL:
            return
        if bs_mxnet_pending(self.plugin) > 0:
            raise UsageError("operations are pending in MXNet's engine: wait for them first", 5)
        bs_mxnet_close(self.plugin)
        self.plugin = NULL
        self.worker.users -= 1


@cython.no_gc_clear
cdef class MXNetStore:
    """A stock MXNet store as carrier of a worker's bytes.

    Parameters
    ----------
    store : int
        The store's handle; the store must outlive the last operation.
    functions : mapping of str to int
        Addresses of MXNet's functions, by the names in src/plugin/mxnet_store.h.
    """

    cdef bs_mxnet_store* store

    def __init__(self, store, functions):
        cdef bs_mxnet_store_functions f
        cdef bs_error error
        if self.store != NULL:
            raise UsageError("the store is open already", 5)
        f.store = <void*><uintptr_t>store
        f.create_array = <void*><uintptr_t>functions["create_array"]
        f.get_data = <void*><uintptr_t>functions["get_data"]
        f.free_array = <void*><uintptr_t>functions["free_array"]
        f.push = <void*><uintptr_t>functions["push"]
        f.pull = <void*><uintptr_t>functions["pull"]
        f.push_pull = <void*><uintptr_t>functions["push_pull"]
        f.push_async_nd = <void*><uintptr_t>functions["push_async_nd"]
        f.last_error = <void*><uintptr_t>functions["last_error"]
        _check(bs_mxnet_store_open(&f, &self.store, &error), &error)

    def __dealloc__(self):
        if self.store != NULL:
            bs_mxnet_store_close(self.store)

    cdef bs_mxnet_store* handle(self) except NULL:
        if self.store == NULL:
            raise UsageError("the store was not opened", 5)
        return self.store

    @staticmethod
    def exit_at_once():
        """Let the process end without waiting for operations of a store that has lost a peer."""
        bs_mxnet_store_exit_at_once()


cdef class MXNetCopier:
    """Copies between plain arrays on the CPU, by MXNet's engine.

    Parameters
    ----------
    functions : mapping of str to int
        Addresses of MXNet's functions, by the names in src/plugin/mxnet_copy.h.
    array_type : type
        MXNet's NDArray; its `handle` is what the functions take.
    """

    cdef bs_mxnet_copier* copier
    cdef object array_type

    def __init__(self, functions, array_type):
        cdef bs_mxnet_copy_functions f
        cdef bs_error error
        if self.copier != NULL:
            raise UsageError("the copier is open already", 5)
        f.create_array = <void*><uintptr_t>functions["create_array"]
        f.free_array = <void*><uintptr_t>functions["free_array"]
        f.get_shape = <void*><uintptr_t>functions["get_shape"]
        f.get_dtype = <void*><uintptr_t>functions["get_dtype"]
        f.get_storage_type = <void*><uintptr_t>functions["get_storage_type"]
        f.get_context = <void*><uintptr_t>functions["get_context"]
        f.store_create = <void*><uintptr_t>functions["store_create"]
        f.store_init = <void*><uintptr_t>functions["store_init"]
        f.store_push = <void*><uintptr_t>functions["store_push"]
        f.store_pull = <void*><uintptr_t>functions["store_pull"]
        f.store_free = <void*><uintptr_t>functions["store_free"]
        f.last_error = <void*><uintptr_t>functions["last_error"]
        self.array_type = array_type
        _check(bs_mxnet_copier_open(&f, &self.copier, &error), &error)

    def __dealloc__(self):
        if self.copier != NULL:
            bs_mxnet_copier_close(self.copier)

    cdef bs_mxnet_copier* handle(self) except NULL:
        if self.copier == NULL:
            raise UsageError("the copier was not opened", 5)
        return self.copier

    def fits(self, uintptr_t array, uintptr_t other):
        """Return whether two NDArray handles are alike: dense, on the CPU, of one shape and dtype.
        """
        return self.takes(<void*>array, <void*>other)

    cdef bint takes(self, void* array, void* other) except -1:
        return array != NULL and bs_mxnet_copier_fits(self.handle(), array, other) != 0

    def copy(self, uintptr_t src, uintptr_t dst, int priority=0):
        """Register a copy of `src` to `dst`, which must fit; returns at once."""
        cdef bs_mxnet_copier* copier = self.handle()
        cdef bs_error error
        cdef int code
        # With NaiveEngine the call waits for what the copy waits for.
        with nogil:
            code = bs_mxnet_copier_copy(copier, <void*>src, <void*>dst, priority, &error)
        _check(code, &error)
