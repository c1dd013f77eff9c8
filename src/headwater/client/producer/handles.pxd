# The C side of handles.py: without it every handle is made by a Python call.

cimport cython

cdef class Delivery:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int state
    cdef readonly long long base_offset
    cdef readonly long long append_time_ms
    cdef readonly object error
    cdef readonly dict record_errors
    cdef readonly list parts
    cdef readonly list on_delivery
    cdef list callbacks
    cdef object event
    cdef list futures
    cdef object lock
    cdef readonly int process_id

# Millions of them may be alive at once, and none is part of a circle for longer than its batch is pending.
@cython.no_gc
@cython.freelist(256)
cdef class SendHandle:
    cdef readonly Delivery delivery
    cdef readonly int index
    cdef readonly long long timestamp_ms
