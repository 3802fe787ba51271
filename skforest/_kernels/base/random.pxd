# The random generator of one tree, inline, 8 bytes of state.
#
# The step is splitmix64 (Steele, Lea and Flood 2014): the state grows by a constant, and a mixer
# turns it into 64 random bits. The seed of a tree comes from `hash_seed`, a mixer with other
# constants. If seeds differed by the constant of the step, the stream of tree i + 1 would be the
# stream of tree i shifted by one draw, and trees would share their bootstraps.

from libc.math cimport cos, exp, expm1, log1p, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef struct Random:
    uint64_t state


cdef inline uint64_t hash_seed(uint64_t seed, uint64_t index) noexcept nogil:
    """Hash (seed, index); the order of the two matters."""
    cdef uint64_t h = seed ^ <uint64_t>0x6A09E667F3BCC909
    h = (h ^ (h >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    h = (h ^ (h >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    h ^= h >> 32
    h += (index + 1) * <uint64_t>0xA24BAED4963EE407
    h = (h ^ (h >> 29)) * <uint64_t>0xFF51AFD7ED558CCD
    h = (h ^ (h >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return h ^ (h >> 33)


cdef inline uint64_t next_word(Random* random) noexcept nogil:
    """Return 64 random bits."""
    cdef uint64_t z
    random.state += <uint64_t>0x9E3779B97F4A7C15
    z = random.state
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline int below(Random* random, int n) noexcept nogil:
    """Draw an integer from 0 .. n - 1, n >= 1, with a bias below n / 2^32."""
    return <int>(((next_word(random) >> 32) * <uint64_t>n) >> 32)


cdef inline int between(Random* random, int low, int high) noexcept nogil:
    """Draw an integer from low .. high, both included."""
    return low + below(random, high - low + 1)


cdef inline void shuffle(
    Random* random, int32_t* items, int64_t n, int64_t n_drawn
) noexcept nogil:
    """Draw n_drawn of n items without replacement and move them to the end, the first one last."""
    cdef int64_t i, other
    cdef int32_t item
    for i in range(n - 1, max(n - n_drawn, <int64_t>1) - 1, -1):
        other = below(random, <int>(i + 1))
        item = items[i]
        items[i] = items[other]
        items[other] = item


cdef inline double uniform(Random* random) noexcept nogil:
    """Draw a number from [0, 1)."""
    return <double>(next_word(random) >> 11) * (1.0 / 9007199254740992.0)


cdef inline int64_t draw_item(Random* random, const double* until, int64_t n) noexcept nogil:
    """Draw an item from 0 .. n - 1 in proportion to its weight; `until` are cumulated weights.

    Bisection finds the first one whose cumulated weight exceeds a uniform number.
    """
    cdef int64_t low = 0, high = n - 1, middle
    cdef double at = uniform(random) * until[high]
    while low < high:
        middle = (low + high) // 2
        if until[middle] > at:
            high = middle
        else:
            low = middle + 1
    return low


cdef inline double normal(Random* random) noexcept nogil:
    """Draw a standard normal number, the first one of the Box-Muller transform."""
    cdef double radius = sqrt(-2 * log1p(-uniform(random)))
    return radius * cos(6.283185307179586 * uniform(random))


cdef inline int poisson(Random* random, double mean) noexcept nogil:
    """Draw a Poisson number by multiplying uniforms (Knuth), in parts with means up to 30."""
    cdef int total = 0
    cdef double part, limit, product
    while mean > 0:
        part = mean if mean < 30 else 30
        mean -= part
        limit = exp(-part)
        product = uniform(random)
        while product > limit:
            total += 1
            product *= uniform(random)
    return total


cdef inline int positive_poisson(Random* random, double mean) noexcept nogil:
    """Draw a positive Poisson number: by inversion for small means, otherwise by rejection."""
    cdef int n = 0
    cdef double left, part
    if mean >= 1:
        while n == 0:
            n = poisson(random, mean)
        return n
    left = uniform(random)
    n = 1
    part = mean * exp(-mean) / -expm1(-mean)
    while left >= part and n < 100:
        left -= part
        n += 1
        part *= mean / n
    return n
