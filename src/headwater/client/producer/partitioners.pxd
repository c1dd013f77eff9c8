# The C side of partitioners.py: without it every key is a Python call.

cpdef unsigned int murmur2(bytes data) noexcept
cpdef Py_ssize_t partition_for_key(bytes key, Py_ssize_t partitions) except -1
