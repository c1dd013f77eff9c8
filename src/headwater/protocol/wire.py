"""The primitive types of the wire, read by a cursor that never leaves its frame.

The byte lanes of Produce and Fetch use it, and `entity_reading.py` for every other message. Compiled by Cython (pure
Python mode) and correct without it; every read is preceded by a comparison with the end of the frame, and nothing is
allocated for a length that is only claimed.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from headwater.protocol.batches import octets
from headwater.protocol.errors import MalformedRequestError, TooManyItemsError

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

MAX_REQUEST_ITEMS = 100_000
"""How many items the arrays of one request may have together, tagged fields included.

An item can take two bytes of the frame and a hundred of memory, so the size of the frame bounds too little. Reading
this many holds the event loop for some 10 ms. Kafka has no such bound, and clients stay far below: it is a commit of
100,000 partitions."""

MAX_RESPONSE_ITEMS = 1 << 22
"""The same for a response: the Metadata of 600,000 partitions with three replicas, all of them in sync."""

_LONGEST_STRING = cython.declare(cython.Py_ssize_t, 0x7FFF)


class Cursor:
    """Reads a frame from front to back. Every read past its end raises `MalformedRequestError`.

    Its C attributes and methods are declared in `wire.pxd`.
    """

    def __init__(self, data: memoryview, position: int, max_items: int = MAX_REQUEST_ITEMS) -> None:
        view = octets(data)
        self.data = view
        self._end = len(view)
        self.position = min(max(position, 0), self._end)
        self._items_left = max_items
        self._octets = _address(view)

    def advance(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Steps over `size` bytes and returns where they begin."""
        start: cython.Py_ssize_t = self.position
        if size < 0 or size > self._end - start:
            raise MalformedRequestError(f"a field of {size} bytes at {start} in a frame of {self._end}")
        self.position = start + size
        return start

    def int8(self) -> cython.int:
        """A signed byte."""
        at: cython.Py_ssize_t = self.advance(1)
        return (self._octets[at] ^ 0x80) - 0x80

    def int16(self) -> cython.int:
        """A signed 16-bit number."""
        at: cython.Py_ssize_t = self.advance(2)
        return ((self._octets[at] << 8 | self._octets[at + 1]) ^ 0x8000) - 0x8000

    def int32(self) -> cython.longlong:
        """A signed 32-bit number."""
        at: cython.Py_ssize_t = self.advance(4)
        return _int32(self._octets, at)

    def int64(self) -> cython.longlong:
        """A signed 64-bit number."""
        at: cython.Py_ssize_t = self.advance(8)
        high: cython.longlong = _int32(self._octets, at)
        low: cython.longlong = _int32(self._octets, at + 4)
        # A literal beyond 31 bits would be a Python object in the compiled form.
        if low < 0:
            high += 1
        return high * 0x10000 * 0x10000 + low

    def uvarint(self) -> cython.longlong:
        """An unsigned variable-length number of at most 32 bits."""
        value: cython.longlong = 0
        shift: cython.int = 0
        byte: cython.longlong
        while shift < 35:
            byte = self._octets[self.advance(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedRequestError(f"a number of more than five bytes before {self.position}")

    def text(self, size: cython.Py_ssize_t) -> str:
        """`size` bytes of UTF-8."""
        start: cython.Py_ssize_t = self.advance(size)
        try:
            found: str = _text_at(self._octets, start, size)
        except UnicodeDecodeError as error:
            raise MalformedRequestError(f"a string at {start} is not UTF-8") from error
        return found

    def string(self, flexible: cython.bint) -> str | None:
        """A string or null, compact in flexible versions. Compact ones might be longer than others; Kafka's may not."""
        size: cython.Py_ssize_t = self.uvarint() - 1 if flexible else self.int16()
        if size > _LONGEST_STRING:
            raise MalformedRequestError(f"a string of {size} bytes at {self.position}: {_LONGEST_STRING} may be there")
        return None if size < 0 else self.text(size)

    def octets(self, size: cython.Py_ssize_t) -> bytes:
        """A copy of the next `size` bytes."""
        start: cython.Py_ssize_t = self.advance(size)
        copied: bytes = _copy_at(self._octets, start, size)
        return copied

    def uuid(self) -> bytes:
        """The 16 bytes of a topic id."""
        return self.octets(16)

    def length(self, flexible: cython.bint) -> cython.longlong:
        """The length of bytes or of an array; -1 for null."""
        return self.uvarint() - 1 if flexible else self.int32()

    def items(self, flexible: cython.bint, item_size: cython.Py_ssize_t) -> cython.longlong:
        """The length of an array whose items take at least `item_size` bytes, which is not 0; -1 for null."""
        length: cython.longlong = self.length(flexible)
        return -1 if length < 0 else self._counted(length, item_size)

    def array(self, flexible: cython.bint, item_size: cython.Py_ssize_t) -> cython.longlong:
        """The same where null counts as empty."""
        length: cython.longlong = self.items(flexible, item_size)
        return 0 if length < 0 else length

    def tag_count(self) -> cython.longlong:
        """How many tagged fields follow. They count as items: stepping over two bytes at a time takes its time too."""
        return self._counted(self.uvarint(), 2)

    def _counted(self, count: cython.longlong, item_size: cython.Py_ssize_t) -> cython.longlong:
        if count > (self._end - self.position) // item_size:
            raise MalformedRequestError(f"an array of {count} items at {self.position} in a frame of {self._end}")
        if count > self._items_left:
            raise TooManyItemsError(f"more items than a message may have: {count} at {self.position}")
        self._items_left -= count
        return count

    def tags(self, flexible: cython.bint) -> cython.bint:
        """Steps over the tagged fields that end every structure of a flexible version; True for the C side's sake."""
        count: cython.longlong
        if flexible:
            count = self.tag_count()
            while count > 0:
                self.uvarint()
                self.advance(self.uvarint())
                count -= 1
        return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _address(view: memoryview) -> cython.p_uchar:
    """The bytes behind a view: a C pointer when compiled, else the view itself. Both are indexed alike."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    else:  # noqa: RET505
        return view


@cython.cfunc
@cython.inline
def _text_at(data: cython.p_uchar, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> str:
    if cython.compiled:
        found: str = cython.cast(cython.p_char, data)[start : start + size].decode("utf-8")
        return found
    else:  # noqa: RET505
        return str(data[start : start + size], "utf-8")


@cython.cfunc
@cython.inline
def _copy_at(data: cython.p_uchar, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytes:
    if cython.compiled:
        copied: bytes = cython.cast(cython.p_char, data)[start : start + size]
        return copied
    else:  # noqa: RET505
        return bytes(data[start : start + size])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(data: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    return ((data[at] ^ 0x80) - 0x80) * 0x1000000 + (data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3])


def uvarint_bytes(value: cython.longlong) -> bytes:
    """`value` as an unsigned variable-length number."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_bytes(value: str | None, flexible: cython.bint) -> bytes:
    """A string or null, compact in flexible versions."""
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    data = value.encode()
    return (uvarint_bytes(len(data) + 1) if flexible else len(data).to_bytes(2, "big")) + data


def length_bytes(length: cython.longlong, flexible: cython.bint) -> bytes:
    """The length of an array or of records."""
    return uvarint_bytes(length + 1) if flexible else length.to_bytes(4, "big", signed=True)
