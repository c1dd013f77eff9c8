# The C side of json_reading.py, for the compiled modules that read JSON.

cimport cython

cdef extern from *:
    # Cython need not know how wide it is: C does.
    ctypedef unsigned long long wide "unsigned __int128"

cdef class JsonReader:
    cdef object view
    cdef unsigned char* data
    cdef long long at, end
    cdef long long text_at, text_size
    cdef bint escaped, by_number
    cdef bint negative, is_integer
    cdef unsigned long long mantissa
    cdef long long digits, power
    cdef long long moment
    cdef double real
    cdef void space(self) noexcept nogil
    cdef int string(self) noexcept nogil
    cdef int escape(self) noexcept nogil
    cdef int hexadecimal(self, long long at) noexcept nogil
    cdef bint word(self, unsigned char* letters, int size) noexcept nogil
    cdef int literal(self) noexcept nogil
    cdef int number(self) noexcept nogil
    @cython.locals(
        given=wide, shift=wide, ulp=wide, held=wide, apart=wide, below=wide, above=wide, half=wide, one=wide, ten=wide,
        whole=cython.longlong, power=cython.int, near=cython.double
    )
    cdef int shortest(self) except -1
    cdef int temporal(self) noexcept nogil
    cdef long long pair(self, long long at) noexcept nogil
    cdef int skip(self, int depth) noexcept nogil
    cdef long long unescape(self, unsigned char* target, long long to) noexcept nogil
    cdef bytes content(self)
    cdef bint says(self, bytes name) noexcept
    cdef bytes octets(self, long long at, long long size)
