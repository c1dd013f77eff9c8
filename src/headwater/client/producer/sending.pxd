# The C side of sending.py: attributes as C variables, and the steps of a send as C calls.

from headwater.client.producer.accumulator cimport Accumulator
from headwater.client.producer.handles cimport SendHandle
from headwater.client.producer.queues cimport PartitionQueue

cdef class Route:
    cdef list queues
    cdef list available
    cdef PartitionQueue sticky
    cdef long long sticky_bytes
    cdef Py_ssize_t turn

cdef class RecordSender:
    cdef public object refusal
    cdef Accumulator _accumulator
    cdef object _hold_back
    cdef object _prepare
    cdef object _partitioner
    cdef bint _round_robin
    cdef bint _ignore_keys
    cdef bint _adaptive
    cdef object _clock_ms
    cdef object _chance
    cdef dict _routes
    cdef SendHandle _place(
        self,
        object topic,
        bytes key,
        bytes value,
        Py_ssize_t partition,
        long long timestamp_ms,
        object headers,
        object on_delivery,
        object ticket,
    )
    cdef PartitionQueue _own_choice(self, Route route, object topic, bytes key, bytes value)
    cdef PartitionQueue _sticky_queue(self, Route route, bytes key, bytes value, object headers, long long timestamp_ms)
    cdef PartitionQueue _another(self, Route route)
    cdef long long _now_ms(self) except -1
