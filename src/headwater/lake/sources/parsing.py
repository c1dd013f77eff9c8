"""Sources as people write them: `topic:NAME`, `files:PATH`, `jdbc:URL#TABLE`."""

from typing import Any

from headwater.lake.errors import LakeUsageError
from headwater.lake.sources.database_address import without_secrets
from headwater.lake.sources.files import parse_files
from headwater.lake.sources.jdbc import parse_jdbc
from headwater.lake.sources.source import Source
from headwater.lake.sources.topics import parse_topics


def parse_source(text: str, *, bootstrap: str | None = None, **options: Any) -> Source:
    """The source that this text names, with its options; a LakeUsageError says what is wrong with them."""
    kind, _, rest = text.partition(":")
    if kind == "topic" and rest:
        return parse_topics(rest, bootstrap=bootstrap, **options)
    if kind == "files" and rest:
        return parse_files(rest, **options)
    if kind == "jdbc" and rest:
        return parse_jdbc(rest, **options)
    raise LakeUsageError(f"{without_secrets(text)!r} is no source: write topic:NAME, files:PATH or jdbc:URL#TABLE")
