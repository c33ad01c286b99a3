"""The MXNet plug-in: rounds, the store that carries bytes, and copies; see src/frontend/mxnet."""

from libc.string cimport memset
from libcpp cimport bool
from libcpp.algorithm cimport sort
from libcpp.vector cimport vector


cdef class MXNetRounds:
    """The common part of all rounds of a key.

    Parameters
    ----------
    key : int
        The engine's key.
    name : str, optional
        The name of the key in errors; None: its number.
    recv_handle : int
        NDArray handle of the private array for the sum, which must outlive this.
    size : int
        Its bytes.
    joined : bool
        Whether a round is a single operation in MXNet's engine, where it pushes and pulls.

    Attributes
    ----------
    position : int
        The key's place among the keys of a call, which register in this order; 0 at first.
    send : int
        NDArray handle of the private array of values to send, which must outlive this; 0: there is
        none yet.
    """

    # Only values that differ from key to key: a job may have very many keys.
    cdef uint64_t number, size
    cdef void* send_stage
    cdef void* recv_stage
    cdef bytes name
    cdef public int64_t position
    cdef bint joined

    def __init__(self, uint64_t key, str name, uintptr_t recv_handle, uint64_t size, bint joined):
        self.number = key
        self.name = None if name is None else name.encode()
        self.send_stage = NULL
        self.recv_stage = <void*>recv_handle
        self.size = size
        self.joined = joined

    cdef bs_mxnet_round round(self):
        """Return a round that sends from the stage; its name is this object's."""
        cdef bs_mxnet_round round
        memset(&round, 0, sizeof(round))
        round.key = self.number
        if self.name is not None:
            round.name = self.name
        round.send_stage = self.send_stage
        round.recv_stage = self.recv_stage
        round.size_bytes = self.size
        round.joined = self.joined
        return round

    @property
    def key(self):
        """Return the engine's key."""
        return self.number

    @property
    def text(self):
        """Return the name of the key in errors."""
        return str(self.number) if self.name is None else self.name.decode()

    @property
    def send(self):
        """Return the NDArray handle of the values to send."""
        return <uintptr_t>self.send_stage

    @send.setter
    def send(self, uintptr_t handle):
        self.send_stage = <void*>handle

    @property
    def recv(self):
        """Return the NDArray handle of the sum."""
        return <uintptr_t>self.recv_stage

    @property
    def size_bytes(self):
        """Return the bytes of each stage."""
        return self.size


cdef struct _Exchange:
    int64_t position
    bs_mxnet_round round
    void* value
    void* out


cdef bool _before(const _Exchange& a, const _Exchange& b) noexcept nogil:
    return a.position < b.position


cdef int _register(bs_mxnet* plugin, bs_mxnet_copier* copier, const _Exchange* exchange,
                   bool copies_out, bs_error* error) noexcept nogil:
    cdef const bs_mxnet_round* round = &exchange.round
    cdef int code = 0
    if round.value == NULL:
        code = bs_mxnet_copier_copy(copier, exchange.value, round.send_stage, round.priority, error)
    if code == 0:
        code = bs_mxnet_push_pull(plugin, round, error)
    if code == 0 and copies_out and not round.copied:
        code = bs_mxnet_copier_copy(copier, round.recv_stage, exchange.out, round.priority, error)
    return code


cdef void* _handle(MXNetCopier copier, arrays) except? NULL:
    """Return the handle of an array, or of a list's only array; NULL for anything else."""
    if isinstance(arrays, (list, tuple)) and len(arrays) == 1:
        arrays = arrays[0]
    if not isinstance(arrays, copier.array_type):
        return NULL
    return <void*><uintptr_t>arrays.handle.value


cdef bint _exchange(MXNetPlugin plugin, MXNetCopier copier, dict usual, key, value, out,
                    _Exchange* exchange) except -1:
    """Fill in the values to send and the sum; return whether each is a single fitting array."""
    if not isinstance(key, (int, str)):
        return False
    usual_rounds = usual.get(key)
    if usual_rounds is None:
        return False
    cdef MXNetRounds rounds = usual_rounds
    exchange.position = rounds.position
    exchange.round = rounds.round()
    exchange.value = _handle(copier, value)
    exchange.out = exchange.value if out is value else _handle(copier, out)
    if not plugin.choose(&exchange.round, exchange.value):
        return False
    return copier.takes(exchange.value, exchange.round.recv_stage) and (
        exchange.out == exchange.value or copier.takes(exchange.out, exchange.round.recv_stage))


cdef bint _exchanges(MXNetPlugin plugin, MXNetCopier copier, dict usual, keys, values, outs,
                     vector[_Exchange]* exchanges) except -1:
    """As above for parallel lists, in the order of the keys' positions."""
    cdef size_t count = len(keys), index
    for arrays in (values, outs):
        if not isinstance(arrays, (list, tuple)) or <size_t>len(arrays) != count:
            return False
    exchanges.resize(count)
    for index in range(count):
        if not _exchange(plugin, copier, usual, keys[index], values[index], outs[index],
                         &exchanges[0][index]):
            return False
    sort(exchanges.begin(), exchanges.end(), _before)
    for index in range(1, count):
        if exchanges[0][index].position == exchanges[0][index - 1].position:
            return False  # a key that appears twice has more devices
    return True


