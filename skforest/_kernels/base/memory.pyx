"""Memory of the kernels: arrays of known length, and arrays that grow without the interpreter."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc

import numpy as np

cdef enum:
    PADDING = 64               # bytes after the end, which vector loops may read


cdef class Scratch:
    """Arrays of zeros that live as long as this object.

    Pointers stay valid until the object is freed. An array of length 0 has an address, too. Each
    array is 64 bytes longer than requested: a vector loop may read, but not use, these bytes.
    """

    def __cinit__(self):
        self.arrays = []

    cdef void* bytes_of(self, int64_t n_bytes) except NULL:
        cdef uint8_t[::1] view
        if n_bytes < 0:
            raise MemoryError(f"{n_bytes} bytes")
        array = np.zeros(n_bytes + PADDING, dtype=np.uint8)
        self.arrays.append(array)
        view = array
        return &view[0]

    cdef void* aligned(self, int64_t n_bytes) except NULL:
        """Return an array that starts at a multiple of 64 bytes, as long vectors do."""
        cdef size_t place = <size_t>self.bytes_of(n_bytes + 64)
        return <void*>((place + 63) & ~<size_t>63)

    cdef float* floats(self, int64_t n) except NULL:
        return <float*>self.bytes_of(n * <int64_t>sizeof(float))

    cdef double* doubles(self, int64_t n) except NULL:
        return <double*>self.bytes_of(n * <int64_t>sizeof(double))

    cdef int32_t* ints(self, int64_t n) except NULL:
        return <int32_t*>self.bytes_of(n * <int64_t>sizeof(int32_t))

    cdef int64_t* longs(self, int64_t n) except NULL:
        return <int64_t*>self.bytes_of(n * <int64_t>sizeof(int64_t))


cdef class Buffer:
    """A growing array of items of `itemsize` bytes, for results of unknown length."""

    def __cinit__(self, int64_t itemsize):
        self.data = NULL
        self.n = 0
        self.capacity = 0
        self.itemsize = itemsize

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, int64_t n) except -1 nogil:
        """Reserve memory for n more items. Doubling the capacity makes appending linear in n."""
        cdef int64_t capacity = 2 * self.capacity + n + 64
        cdef char* data = <char*>realloc(self.data, <size_t>(capacity * self.itemsize))
        if data == NULL:
            with gil:
                raise MemoryError()
        self.data = data
        self.capacity = capacity
        return 0

    def array(self, dtype):
        """Return a copy of the items in use."""
        return np.frombuffer(self.data[:self.n * self.itemsize], dtype)
