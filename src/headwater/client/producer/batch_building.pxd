# The C side of batch_building.py: without it the way into a batch is Python calls.

from headwater.client.producer.handles cimport Delivery
from headwater.protocol.record_writing cimport RecordWriter

cdef class Batch:
    cdef readonly object queue
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly RecordWriter writer
    cdef readonly Delivery delivery
    cdef public long long capacity_bytes
    cdef public long long order
    cdef readonly long long created_ms
    cdef public long long drained_ms
    cdef public long long retry_at_ms
    cdef public int attempts
    cdef readonly long long producer_id
    cdef readonly int producer_epoch
    cdef readonly int base_sequence
    cdef readonly bint transactional
    cdef readonly object sealed
