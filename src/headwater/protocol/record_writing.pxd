# The C side of record_writing.py, for the compiled modules that make batches: without it every record is a Python call.

cdef class RecordWriter:
    cdef readonly bytearray buffer
    cdef readonly long long at
    cdef readonly long long count
    cdef readonly long long base_timestamp_ms
    cdef readonly long long max_timestamp_ms
    cpdef long long measure(self, bytes key, bytes value, object headers, long long timestamp_ms) except -1
    cpdef long long end_after(self, long long body_bytes) noexcept
    cpdef bint resize(self, Py_ssize_t capacity_bytes) except -1
    cpdef bint add(self, bytes key, bytes value, object headers, long long timestamp_ms) except -1
    cpdef bint write(
        self, long long body_bytes, bytes key, bytes value, object headers, long long timestamp_ms
    ) except -1

cdef class BinaryRows:
    cdef readonly long long count
    cdef long long first
    cdef bint wide
    cdef object data
    cdef object offsets
    cdef object validity
    cdef int* narrow_offsets
    cdef long long* wide_offsets
    cdef unsigned char* octets
    cdef unsigned char* bits
    cpdef long long offset(self, long long row) noexcept
    cpdef long long size(self, long long row) noexcept

cdef class RecordRows:
    cdef readonly BinaryRows keys
    cdef readonly BinaryRows values
    cdef readonly long long count
    cdef readonly long long fitting
    cdef long long timestamp_ms
    cdef object times
    cdef long long* longs
    cpdef long long time_ms(self, object picks, long long place) except? -1
    cpdef long long measure(
        self, RecordWriter writer, object picks, long long start, long long stop, long long limit_bytes
    ) except -1
    cpdef bint write(self, RecordWriter writer, object picks, long long start, long long stop) except -1

cpdef bytes as_bytes(object content)
