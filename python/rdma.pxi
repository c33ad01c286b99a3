"""A measurement of READs by RDMA between this host and another."""


cdef class RdmaProbe:
    """One end of a measurement; made by `RdmaProbe.open`.  One thread at a time."""

    cdef bs_rdma_probe* probe

    def __init__(self):
        raise TypeError("use RdmaProbe.open()")

    def __dealloc__(self):
        bs_rdma_probe_close(self.probe)

    @staticmethod
    def open(settings=None):
        """Open the device that a worker or server here would use.

        Blocks while this node's name is looked up, and a little for the device.

        Parameters
        ----------
        settings : mapping of str to str, optional
            Settings that win over the environment.

        Raises
        ------
        ConfigError
            As `check_settings`.
        Error
            RDMA cannot be used; the message says why, and after the last colon what to do.
        """
        cdef _Settings c_settings = _Settings(settings)
        cdef bs_error error
        cdef RdmaProbe made = RdmaProbe.__new__(RdmaProbe)
        with nogil:
            made.probe = bs_rdma_probe_open(c_settings.rows, c_settings.count, &error)
        if made.probe == NULL:
            _raise(&error)
        return made

    @property
    def offer(self):
        """The line that the other end joins."""
        return bs_rdma_probe_offer(self.probe).decode()

    def join(self, offer):
        """Connect to the end with this offer; once, before either end READs.

        Blocks a little, for the device alone, and holds the GIL meanwhile.  Not thread-safe.

        Parameters
        ----------
        offer : str
            The `offer` of the other end, one line of ASCII.

        Raises
        ------
        Error
            It is no offer, or of another network, or the device refuses; the message says which.
        """
        cdef bs_error error
        text = offer.encode("ascii", "replace")
        _check(bs_rdma_probe_join(self.probe, text, &error), &error)

    def read(self, size_bytes, most_reads, limit_s):
        """READ from the other end, one READ after the other, and take their time.

        Blocks for at most twice `limit_s`, without the GIL.  Not thread-safe.  Both ends have
        joined before.  After an error of a READ the probe is of no use.

        Parameters
        ----------
        size_bytes : int
            Bytes of each READ, from 1 to 262,144.
        most_reads : int
            READs at most, at least one.
        limit_s : float
            Seconds after which none begins, and for which one is waited for; milliseconds at least.

        Returns
        -------
        tuple of int and float
            READs that ended, and the median of their times in seconds.

        Raises
        ------
        Error
            A number is out of its range, a READ failed, or it did not end in time; the message says
            which, and what to do.
        """
        cdef bs_error error
        cdef bs_rdma_reads reads
        cdef uint32_t size = size_bytes
        cdef uint32_t most = most_reads
        cdef int limit_ms = <int>(limit_s * 1000)
        cdef int code
        with nogil:
            code = bs_rdma_probe_read(self.probe, size, most, limit_ms, &reads, &error)
        _check(code, &error)
        return reads.count, reads.median_s
