"""How an S3 store is reached, told once for all who open it: pyarrow, pyiceberg, Spark.

The URL of a place may say it (`s3://bucket/lake?endpoint=http://127.0.0.1:9000&region=eu-west-1`), else the variables
of AWS do. Keys are not looked for here: each library finds them by itself where AWS keeps them (`AWS_ACCESS_KEY_ID` and
its like, profiles, the role of a machine), so there is nothing that could be written down or told by mistake.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

WAREHOUSE: Final = "headwater.warehouse"
"""Under this name a catalog tells its clients where the tables lie."""

_SCHEMES: Final = ("s3", "s3a", "s3n")
_ADDRESSING: Final = ("path", "virtual")
SETTINGS: Final = ("endpoint", "region", "addressing")
"""What may stand behind the question mark of an S3 store's URL."""
_ANY_REGION: Final = "us-east-1"
"""What a store that is not AWS's takes for its region unless told otherwise."""


class StoreAddressError(ValueError):
    """The URL of an object store that cannot be used; its words tell no key that is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place:
    """A place in an S3 store. What is None is left to the variables of AWS, then to what is usual."""

    bucket: str
    path: str = ""
    endpoint: str | None = None
    region: str | None = None
    addressing: str | None = None
    """Whether a bucket is part of the `path` or of the host (`virtual`)."""
    user: str = ""
    """A key and its secret, as the URL has them."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """The place that a URL names; nothing in its path is decoded, as a key may have any character.

        >>> S3Place.parse("s3://bucket/lake/?region=eu-west-1").url
        's3://bucket/lake'
        """
        rest, _, query = url.partition("://")[2].partition("?")
        host, _, path = rest.partition("/")
        user, _, bucket = host.rpartition("@")
        settings = dict(parse_qsl(query, keep_blank_values=True))
        if "endpoint_override" in settings:
            # So pyarrow has it, which takes the scheme apart.
            settings["endpoint"] = settings.pop("endpoint_override")
        scheme = settings.pop("scheme", "https")
        for name in settings:
            if name not in SETTINGS:
                raise StoreAddressError(
                    f"s3://{bucket}/{path} is told {name!r}, which means nothing: it may have {', '.join(SETTINGS)}"
                )
        if not bucket:
            raise StoreAddressError("the URL of an S3 store begins with its bucket: s3://BUCKET/FOLDER")
        endpoint = settings.get("endpoint")
        if endpoint and "://" not in endpoint:
            settings["endpoint"] = f"{scheme}://{endpoint}"
        if settings.get("addressing") not in (None, *_ADDRESSING):
            raise StoreAddressError(f"s3://{bucket}/{path}: addressing is path or virtual")
        return cls(bucket=bucket, path=path.rstrip("/"), user=user, **settings)

    @property
    def url(self) -> str:
        """The name of the place: no key, no settings."""
        return f"s3://{self.bucket}/{self.path}".rstrip("/")

    @property
    def settings(self) -> dict[str, str]:
        """What the place says beside its name and keys."""
        told = {name: getattr(self, name) for name in SETTINGS}
        return {name: value for name, value in told.items() if value}

    @property
    def whole_url(self) -> str:
        """All that `parse` takes: who opens the place elsewhere needs no variables, and gets keys that were given."""
        user = f"{self.user}@" if self.user else ""
        query = f"?{urlencode(self.settings, quote_via=quote)}" if self.settings else ""
        return f"s3://{user}{self.bucket}/{self.path}{query}"

    def resolved(self, environ: Mapping[str, str] = os.environ) -> "S3Place":
        """The place with all that the variables of AWS say of it."""
        endpoint = self.endpoint or environment_endpoint(environ)
        region = self.region or environment_region(environ)
        if region is None:
            region = _ANY_REGION if endpoint else _region_of(self.bucket)
        # Only AWS has a host name for each bucket; others may.
        return replace(
            self, endpoint=endpoint, region=region, addressing=self.addressing or ("path" if endpoint else "virtual")
        )

    def iceberg(self) -> dict[str, str]:
        """The same as properties that Iceberg's library and pyiceberg take; without keys."""
        return iceberg_properties(self.resolved().settings)

    def filesystem(self) -> "S3FileSystem":
        """The store for pyarrow."""
        from pyarrow.fs import S3FileSystem

        place = self.resolved()
        given: dict[str, Any] = {"region": place.region}
        if place.endpoint:
            virtual = place.addressing == "virtual"
            given |= {"endpoint_override": place.endpoint, "force_virtual_addressing": virtual}
        if self.user:
            key, _, secret = self.user.partition(":")
            given |= {"access_key": unquote(key), "secret_key": unquote(secret)}
        return S3FileSystem(**given)


def is_s3(url: str) -> bool:
    """Whether a URL names a place in an S3 store."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in _SCHEMES


def environment_endpoint(environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL of the store that is spoken to in the place of AWS."""
    return environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None


def environment_region(environ: Mapping[str, str] = os.environ) -> str | None:
    """The region that is meant where none is named."""
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None


def environment_properties(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What this process's variables say, for who opens tables that another process's catalog told it of."""
    told = {"endpoint": environment_endpoint(environ), "region": environment_region(environ)}
    return iceberg_properties({name: value for name, value in told.items() if value})


def iceberg_properties(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a place by the names that Iceberg has for them.

    >>> iceberg_properties({"endpoint": "http://127.0.0.1:9000", "addressing": "path"})["s3.path-style-access"]
    'true'
    """
    found = {}
    if "endpoint" in settings:
        found["s3.endpoint"] = settings["endpoint"]
    if "region" in settings:
        found["client.region"] = settings["region"]
    if "addressing" in settings:
        virtual = settings["addressing"] == "virtual"
        found["s3.path-style-access"] = str(not virtual).lower()
        found["s3.force-virtual-addressing"] = str(virtual).lower()
    return found


@lru_cache(maxsize=64)
def _region_of(bucket: str) -> str:
    """Where AWS keeps a bucket: it tells everybody."""
    from pyarrow.fs import resolve_s3_region

    try:
        return str(resolve_s3_region(bucket))
    except OSError as error:
        raise StoreAddressError(
            f"the region of the bucket {bucket} is not known ({error}): set AWS_REGION, and AWS_ENDPOINT_URL where the "
            "store is not AWS's"
        ) from None
