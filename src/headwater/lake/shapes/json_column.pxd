# The C side of json_column.py, for the lane that fills such columns.

cimport cython

@cython.final
cdef class JsonColumn:
    cdef readonly int kind
    cdef readonly str path
    cdef readonly bint any_text
    cdef readonly list children
    cdef readonly list names
    cdef readonly dict index_of
    cdef readonly list spills
    cdef object valid, numbers, data
    cdef unsigned char* valid_at
    cdef unsigned char* data_at
    cdef long long* longs_at
    cdef double* doubles_at
    cdef int* ends_at
    cdef readonly long long count
    cdef long long room, used, capacity
    cdef int grow(self) except -1
    cdef int append_null(self) except -1
    cdef int append_long(self, long long number) except -1
    cdef int append_double(self, double number) except -1
    cdef int append_inside(self) except -1
    cdef int append_text(self, unsigned char* source, long long at, long long size) except -1
    cdef int make_room(self, long long size) except -1
    cdef int end_text(self, long long end) except -1
    cdef int truncate(self, long long count) except -1
