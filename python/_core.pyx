# cython: language_level=3, binding=True, embedsignature=True
"""The engine for Python: buffers in, errors out, no decisions.

Blocking calls give up the GIL and look for signals four times a second, so that Ctrl-C works.  No
callback of the engine ever needs the GIL: completions are counted by the engine itself.
"""

from collections import namedtuple
from time import monotonic, sleep

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.math cimport ceil
from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from libcpp.vector cimport vector

from c_api cimport *

from bytescheduler.errors import Closed, ConfigError, Error, UsageError, _from_code

# How long a blocking call stays away from Python's signal handlers.
cdef enum:
    SLICE_MS = 250

NAMES_S = 0.25  # from one look-up of an unknown name to the next

Setting = namedtuple("Setting", [
    "name", "kind", "unit", "default", "scope", "sentence", "for_experts",
])
Value = namedtuple("Value", ["name", "value", "origin"])
HostFact = namedtuple("HostFact", ["what", "name", "value"])
Metric = namedtuple("Metric", ["name", "of", "value"])


cdef int _next_slice(int64_t* left_ms) noexcept:
    """Return how long to wait next, and take it off what is left; less than 0 stays for ever."""
    if left_ms[0] < 0:
        return SLICE_MS
    cdef int slice_ms = <int>min(left_ms[0], SLICE_MS)
    left_ms[0] -= slice_ms
    return slice_ms


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
                       const char* fallback, const char* scope, const char* sentence,
                       int for_experts) noexcept:
    (<list>rows).append(Setting(name.decode(), kind.decode(), unit.decode(), fallback.decode(),
                                scope.decode(), sentence.decode(), for_experts != 0))


cdef void _add_value(void* rows, const char* name, const char* value,
                     const char* origin) noexcept:
    (<list>rows).append(Value(name.decode(), value.decode("utf-8", "replace"), origin.decode()))


cdef void _add_host_fact(void* rows, const char* subject, const char* name,
                         const char* value) noexcept:
    (<list>rows).append(HostFact(subject.decode(), name.decode("utf-8", "replace"),
                                 value.decode("utf-8", "replace")))


cdef void _add_metric(void* rows, const char* name, int of, double value) noexcept with gil:
    (<list>rows).append(Metric(name.decode(), None if of < 0 else of, value))


cdef void _add_step(void* rows, uint64_t number, double seconds) noexcept with gil:
    (<list>rows).append((number, seconds))


# Keys from here on are no tensors of a script.
FIRST_BOOKKEEPING_KEY = BS_FIRST_BOOKKEEPING_KEY


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
    cdef _Settings c_settings = _Settings(overrides)
    rows = []
    bs_settings_values(c_settings.rows, c_settings.count, _add_value, <void*>rows)
    return rows


def check_settings(overrides=None):
    """Check all settings without starting anything.

    Raises
    ------
    ConfigError
        A required one is missing, one is malformed, or a name is unknown.
    """
    cdef _Settings c_settings = _Settings(overrides)
    cdef bs_error error
    _check(bs_settings_check(c_settings.rows, c_settings.count, &error), &error)


def names_known(overrides=None, *, double waited_s=0):
    """Return whether the host names that a node needs to start have addresses.

    If not, the caller calls again a little later, as a new pod's name is known late.  Blocks while
    a name is looked up.

    Parameters
    ----------
    overrides : mapping of str to str, optional
        Settings that win over the environment.
    waited_s : float
        The time since the caller's first call; at 0 the log says that it waits.

    Raises
    ------
    ConfigError
        As `check_settings`; or a name has no address, and BYTESCHEDULER_TIMEOUT is over.
    """
    cdef _Settings c_settings = _Settings(overrides)
    cdef bs_error error
    cdef int are_known = 0
    cdef int waited_ms = <int>min(waited_s * 1000, 2e9)
    cdef int code
    with nogil:
        code = bs_names_known(c_settings.rows, c_settings.count, waited_ms, &are_known, &error)
    _check(code, &error)
    return are_known != 0


def await_names(overrides=None, *, is_stopped=None):
    """Return True when the host names that a node needs to start have addresses.  Blocks.

    Parameters
    ----------
    overrides : mapping of str to str, optional
        Settings that win over the environment.
    is_stopped : callable, optional
        Returns whether to return False instead, such as after a signal.

    Raises
    ------
    ConfigError
        As `names_known`.
    """
    begin, waited_s = monotonic(), 0.0
    while not names_known(overrides, waited_s=waited_s):
        if is_stopped is not None and is_stopped():
            return False
        sleep(NAMES_S)
        waited_s = monotonic() - begin
    return True


