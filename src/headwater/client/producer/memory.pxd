# The C side of memory.py: called under the accumulator's lock, where no Python code may run.

cdef class BufferMemory:
    cdef readonly long long total_bytes
    cdef public long long used_bytes
    cdef readonly object line
    cpdef bint take(self, long long size_bytes) except -1
    cpdef leave_line(self, object ticket)
    cpdef grant(self, list granted)
