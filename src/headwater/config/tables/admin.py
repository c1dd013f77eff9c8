"""Configs of the admin client, beside those that all clients share."""

from headwater.config.definitions import ConfigDef, at_least, define
from headwater.config.tables.vocabulary import INT

# fmt: off
ADMIN_ROWS: tuple[ConfigDef, ...] = (
    define("default.api.timeout.ms", INT, 60_000, at_least(0),
        doc="How long a call may take in all, with everything that is tried again."),
)
