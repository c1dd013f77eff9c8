"""Which properties a table or a namespace may have, and what follows from those that name a place.

Properties come from strangers and are handed to every engine. Some of them are no settings but orders: libraries import
a class by a name they find there, or send requests, signatures and tokens to a host they find there. Those belong to
the configuration of a catalog or an engine, which is its owner's. Here they are refused when they are given, and taken
out of metadata that has them already. Nothing here imports anything by name.
"""

import re
import uuid
from collections.abc import Mapping
from typing import Final

from headwater.catalog.any_metadata import AnyMetadata
from headwater.catalog.locations import Roots

LOCATION: Final = "location"
"""The property of a namespace that says where its tables lie."""

_METADATA_PATH: Final = "write.metadata.path"
_NAMES_A_CLASS: Final = re.compile(r"(?:.*[^a-z0-9])?impl")
"""`write.py-location-provider.impl`, `py-io-impl`, `s3.retry-strategy-impl`, `io-impl` …"""
_REACHES_A_STORE: Final = re.compile(
    r"(?:s3|client|gcs|gs|adls|abfs|wasb|oss|hf|hdfs|hadoop|fs|rest|auth|header|oauth2)[.].*|oauth2-.*"
    r"|token|credential|default_scheme|default_netloc"
)
"""pyiceberg gives the properties of a table to what opens its files: endpoints, proxies, signers, keys."""
_NAMES_A_PLACE: Final = re.compile(r"write\..*\.path")


class RefusedPropertyError(ValueError):
    """A property that would make a reader of the table run code or reach a host of the sender's choice."""


def check_properties(properties: Mapping[str, str], roots: Roots) -> None:
    """Raises for a property that is refused, and for one that names a place outside the roots."""
    for name, value in properties.items():
        why = _why_refused(name)
        if why is not None:
            raise RefusedPropertyError(f"the property {name!r} is refused: {why}")
        if _NAMES_A_PLACE.fullmatch(_plain(name)):
            roots.check_new(value, f"{name}:")


def check_namespace_properties(properties: Mapping[str, str], roots: Roots) -> None:
    """The same for a namespace, whose tables lie where its `location` says."""
    check_properties(properties, roots)
    for name, value in properties.items():
        if _plain(name) == LOCATION:
            roots.check_new(value, f"{name}:")


def without_refused(metadata: AnyMetadata) -> AnyMetadata:
    """The metadata without refused properties; the same object when it has none."""
    properties = metadata.properties
    kept = {name: value for name, value in properties.items() if not is_refused(name)}
    return metadata if len(kept) == len(properties) else metadata.model_copy(update={"properties": kept})


def is_refused(name: str) -> bool:
    """Whether nobody can give a table or a namespace this property.

    >>> is_refused("write.py-location-provider.impl"), is_refused("s3.endpoint"), is_refused("write.format.default")
    (True, True, False)
    """
    return _why_refused(name) is not None


def new_metadata_location(metadata: AnyMetadata, version: int) -> str:
    """Where the next metadata file of a table goes. The caller asks the roots before it writes."""
    folder = metadata.properties.get(_METADATA_PATH) or f"{metadata.location.rstrip('/')}/metadata"
    return f"{folder.rstrip('/')}/{version:05d}-{uuid.uuid4()}.metadata.json"


def _why_refused(name: str) -> str | None:
    plain = _plain(name)
    if _NAMES_A_CLASS.fullmatch(plain):
        return "engines would load code by its value; a class is named in an engine's own configuration"
    if _REACHES_A_STORE.fullmatch(plain):
        return "how files are reached is the configuration of the catalog and of each engine, not of a table"
    return None


def _plain(name: str) -> str:
    """The name without differences that a reader may overlook."""
    return "".join(name.split()).casefold()
