"""The engine's functions for other shared objects, and a worker's gate for their operations."""

from cpython.pycapsule cimport PyCapsule_New


def c_api():
    """Return a capsule named ``bytescheduler.c_api``: the address of a `bs_table` of c_api.h.

    A shared object that is compiled with that header calls the engine by it, and links nothing.
    """
    return PyCapsule_New(<void*>bs_table_get(), b"bytescheduler.c_api", NULL)


cdef class Gate:
    """A gate to a worker, for operations that a shared object starts by `bs_gate_start`.

    Thread-safe.  `shut` comes before `Worker.close`.  A gate that is dropped while operations are
    pending is never freed, as they still use it.

    Parameters
    ----------
    worker : Worker
        Kept alive.
    """

    cdef bs_gate* gate
    cdef Worker worker
    cdef bint is_open

    def __init__(self, Worker worker not None):
        if self.gate != NULL:
            raise UsageError("a gate belongs to one worker; make another gate", 5)
        self.gate = bs_gate_new(worker.handle())
        if self.gate == NULL:
            raise MemoryError()
        self.worker = worker
        self.is_open = True
        worker.users += 1

    def __dealloc__(self):
        if self.gate == NULL:
            return
        bs_gate_shut(self.gate)
        if bs_gate_wait(self.gate, 0) == 0:
            bs_gate_free(self.gate)

    @property
    def address(self):
        """The address of the gate for C, which is valid as long as this object lives."""
        return <uintptr_t>self.gate

    def shut(self):
        """Refuse operations from now on; those that are pending go on.  A second call is idle."""
        if self.is_open:
            self.is_open = False
            with nogil:
                bs_gate_shut(self.gate)
            self.worker.users -= 1

    def pending(self):
        """Return how many operations are pending."""
        return bs_gate_wait(self.gate, 0)

    def wait(self):
        """Block until no operation is pending."""
        cdef size_t left = 1
        while left > 0:
            with nogil:
                left = bs_gate_wait(self.gate, SLICE_MS)
            PyErr_CheckSignals()
