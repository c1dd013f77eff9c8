# The system's calls for receiving.py: what Python offers takes the interpreter's lock after every piece.

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t recv(int fd, void* room, size_t size, int flags)
    int MSG_DONTWAIT

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* sockets, unsigned long count, int timeout_ms)
    short POLLIN

cdef inline bint readable_within(int fd, int timeout_ms) noexcept nogil:
    """Whether something comes in time; neither an end nor an error is something."""
    cdef pollfd socket
    socket.fd = fd
    socket.events = POLLIN
    socket.revents = 0
    return poll(&socket, 1, timeout_ms) == 1 and socket.revents == POLLIN
