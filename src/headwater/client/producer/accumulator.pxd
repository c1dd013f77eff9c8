# The C side of accumulator.py, for the compiled modules around it.

from headwater.client.producer.gathering cimport Gathering

cdef class Accumulator(Gathering):
    cdef readonly long long linger_ms
    cdef readonly int flushes
    cdef readonly object chance
    cdef long long _retry_backoff_ms
    cdef long long _retry_backoff_max_ms
