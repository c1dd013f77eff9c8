"""What a wrong setting raises. Knows no table and no value: only the words are put together here."""


class ConfigError(ValueError):
    """A setting that cannot be taken; the text says which one, its value and what is allowed."""


class UnknownConfigError(ConfigError):
    """A name that no table knows; `nearest` holds the known names that look like it, best first."""

    def __init__(self, message: str, *, name: str, nearest: tuple[str, ...]) -> None:
        super().__init__(message)
        self.name = name
        self.nearest = nearest


class ConfigRequestError(ConfigError):
    """A change that no other value could mend: a name given twice, no value, or a read-only config."""
