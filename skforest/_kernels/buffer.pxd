# An array that grows without the interpreter, for results whose length is not known
# before.

from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef struct Buffer:
    char* data
    int64_t n             # items in use
    int64_t capacity
    int64_t itemsize


cdef inline void start_buffer(Buffer* buffer, int64_t itemsize) noexcept nogil:
    buffer.data = NULL
    buffer.n = 0
    buffer.capacity = 0
    buffer.itemsize = itemsize


cdef inline void free_buffer(Buffer* buffer) noexcept nogil:
    free(buffer.data)
    start_buffer(buffer, buffer.itemsize)


cdef inline int append(Buffer* buffer, const void* items, int64_t n) except -1 nogil:
    """Copy n items behind those in use."""
    cdef int64_t capacity
    cdef char* data
    if buffer.n + n > buffer.capacity:
        capacity = 2 * buffer.capacity + n + 64
        data = <char*>realloc(buffer.data, <size_t>(capacity * buffer.itemsize))
        if data == NULL:
            with gil:
                raise MemoryError()
        buffer.data = data
        buffer.capacity = capacity
    if n > 0:
        memcpy(
            buffer.data + buffer.n * buffer.itemsize, items, <size_t>(n * buffer.itemsize)
        )
    buffer.n += n
    return 0


cdef inline bytes used_bytes(const Buffer* buffer):
    """A copy of the items in use."""
    return buffer.data[:buffer.n * buffer.itemsize]
