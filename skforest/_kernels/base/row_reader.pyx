"""Rows of a table, standardised for training by batches, or mapped for prediction.

`RowReader`: training by batches reads a few rows per step. Dense tables are standardised
beforehand. Rows of a CSR matrix are standardised when they are copied,

    out[j] = (x[j] - mean[j]) * factor[j],

in float64, rounded to float32, so the whole table is never dense.

`RowMap`: the map from rows to features of `FeatureMap.transform`, in one loop. For a single row,
it takes as long as one NumPy operation.

`whole_bytes`: images, and other tables of small whole numbers, as bytes.
"""

from libc.math cimport INFINITY, fabs, fabsf, isnan
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

import numpy as np

from .direction cimport CSR, as_table

cdef extern from "base/whole.h" nogil:
    void skf_write_bytes_f32(const float*, int64_t, uint8_t*, int*)
    void skf_write_bytes_f64(const double*, int64_t, uint8_t*, int*)


ctypedef fused Number:
    uint8_t
    float
    double

ctypedef fused Float:
    float
    double

cdef enum:
    VALUE = 0                 # kinds of features, as in table/feature_map.py
    IS_MISSING = 1


cpdef RowReader as_reader(table):
    """Return a RowReader of a dense table; a RowReader is returned unchanged."""
    return table if isinstance(table, RowReader) else RowReader(table)


cdef class RowReader:
    """Reads a dense table, (n_rows, n_columns), float32, or a CSR matrix with `mean` and `factor`.

    `mean` and `factor` are of shape (n_columns,), float64.
    """

    def __init__(self, table, mean=None, factor=None):
        self.n_rows, self.n_columns = table.shape
        if not hasattr(table, "indptr"):
            self.rows = table
            return
        self.arrays = table
        self.table = as_table(table)
        self.mean, self.factor = mean, factor
        self.of_zeros = ((0.0 - mean) * factor).astype(np.float32)

    cdef void copy(self, int64_t row, float* out) noexcept nogil:
        """Copy one row to `out`, (n_columns,)."""
        cdef const float* entry = <const float*>self.table.data
        cdef int32_t k, j
        if self.table.dtype != CSR:
            memcpy(out, &self.rows[row, 0], self.n_columns * sizeof(float))
            return
        memcpy(out, &self.of_zeros[0], self.n_columns * sizeof(float))
        for k in range(self.table.row_start[row], self.table.row_start[row + 1]):
            j = self.table.column[k]
            out[j] = <float>((<double>entry[k] - self.mean[j]) * self.factor[j])


