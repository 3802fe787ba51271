# Ending a kernel early: a stop flag that another thread sets, and signals.

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    POLL = 1 << 24      # additions between two checks for signals: some hundredths of a second


cdef inline bint poll(const uint8_t* stop, int64_t* work, int64_t done) except -1 nogil:
    """True where training is to end; from time to time runs signal handlers, which may raise.

    stop : IN, not 0 where training is to end
    work : additions since signals were last checked; kept by the caller, 0 at first
    done : IN, additions since the last call

    The flag is read at every call. A check for signals acquires the interpreter lock, for which
    threads compete, so it is done only after some work.
    """
    if stop[0]:
        return True
    work[0] += done
    if work[0] > POLL:
        work[0] = 0
        with gil:
            PyErr_CheckSignals()
    return False
