"""Names of tables and namespaces: which ones are possible, and how they stand in one line of text. Pure.

A name is a row of levels, and a level may have any character that a database keeps: spaces, slashes and dots too. In
text the levels are joined by dots, as Spark writes them: a level that has a dot itself stands in backquotes. The
catalog's database and the ledger keep names in this form.
"""

from typing import Any, Final, TypeAlias

Name: TypeAlias = tuple[str, ...]

MOST_CHARACTERS: Final = 255
"""The longest name of a table, and the longest namespace in text: the columns of the database are as wide."""

_QUOTE: Final = "`"
_SEPARATOR: Final = "\x1f"
_SURROGATES: Final = range(0xD800, 0xE000)


class BadNameError(ValueError):
    """A name that no table or namespace can have."""


def checked_level(level: Any) -> str:
    """A level of a name, or the name of a table, as it came over the wire."""
    if not isinstance(level, str):
        raise BadNameError(f"a name is a string, not {level!r:.100}")
    if not level.strip():
        raise BadNameError(f"a name cannot be empty or blank, like {level!r:.100}")
    if len(level) > MOST_CHARACTERS:
        raise BadNameError(f"a name has at most {MOST_CHARACTERS} characters, not {len(level)}: {level!r:.60}…")
    if level in (".", ".."):
        # HTTP clients take such a part of a path for a way up, so nobody could load or drop the table again.
        raise BadNameError(f"a name cannot be {level!r}")
    for character in level:
        # The separator stands between levels in URLs; databases refuse the null byte, and lone surrogates are no text.
        if character in ("\0", _SEPARATOR) or ord(character) in _SURROGATES:
            raise BadNameError(f"a name cannot contain {character!r}, like {level!r:.100}")
    return level


def checked_namespace(levels: Any) -> Name:
    """A namespace as it came over the wire: a list of levels."""
    if not isinstance(levels, list | tuple):
        raise BadNameError(f"a namespace is a list of names, not {levels!r:.100}")
    if not levels:
        raise BadNameError("a namespace cannot be empty: it has at least one name")
    name = tuple(checked_level(level) for level in levels)
    if len(text_of(name)) > MOST_CHARACTERS:
        raise BadNameError(f"a namespace has at most {MOST_CHARACTERS} characters, unlike {text_of(name)!r:.60}…")
    return name


def text_of(name: Name) -> str:
    """A name in one line.

    >>> text_of(("db", "my table")), text_of(("v1.2", "t"))
    ('db.my table', '`v1.2`.t')
    """
    return ".".join(_quoted(level) if "." in level or _QUOTE in level else level for level in name)


def sql_text(text: str) -> str:
    """A name in a statement of Spark, with each level in backquotes.

    >>> sql_text("db.my table")
    '`db`.`my table`'
    """
    return ".".join(map(_quoted, levels_of(text)))


def levels_of(text: str) -> Name:
    """The levels of a name in one line, the inverse of `text_of`; ValueError for what is no name.

    >>> levels_of("db.`a.b`")
    ('db', 'a.b')
    """
    levels = []
    rest: str | None = text
    while rest is not None:
        level, rest = _first_level(rest, text)
        levels.append(checked_level(level))
    return tuple(levels)


def name_of(text: Any) -> Name:
    """The name of a table that people write `db.t`; ValueError when it has no namespace or an empty part."""
    try:
        name = levels_of(text) if isinstance(text, str) else ()
    except BadNameError as error:
        raise BadNameError(f"a table is named namespace.table, not {text!r:.100}: {error}") from None
    if len(name) < 2:
        raise BadNameError(f"a table is named namespace.table, not {text!r:.100}")
    return name


def _quoted(level: str) -> str:
    return f"{_QUOTE}{level.replace(_QUOTE, 2 * _QUOTE)}{_QUOTE}"


def _first_level(text: str, whole: str) -> tuple[str, str | None]:
    """The first level, and the text behind the dot that ends it; None at the end."""
    if not text.startswith(_QUOTE):
        level, dot, rest = text.partition(".")
        if _QUOTE in level:
            raise BadNameError(
                f"{whole!r:.100} has a backquote within a name: quote that name, and double the backquote"
            )
        return level, rest if dot else None
    level, place = "", 1
    while True:
        end = text.find(_QUOTE, place)
        if end < 0:
            raise BadNameError(f"a backquote in {whole!r:.100} is not closed")
        level += text[place:end]
        if not text.startswith(2 * _QUOTE, end):
            break
        level += _QUOTE
        place = end + 2
    rest = text[end + 1 :]
    if rest and not rest.startswith("."):
        raise BadNameError(f"only a dot can follow the closing backquote in {whole!r:.100}")
    return level, rest[1:] if rest else None