cdef class RowMap:
    """Converts rows of numbers to features, see `FeatureMap`; calls change no state.

    arrays : dict of str to ndarray
        Arrays of the feature map.
    n_levels : list of int
        Number of levels of each input, 0 if it is not a category.
    reads_bytes : bool
        Whether rows that the map does not change become uint8 if all numbers are whole and in
        0 .. 255.
    """

    cdef readonly int64_t n_inputs, n_features
    cdef bint is_scaling, fills, reads_bytes, keeps_floats, fixes_bytes
    cdef const double[::1] offset
    cdef const double[::1] scale
    cdef const float[::1] low
    cdef const float[::1] high
    cdef const float[::1] tail
    cdef const double[:, :, ::1] knots
    cdef const float[::1] fill
    cdef const int32_t[::1] source
    cdef const uint8_t[::1] kind
    cdef const int64_t[::1] table_start
    cdef const float[::1] table
    cdef const int64_t[::1] n_levels
    cdef const int64_t[::1] fixed      # inputs with equal limits, if others are not clipped
    cdef const uint8_t[::1] fixed_value

    def __init__(self, arrays, n_levels, reads_bytes):
        self.offset, self.scale, self.fill = arrays["offset"], arrays["scale"], arrays["fill"]
        self.low, self.high = arrays["low"], arrays["high"]
        self.tail, self.knots = arrays["tail"], arrays["knots"]
        self.source, self.kind = arrays["source"], arrays["kind"]
        self.table_start, self.table = arrays["table_start"], arrays["table"]
        self.n_levels = np.array(n_levels, dtype=np.int64)
        self.n_inputs = len(n_levels)
        self.n_features = self.source.shape[0] or self.n_inputs
        self.is_scaling, self.fills = self.scale.shape[0] > 0, self.fill.shape[0] > 0
        keeps_inputs = not (self.is_scaling or self.source.shape[0])
        self.reads_bytes = reads_bytes and keeps_inputs
        self.keeps_floats = keeps_inputs and not (self.reads_bytes or self.low.shape[0])
        self.fixed = np.flatnonzero(arrays["low"] == arrays["high"])
        value = arrays["low"][self.fixed]
        self.fixed_value = np.clip(value, 0, 255).astype(np.uint8)
        self.fixes_bytes = (value == self.fixed_value).all()

    def features(self, X, bint checks, bint takes_missing=True):
        """Return the features of X: float32 or uint8, (n_samples, n_features), possibly X itself.

        None if X is not a C-contiguous ndarray of uint8, float32 or float64 with at least one row
        of `n_inputs` numbers. With `checks`, also None if a value is infinite, or missing unless
        `takes_missing`.
        """
        cdef const uint8_t[:, ::1] bytes_view
        cdef const float[:, ::1] float_view
        cdef const double[:, ::1] double_view
        if type(X) is not np.ndarray or X.ndim != 2:
            return None
        shape = X.shape
        cdef int64_t n = shape[0]
        if n == 0 or shape[1] != self.n_inputs:
            return None
        char = X.dtype.char
        cdef bint takes_nan = takes_missing and self.fills
        cdef bint is_plain = False
        cdef float[:, ::1] features
        try:
            if self.reads_bytes and self.fixes_bytes and char in "fd":
                found = whole_bytes(X)
                if found is not None:
                    return self.with_fixed(found)
            if char == "f":
                float_view = X
                if self.keeps_floats:
                    with nogil:
                        is_plain = are_finite(float_view)
                    if is_plain:
                        return X
            Z = np.empty((n, self.n_features), dtype=np.float32)
            features = Z
            if char == "d":
                double_view = X
                with nogil:
                    is_plain = self.fill_rows(&double_view[0, 0], n, checks, takes_nan, features)
            elif char == "f":
                with nogil:
                    is_plain = self.fill_rows(&float_view[0, 0], n, checks, takes_nan, features)
            elif char == "B":
                bytes_view = X
                if self.reads_bytes and self.fixes_bytes:
                    return self.with_fixed(X.copy() if self.fixed.shape[0] else X)
                with nogil:
                    is_plain = self.fill_rows(&bytes_view[0, 0], n, checks, takes_nan, features)
        except ValueError:             # not contiguous, or not in native byte order
            return None
        if not is_plain:
            return None
        return as_whole(features, Z) if self.reads_bytes else Z

    cdef with_fixed(self, X):
        """Set inputs of bytes whose limits are equal to these limits, and return X."""
        cdef uint8_t[:, ::1] out
        cdef int64_t i, k
        if self.fixed.shape[0] == 0:
            return X                   # may be read-only
        out = X
        for i in range(out.shape[0]):
            for k in range(self.fixed.shape[0]):
                out[i, self.fixed[k]] = self.fixed_value[k]
        return X

    cdef bint fill_rows(
        self, const Number* x, int64_t n, bint checks, bint takes_nan, float[:, ::1] out
    ) noexcept nogil:
        """Compute the features of all rows; False if `checks` finds a forbidden value."""
        cdef int64_t i, j
        cdef float z
        for i in range(n):
            for j in range(self.n_inputs):
                if checks and Number is not uint8_t:
                    # Validation looks at float32, unless the map scales.
                    z = <float>x[j]
                    if not (
                        fabs(<double>x[j] if self.is_scaling else <double>z) < INFINITY
                        or (takes_nan and isnan(<double>x[j]))
                    ):
                        return False
                if self.source.shape[0] == 0:
                    z = self.input_of(j, x[j])
                    out[i, j] = self.fill[j] if self.fills and isnan(z) else z
            for j in range(self.source.shape[0]):
                out[i, j] = self.feature_of(j, x[self.source[j]])
            x += self.n_inputs
        return True

    cdef inline float input_of(self, int64_t j, Number x) noexcept nogil:
        """Return an input after scaling; NaN stays NaN."""
        # The default is LIMIT in table/matrix.py.
        cdef double z, high = <double>(<int64_t>1 << 60), low = -high
        if self.low.shape[0] == 0 and not self.is_scaling:
            return <float>x
        z = <double>x
        if self.is_scaling:
            z = (z - self.offset[j]) * self.scale[j]
        if self.low.shape[0] > 0:
            low, high = <double>self.low[j], <double>self.high[j]
        if z > high:
            z = high + self.beyond(j, 0, z, high)
        elif z < low:
            z = low - self.beyond(j, 1, -z, -low)
        return <float>z

    cdef double beyond(self, int64_t j, int64_t side, double z, double end) noexcept nogil:
        """Return the distance from `end` to which z > end is moved; see `matrix.limited`."""
        cdef int64_t k, n = self.knots.shape[2]
        cdef double first = end, last, sign = 1 - 2 * side
        if self.knots.shape[0] == 0 or not sign * self.knots[j, side, n - 1] > end:
            return 0
        for k in range(n):
            last = sign * self.knots[j, side, k]
            if z < last:
                return <double>self.tail[j] / n * (k + (z - first) / (last - first))
            first = last
        return <double>self.tail[j] / n * n

    cdef inline float feature_of(self, int64_t f, Number x) noexcept nogil:
        """Return a feature of an input; numbers that are not codes are unknown levels."""
        cdef int64_t j = self.source[f], entry
        cdef float z = self.input_of(j, x)
        if self.kind[f] == VALUE:
            return self.fill[j] if isnan(z) else z
        if self.n_levels[j] == 0:
            entry = isnan(z)
        elif isnan(z):
            entry = self.n_levels[j]
        elif 0 <= z < self.n_levels[j] and z == <int64_t>z:
            entry = <int64_t>z
        else:
            entry = self.n_levels[j] + 1
        return self.table[self.table_start[f] + entry]


