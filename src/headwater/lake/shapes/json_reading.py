"""Steps over the bytes of JSON, quickly: what the lanes that count and that make columns have in common.

Compiled by Cython (pure Python mode) and correct without it; `json_reading.pxd` is its C side. It knows only what is in
order: whatever else it meets, it says so, and the plain lane (`json_text`) decides what the record is. The bytes are
UTF-8: whoever calls has seen to that.
"""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from math import frexp, ldexp
from typing import Final

try:
    import cython
except ImportError:
    from headwater.protocol import without_cython as cython

if cython.compiled:
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

COMPILED: Final = cython.compiled
"""Whether these lanes are quick: if not, the plain ones are quicker."""

# What a step says. They are numbers also where they are C: OK, a value of another type, and a case for the plain lane.
_OK = cython.declare(cython.int, 0)
_MISFIT = cython.declare(cython.int, 1)
_UNCLEAR = cython.declare(cython.int, 2)

# Kinds as in `scalars.Kind`.
_STRING = cython.declare(cython.int, 9)
_DATE = cython.declare(cython.int, 10)
_INSTANT = cython.declare(cython.int, 11)
_DATETIME = cython.declare(cython.int, 12)

_MAX_DEPTH = cython.declare(cython.int, 100)
_FIRST_US = cython.declare(cython.longlong, -62_135_596_800_000_000)
_END_US = cython.declare(cython.longlong, 253_402_300_800_000_000)


