# C views for rdloop.py when it is compiled; the struct is librdkafka's public rd_kafka_message_t.

ctypedef struct Message:
    int err
    void *topic
    int partition
    void *payload
    size_t size
    void *key
    size_t key_size
    long long offset
    void *opaque

ctypedef void (*Destroy)(Message *) noexcept nogil
