"""Codings: how gradients travel to the servers, carried and compared without being read."""


cdef void _add_text(void* texts, const char* text) noexcept:
    (<list>texts).append(text.decode())


cdef class Coding:
    """How gradients are coded: a codec, its parameters, how sums travel, and error feedback.

    Equal codings are equal, and have equal bytes; `str` tells what they are.

    Parameters
    ----------
    type : str, optional
        The codec's name; None if the user gave none.
    options : mapping of str to str
        Its parameters as text, by name; the codec has values for those that are not given.  Every
        codec has `pull`, for its sums: "same", "plain" or "bf16".  Some have `ef`: "vanilla",
        "corrected" or "sparse".

    Attributes
    ----------
    codec : int
        The codec's number.
    parameters : bytes
        Its parameters, which only the codec reads.
    pull : int
        How sums travel: 0 plain, 1 in the codec of the gradients, 2 as bf16.
    feedback : int
        Error feedback: 0 without `ef`, 1 "vanilla", 2 "corrected", 3 "sparse".

    Raises
    ------
    ConfigError
        There is no such codec, or it has no such option, or the value makes no sense.
    """

    cdef bs_coding coding

    def __init__(self, type, options):
        cdef _Settings rows = _Settings(options)
        cdef bs_error error
        cdef const char* name = NULL
        if type is not None:
            encoded = type.encode()
            name = encoded
        _check(bs_coding_parse(name, rows.rows, rows.count, &self.coding, &error), &error)

    @staticmethod
    def of(bytes form):
        """Return the coding whose bytes these are."""
        cdef Coding coding = Coding.__new__(Coding)
        parameters = form[5:]
        if len(form) < 5 or len(parameters) > BS_CODING_BYTES:
            raise UsageError(f"{len(form)} bytes are no coding", 1)
        coding.coding.codec = int.from_bytes(form[:4], "little")
        coding.coding.pull, coding.coding.feedback = form[4] & 15, form[4] >> 4
        coding.coding.parameter_bytes = len(parameters)
        for index, byte in enumerate(parameters):
            coding.coding.parameters[index] = byte
        return coding

    @property
    def codec(self):
        """Return the codec's number."""
        return self.coding.codec

    @property
    def parameters(self):
        """Return the codec's parameters."""
        return <bytes>self.coding.parameters[:self.coding.parameter_bytes]

    @property
    def pull(self):
        """Return how sums travel."""
        return self.coding.pull

    @property
    def feedback(self):
        """Return the number of the error feedback."""
        return self.coding.feedback

    def sizes(self, uint64_t size_bytes):
        """Return the bytes that travel for so many bytes of float32, to the servers and back."""
        cdef uint64_t pushed = 0, pulled = 0
        cdef bs_error error
        _check(bs_coding_sizes(&self.coding, size_bytes, &pushed, &pulled, &error), &error)
        return pushed, pulled

    def __bytes__(self):
        common = bytes([(self.coding.feedback << 4 | self.coding.pull) & 255])
        return self.codec.to_bytes(4, "little") + common + self.parameters

    def __eq__(self, value):
        return isinstance(value, Coding) and bytes(self) == bytes(value)

    def __hash__(self):
        return hash(bytes(self))

    def __str__(self):
        texts = []
        cdef bs_error error
        _check(bs_coding_describe(&self.coding, _add_text, <void*>texts, &error), &error)
        return texts[0]

    def __repr__(self):
        return f"<Coding: {self}>"


cdef bs_coding _given(Coding coding):
    """Return it for the engine; None is none."""
    cdef bs_coding plain
    if coding is not None:
        return coding.coding
    memset(&plain, 0, sizeof(plain))
    return plain
