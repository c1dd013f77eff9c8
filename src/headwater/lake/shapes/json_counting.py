"""The quick lane of inference: counts what is in JSON records, without making a value of anything.

Compiled by Cython (pure Python mode) and correct without it. A record that it cannot make out leaves no trace: what was
counted of it is taken back, and the plain lane (`inference.observe_records`) gets it.
"""
# mypy: disallow-untyped-decorators=False, disallow-subclassing-any=False

from __future__ import annotations

from array import array

from headwater.lake.shapes.scalars import kind_of_number, kind_of_string
from headwater.lake.shapes.shape import Node, field_limit

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.headwater.lake.shapes.json_reading import JsonReader
    from cython.cimports.headwater.protocol.raw_memory import longs
else:
    from headwater.lake.shapes.json_reading import JsonReader
    from headwater.protocol.raw_memory import longs

_UNCLEAR = cython.declare(cython.int, 2)
_MAX_SHAPE_DEPTH = cython.declare(cython.int, 24)

_NULL = cython.declare(cython.int, 0)
_BOOL = cython.declare(cython.int, 1)
_INT = cython.declare(cython.int, 2)
_LONG = cython.declare(cython.int, 3)
_BIG = cython.declare(cython.int, 4)
_HUGE = cython.declare(cython.int, 5)
_FLOAT = cython.declare(cython.int, 6)
_DOUBLE = cython.declare(cython.int, 7)
_STRING = cython.declare(cython.int, 9)
_OBJECT = cython.declare(cython.int, 13)
_ARRAY = cython.declare(cython.int, 14)
_EMPTY_OBJECT = cython.declare(cython.int, 15)
_EMPTY_ARRAY = cython.declare(cython.int, 16)

# A place has a number for each kind, then digits before and after the point, position, and the last object it was in.
_KINDS = cython.declare(cython.longlong, 17)
_BEFORE = cython.declare(cython.longlong, 17)
_AFTER = cython.declare(cython.longlong, 18)
_POSITION = cython.declare(cython.longlong, 19)
_SEEN_IN = cython.declare(cython.longlong, 20)
_NUMBERS = cython.declare(cython.longlong, 21)


@cython.final
@cython.cclass
class Place:
    """A place in records, as `shape.Node`; its numbers start at `base` in those of the counter."""

    base: cython.longlong
    names: list[bytes]
    children: list[Place]
    index_of: dict[bytes, int]
    element: Place | None
    others: Place | None

    def __init__(self, base: int) -> None:
        self.base = base
        self.names = []
        self.children = []
        self.index_of = {}
        self.element = None
        # For all further keys, once there are too many.
        self.others = None

    def to_node(self, numbers: array[int], depth: int) -> Node:
        """The node of this place; nothing that was taken back is in it. LookupError: that cannot be told any more."""
        mine: list[int] = numbers[self.base : self.base + _NUMBERS].tolist()
        node = Node()
        node.counts = mine[:_KINDS]
        node.before, node.after, node.position = mine[_BEFORE], mine[_AFTER], mine[_POSITION]
        if self.element is not None:
            element = self.element.to_node(numbers, depth + 1)
            node.element = element if any(element.counts) else None
        for name, child in zip(self.names, self.children, strict=True):
            below = child.to_node(numbers, depth + 1)
            if any(below.counts):
                node.absorb_field(name.decode(), below, depth)
        if self.others is not None:
            below = self.others.to_node(numbers, depth + 1)
            if any(below.counts):
                if node.values is None and len(node.fields) < field_limit(depth):
                    raise LookupError("keys of a record that does not count took the place of others")
                node.collapse(depth).absorb(below, depth + 1)
        return node


