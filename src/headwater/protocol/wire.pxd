# The C side of wire.py, for the compiled modules that read with a cursor: without it every read is a Python call.

cdef class Cursor:
    cdef readonly object data
    cdef public Py_ssize_t position
    cdef Py_ssize_t _end
    cdef Py_ssize_t _items_left
    cdef unsigned char* _octets
    cpdef Py_ssize_t advance(self, Py_ssize_t size) except -1
    cpdef int int8(self) except? -1
    cpdef int int16(self) except? -1
    cpdef long long int32(self) except? -1
    cpdef long long int64(self) except? -1
    cpdef long long uvarint(self) except? -1
    cpdef str text(self, Py_ssize_t size)
    cpdef str string(self, bint flexible)
    cpdef bytes octets(self, Py_ssize_t size)
    cpdef bytes uuid(self)
    cpdef long long length(self, bint flexible) except? -1
    cpdef long long items(self, bint flexible, Py_ssize_t item_size) except? -1
    cpdef long long array(self, bint flexible, Py_ssize_t item_size) except? -1
    cpdef long long tag_count(self) except? -1
    cdef long long _counted(self, long long count, Py_ssize_t item_size) except? -1
    cpdef bint tags(self, bint flexible) except -1

cpdef bytes uvarint_bytes(long long value)
cpdef bytes string_bytes(str value, bint flexible)
cpdef bytes length_bytes(long long length, bint flexible)
