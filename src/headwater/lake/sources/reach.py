"""What the ledger keeps of a source, so that `headwater lake status` can ask it again. Never a secret."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from headwater.catalog.entries import Load

_BOOTSTRAP: Final = "bootstrap"
_OPTIONS: Final = "options"
_SECRET_NAME: Final = re.compile(r"passw|secret|token|credential|jaas|sasl|ssl|private|user|access|auth", re.IGNORECASE)
_NO_SECRET: Final = ("ssl", "sslmode", "sslNegotiation", "sslrootcert", "sslcert", "sslkey")
"""Parameters of a database that only sound like one: whoever asks it again is to demand the same of it."""
_SECRET_VALUE: Final = re.compile(r"://[^/?#\s]*@|(?:passw|secret|token)\w*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a source is reached: brokers, and the options of the source that may be known to all who see the ledger."""

    bootstrap: str | None = None
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    @classmethod
    def without_secrets(cls, bootstrap: str | None, options: Mapping[str, Any]) -> Self:
        """Of the options of a load what may be kept.

        >>> Reach.without_secrets("b:9092", {"value": "text", "password": "x", "proxy": "http://me:x@h"}).options
        {'value': 'text'}
        """
        plain = {name: value for name, value in options.items() if isinstance(value, (str, int, float, bool))}
        kept = {
            name: value
            for name, value in plain.items()
            if (name in _NO_SECRET or not _SECRET_NAME.search(name)) and not _SECRET_VALUE.search(str(value))
        }
        return cls(bootstrap=bootstrap, options=kept)

    @classmethod
    def of(cls, load: "Load | None") -> Self:
        """What a load has left; nothing where it left nothing."""
        details = load.details if load is not None else {}
        bootstrap, options = details.get(_BOOTSTRAP), details.get(_OPTIONS)
        return cls(
            bootstrap=bootstrap if isinstance(bootstrap, str) else None,
            options=options if isinstance(options, dict) else {},
        )

    @property
    def details(self) -> dict[str, Any]:
        """The same as part of a load's details."""
        details: dict[str, Any] = {} if self.bootstrap is None else {_BOOTSTRAP: self.bootstrap}
        return {**details, _OPTIONS: dict(self.options)} if self.options else details

    def overridden(self, bootstrap: str | None, options: Mapping[str, str | int | float | bool]) -> "Reach":
        """The same, with what somebody says now before what was kept."""
        return Reach(bootstrap=bootstrap or self.bootstrap, options={**self.options, **options})
