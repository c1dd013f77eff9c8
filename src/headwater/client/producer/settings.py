"""What a producer was asked to do: its settings, checked together, with the rules about idempotence.

Opens nothing. Names and defaults are Kafka's (`config/tables/producer.py`).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.client.producer.sending import ROUND_ROBIN, STICKY, Partitioner
from headwater.config.client import PRODUCER, Resolved, resolve
from headwater.config.errors import ConfigError

MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5
"""Brokers remember so many batches of a producer in a partition."""

_COMPRESSION_CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_ALL_REPLICAS: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer that fit together. Made by `producer_settings`."""

    acks: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    compression: int
    compression_level: int | None
    key_serializer: Callable[[Any], bytes | None] | None
    value_serializer: Callable[[Any], bytes | None] | None
    partitioner: "str | Partitioner"
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    metadata_max_idle_ms: int
    interceptor_classes: tuple[Any, ...]
    connection: Resolved
    """The settings about connections, by their names as attributes."""


def producer_settings(given: Mapping[str, object]) -> ProducerSettings:
    """The settings for what was asked for; `ConfigError` says what does not fit.

    >>> producer_settings({"acks": "all", "linger.ms": 20}).enable_idempotence
    True
    """
    values = resolve(PRODUCER, given)
    asked = {name.replace("_", ".") for name, value in given.items() if value is not None}
    acks = _ALL_REPLICAS if values["acks"] == "all" else int(values["acks"])
    compression_type = str(values["compression_type"])
    return ProducerSettings(
        acks=acks,
        enable_idempotence=_idempotence(values, asked, acks),
        delivery_timeout_ms=_delivery_timeout_ms(values, asked),
        compression=_COMPRESSION_CODECS[compression_type],
        compression_level=values.get(f"compression_{compression_type}_level"),
        partitioner=_partitioner(values["partitioner_class"]),
        key_serializer=_function("key.serializer", values["key_serializer"]),
        value_serializer=_function("value.serializer", values["value_serializer"]),
        interceptor_classes=_objects(values["interceptor_classes"]),
        connection=values,
        **{
            name: values[name]
            for name in (
                "batch_size",
                "linger_ms",
                "buffer_memory",
                "max_block_ms",
                "max_request_size",
                "max_in_flight_requests_per_connection",
                "retries",
                "retry_backoff_ms",
                "retry_backoff_max_ms",
                "request_timeout_ms",
                "transactional_id",
                "transaction_timeout_ms",
                "partitioner_ignore_keys",
                "partitioner_adaptive_partitioning_enable",
                "partitioner_availability_timeout_ms",
                "metadata_max_idle_ms",
            )
        },
    )


def _idempotence(values: Mapping[str, Any], asked: set[str], acks: int) -> bool:
    """Whether sequence numbers are used: an error where settings asked for break it, else a warning and no."""
    if not values["enable_idempotence"]:
        if values["transactional_id"] is not None:
            raise ConfigError(
                "enable.idempotence = false is not allowed with transactional.id: transactions rest on it. Remove one."
            )
        return False
    broken_by = None
    if acks != _ALL_REPLICAS:
        broken_by = f"acks = {acks} (it needs all)"
    elif values["retries"] == 0:
        broken_by = "retries = 0 (it needs 1 at least)"
    elif values["max_in_flight_requests_per_connection"] > MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
        in_flight = values["max_in_flight_requests_per_connection"]
        broken_by = (
            f"max.in.flight.requests.per.connection = {in_flight} (it needs {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} at most)"
        )
    if broken_by is None:
        return True
    for name in ("enable.idempotence", "transactional.id"):
        if name in asked:
            raise ConfigError(f"{name} cannot be had with {broken_by}. Change that, or do not ask for {name}.")
    warnings.warn(
        f"idempotence is switched off by {broken_by}: records may be written twice or out of order. "
        "Set enable.idempotence to false to say that this is meant.",
        stacklevel=4,
    )
    return False


def _delivery_timeout_ms(values: Mapping[str, Any], asked: set[str]) -> int:
    """`delivery.timeout.ms`, raised to what one try takes unless it was asked for."""
    least = int(values["linger_ms"]) + int(values["request_timeout_ms"])
    given = int(values["delivery_timeout_ms"])
    if given >= least:
        return given
    if "delivery.timeout.ms" in asked:
        raise ConfigError(
            f"delivery.timeout.ms = {given} is not allowed: "
            f"it must be at least linger.ms plus request.timeout.ms, {least}."
        )
    return least


def _partitioner(given: Any) -> "str | Partitioner":
    if given is None:
        return STICKY
    if isinstance(given, str):
        if given not in (STICKY, ROUND_ROBIN):
            raise ConfigError(
                f"partitioner.class = {given!r} is not allowed: it must be sticky, round_robin or a function."
            )
        return given
    chosen: Partitioner | None = _function("partitioner.class", given)
    assert chosen is not None
    return chosen


def _function(name: str, given: Any) -> Any:
    if given is not None and not callable(given):
        raise ConfigError(f"{name} = {given!r} is not allowed: it must be a function.")
    return given


def _objects(given: Any) -> tuple[Any, ...]:
    """Several objects, or one that need not be put into a list."""
    return tuple(given) if isinstance(given, Sequence) else (given,)