@cython.final
@cython.cclass
class RecordCounter(JsonReader):
    """Counts records of one block of bytes."""

    root: Place
    numbers: array[int]
    numbers_at: cython.p_longlong
    log: array[int]
    log_at: cython.p_longlong
    logged: cython.longlong
    log_room: cython.longlong
    objects: cython.longlong
    others_seen: set[tuple[int, bytes]]

    def __init__(self, view: memoryview) -> None:
        JsonReader.__init__(self, view)
        self.numbers = array("q")
        self.log_room = 1024
        self.log = array("q", bytes(8 * 1024))
        self.log_at = longs(self.log)
        self.logged = self.objects = 0
        self.others_seen = set()
        self.root = self.new_place()

    def count(self, offsets: array[int], rows: array[int]) -> list[int]:
        """Counts these rows, each between its offset and the next; those for the plain lane."""
        ends: cython.p_longlong = longs(offsets)
        wanted: cython.p_longlong = longs(rows)
        index: cython.longlong
        row: cython.longlong
        plain: list[int] = []
        for index in range(len(rows)):
            row = wanted[index]
            self.at = ends[row]
            self.end = ends[row + 1]
            self.logged = 0
            if self.record():
                self.take_back()
                plain.append(row)
            if self.others_seen:
                self.others_seen.clear()
        return plain

    def result(self) -> Node | None:
        """What was counted; None in the rare case that only the plain lane can tell."""
        try:
            return self.root.to_node(self.numbers, 0)
        except LookupError:
            return None

    @cython.cfunc
    def new_place(self) -> Place:
        """A place with numbers of its own, all 0."""
        place = Place(len(self.numbers))
        self.numbers.frombytes(bytes(8 * _NUMBERS))
        self.numbers_at = longs(self.numbers)
        return place

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(self, slot: cython.longlong, number: cython.longlong) -> cython.int:
        """Changes a number; the old one is kept until the record is through."""
        if self.logged + 2 > self.log_room:
            self.log.frombytes(bytes(8 * self.log_room))
            self.log_at = longs(self.log)
            self.log_room *= 2
        self.log_at[self.logged] = slot
        self.log_at[self.logged + 1] = self.numbers_at[slot]
        self.logged += 2
        self.numbers_at[slot] = number
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def raise_to(self, slot: cython.longlong, number: cython.longlong) -> cython.int:
        """Makes a number at least this."""
        if self.numbers_at[slot] < number:
            self.put(slot, number)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, place: Place, kind: cython.int) -> cython.int:
        """Counts a value."""
        slot: cython.longlong = place.base + kind
        return self.put(slot, self.numbers_at[slot] + 1)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_back(self) -> cython.int:
        """Undoes all changes of this record."""
        while self.logged > 0:
            self.logged -= 2
            self.numbers_at[self.log_at[self.logged]] = self.log_at[self.logged + 1]
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def record(self) -> cython.int:
        """Counts what is in one record."""
        self.space()
        if self.at >= self.end or self.data[self.at] != 123:
            return _UNCLEAR
        if self.members(self.root, 0):
            return _UNCLEAR
        self.space()
        return 0 if self.at == self.end else _UNCLEAR

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def value(self, place: Place, depth: cython.int) -> cython.int:
        """Counts the value that is here."""
        first: cython.int
        literal: cython.int
        if self.at >= self.end:
            return _UNCLEAR
        first = self.data[self.at]
        if first == 34:
            return self.text(place)
        if first == 45 or 48 <= first <= 57:
            return self.numeral(place)
        if first == 123:
            return self.members(place, depth)
        if first == 91:
            return self.items(place, depth)
        literal = self.literal()
        if literal < 0:
            return _UNCLEAR
        return self.add(place, _BOOL if literal else _NULL)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def text(self, place: Place) -> cython.int:
        """Counts a string."""
        kind: cython.int
        if self.string():
            return _UNCLEAR
        if not self.escaped:
            kind = self.temporal()
        elif self.by_number and self.text_size < 200 and self.data[self.text_at] in b"0123456789\\":
            # Also the letters of a date may be escaped.
            kind = kind_of_string(self.content().decode())
        else:
            kind = _STRING
        return self.add(place, kind)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def numeral(self, place: Place) -> cython.int:
        """Counts a number."""
        start: cython.longlong = self.at
        digits: cython.longlong
        power: cython.longlong
        mantissa: cython.ulonglong
        before: cython.longlong = 1
        after: cython.longlong = 0
        kind: cython.int
        if self.number():
            return _UNCLEAR
        digits = self.digits
        mantissa = self.mantissa
        if self.is_integer and (digits or not self.negative):
            before = max(digits, 1)
            if digits <= 9 or (digits == 10 and mantissa <= (2147483648 if self.negative else 2147483647)):
                kind = _INT
            elif digits <= 18 or (
                digits == 19 and mantissa <= (9223372036854775808 if self.negative else 9223372036854775807)
            ):
                kind = _LONG
            else:
                kind = _BIG if digits <= 38 else _HUGE
        elif digits == 0:
            kind = _FLOAT
        elif digits > 19:
            kind, before, after = kind_of_number(self.octets(start, self.at - start).decode())
        else:
            power = self.power
            while mantissa % 10 == 0:
                mantissa = mantissa // 10
                digits -= 1
                power += 1
            before = max(digits + power, 1)
            after = max(-power, 0)
            power += digits - 1
            if digits <= 6 and -30 <= power <= 30:
                kind = _FLOAT
            elif digits <= 17 and -290 <= power <= 290:
                kind = _DOUBLE
            else:
                kind = kind_of_number(self.octets(start, self.at - start).decode())[0]
        self.raise_to(place.base + _BEFORE, min(before, 999))
        self.raise_to(place.base + _AFTER, min(after, 999))
        return self.add(place, kind)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def members(self, place: Place, depth: cython.int) -> cython.int:
        """Counts an object."""
        data: cython.p_uchar = self.data
        index: cython.longlong = -1
        position: cython.longlong = 0
        child: Place
        self.objects += 1
        serial: cython.longlong = self.objects
        start: cython.longlong = self.at
        self.at += 1
        self.space()
        if self.at < self.end and data[self.at] == 125:
            self.at += 1
            return self.add(place, _EMPTY_OBJECT)
        self.add(place, _OBJECT)
        if depth >= _MAX_SHAPE_DEPTH:
            self.at = start
            return self.skip(depth + 1)
        while True:
            if self.at >= self.end or data[self.at] != 34 or self.string():
                return _UNCLEAR
            index = self.field_index(place, index + 1, depth)
            # Of a key that is repeated only the last counts, which nobody knows yet.
            if index < 0:
                assert place.others is not None
                child = place.others
                if self.is_repeated(serial):
                    return _UNCLEAR
            else:
                child = place.children[index]
                if self.numbers_at[child.base + _SEEN_IN] == serial:
                    return _UNCLEAR
                self.numbers_at[child.base + _SEEN_IN] = serial
                self.raise_to(child.base + _POSITION, position)
            position += 1
            self.space()
            if self.at >= self.end or data[self.at] != 58:
                return _UNCLEAR
            self.at += 1
            self.space()
            if self.value(child, depth + 1):
                return _UNCLEAR
            self.space()
            if self.at >= self.end:
                return _UNCLEAR
            if data[self.at] == 125:
                self.at += 1
                return 0
            if data[self.at] != 44:
                return _UNCLEAR
            self.at += 1
            self.space()

    @cython.cfunc
    def is_repeated(self, serial: cython.longlong) -> cython.bint:
        """Whether the key that was stepped over, one of many, was in this object before."""
        place: tuple[int, bytes] = (serial, self.content())
        if place in self.others_seen:
            return True
        self.others_seen.add(place)
        return False

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def field_index(self, place: Place, guess: cython.longlong, depth: cython.int) -> cython.longlong:
        """Which field of a place has the key that was stepped over; most often it is one of the next. -1: others."""
        index: cython.longlong
        if not self.escaped:
            for index in range(guess, min(guess + 4, len(place.names))):
                if self.says(place.names[index]):
                    return index
        name: bytes = self.content()
        found = place.index_of.get(name)
        if found is not None:
            return found
        index = len(place.names)
        if index >= field_limit(depth):
            if place.others is None:
                place.others = self.new_place()
            return -1
        place.index_of[name] = index
        place.names.append(name)
        place.children.append(self.new_place())
        return index

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def items(self, place: Place, depth: cython.int) -> cython.int:
        """Counts an array."""
        data: cython.p_uchar = self.data
        start: cython.longlong = self.at
        element: Place
        self.at += 1
        self.space()
        if self.at < self.end and data[self.at] == 93:
            self.at += 1
            return self.add(place, _EMPTY_ARRAY)
        self.add(place, _ARRAY)
        if depth >= _MAX_SHAPE_DEPTH:
            self.at = start
            return self.skip(depth + 1)
        if place.element is None:
            place.element = self.new_place()
        element = place.element
        while True:
            if self.value(element, depth + 1):
                return _UNCLEAR
            self.space()
            if self.at >= self.end:
                return _UNCLEAR
            if data[self.at] == 93:
                self.at += 1
                return 0
            if data[self.at] != 44:
                return _UNCLEAR
            self.at += 1
            self.space()
