# The C side of record_reading.py, for the compiled modules that go through records.

cimport cython

@cython.final
cdef class RecordReader:
    cdef object view
    cdef unsigned char* data
    cdef long long position, at, end, records_count, remaining
    cdef long long base_offset, last_offset_delta, base_timestamp_ms, append_time_ms
    cdef bint takes_append_time
    cdef int fault
    cdef long long timestamp_delta, offset_delta, previous_delta, largest_ms
    cdef long long key_at, key_size, value_at, value_size, headers_at, headers_count
    cdef bint advance(self) noexcept nogil
    cdef bint skip_usual(self, bint needs_key, long long earliest_ms, long long latest_ms) noexcept nogil
    cdef int find_problem(self, bint without_gaps, bint needs_key, long long earliest_ms, long long latest_ms) noexcept nogil
    cdef long long offset(self) noexcept
    cdef long long timestamp_ms(self) noexcept
    cdef long long headers_size(self) noexcept
    cdef bint finish(self) except -1

@cython.final
cdef class HeaderReader:
    cdef unsigned char* data
    cdef long long at, end, remaining
    cdef long long name_at, name_size, content_at, content_size
    cdef void start(self, unsigned char* data, long long at, long long end) noexcept
    cdef bint advance(self) noexcept

cdef RecordReader open_batch(memoryview view, object header, long long limit_bytes)
cdef tuple read_headers(unsigned char* data, long long at, long long end)
cdef object octets_at(unsigned char* data, long long at, long long size)
cdef unsigned char* address(memoryview view) noexcept
