# The C side of gathering.py: without it the way of a record into its batch is Python calls.

cimport cython

from headwater.client.producer.batch_building cimport Batch
from headwater.client.producer.handles cimport SendHandle
from headwater.client.producer.memory cimport BufferMemory
from headwater.client.producer.queues cimport PartitionQueue

cdef class Gathering:
    cdef readonly int compression
    cdef readonly object compression_level
    cdef readonly BufferMemory memory
    cdef readonly long long max_request_size
    cdef readonly long long batch_limit_bytes
    cdef readonly bint closed
    cdef bint woken
    cdef cython.pymutex lock
    cdef object _wake
    cdef object _clock_ms
    cdef dict _topics
    cdef dict _waiting
    cdef dict _incomplete
    cpdef SendHandle append_to(
        self,
        PartitionQueue queue,
        bytes key,
        bytes value,
        object headers,
        long long timestamp_ms,
        object on_delivery,
        object ticket,
    )
    cpdef bint fits(self, PartitionQueue queue, bytes key, bytes value, object headers, long long timestamp_ms) except -1
    cdef bint _has_room(self, Batch batch, long long end) except -1
    cdef SendHandle _add(
        self,
        PartitionQueue queue,
        bytes key,
        bytes value,
        object headers,
        long long timestamp_ms,
        object on_delivery,
        Batch spare,
    )
    cdef Batch _spare(self, PartitionQueue queue, long long capacity, object ticket)
    cpdef _install(self, PartitionQueue queue, Batch batch)