def whole_bytes(X):
    """Return a copy of X as uint8 if all values are whole numbers from 0 to 255, otherwise None.

    X : ndarray of shape (n_rows, n_columns), float32 or float64, C-contiguous
    """
    cdef const float[:, ::1] floats
    cdef const double[:, ::1] doubles
    cdef bint is_whole
    if X.shape[0] > 1 and whole_bytes(X[:1]) is None:
        return None                    # most other tables need no memory for a copy
    found = np.empty((X.shape[0], X.shape[1]), dtype=np.uint8)
    cdef uint8_t[:, ::1] out = found
    if X.dtype.char == "f":
        floats = X
        with nogil:
            is_whole = write_bytes(floats, out)
    else:
        doubles = X
        with nogil:
            is_whole = write_bytes(doubles, out)
    return found if is_whole else None


cdef bint write_bytes(const Float[:, ::1] rows, uint8_t[:, ::1] out) noexcept nogil:
    """Write numbers as bytes; False at the first row with another number."""
    cdef int64_t i, n = rows.shape[1]
    cdef int is_whole
    for i in range(rows.shape[0] if n > 0 else 0):
        if Float is float:
            skf_write_bytes_f32(&rows[i, 0], n, &out[i, 0], &is_whole)
        else:
            skf_write_bytes_f64(&rows[i, 0], n, &out[i, 0], &is_whole)
        if not is_whole:
            return False
    return True


cdef bint are_finite(const float[:, ::1] rows) noexcept nogil:
    """Return whether all values are finite, without a branch, so that the loop is vectorised."""
    cdef int64_t i, n = rows.shape[0] * rows.shape[1]
    cdef const float* x = &rows[0, 0]
    cdef int32_t wrong = 0
    for i in range(n):
        wrong |= not fabsf(x[i]) < INFINITY
    return wrong == 0


cdef as_whole(const float[:, ::1] features, Z):
    """Return Z as uint8 if all numbers are whole and in 0 .. 255, otherwise Z."""
    cdef int64_t i, j
    cdef float z
    found = np.empty((features.shape[0], features.shape[1]), dtype=np.uint8)
    cdef uint8_t[:, ::1] out = found
    for i in range(features.shape[0]):
        for j in range(features.shape[1]):
            z = features[i, j]
            if not 0 <= z <= 255:
                return Z
            out[i, j] = <uint8_t>z
            if out[i, j] != z:
                return Z
    return found