class JsonReader:
    """Stands at `at` of the bytes of one record, which end at `end`. Its C attributes are declared in the pxd.

    After `string`: where its content is, and whether it has escapes (with `by_number`: of the kind that says \\u).
    After `number`: its sign, digits (of which `mantissa` has all while there are at most 19) and the power of ten.
    After `shortest` has said OK: `real` is the double.
    After `temporal`: `moment` is the date in days or the time in microseconds.
    """

    def __init__(self, view: memoryview) -> None:
        self.view = view
        if cython.compiled:
            self.data = cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
        else:
            self.data = view
        self.at = self.end = 0
        self.text_at = self.text_size = 0
        self.escaped = self.by_number = False
        self.negative = self.is_integer = False
        self.mantissa = 0
        self.digits = self.power = 0
        self.moment = 0
        self.real = 0.0

    def space(self) -> None:
        """Steps over white space."""
        data: cython.p_uchar = self.data
        at: cython.longlong = self.at
        end: cython.longlong = self.end
        while at < end and data[at] <= 32 and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
            at += 1
        self.at = at

    def string(self) -> cython.int:
        """Steps over a string, whose opening quote is here."""
        data: cython.p_uchar = self.data
        at: cython.longlong = self.at + 1
        end: cython.longlong = self.end
        self.text_at = at
        self.escaped = self.by_number = False
        while at < end:
            if data[at] == 34:
                self.text_size = at - self.text_at
                self.at = at + 1
                return _OK
            if data[at] == 92:
                self.at = at
                if self.escape():
                    return _UNCLEAR
                at = self.at
            elif data[at] < 32:
                return _UNCLEAR
            else:
                at += 1
        return _UNCLEAR

    def escape(self) -> cython.int:
        """Steps over an escape in a string; half of a surrogate pair is unclear."""
        data: cython.p_uchar = self.data
        at: cython.longlong = self.at
        code: cython.int
        self.escaped = True
        if at + 1 >= self.end:
            return _UNCLEAR
        if data[at + 1] != 117:
            self.at = at + 2
            # One of: " \ / b f n r t
            code = data[at + 1]
            return _OK if code in (34, 92, 47, 98, 102, 110, 114, 116) else _UNCLEAR
        self.by_number = True
        code = self.hexadecimal(at + 2)
        self.at = at + 6
        if code < 0 or 0xDC00 <= code < 0xE000:
            return _UNCLEAR
        if 0xD800 <= code < 0xDC00:
            if at + 11 >= self.end or data[at + 6] != 92 or data[at + 7] != 117:
                return _UNCLEAR
            code = self.hexadecimal(at + 8)
            self.at = at + 12
            if not 0xDC00 <= code < 0xE000:
                return _UNCLEAR
        return _OK

    def hexadecimal(self, at: cython.longlong) -> cython.int:
        """The number of the four digits there; -1 if they are none."""
        data: cython.p_uchar = self.data
        code: cython.int = 0
        digit: cython.int
        index: cython.longlong
        if at + 4 > self.end:
            return -1
        for index in range(at, at + 4):
            digit = data[index]
            if 48 <= digit <= 57:
                digit -= 48
            elif 97 <= digit <= 102:
                digit -= 87
            elif 65 <= digit <= 70:
                digit -= 55
            else:
                return -1
            code = code * 16 + digit
        return code

    def word(self, letters: cython.p_uchar, size: cython.int) -> cython.bint:
        """Steps over these letters, if they are here."""
        data: cython.p_uchar = self.data
        index: cython.int
        if self.at + size > self.end:
            return False
        for index in range(size):
            if data[self.at + index] != letters[index]:
                return False
        self.at += size
        return True

    def literal(self) -> cython.int:
        """Steps over null, true or false: 0, 1, 2; or -1."""
        if self.word(b"null", 4):
            return 0
        if self.word(b"true", 4):
            return 1
        return 2 if self.word(b"false", 5) else -1

    def number(self) -> cython.int:
        """Steps over a number."""
        data: cython.p_uchar = self.data
        at: cython.longlong = self.at
        end: cython.longlong = self.end
        start: cython.longlong
        mantissa: cython.ulonglong = 0
        digits: cython.longlong = 0
        power: cython.longlong = 0
        exponent: cython.longlong = 0
        below: cython.bint
        self.negative = at < end and data[at] == 45
        if self.negative:
            at += 1
        start = at
        while at < end and 48 <= data[at] <= 57:
            if digits or data[at] != 48:
                digits += 1
                if digits <= 19:
                    mantissa = mantissa * 10 + (data[at] - 48)
            at += 1
        if at == start or (at > start + 1 and data[start] == 48):
            return _UNCLEAR
        self.is_integer = True
        if at < end and data[at] == 46:
            self.is_integer = False
            at += 1
            start = at
            while at < end and 48 <= data[at] <= 57:
                if digits or data[at] != 48:
                    digits += 1
                    if digits <= 19:
                        mantissa = mantissa * 10 + (data[at] - 48)
                at += 1
            if at == start:
                return _UNCLEAR
            power = start - at
        if at < end and (data[at] | 32) == 101:
            self.is_integer = False
            at += 1
            below = at < end and data[at] == 45
            if at < end and (data[at] == 45 or data[at] == 43):
                at += 1
            start = at
            while at < end and 48 <= data[at] <= 57:
                if exponent < 100_000_000:
                    exponent = exponent * 10 + (data[at] - 48)
                at += 1
            if at == start:
                return _UNCLEAR
            power += -exponent if below else exponent
        self.at = at
        self.mantissa = mantissa
        self.digits = digits
        self.power = power
        return _OK

    def shortest(self) -> cython.int:
        """Whether a number of 16 or 17 digits is what a double is written as: OK or MISFIT, or UNCLEAR.

        The number is n / 10**p, the double c / 2**s. Multiplied by both denominators they are integers of less than
        128 bits, one unit of c is 10**p, and one of n is 2**s. The double is written as n if it is the nearest to n,
        n is the nearest to it, and nothing with a digit less is within half a unit of c.
        """
        if self.power >= 0 or self.power < -20 or self.digits < 16 or self.digits > 17 or self.mantissa % 10 == 0:
            return _UNCLEAR
        near = float(self.mantissa) / 10.0 ** (-self.power)
        fraction, exponent = frexp(near)
        power = 53 - exponent
        whole = int(fraction * 9007199254740992.0)
        if power < 1 or power > 68 or whole < 4503599627370500:
            return _UNCLEAR
        one = 1
        ten = 10
        shift = power
        given = self.mantissa
        given = given << shift
        ulp = 1
        for _ in range(-self.power):
            ulp = ulp * ten
        half = ulp >> one
        held = whole
        held = held * ulp
        # A quotient of two rounded numbers may be one unit away from the nearest double.
        if given > held + half:
            whole += 1
            held = held + ulp
        elif held > given + half:
            whole -= 1
            held = held - ulp
        apart = given - held if given > held else held - given
        below = self.mantissa % 10
        below = given - (below << shift)
        above = below + (ten << shift)
        if apart >= half or whole >= 9007199254740992 or held == below + half or above == held + half:
            return _UNCLEAR
        if apart and (apart + apart > one << shift or held < below + half or above < held + half):
            return _MISFIT
        self.real = ldexp(whole, -power)
        return _OK

    def pair(self, at: cython.longlong) -> cython.longlong:
        """The number of two digits there; some number above 100 if they are none."""
        data: cython.p_uchar = self.data
        if 48 <= data[at] <= 57 and 48 <= data[at + 1] <= 57:
            return (data[at] - 48) * 10 + data[at + 1] - 48
        return 1000

    def temporal(self) -> cython.int:
        """The kind of the string that was stepped over, which has no escapes."""
        data: cython.p_uchar = self.data
        at: cython.longlong = self.text_at
        size: cython.longlong = self.text_size
        year: cython.longlong
        month: cython.longlong
        day: cython.longlong
        longest: cython.longlong
        index: cython.longlong
        unit: cython.longlong
        moment: cython.longlong
        offset: cython.longlong
        if size < 10 or size > 32 or data[at + 4] != 45 or data[at + 7] != 45:
            return _STRING
        year = self.pair(at) * 100 + self.pair(at + 2)
        month = self.pair(at + 5)
        day = self.pair(at + 8)
        if self.pair(at) > 99 or self.pair(at + 2) > 99 or year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
            return _STRING
        longest = 31
        if month == 2:
            longest = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
        elif month in (4, 6, 9, 11):
            longest = 30
        if day > longest:
            return _STRING
        # Years that begin in March have their odd day last.
        if month <= 2:
            year -= 1
            month += 12
        moment = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719468
        if size == 10:
            self.moment = moment
            return _DATE
        if size < 19 or (data[at + 10] != 84 and data[at + 10] != 32) or data[at + 13] != 58 or data[at + 16] != 58:
            return _STRING
        if self.pair(at + 11) > 23 or self.pair(at + 14) > 59 or self.pair(at + 17) > 59:
            return _STRING
        moment = moment * 86_400 + self.pair(at + 11) * 3600 + self.pair(at + 14) * 60 + self.pair(at + 17)
        moment *= 1_000_000
        index = 19
        if size > 20 and data[at + 19] == 46:
            index = 20
            unit = 100_000
            while index < size and 48 <= data[at + index] <= 57:
                moment += (data[at + index] - 48) * unit
                unit = unit // 10
                index += 1
            if index == 20 or index > 26:
                return _STRING
        if index == size:
            self.moment = moment
            return _DATETIME
        if data[at + index] == 90:
            if index + 1 != size:
                return _STRING
        else:
            if data[at + index] != 43 and data[at + index] != 45:
                return _STRING
            if size - index == 6:
                if data[at + index + 3] != 58:
                    return _STRING
            elif size - index != 5:
                return _STRING
            offset = self.pair(at + index + 1) * 60 + self.pair(at + size - 2)
            if self.pair(at + size - 2) > 59 or offset > 18 * 60:
                return _STRING
            moment -= offset * 60_000_000 if data[at + index] == 43 else -offset * 60_000_000
        if moment < _FIRST_US or moment >= _END_US:
            return _STRING
        self.moment = moment
        return _INSTANT

    def skip(self, depth: cython.int) -> cython.int:
        """Steps over any value."""
        data: cython.p_uchar = self.data
        first: cython.int
        last: cython.int
        if self.at >= self.end:
            return _UNCLEAR
        first = data[self.at]
        if first == 34:
            return self.string()
        if first != 123 and first != 91:
            if first == 45 or 48 <= first <= 57:
                return self.number()
            return _UNCLEAR if self.literal() < 0 else _OK
        if depth > _MAX_DEPTH:
            return _UNCLEAR
        last = first + 2
        self.at += 1
        self.space()
        if self.at < self.end and data[self.at] == last:
            self.at += 1
            return _OK
        while True:
            if first == 123:
                if self.at >= self.end or data[self.at] != 34 or self.string():
                    return _UNCLEAR
                self.space()
                if self.at >= self.end or data[self.at] != 58:
                    return _UNCLEAR
                self.at += 1
                self.space()
            if self.skip(depth + 1):
                return _UNCLEAR
            self.space()
            if self.at >= self.end:
                return _UNCLEAR
            if data[self.at] == last:
                self.at += 1
                return _OK
            if data[self.at] != 44:
                return _UNCLEAR
            self.at += 1
            self.space()

    def unescape(self, target: cython.p_uchar, to: cython.longlong) -> cython.longlong:
        """Writes the content of the string that was stepped over; where it ends. It takes no more room than before."""
        data: cython.p_uchar = self.data
        at: cython.longlong = self.text_at
        end: cython.longlong = at + self.text_size
        code: cython.int
        while at < end:
            if data[at] != 92:
                target[to] = data[at]
                to += 1
                at += 1
                continue
            code = data[at + 1]
            at += 2
            if code == 117:
                code = self.hexadecimal(at)
                at += 4
                if 0xD800 <= code < 0xDC00:
                    code = 0x10000 + ((code - 0xD800) << 10) + self.hexadecimal(at + 2) - 0xDC00
                    at += 6
            elif code == 98:
                code = 8
            elif code == 102:
                code = 12
            elif code == 110:
                code = 10
            elif code == 114:
                code = 13
            elif code == 116:
                code = 9
            if code < 0x80:
                target[to] = code
                to += 1
                continue
            if code < 0x800:
                target[to] = 0xC0 | (code >> 6)
                to += 1
            else:
                if code < 0x10000:
                    target[to] = 0xE0 | (code >> 12)
                    to += 1
                else:
                    target[to] = 0xF0 | (code >> 18)
                    target[to + 1] = 0x80 | ((code >> 12) & 0x3F)
                    to += 2
                target[to] = 0x80 | ((code >> 6) & 0x3F)
                to += 1
            target[to] = 0x80 | (code & 0x3F)
            to += 1
        return to

    def content(self) -> bytes:
        """The string that was stepped over."""
        if not self.escaped:
            return self.octets(self.text_at, self.text_size)
        room = bytearray(self.text_size)
        target: cython.p_uchar = room
        size: cython.longlong = self.unescape(target, 0)
        return bytes(room[:size])

    def says(self, name: bytes) -> cython.bint:
        """Whether the string that was stepped over, which has no escapes, is this."""
        letters: cython.p_uchar = name
        at: cython.longlong = self.text_at
        index: cython.longlong
        if len(name) != self.text_size:
            return False
        for index in range(self.text_size):  # noqa: SIM110
            if self.data[at + index] != letters[index]:
                return False
        return True

    def octets(self, at: cython.longlong, size: cython.longlong) -> bytes:
        """A copy of the bytes there."""
        if cython.compiled:
            found: bytes = self.data[at : at + size]
            return found
        else:  # noqa: RET505
            return bytes(self.data[at : at + size])
