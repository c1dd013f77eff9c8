"""Requests and responses as kio's dataclasses, and the bridge between their versions.

A handler speaks one version of its API, as a rule the newest. `convert` turns an older request into it (fields the
client did not send take the schema's default) and the response back (fields the client cannot read are dropped). Where
an old version says something that no newer one can, the handler names both and tells them apart itself.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.protocol import kafka_types as _kafka_types  # first: see its docstring
from headwater.protocol.apis import Api
from headwater.protocol.each import Each
from headwater.protocol.entity_reading import read_entity
from headwater.protocol.entity_shapes import nested_entity
from headwater.protocol.entity_writing import entity_writer
from headwater.protocol.errors import MalformedRequestError, MalformedResponseError, TooManyItemsError
from headwater.protocol.wire import MAX_REQUEST_ITEMS, MAX_RESPONSE_ITEMS, Cursor

from kio.index import load_request_schema, load_response_schema  # isort: skip

_ = _kafka_types
T = TypeVar("T")
_Converter = Callable[[Any], Any]
_API_VERSIONS_KEY = 18
_DESCRIBE_TRANSACTIONS_KEY = 65
_UNSUPPORTED_VERSION = _kafka_types.ErrorCode.unsupported_version.to_bytes(2, "big")


@functools.cache
def request_type(key: int, version: int) -> type[Any]:
    """kio's class for a request."""
    return load_request_schema(key, version)


@functools.cache
def response_type(key: int, version: int) -> type[Any]:
    """kio's class for a response, or ours for the one whose start times kio has no value for."""
    if key == _DESCRIBE_TRANSACTIONS_KEY:
        from headwater.protocol.transaction_descriptions import DescribeTransactionsResponse

        return DescribeTransactionsResponse
    return load_response_schema(key, version)


def decode_request(api: Api, version: int, frame: bytes | memoryview, position: int) -> Any:
    """The request whose body starts at `position`; raises `MalformedRequestError` when the bytes are none.

    Bytes behind its end are not looked at, as in Kafka: librdkafka sends some with Metadata v13.
    """
    schema = request_type(api.key, version)
    try:
        return read_entity(schema, Cursor(memoryview(frame), position, MAX_REQUEST_ITEMS))
    except TooManyItemsError:
        raise
    except Exception as error:
        # Whatever they lead to: these are a stranger's bytes, and the connection they came from is all that ends.
        raise MalformedRequestError(f"{api.name} v{version} cannot be read: {error or type(error).__name__}") from error


def decode_response(key: int, version: int, frame: bytes | memoryview, position: int) -> Any:
    """The response whose body starts at `position`; raises `MalformedResponseError` when the bytes are none.

    A broker that does not know the version of an ApiVersions request says so in version 0.
    """
    if key == _API_VERSIONS_KEY and frame[position : position + 2] == _UNSUPPORTED_VERSION:
        version = 0
    schema = response_type(key, version)
    try:
        return read_entity(schema, Cursor(memoryview(frame), position, MAX_RESPONSE_ITEMS))
    except Exception as error:
        name = schema.__name__
        raise MalformedResponseError(f"{name} v{version} cannot be read: {error or type(error).__name__}") from error


def encode_response(api: Api, version: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of a response, length first. `response` may be of any version of the API's response."""
    parts = [b"", correlation_id.to_bytes(4, "big", signed=True)]
    # Clients read the ApiVersions response before they know what the broker speaks: its header never has tags.
    if version >= api.flexible and api.key != _API_VERSIONS_KEY:
        parts.append(b"\0")
    if isinstance(response, bytes):
        parts.append(response)  # a handler's own encoder, where even ours would hold up the loop
    else:
        wanted = response_type(api.key, version)
        entity_writer(wanted)(parts, convert(response, wanted))
    parts[0] = sum(map(len, parts)).to_bytes(4, "big")
    return b"".join(parts)


def convert(message: Any, wanted: type[T]) -> T:
    """`message`, an entity of some version, as an entity of another version of the same kind."""
    if type(message) is wanted:
        return message
    return typing.cast(T, _converter(type(message), wanted)(message))


_converters: dict[tuple[object, object], _Converter] = {}


def _converter(source: Any, target: Any) -> _Converter:
    """The function that turns an entity of one type into one of the other; made once for each pair."""
    found = _converters.get((source, target))
    if found is None:
        found = _converters[source, target] = _make_converter(source, target)
    return found


def _make_converter(source: Any, target: Any) -> _Converter:
    given = {field.name for field in dataclasses.fields(source)}
    source_hints, target_hints = typing.get_type_hints(source), typing.get_type_hints(target)
    constants = absent_fields(source, target)
    copied = [
        (field.name, _field_converter(source_hints[field.name], target_hints[field.name]))
        for field in dataclasses.fields(target)
        if field.name in given
    ]

    def apply(message: Any) -> Any:
        values = {
            name: getattr(message, name) if nested is None else nested(getattr(message, name))
            for name, nested in copied
        }
        return target(**constants, **values)

    return apply


def absent_fields(source: Any, target: Any) -> dict[str, object]:
    """What the fields of `target` hold that `source` does not have, where the schema names no default."""
    given = {field.name for field in dataclasses.fields(source)}
    hints = typing.get_type_hints(target)
    return {
        field.name: _zero(hints[field.name])
        for field in dataclasses.fields(target)
        if field.name not in given and field.default is dataclasses.MISSING
    }


def _field_converter(source: Any, target: Any) -> _Converter | None:
    """How a field's value changes between versions; None when it goes over as it is."""
    source_entity, target_entity = nested_entity(source), nested_entity(target)
    if source_entity is None or target_entity is None or source_entity is target_entity:
        return None
    one = _converter(source_entity, target_entity)

    def many(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([one(item) for item in value])
        if isinstance(value, Each):
            return Each(one, value)
        return None if value is None else one(value)

    return many


@dataclasses.dataclass
class Nothing:
    """A message without fields: converted, it is another one with all its defaults."""


def _zero(hint: Any) -> object:
    """What a field without a default holds when the other version does not have it: Kafka's implicit default."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if hint is str or (isinstance(hint, type) and issubclass(hint, str)):
        return ""
    if hint is bytes or (isinstance(hint, type) and issubclass(hint, bytes)):
        return b""
    if hint is _kafka_types.ErrorCode:
        return _kafka_types.ErrorCode.none
    if hint is _kafka_types.i32Timedelta:
        return _kafka_types.NO_THROTTLE
    if hint is bool:
        return False
    if dataclasses.is_dataclass(hint):
        return _converter(Nothing, hint)(Nothing())
    return 0
