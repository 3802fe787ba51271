# The leaves of a split under a loss of the user.

from libc.stdint cimport int32_t, int64_t

from ..base.stump cimport StumpLeaves


cdef class OwnLeaves(StumpLeaves):
    cdef object leaves         # `UserLeaves`
    cdef object failure        # what a method of the user has raised
    cdef bint has_failed

    cdef int fail(self, error)
