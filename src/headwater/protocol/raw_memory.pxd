# The C side of raw_memory.py, inlined by each compiled module that uses it.

from cpython.array cimport array
from libc.string cimport memcpy


cdef inline int* ints(object numbers) noexcept:
    return (<array>numbers).data.as_ints


cdef inline long long* longs(object numbers) noexcept:
    return (<array>numbers).data.as_longlongs


cdef inline double* doubles(object numbers) noexcept:
    return (<array>numbers).data.as_doubles


cdef inline void copy(
    unsigned char* target, long long to, unsigned char* source, long long at, long long size
) noexcept nogil:
    memcpy(target + to, source + at, size)