def about_host(overrides=None):
    """Return what this host has, as the engine finds it.

    In the source tree src/host/about_host.h lists the rows.  Blocks while the scheduler node's
    name is looked up.

    Raises
    ------
    ConfigError
        As `check_settings`.
    """
    cdef _Settings c_settings = _Settings(overrides)
    cdef bs_error error
    rows = []
    cdef int code = bs_host_about(c_settings.rows, c_settings.count, _add_host_fact, <void*>rows,
                                  &error)
    _check(code, &error)
    return rows


def leave_for(place, overrides=None, *, reason=""):
    """Say goodbye for a worker whose process has ended without `Worker.close`.

    Blocks for a few seconds at most.

    Parameters
    ----------
    place : str
        What `Worker.place` was.
    overrides : mapping of str to str, optional
        Settings that win over the environment.
    reason : str
        Why the worker gave up; the job fails by it, also after `Worker.close`.  Empty: it ended in
        good order.
    """
    cdef _Settings c_settings = _Settings(overrides)
    cdef bs_error error
    cdef int code
    text = place.encode()
    cdef const char* chars = text
    reason_text = reason.encode()
    cdef const char* reason_chars = reason_text
    with nogil:
        code = bs_leave_for(c_settings.rows, c_settings.count, chars, reason_chars, &error)
    _check(code, &error)


def vouch_for(int workers, uint64_t token, overrides=None):
    """Tell the scheduler node that the processes of workers live which have not joined the job.

    It waits for them beyond its time-out.  Blocks for a few seconds at most.

    Parameters
    ----------
    workers : int
        How many.
    token : int
        A number that no other launcher of the job has, the same in every call.
    overrides : mapping of str to str, optional
        Settings that win over the environment.
    """
    cdef _Settings c_settings = _Settings(overrides)
    cdef bs_error error
    cdef int code
    with nogil:
        code = bs_vouch_for(c_settings.rows, c_settings.count, workers, token, &error)
    _check(code, &error)


