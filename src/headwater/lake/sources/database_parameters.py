"""Parameters of PostgreSQL's JDBC URL, for the two that connect by them: libpq asks, and Java's driver reads the rows.

libpq is the first. Whatever it connected by in the end, be it from the URL, from PG… variables or from a service file,
is told to the driver, so that both see the same server as the same user with the same demands on it. What only one of
them has a word for is refused; unless it only says how rows travel, for then it is nothing to whoever asks a question.
Names and values only: nothing here connects.
"""

from collections.abc import Mapping
from typing import Final

from headwater.lake.errors import LakeUsageError
from headwater.lake.values import nearest

_IN_BOTH: Final[Mapping[str, str]] = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "sslNegotiation": "sslnegotiation",
    "channelBinding": "channel_binding",
    "gssEncMode": "gssencmode",
    "kerberosServerName": "krbsrvname",
    "options": "options",
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
}
"""The driver's name for what libpq calls otherwise, if at all, and takes the same values for."""

_KEEPS_ALIVE: Final = {"true": "1", "false": "0"}
_ORDERS: Final = {"true": "random", "false": "disable"}
_SERVERS: Final = {
    "any": "any",
    "primary": "primary",
    "master": "primary",
    "secondary": "standby",
    "slave": "standby",
    "preferSecondary": "prefer-standby",
    "preferSlave": "prefer-standby",
}
_TRANSLATED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "tcpKeepAlive": ("keepalives", _KEEPS_ALIVE),
    "loadBalanceHosts": ("load_balance_hosts", _ORDERS),
    "targetServerType": ("target_session_attrs", _SERVERS),
}
_MERGED: Final = ("ssl", "currentSchema")
_HOW_ROWS_TRAVEL: Final = (
    "adaptiveFetch",
    "adaptiveFetchMaximum",
    "adaptiveFetchMinimum",
    "binaryTransfer",
    "binaryTransferDisable",
    "binaryTransferEnable",
    "cancelSignalTimeout",
    "loginTimeout",
    "maxResultBuffer",
    "prepareThreshold",
    "preparedStatementCacheQueries",
    "preparedStatementCacheSizeMiB",
    "preferQueryMode",
    "receiveBufferSize",
    "sendBufferSize",
    "socketTimeout",
    "sslResponseTimeout",
    "tcpNoDelay",
)
PARAMETERS: Final = (*_IN_BOTH, *_TRANSLATED, *_MERGED, *_HOW_ROWS_TRAVEL)
"""All that a URL, or an option of a load, may name."""

_DEMANDS_OF_LIBPQ: Final = (
    *("require_auth", "requirepeer", "sslcrl", "sslcrldir"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
)
"""What only the environment can ask of a connection, and the driver would not heed."""


def check_parameters(given: Mapping[str, str]) -> None:
    """A LakeUsageError for what cannot mean the same to both. Values are not shown: some are secrets."""
    for name in given:
        if name not in PARAMETERS:
            raise LakeUsageError(
                f"{name!r} is no parameter by which a database can be both asked and read{nearest(name, PARAMETERS)}; "
                f"there are {', '.join(PARAMETERS)}"
            )
    libpq_parameters(given)


def libpq_parameters(given: Mapping[str, str]) -> dict[str, str]:
    """What the parameters of a JDBC URL are to libpq.

    >>> libpq_parameters({"ssl": "true", "currentSchema": "sales", "prepareThreshold": "0"})
    {'sslmode': 'verify-full', 'options': '-c search_path=sales'}
    """
    told = {_IN_BOTH[name]: value for name, value in given.items() if name in _IN_BOTH and value}
    for name, (theirs, values) in _TRANSLATED.items():
        if name in given:
            told[theirs] = _translated(name, given[name], values)
    # The driver takes a bare `ssl` for true, and lets `sslmode` win.
    if "ssl" in given and _translated("ssl", given["ssl"] or "true", {"true": "yes", "false": ""}):
        told.setdefault("sslmode", "verify-full")
    if given.get("gssEncMode") == "allow":
        raise LakeUsageError("gssEncMode=allow is not known to libpq: take disable, prefer or require")
    if schemas := given.get("currentSchema"):
        escaped = schemas.replace("\\", "\\\\").replace(" ", "\\ ")
        told["options"] = f"{told.get('options', '')} -c search_path={escaped}".strip()
    return told


def driver_parameters(given: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """What the driver is told, so that it connects as libpq has done.

    `found` is what libpq connected by, where that is not its default.

    >>> driver_parameters({"prepareThreshold": "0"}, {"channel_binding": "require", "port": "5433"})
    {'channelBinding': 'require', 'prepareThreshold': '0'}
    """
    names = {theirs: ours for ours, theirs in _IN_BOTH.items()}
    if unheeded := [name for name in _DEMANDS_OF_LIBPQ if name in found]:
        raise LakeUsageError(
            f"a PG… variable or a service file says {', '.join(unheeded)}, and the driver by which Spark reads rows "
            "has no word for it, so that it would not be heeded there: take it out"
        )
    like_libpq = {names[name]: value for name, value in found.items() if name in names}
    as_given = {name: given[name] for name in ("tcpKeepAlive", *_HOW_ROWS_TRAVEL) if name in given}
    return {**like_libpq, **as_given}


def _translated(name: str, value: str, values: Mapping[str, str]) -> str:
    if value not in values:
        raise LakeUsageError(f"{name}={value} of a database cannot be told to libpq: take one of {', '.join(values)}")
    return values[value]