cdef int _fill(bs_mxnet_functions* f, functions) except -1:
    """Take addresses of MXNet's functions: src/frontend/mxnet/mxnet_functions.h has the names."""
    f.push_async_nd = <void*><uintptr_t>functions["push_async_nd"]
    f.create_array = <void*><uintptr_t>functions["create_array"]
    f.free_array = <void*><uintptr_t>functions["free_array"]
    f.share_array = <void*><uintptr_t>functions["share_array"]
    f.get_data = <void*><uintptr_t>functions["get_data"]
    f.get_shape = <void*><uintptr_t>functions["get_shape"]
    f.get_dtype = <void*><uintptr_t>functions["get_dtype"]
    f.get_storage_type = <void*><uintptr_t>functions["get_storage_type"]
    f.get_context = <void*><uintptr_t>functions["get_context"]
    f.store_create = <void*><uintptr_t>functions["store_create"]
    f.store_init = <void*><uintptr_t>functions["store_init"]
    f.store_push = <void*><uintptr_t>functions["store_push"]
    f.store_pull = <void*><uintptr_t>functions["store_pull"]
    f.store_push_pull = <void*><uintptr_t>functions["store_push_pull"]
    f.store_free = <void*><uintptr_t>functions["store_free"]
    f.make_plain = <void*><uintptr_t>functions["make_plain"]
    f.plain_copy = <void*><uintptr_t>functions["plain_copy"]
    f.is_blocked = <void*><uintptr_t>functions["is_blocked"]
    f.make_default = <void*><uintptr_t>functions["make_default"]
    f.copy_array = <void*><uintptr_t>functions["copy_array"]
    f.last_error = <void*><uintptr_t>functions["last_error"]
    return 0


