# The C side of raw_records.py: without it every record would be a Python call.

cdef int TIME_DELTA
cdef int OFFSET_DELTA
cdef int KEY_AT
cdef int KEY_SIZE
cdef int VALUE_SIZE
cdef int AFTER_TIME

cdef long long integer(unsigned char* data, long long at, int size) noexcept nogil
cdef long long read_record(
    unsigned char* data, long long at, long long end, long long last_delta, long long* record
) noexcept nogil
cdef unsigned char* octets(object view) noexcept
cdef long long* longs(object numbers) noexcept
