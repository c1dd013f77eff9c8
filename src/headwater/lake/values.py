"""How people write times, sizes, partitions and policies, on the command line and in a lake.toml."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from headwater.lake.errors import LakeUsageError

if TYPE_CHECKING:
    from headwater.lake.shapes import Policies
    from headwater.lake.shapes.policies import Policy

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES: Final = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


def seconds(text: str) -> float:
    """The seconds of `30s`, `5m`, `12h`, `7d`.

    >>> seconds("1.5h")
    5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if match is None:
        raise LakeUsageError(f"{text!r} is no time: write 30s, 5m, 12h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def option_seconds(value: object) -> float:
    """The seconds of an option that is named in seconds: a number, or a time as people write it.

    >>> option_seconds("1.5"), option_seconds(2), option_seconds("5m")
    (1.5, 2.0, 300.0)
    """
    text = str(value)
    return float(text) if text.replace(".", "", 1).isdigit() else seconds(text)


def size_bytes(text: str) -> int:
    """The bytes of `128MiB`, `1 GB` or a plain number.

    >>> size_bytes("128MiB")
    134217728
    """
    match = re.fullmatch(r"(\d+)\s*([a-zA-Z]*)", text.strip())
    unit = _BYTES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise LakeUsageError(f"{text!r} is no size: write 128MiB, 1GB or a number of bytes")
    return int(match[1]) * unit


def partitions(texts: Sequence[str] | None) -> tuple[str, ...] | None:
    """The partitions asked for; `none` is a table without any.

    >>> partitions(["none"]), partitions(["day(at)", "country"])
    ((), ('day(at)', 'country'))
    """
    if texts is None:
        return None
    return () if list(texts) == ["none"] else tuple(texts)


def policies(texts: Iterable[str], *, rewrite: bool) -> "Policies":
    """`string` is for all columns, `price=columns` for one."""
    from headwater.lake.shapes import POLICIES, Policies

    default: Policy = "corrupt"
    fields: dict[str, Policy] = {}
    for text in texts:
        column, separator, policy = text.rpartition("=")
        if policy not in POLICIES:
            raise LakeUsageError(
                f"{policy!r} is no policy: it is one of {', '.join(POLICIES)}{nearest(policy, POLICIES)}"
            )
        if separator:
            fields[column] = cast("Policy", policy)
        else:
            default = cast("Policy", policy)
    return Policies(default=default, fields=fields, rewrite=rewrite)


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean mode?` where one of the names is near, else nothing.

    >>> nearest("newest-by", ["key", "newest_by"])
    '; did you mean newest_by?'
    """
    close = difflib.get_close_matches(name.lower(), list(names), 1)
    return f"; did you mean {close[0]}?" if close else ""