cdef class MXNetPlugin:
    """Dependency proxies in MXNet's engine.

    Parameters
    ----------
    worker : Worker
        Kept alive, and not to be closed before this.
    functions : mapping of str to int
        Addresses of MXNet's functions, by the names in src/frontend/mxnet/mxnet_functions.h.
    in_place : bool
        Whether `exchange` sends values from where they lie, if MXNet lets it; not values
        with joined rounds, where a copy costs less than the work to avoid it.
    copies : bool
        Whether `exchange` itself copies values with joined rounds, if MXNet lets it, and does so
        within the call where they are ready.  REQUIRES: not NaiveEngine.
    """

    cdef bs_mxnet* plugin
    cdef Worker worker
    cdef readonly bint in_place, copies

    def __init__(self, Worker worker, functions, bint in_place=False, bint copies=False):
        cdef bs_mxnet_functions f
        cdef bs_error error
        if self.plugin != NULL:
            raise UsageError("the plug-in is open already", 5)
        _fill(&f, functions)
        _check(bs_mxnet_open(worker.handle(), &f, &self.plugin, &error), &error)
        self.worker = worker
        self.in_place = in_place and f.make_plain != NULL
        self.copies = copies and bs_mxnet_copies(self.plugin) != 0
        worker.users += 1

    cdef bs_mxnet* handle(self) except NULL:
        if self.plugin == NULL:
            raise Closed("the plug-in was closed", 3)
        return self.plugin

    cdef bint choose(self, bs_mxnet_round* round, void* value) noexcept:
        """Say how `value` gets to the servers; return False if that wants a stage there is not."""
        if round.joined and self.copies:
            round.joined, round.copied = 0, 1
        elif round.joined or not self.in_place:
            return round.send_stage != NULL
        round.value = value
        return True

    def push_pull(self, MXNetRounds rounds, int priority, *, Coding coding=None, rates=None):
        """Register a round; returns at once.

        Parameters
        ----------
        rounds : MXNetRounds
            Of a key that was declared by `Worker.broadcast`.
        priority : int
            Larger goes first.
        coding : Coding, optional
            How float32 arrays are coded for the servers; None sends arrays as they are.
        rates : (float, float, float), optional
            Learning rate, weight decay and rescale_grad of this push, for what coding keeps.
        """
        cdef bs_mxnet* plugin = self.handle()
        cdef bs_mxnet_round round = rounds.round()
        cdef bs_rates c_rates
        cdef bs_error error
        cdef int code
        round.priority = priority
        round.coding = _given(coding)
        if round.send_stage == NULL:
            raise UsageError(f"key {rounds.text} has no array to send from", 5)
        if rates is not None:
            c_rates.learning_rate, c_rates.weight_decay, c_rates.rescale_grad = rates
            round.rates = &c_rates
        # With NaiveEngine the call runs the proxies and waits for them.
        with nogil:
            code = bs_mxnet_push_pull(plugin, &round, &error)
        _check(code, &error)

    def exchange(self, MXNetCopier copier, dict usual, keys, values, outs, int priority,
                 bool copies_out=True):
        """Register a push-pull of a fitting array for each key: copy, round, copy.

        The usual call, without the price of the whole grammar.  Returns at once.  The first copy is
        left out where values are sent from where they lie: until the servers have the bytes,
        operations that would write to such values wait.

        Parameters
        ----------
        copier : MXNetCopier
            Tells whether arrays fit, and copies.
        usual : dict of int or str to MXNetRounds
            The keys that may go this way: `outs` get their sum.
        keys, values, outs
            As of KVStore.pushpull; `outs` None stands for `values`.
        copies_out : bool
            False leaves the copy to `outs`, which fit, to the caller: they get something else than
            the sum.

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
            if not _exchange(self, copier, usual, keys, values, outs, &exchanges[0]):
                return False
        elif not _exchanges(self, copier, usual, keys, values, outs, &exchanges):
            return False
        # With NaiveEngine the calls run the operations that they register, and wait for them.
        with nogil:
            for exchange in exchanges:
                exchange.round.priority = priority
                if exchange.round.copied and copies_out:
                    exchange.round.out = exchange.out
                code = _register(plugin, copier.copier, &exchange, copies_out, &error)
                if code != 0:
                    break
        _check(code, &error)
        return True

    def update(self, MXNetRounds rounds, int priority, *, bint pushes, bint pulls, rates=None,
               Coding coding=None):
        """Register a use of an asynchronous key; returns at once.

        Parameters
        ----------
        rounds, priority
            As of `push_pull`.
        pushes, pulls : bool
            Whether the gradient in the send stage is pushed, and the weights are then pulled into
            the receive stage.
        rates : (float, float, float), optional
            Learning rate, weight decay and rescale_grad of this push; the optimizer's own if None.
        coding : Coding, optional
            As of `push_pull`.
        """
        cdef bs_mxnet* plugin = self.handle()
        cdef bs_mxnet_update_request request
        cdef bs_rates c_rates
        cdef bs_error error
        cdef int code
        request.round = rounds.round()
        request.round.priority = priority
        request.round.coding = _given(coding)
        request.pushes = pushes
        request.pulls = pulls
        if pushes and request.round.send_stage == NULL:
            raise UsageError(f"key {rounds.text} has no array to send from", 5)
        if rates is not None:
            c_rates.learning_rate, c_rates.weight_decay, c_rates.rescale_grad = rates
            request.round.rates = &c_rates
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
            slice_ms = _next_slice(&left_ms)
            with nogil:
                over = bs_mxnet_drain(plugin, slice_ms)
            PyErr_CheckSignals()
            if over:
                return True
            if left_ms == 0:
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
    """The stock MXNet store of a worker on the kvstore back end.

    Parameters
    ----------
    store : int
        The store's handle; the store must outlive the last operation.
    functions : mapping of str to int
        Addresses of MXNet's functions, by the names in src/frontend/mxnet/mxnet_functions.h.
    """

    cdef bs_mxnet_store* store

    def __init__(self, store, functions):
        cdef bs_mxnet_functions f
        cdef bs_error error
        if self.store != NULL:
            raise UsageError("the store is open already", 5)
        _fill(&f, functions)
        _check(bs_mxnet_store_open(<void*><uintptr_t>store, &f, &self.store, &error), &error)

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
        Addresses of MXNet's functions, by the names in src/frontend/mxnet/mxnet_functions.h.
    array_type : type
        MXNet's NDArray; the functions take its `handle`.
    """

    cdef bs_mxnet_copier* copier
    cdef object array_type

    def __init__(self, functions, array_type):
        cdef bs_mxnet_functions f
        cdef bs_error error
        if self.copier != NULL:
            raise UsageError("the copier is open already", 5)
        _fill(&f, functions)
        self.array_type = array_type
        _check(bs_mxnet_copier_open(&f, &self.copier, &error), &error)

    def __dealloc__(self):
        if self.copier != NULL:
            bs_mxnet_copier_close(self.copier)

    cdef bs_mxnet_copier* handle(self) except NULL:
        if self.copier == NULL:
            raise UsageError("the copier was not opened", 5)
        return self.copier

    def fits(self, uintptr_t array, uintptr_t second):
        """Return whether two NDArrays are dense, on the CPU, and of equal shape and dtype."""
        return self.takes(<void*>array, <void*>second)

    cdef bint takes(self, void* array, void* second) except -1:
        return array != NULL and bs_mxnet_copier_fits(self.handle(), array, second) != 0

    def copy(self, uintptr_t src, uintptr_t dst, int priority=0):
        """Register a copy of `src` to `dst`, which must fit; returns at once."""
        cdef bs_mxnet_copier* copier = self.handle()
        cdef bs_error error
        cdef int code
        # With NaiveEngine the call waits as long as the copy does.
        with nogil:
            code = bs_mxnet_copier_copy(copier, <void*>src, <void*>dst, priority, &error)
        _check(code, &error)
