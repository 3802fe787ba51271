# Memory of the kernels: `Scratch` for arrays of known length, `Buffer` for arrays that grow.
#
# Kernels read raw pointers, because structs can hold them, and because methods without the
# interpreter cannot pass memoryviews of cdef classes cheaply. The memory belongs to one of these
# two classes, an attribute of the object that uses it, and is freed with it. No kernel calls
# malloc or free.

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy


cdef class Scratch:
    cdef list arrays           # keeps alive the memory that the pointers refer to

    cdef void* bytes_of(self, int64_t n_bytes) except NULL
    cdef void* aligned(self, int64_t n_bytes) except NULL
    cdef float* floats(self, int64_t n) except NULL
    cdef double* doubles(self, int64_t n) except NULL
    cdef int32_t* ints(self, int64_t n) except NULL
    cdef int64_t* longs(self, int64_t n) except NULL


ctypedef fused item_t:
    float
    double
    int32_t
    int64_t


cdef inline int allocate(Scratch scratch, int64_t n, item_t*** places) except -1:
    """Point the pointers at `places`, a list with NULL at its end, to arrays of n items each."""
    while places[0] != NULL:
        places[0][0] = <item_t*>scratch.bytes_of(n * <int64_t>sizeof(item_t))
        places += 1
    return 0


@cython.final
cdef class Buffer:
    cdef char* data
    cdef readonly int64_t n    # items in use
    cdef int64_t capacity
    cdef int64_t itemsize

    cdef int reserve(self, int64_t n) except -1 nogil

    cdef inline int append(self, const void* items, int64_t n) except -1 nogil:
        """Copy n items to the end."""
        if self.n + n > self.capacity:
            self.reserve(n)
        if n > 0:
            memcpy(self.data + self.n * self.itemsize, items, <size_t>(n * self.itemsize))
        self.n = self.n + n
        return 0
