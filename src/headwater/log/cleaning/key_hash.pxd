# The C side of key_hash.py: without it every key would be a Python call.

cdef (unsigned long long, unsigned long long) hash_key(
    unsigned char* data, long long at, long long size, unsigned long long secret_0, unsigned long long secret_1
) noexcept nogil