# The garbage collector does not look through it, or it would clear an owner in a dropped circle of
# references, and the engine would write to memory that has another owner.
@cython.no_gc
cdef class _Waiter:
    """Counts completions of the engine.

    What is dropped before all have come (an interrupted call on a worker that was never closed) is
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


cdef class Completions:
    """Operations that have ended, for one thread that waits for many."""

    cdef bs_completions* queue

    def __cinit__(self):
        self.queue = bs_completions_new()
        if self.queue == NULL:
            raise MemoryError()

    def __dealloc__(self):
        # Waiters that report to it keep it.
        bs_completions_free(self.queue)

    def wait(self, int timeout_ms):
        """Block for up to `timeout_ms`; return the tokens of operations that have ended since.

        Other threads of Python run meanwhile.  Signals are looked at when it returns.  One thread
        waits at a time.

        Returns
        -------
        list of int
            In the order of the ends; empty if none came in time, or `wake` was called.
        """
        cdef uint64_t[64] tokens
        cdef size_t count
        with nogil:
            count = bs_completions_wait(self.queue, timeout_ms, tokens, 64)
        PyErr_CheckSignals()
        return [tokens[index] for index in range(count)]

    def wake(self):
        """End a `wait` that is under way, or else the next one."""
        bs_completions_wake(self.queue)


cdef int64_t _milliseconds(double seconds) except -1:
    """Return a time for the engine: rounded up, and at most a week."""
    if not seconds >= 0:
        raise ConfigError(f"timeout_s={seconds} is no time: want 0 (none) or more", 1)
    return <int64_t>ceil(min(seconds, 168.0 * 3600) * 1000)


cdef class Pending:
    """An operation under way; made by `Worker.start_push_pull` or `Worker.start_exchange`."""

    cdef _Waiter waiter
    cdef bs_deferred* deferred

    def __init__(self):
        raise TypeError("use Worker.start_push_pull()")

    @property
    def starter(self):
        """The addresses of a C function and of its argument that start it.

        Call the function once, from any thread, even after `Worker.close`.  The call frees the
        argument, so a second one is an error that nothing checks.  It needs no lock of Python's.
        An error of the start is that of this operation; the function itself returns nothing.

        Raises
        ------
        UsageError
            It was not deferred, so it has started.
        """
        if self.deferred == NULL:
            raise UsageError(
                "Pending.starter: this round has started; only one that was made with "
                "deferred=True can be started", 5)
        return <uintptr_t><void*>bs_deferred_start, <uintptr_t>self.deferred

    def pushed(self):
        """Return whether what is sent may change again; raise what it failed with."""
        cdef bs_error error
        if not bs_waiter_is_pushed(self.waiter.waiter, &error):
            return False
        _check(error.code, &error)
        return True

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

    def wait_for(self, int timeout_ms):
        """Block for up to `timeout_ms`; return whether it has ended, raise what it failed with.

        Other threads of Python run meanwhile.  Signals are looked at when it returns.  One that is
        deferred does not end before it is started, or before `Worker.close`, even if the job fails.
        """
        cdef bs_error error
        cdef int over
        with nogil:
            over = bs_waiter_wait(self.waiter.waiter, timeout_ms, &error)
        PyErr_CheckSignals()
        if not over:
            return False
        _check(error.code, &error)
        return True


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
    cdef object store  # the stock store of the kvstore back end; None with our own servers
    cdef object closed_too  # see end_with

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
            Not all nodes came within BYTESCHEDULER_TIMEOUT; the message says which are missing.
        PeerLost
            A peer was lost meanwhile.
        """
        cdef _Settings c_settings = _Settings(settings)
        cdef Worker self = Worker.__new__(Worker)
        cdef bs_error error
        self.abandoned = []
        await_names(settings)
        with nogil:
            code = bs_worker_start(c_settings.rows, c_settings.count, wanted_rank, &self.worker,
                                   &error)
        _check(code, &error)
        self._wait_until_ready()
        return self

    @staticmethod
    def open_kvstore_backend(MXNetStore store, int rank, settings=None, *, bint blocks=False):
        """Open a worker on the kvstore back end; a barrier of `store` must follow.

        Parameters
        ----------
        store : MXNetStore
            Kept alive.
        rank : int
            This worker's rank in the store.
        settings : mapping of str to str, optional
            Settings that win over the environment.
        blocks : bool
            Whether the store's calls return only when an operation is over; see c_api.h.

        Raises
        ------
        ConfigError
            A setting is missing or wrong.
        Timeout
            The store did not take its first values within BYTESCHEDULER_TIMEOUT.
        """
        cdef _Settings c_settings = _Settings(settings)
        cdef Worker self = Worker.__new__(Worker)
        cdef bs_error error
        cdef bs_mxnet_store* context = store.handle()
        self.abandoned = []
        self.store = store
        with nogil:
            code = bs_worker_start_kvstore(c_settings.rows, c_settings.count, rank, blocks,
                                           bs_mxnet_store_begin, context, &self.worker, &error)
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

    cdef bs_view counts(self) except *:
        cdef bs_error error
        cdef bs_view view
        view.size = sizeof(view)
        _check(bs_worker_view(self.handle(), &view, NULL, 0, &error), &error)
        return view

    def view(self):
        """Return the job as this worker sees it: epoch, own rank, hosts of workers, servers.

        A host is a number: equal numbers are the same host, and -1 is an unknown host.  The
        hosts stand in the order of the workers' ranks.
        """
        cdef bs_view view = self.counts()
        cdef bs_error error
        cdef size_t count = view.num_workers
        cdef int* hosts = <int*>calloc(count, sizeof(int))
        if hosts == NULL:
            raise MemoryError()
        try:
            _check(bs_worker_view(self.handle(), &view, hosts, count, &error), &error)
            host_numbers = tuple([hosts[rank] for rank in range(count)])
        finally:
            free(hosts)
        return view.epoch, view.rank, host_numbers, view.num_servers

    @property
    def rank(self):
        """Position among the workers, from 0."""
        return self.counts().rank

    @property
    def place(self):
        """The place in the job, for `leave_for` in another process; empty on stock servers."""
        cdef char[96] text
        bs_worker_place(self.handle(), text, sizeof(text))
        return text.decode()

    @property
    def num_workers(self):
        """How many workers the job has."""
        return self.counts().num_workers

    @property
    def num_servers(self):
        """How many servers the job has."""
        return self.counts().num_servers

    @property
    def closed(self):
        """Whether the handle was closed."""
        return self.worker == NULL

    def broadcast(self, items, *, owner=None, bint asynchronous=False, Coding coding=None):
        """Declare keys and copy rank 0's bytes into the memory of all workers; blocks.

        Parameters
        ----------
        items : iterable of (int, int, int, int)
            Key, code of the element type (MXNet's), address and size in bytes; the memory stays
            valid and is only written until this returns.
        owner : object
            Kept alive while the engine uses the memory, even if the call is interrupted.
        asynchronous : bool
            Servers update these keys with every push as it comes.
        coding : Coding, optional
            That of their later push-pulls, for which they are cut.
        """
        cdef vector[bs_operation] operations
        cdef bs_operation operation = bs_operation_init(
            BS_BROADCAST_ASYNCHRONOUS if asynchronous else BS_BROADCAST)
        operation.coding = _given(coding)
        for key, dtype, address, size in items:
            operation.key, operation.dtype, operation.size_bytes = key, dtype, size
            operation.received = <void*><uintptr_t>address
            operations.push_back(operation)
        self._run(&operations, owner)

    def broadcast_from(self, int root, items, *, owner=None):
        """Copy the bytes of worker `root` into the memory of all workers; blocks.

        May be called again for a key, also from another root; all workers make the same calls.  It
        declares the key, which is of no use for sums.

        Parameters
        ----------
        root : int
            A worker's rank.
        items : iterable of (int, int, int)
            Key, address and size in bytes, which is the key's for ever; the memory stays valid
            until this returns.
        owner : object
            As of `broadcast`.
        """
        cdef vector[bs_operation] operations
        cdef bs_operation operation = bs_operation_init(BS_BROADCAST_FROM)
        operation.root = root
        for key, address, size in items:
            operation.key, operation.size_bytes = key, size
            operation.received = <void*><uintptr_t>address
            operations.push_back(operation)
        self._run(&operations, owner)

    def broadcast_whole(self, items, *, owner=None):
        """Do as `broadcast` for asynchronous keys that stay in one piece; blocks.

        Parameters
        ----------
        items : iterable of (int, int, int, int, str, bool)
            As of `broadcast`; then what the servers' updater is told about the key, and whether
            nothing else can update it.
        owner : object
            As of `broadcast`.
        """
        cdef vector[bs_operation] operations
        cdef bs_operation operation = bs_operation_init(BS_BROADCAST_WHOLE)
        texts = []  # which the operations point to
        for key, dtype, address, size, about, hosted in items:
            encoded = about.encode()
            texts.append(encoded)
            operation.key, operation.dtype, operation.size_bytes = key, dtype, size
            operation.received = <void*><uintptr_t>address
            operation.about = encoded
            operation.hosted = 1 if hosted else 0
            operations.push_back(operation)
        self._run(&operations, owner)

    def set_optimizer(self, str text, bytes pickle=b""):
        """Tell every server how to update asynchronous keys, such as "sgd momentum=0.9"; blocks.

        Parameters
        ----------
        text : str
            Name and numbers; "hosted NAME" if only the servers' updaters can do it.
        pickle : bytes
            What these load.
        """
        cdef bs_operation operation = bs_operation_init(BS_SET_OPTIMIZER)
        encoded = text.encode()
        operation.optimizer = encoded
        operation.pickle = <const char*>pickle
        operation.pickle_bytes = len(pickle)
        self._run_one(&operation)

    def retune(self, uint64_t partition_bytes, uint64_t credit_bytes):
        """Change partitions and credit of all workers while they train; on rank 0; blocks shortly.

        Each tensor changes over behind its next push-pull, in the same round on every worker.

        Parameters
        ----------
        partition_bytes : int
            4 KiB to 1 GiB; of synchronous keys.
        credit_bytes : int
            1 B to 64 GiB in flight to a server.

        Raises
        ------
        ConfigError
            A number is out of range.
        UsageError
            This is not rank 0, or a stock store carries the bytes.
        """
        cdef bs_operation operation = bs_operation_init(BS_RETUNE)
        operation.partition_bytes = partition_bytes
        operation.credit_bytes = credit_bytes
        self._run_one(&operation)

    def give_back(self, keys, *, bint for_good):
        """Tell servers that this worker does not need synchronous keys now; returns at once.

        They forget a key that all workers have given back.  It takes effect behind earlier rounds.

        Parameters
        ----------
        keys : iterable of int
            Declared by `broadcast`.
        for_good : bool
            True: this worker never uses them again.  False: a later round takes a key again.

        Raises
        ------
        Closed
            The worker was closed.
        """
        cdef vector[uint64_t] numbers = keys
        cdef bs_operation operation = bs_operation_init(BS_GIVE_BACK if for_good else BS_REST)
        # The collector of garbage may call this while another thread closes the worker, so this
        # thread keeps the GIL.
        cdef bs_worker* worker = self.handle()
        cdef bs_error error
        cdef int code = 0
        cdef size_t index
        for index in range(numbers.size()):
            operation.key = numbers[index]
            code = bs_worker_start_operation(worker, &operation, &error)
            if code != 0:
                break
        _check(code, &error)

    def barrier(self):
        """Wait until every worker called it."""
        cdef bs_worker* worker = self.handle()
        cdef _Waiter waiter = _Waiter(1, None)
        cdef bs_error error
        cdef int code
        with nogil:
            code = bs_worker_barrier_start(worker, bs_waiter_done, waiter.waiter, &error)
        self._wait_for_one(waiter, code, &error)

    def start_push_pull(self, uint64_t key, uintptr_t send, uintptr_t recv, uint64_t size, *,
                        owner, int priority=0, uint64_t called=0, bint at_once=False,
                        int64_t waited_ns=0, double factor=1, Coding coding=None, rates=None,
                        bint deferred=False):
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
            Kept alive while the engine uses the memory; it does not refer to what this returns.
        priority : int
            Larger goes first.
        called : int
            0, or a number that grows with the user's calls, where these come in another order than
            tensors get ready; see BYTESCHEDULER_PRIORITY.
        at_once : bool
            With `called`: the tensor was ready at the user's call, for an unknown time.
        waited_ns : int
            Time from the user's call until the tensor was ready; for the timeline.
        factor : float
            The sum is multiplied by it as it arrives, in the tensor's own type or in float32 if
            that is shorter; 1/n gives the average.  Integers have no other than 1.
        coding : Coding, optional
            How float32 is coded on its way to the servers.
        rates : (float, float, float), optional
            Learning rate, weight decay and rescale_grad of this round, for what coding keeps.
        deferred : bool
            True lets it start later, by `Pending.starter`, when `send` holds what is to be sent.

        Returns
        -------
        Pending
        """
        cdef bs_worker* worker = self.handle()
        if factor == 0:
            raise ConfigError(f"key {key}: a sum cannot be multiplied by 0", 1)
        cdef Pending pending = Pending.__new__(Pending)
        cdef bs_operation operation = bs_operation_init(BS_PUSH_PULL)
        cdef bs_rates c_rates
        cdef bs_error error
        cdef int code
        pending.waiter = _Waiter(2, owner)
        operation.key = key
        operation.priority = priority
        operation.sent = <const void*>send
        operation.received = <void*>recv
        operation.size_bytes = size
        operation.pushed = bs_waiter_pushed
        operation.done = bs_waiter_done
        operation.context = <void*>pending.waiter.waiter
        operation.coding = _given(coding)
        operation.called = called
        operation.at_once = at_once
        operation.waited_ns = waited_ns
        operation.factor = factor
        if rates is not None:
            c_rates.learning_rate, c_rates.weight_decay, c_rates.rescale_grad = rates
            operation.rates = &c_rates
        if deferred:
            operation.deferred = &pending.deferred
        with nogil:
            code = bs_worker_start_operation(worker, &operation, &error)
        if code == 0:
            pending.waiter.unstarted = 0
        pending.waiter.skip()
        _check(code, &error)
        return pending

    def start_exchange(self, uint64_t key, givers, takers, *, uint64_t size, owner, int dtype=0,
                       int op=0, uintptr_t send=0, uintptr_t receive=0, int home=-1,
                       str label="", int priority=0, double timeout_s=0,
                       Completions completions=None, uint64_t token=0):
        """Start an exchange between some workers, without a declaration; returns at once.

        Every giver contributes `size` bytes, and every taker gets the contribution of the only
        giver, or the reduction of all.  All its workers state the same key, givers, takers, size,
        dtype, op, home and label.

        Parameters
        ----------
        key : int
            64 bits that no exchange of the job has had before; keys of `broadcast` are apart.
        givers, takers : sequence of int
            Ranks; at least one of each.  This worker is among them.
        size : int
            Bytes; 0 makes workers meet.
        owner : object
            As of `start_push_pull`.
        dtype : int
            MXNet's code.
        op : int
            0 sum, 1 least, 2 greatest, 3 product.
        send, receive : int
            Addresses of `size` bytes, of a giver and of a taker; they may be equal.
        home : int
            Rank of the server that keeps it meanwhile, modulo their number; -1: by the key.  It
            follows from the facts that the key is made of, so that calls which differ meet.
        label : str
            For people, in errors; at most 200 bytes, without a NUL.
        priority : int
            Larger goes first.
        timeout_s : float
            After this time it fails on all its workers; 0: it waits.  More than a week is a week.
        completions : Completions, optional
            Gets `token` when this has ended, well or not.  A thread that waits may see it before
            this call returns, so that it needs to know the token before the call.
        token : int
            A number for that.

        Returns
        -------
        Pending
            Its errors name the label: `ConfigError` if its workers state different things,
            `Timeout`, `Closed` after `quit_exchange`.  These concern only this exchange.
        """
        cdef bs_worker* worker = self.handle()
        cdef vector[int] giving = sorted(givers)
        cdef vector[int] taking = sorted(takers)
        if "\0" in label:
            raise ConfigError(f"label {label!r} has a NUL, and names end there", 1)
        cdef bytes text = label.encode()
        cdef int64_t milliseconds = _milliseconds(timeout_s)
        cdef bs_exchange about
        cdef bs_operation operation = bs_operation_init(BS_EXCHANGE)
        cdef Pending pending = Pending.__new__(Pending)
        cdef bs_error error
        cdef int code
        pending.waiter = _Waiter(2, (owner, completions))
        about.struct_bytes = sizeof(about)
        about.givers, about.num_givers = giving.data(), giving.size()
        about.takers, about.num_takers = taking.data(), taking.size()
        about.reduction, about.home, about.label = op, home, text
        about.timeout_ms = milliseconds
        operation.key, operation.size_bytes, operation.dtype = key, size, dtype
        operation.priority = priority
        operation.sent = <const void*>send
        operation.received = <void*>receive
        operation.pushed = bs_waiter_pushed
        operation.done = bs_waiter_done
        operation.context = <void*>pending.waiter.waiter
        operation.exchange = &about
        if completions is not None:
            bs_waiter_report(pending.waiter.waiter, completions.queue, token)
        with nogil:
            code = bs_worker_start_operation(worker, &operation, &error)
        if code == 0:
            pending.waiter.unstarted = 0
        else:
            bs_waiter_report(pending.waiter.waiter, NULL, 0)
        pending.waiter.skip()
        _check(code, &error)
        return pending

    def quit_exchange(self, uint64_t key, str reason):
        """End an exchange that this worker has under way, on all its workers; returns at once.

        Parameters
        ----------
        key : int
            Of the exchange; nothing happens if it is over.
        reason : str
            For the error of all.
        """
        cdef bs_operation operation = bs_operation_init(BS_QUIT_EXCHANGE)
        cdef bytes text = reason.encode()
        operation.key, operation.about = key, text
        self._tell(&operation)

    def reprioritise_exchange(self, uint64_t key, int priority):
        """Give an exchange another priority, for what this worker has not sent; returns at once.

        Parameters
        ----------
        key : int
            Of the exchange; nothing happens if it is over.
        priority : int
            Larger goes first.
        """
        cdef bs_operation operation = bs_operation_init(BS_REPRIORITISE_EXCHANGE)
        operation.key, operation.priority = key, priority
        self._tell(&operation)

    cdef int _tell(self, bs_operation* operation) except -1:
        """Start an operation that calls nothing back; returns at once."""
        cdef bs_worker* worker = self.handle()
        cdef bs_error error
        cdef int code
        with nogil:
            code = bs_worker_start_operation(worker, operation, &error)
        _check(code, &error)

    cdef int _run(self, vector[bs_operation]* operations, owner) except -1:
        """Start operations that have no `pushed`, and block until all are done."""
        cdef bs_worker* worker = self.handle()
        cdef _Waiter waiter = _Waiter(operations.size(), owner)
        cdef bs_error error
        cdef int code = 0
        cdef size_t index
        with nogil:
            for index in range(operations.size()):
                operations[0][index].done = bs_waiter_done
                operations[0][index].context = waiter.waiter
                code = bs_worker_start_operation(worker, &operations[0][index], &error)
                if code != 0:
                    break
                waiter.unstarted -= 1
        waiter.skip()
        self._wait(waiter)
        return _check(code, &error)

    cdef int _run_one(self, const bs_operation* operation) except -1:
        """Do as `_run` for a single operation."""
        cdef vector[bs_operation] operations
        operations.push_back(operation[0])
        return self._run(&operations, None)

    cdef int _wait_for_one(self, _Waiter waiter, int code, bs_error* error) except -1:
        """Wait for the one thing that was begun, or raise what kept it from beginning."""
        if code == 0:
            waiter.unstarted = 0
        waiter.skip()
        self._wait(waiter)
        _check(code, error)
        return 0

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

    def fail(self, str reason):
        """Fail the whole job: all nodes are told `reason`."""
        cdef bs_worker* worker = self.handle()
        text = reason.encode()
        cdef const char* pointer = text
        with nogil:
            bs_worker_fail(worker, pointer)

    def explain(self, str reason):
        """Let the goodbye of `close` tell why this worker leaves early; nothing fails by that.

        Calls of other workers that miss this worker fail with it; at most 1024 bytes travel.
        """
        text = reason.encode("utf-8", "replace")
        bs_worker_explain(self.handle(), text)

    def status(self):
        """Return the error that failed the worker, or None while it is well."""
        cdef bs_error error
        if bs_worker_status(self.handle(), &error) == 0:
            return None
        return _from_code(error.code, error.message.decode("utf-8", "replace"))

    def measure(self, *, int timeout_ms=1000):
        """Return as `Metric` rows what the worker has done and is doing (docs/operate/metrics.md).

        Blocks up to `timeout_ms`.

        Raises
        ------
        Timeout
            The engine is busy for longer.
        """
        return self.ask(timeout_ms, False)

    def name_key(self, uint64_t key, str name):
        """Let timelines call `key` so."""
        cdef bs_error error
        text = name.encode("utf-8", "replace")
        _check(bs_worker_name_key(self.handle(), key, text, &error), &error)

    def name_framework(self, str name):
        """Let timelines tell the framework whose tensors travel, such as "torch"."""
        cdef bs_error error
        text = name.encode("utf-8", "replace")
        _check(bs_worker_name_framework(self.handle(), text, &error), &error)

    def steps(self, *, int timeout_ms=1000):
        """Return the latest training steps, at most 64, as (number from 1, seconds), oldest first.

        A step is a round of the largest tensor.  Blocks up to `timeout_ms`.

        Raises
        ------
        Timeout
            The engine is busy for longer.
        """
        return self.ask(timeout_ms, True)

    cdef list ask(self, int timeout_ms, bint for_steps):
        cdef bs_worker* worker = self.handle()
        cdef bs_error error
        cdef int code
        rows = []
        cdef void* context = <void*>rows
        with nogil:
            if for_steps:
                code = bs_worker_steps(worker, timeout_ms, _add_step, context, &error)
            else:
                code = bs_worker_measure(worker, timeout_ms, _add_metric, context, &error)
        _check(code, &error)
        return rows

    def end_with(self, end):
        """Let `close` call `end` once it has left the job, with True if the worker had failed."""
        self.closed_too = end

    def close(self, *, int drain_ms=10000):
        """Finish pending operations for up to `drain_ms`, fail what is left, leave the job.

        Blocks.  A second call does nothing, and so does any call in a forked child.
        """
        cdef bs_worker* worker = self.worker
        cdef bs_error error
        cdef int code
        cdef bint failed
        if worker == NULL:
            return
        if self.users > 0:
            raise UsageError("close the plug-in before its worker", 5)
        self.worker = NULL
        failed = bs_worker_status(worker, NULL) != 0
        with nogil:
            code = bs_worker_close(worker, drain_ms, &error)
        self.abandoned.clear()
        if self.closed_too is not None:
            self.closed_too(failed)
        if self.store is not None and code != 0:
            # Left behind: the engine may still use the store.
            Py_INCREF(self.store)
            return
        _check(code, &error)


include "coding.pxi"
include "predict.pxi"
include "node.pxi"
include "rdma.pxi"
include "table.pxi"
include "mxnet.pxi"
