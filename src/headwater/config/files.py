r"""Reading config files: Java's properties, and TOML. Turns a file into names and texts; checks neither.

The properties format is Java's own: `#` and `!` begin a comment, a backslash at the end continues the line,
`=`, `:` or blanks separate name and value, and `\t`, `\n`, `\r`, `\f` and `\uXXXX` stand for characters.
"""

from collections.abc import Iterator
from os import PathLike, fspath
from typing import Final, cast

from headwater.config.errors import ConfigError
from headwater.config.values import PlainValue, as_text

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_file(path: str | PathLike[str]) -> dict[str, str]:
    """Names and texts of a config file: TOML if it is called `.toml`, else properties."""
    path = fspath(path)
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise ConfigError(f"The config file {path} cannot be read: {error.strerror}.") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Java reads properties as Latin-1, so older files may well be.
        text = raw.decode("latin-1")
    try:
        return parse_toml(text) if path.lower().endswith(".toml") else parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"The config file {path} cannot be used: {error}") from error


def parse_properties(text: str) -> dict[str, str]:
    r"""Names and values of a properties file; of a name given twice the last value counts.

    >>> parse_properties("# mine\nlog.dirs = /a,\\\n  /b\n")
    {'log.dirs': '/a,/b'}
    """
    return dict(_split(line) for line in _logical_lines(text))


def parse_toml(text: str) -> dict[str, str]:
    """Names and values of a TOML file, whether a name is quoted, dotted or spread over tables.

    >>> parse_toml("log.retention.hours = 24")
    {'log.retention.hours': '24'}
    """
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{error}. Where one name begins with another, as max.connections and max.connections.per.ip, "
            'put both in quotes: "max.connections" = 100.'
        ) from error
    values: dict[str, str] = {}
    for name, value in _leaves("", document):
        if name in values:
            raise ConfigError(f"{name} is given twice.")
        values[name] = value
    return values


def _leaves(prefix: str, table: dict[str, object]) -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _leaves(f"{name}.", value)
        elif _is_plain(value) or (isinstance(value, list) and all(map(_is_plain, value))):
            yield name, as_text(cast("PlainValue", value))
        else:
            raise ConfigError(f"{name} = {value} is not allowed: it must be a text, a number, true or false.")


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float))


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, blank ones and leading blanks, continued ones joined."""
    pending = ""
    # Java ends a line at \n, \r or both, and nowhere else.
    for physical in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = physical.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    value = line[position:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescape(line[:position]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\":
            parts.append(character)
            position += 1
            continue
        escaped = text[position + 1 : position + 2]
        if escaped == "u":
            parts.append(_unicode_escape(text[position + 2 : position + 6]))
            position += 6
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
            position += 2
    # Java writes characters beyond 16 bits as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode_escape(digits: str) -> str:
    try:
        if len(digits) != 4:
            raise ValueError
        return chr(int(digits, 16))
    except ValueError:
        raise ConfigError(f"\\u{digits} is not a character: four hexadecimal digits must follow \\u.") from None
