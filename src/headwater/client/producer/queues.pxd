# The C side of queues.py, for the compiled modules around it.

from headwater.client.producer.batch_building cimport Batch

cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int partition
    cdef readonly int compression
    cdef readonly object compression_level
    cdef readonly object batches
    cdef readonly Batch open
    cdef public bint muted
    cdef readonly long long next_order
    cpdef close(self)

cdef class TopicQueue:
    cdef readonly str name
    cdef int compression
    cdef object compression_level
    cdef readonly list partitions
    cdef object lock
    cpdef PartitionQueue partition_queue(self, Py_ssize_t partition)
