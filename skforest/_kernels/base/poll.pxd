# Early end of a kernel: a stop flag, which another thread sets, and signals.

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    POLL = 1 << 24      # additions between checks for signals: some hundredths of a second


cdef inline bint poll(const uint8_t* stop, int64_t* work, int64_t done) except -1 nogil:
    """Return whether training must end; sometimes run signal handlers, which may raise.

    stop : IN, not 0 if training must end
    work : additions since the last check for signals; kept by the caller, 0 at first
    done : IN, additions since the last call

    Every call reads the flag. A check for signals acquires the interpreter lock, for which threads
    compete, so it is done only after some work.
    """
    if stop[0]:
        return True
    work[0] += done
    if work[0] > POLL:
        work[0] = 0
        with gil:
            PyErr_CheckSignals()
    return False
