"""The syntax of patterns: RE2's, which is what Kafka promises, read into a small tree.

RE2 leaves out what cannot be matched in linear time: lookaround, references back, possessive and atomic groups; they
are refused here too. Characters are ASCII's, as topic names are: a class is the set of those it holds. Left out on
purpose: scripts (`\\p{Greek}`; general categories such as `\\p{Lu}` are known) and `\\C`.
"""

import functools
import unicodedata
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Final

_MAX_REPEAT: Final = 1000
_MAX_DEPTH: Final = 100
_LONGEST_BOUNDS: Final = len("{12345,12345}")


class PatternError(ValueError):
    """A text that is no pattern, with the reason in words."""


@dataclass(frozen=True, slots=True)
class Chars:
    """Any one of these characters."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class Row:
    """One after the other."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same between `least` and `most` times; None is no limit."""

    item: "Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A place between characters: `begin`, `end`, `boundary` of a word or `inside` (no boundary)."""

    name: str


Node = Chars | Row | Choice | Repeat | Place

_ALL: Final = frozenset(map(chr, range(128)))


def _those(holds: Callable[[str], bool]) -> frozenset[str]:
    return frozenset(filter(holds, _ALL))


WORD: Final = _those(lambda char: char.isalnum() or char == "_")
_PERL: Final = {"d": _those(str.isdigit), "w": WORD, "s": frozenset("\t\n\f\r ")}
_POSIX: Final = {
    "alnum": _those(str.isalnum),
    "alpha": _those(str.isalpha),
    "ascii": _ALL,
    "blank": frozenset("\t "),
    "cntrl": _those(lambda char: ord(char) < 32 or ord(char) == 127),
    "digit": _PERL["d"],
    "graph": _those(lambda char: "!" <= char <= "~"),
    "lower": _those(str.islower),
    "print": _those(lambda char: " " <= char <= "~"),
    "punct": _those(lambda char: "!" <= char <= "~" and not char.isalnum()),
    "space": frozenset("\t\n\v\f\r "),
    "upper": _those(str.isupper),
    "word": WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_PLACES: Final = {"A": "begin", "z": "end", "b": "boundary", "B": "inside"}
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SUBCATEGORIES: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES: Final = {major + minor for major, minors in _SUBCATEGORIES.items() for minor in ("", *minors)}


@dataclass(frozen=True, slots=True)
class _Flags:
    """What `(?is)` switches: case is ignored, a dot matches a line's end too. `m` and `U` change no whole match."""

    i: bool = False
    s: bool = False


def parse(pattern: str) -> Node:
    """The tree of a pattern; `PatternError` when it is none."""
    return _Parser(pattern).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = _Flags()
        self._names: set[str] = set()

    def whole(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise PatternError("unexpected )")
        return node

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        rows = [self._row()]
        while self._accept("|"):
            rows.append(self._row())
        self._depth -= 1
        return rows[0] if len(rows) == 1 else Choice(tuple(rows))

    def _row(self) -> Node:
        items: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            found = self._items()
            # Of a quotation, a repetition after it repeats the last character only.
            items += [*found[:-1], *(self._repeated(item) for item in found[-1:])]
        return Row(tuple(items))

    def _items(self) -> list[Node]:
        if self._accept("\\Q"):
            end = self._text.find("\\E", self._at)
            quoted = self._text[self._at : end if end >= 0 else None]
            self._at += len(quoted) + (2 if end >= 0 else 0)
            return [self._literal(char) for char in quoted]
        item = self._item()
        return [] if item is None else [item]

    def _repeated(self, item: Node) -> Node:
        bounds = self._repetition()
        if bounds is None:
            return item
        self._accept("?")
        before = self._at
        if self._repetition() is not None:
            raise PatternError(f"invalid nested repetition operator: {self._text[before - 1 : self._at]}")
        return Repeat(item, *bounds)

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        if not self._peek("{"):
            return None
        end = self._text.find("}", self._at, self._at + _LONGEST_BOUNDS)
        if end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or not (_is_number(most) or not most):
            return None
        low, high = int(least), int(most) if most else (None if comma else int(least))
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            raise PatternError(f"invalid repeat count: {self._text[self._at : end + 1]}")
        self._at = end + 1
        return low, high

    def _item(self) -> Node | None:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char == ".":
            return Chars(_ALL if self._flags.s else _ALL - {"\n"})
        if char in "^$":
            return Place("begin" if char == "^" else "end")
        if char in "*+?":
            raise PatternError(f"missing argument to repetition operator: {char}")
        return self._literal(char)

    def _group(self) -> Node | None:
        outer = self._flags
        if self._accept("?"):
            if self._accept("P<") or (self._peek("<") and not self._peek("<=") and not self._peek("<!")):
                self._accept("<")
                self._name()
            elif self._flag_list():
                return None  # `(?i)`: for the rest of the group around it
        node = self._choice()
        if not self._accept(")"):
            raise PatternError("missing closing )")
        self._flags = outer
        return node

    def _name(self) -> None:
        name, found, _ = self._text[self._at :].partition(">")
        if not found or not name or not set(name) <= WORD or name in self._names:
            raise PatternError(f"invalid named capture: {name}")
        self._names.add(name)
        self._at += len(name) + 1

    def _flag_list(self) -> bool:
        """Reads `i-s:` or `i-s)`; whether it was the latter, which ends the group."""
        begin, on, seen = self._at, True, False
        while True:
            char = self._next()
            if char in "imsU":
                seen = True
                if char in "is":
                    self._flags = replace(self._flags, **{char: on})
            elif char == "-" and on:
                on, seen = False, False
            elif char in ":)" and (seen or on):
                return char == ")"
            else:
                raise PatternError(f"invalid or unsupported syntax: (?{self._text[begin : self._at]}")

    def _class(self) -> Node:
        negated = self._accept("^")
        chars: set[str] = set()
        first = True
        while first or not self._accept("]"):
            first = False
            if self._accept("[:"):
                chars |= self._posix()
                continue
            low = self._class_item()
            if isinstance(low, frozenset):
                chars |= low
            elif self._peek("-") and not self._peek("-]"):
                self._accept("-")
                high = self._class_item()
                if isinstance(high, frozenset) or high < low:
                    raise PatternError(f"invalid character class range before {self._text[self._at :]}")
                chars |= _range(low, high)
            else:
                chars.add(low)
        cased = self._cased(chars)
        return Chars(_ALL - cased.chars) if negated else cased

    def _posix(self) -> frozenset[str]:
        name, found, _ = self._text[self._at :].partition(":]")
        chars = _POSIX.get(name.removeprefix("^"))
        if not found or chars is None:
            raise PatternError(f"invalid character class range: [:{name}:]")
        self._at += len(name) + 2
        return _ALL - chars if name.startswith("^") else chars

    def _class_item(self) -> str | frozenset[str]:
        if self._at >= len(self._text):
            raise PatternError("missing closing ]")
        char = self._next()
        if char != "\\":
            return char
        if self._peek_any("dDwWsS"):
            return self._perl(self._next())
        if self._peek_any("pP"):
            return self._category(self._next())
        return self._escaped_char()

    def _escape(self) -> Node:
        if self._peek_any("dDwWsS"):
            return self._cased(self._perl(self._next()))
        if self._peek_any("pP"):
            return self._cased(self._category(self._next()))
        if self._peek_any("AzbB"):
            return Place(_PLACES[self._next()])
        return self._literal(self._escaped_char())

    def _perl(self, letter: str) -> frozenset[str]:
        chars = _PERL[letter.lower()]
        return _ALL - chars if letter.isupper() else chars

    def _category(self, letter: str) -> frozenset[str]:
        if self._accept("{"):
            name, found, _ = self._text[self._at :].partition("}")
            self._at += len(name) + 1
        else:
            name, found = self._next(), "}"
        negated = (letter == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if not found or name not in _CATEGORIES:
            raise PatternError(f"invalid character class range: \\{letter}{{{name}}}")
        chars = _in_category(name)
        return _ALL - chars if negated else chars

    def _escaped_char(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("trailing backslash at end of expression")
        begin = self._at
        char = self._next()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            code = self._hexadecimal()
        elif char in "01234567" and (char == "0" or self._peek_any("01234567")):
            digits = char
            while len(digits) < 3 and self._peek_any("01234567"):
                digits += self._next()
            code = int(digits, 8)
        elif char.isascii() and not char.isalnum():
            return char
        else:
            raise PatternError(f"invalid escape sequence: \\{self._text[begin : self._at]}")
        return chr(code)

    def _hexadecimal(self) -> int:
        if self._accept("{"):
            digits, closed, _ = self._text[self._at :].partition("}")
            self._at += len(digits) + 1
            is_code = bool(closed) and 0 < len(digits) <= 6
        else:
            digits = self._text[self._at : self._at + 2]
            self._at += 2
            is_code = len(digits) == 2
        if not is_code or not set(digits) <= _POSIX["xdigit"] or int(digits, 16) > 0x10FFFF:
            raise PatternError(f"invalid escape sequence: \\x{digits}")
        return int(digits, 16)

    def _literal(self, char: str) -> Chars:
        return self._cased({char})

    def _cased(self, chars: Set[str]) -> Chars:
        return _chars(frozenset(chars), self._flags.i)

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("missing argument: the expression ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _peek_any(self, chars: str) -> bool:
        return self._at < len(self._text) and self._text[self._at] in chars

    def _accept(self, text: str) -> bool:
        found = self._peek(text)
        if found:
            self._at += len(text)
        return found


# What the parts of a pattern stand for is worked out once: a long pattern may have the same part a thousand times.


@functools.lru_cache(maxsize=200)
def _chars(chars: frozenset[str], ignores_case: bool) -> Chars:
    if not ignores_case:
        return Chars(chars)
    return Chars(chars.union(*(char.lower() + char.upper() for char in chars)))


@functools.lru_cache(maxsize=200)
def _range(low: str, high: str) -> frozenset[str]:
    return frozenset(map(chr, range(ord(low), min(ord(high), 127) + 1))) | {low, high}


@functools.lru_cache(maxsize=200)
def _in_category(name: str) -> frozenset[str]:
    return _those(lambda char: unicodedata.category(char).startswith(name))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6
