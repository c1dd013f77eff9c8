"""What a consumer was asked to do: its settings, checked together.

Opens nothing. Names and defaults are Kafka's (`config/tables/consumer.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.client.consumer.corrupt_batches import OnCorrupt
from headwater.client.consumer.resets import Reset, parse_reset
from headwater.config.client import CONSUMER, Resolved, resolve
from headwater.config.errors import ConfigError

_MADE_HERE: Final = frozenset({"auto_offset_reset", "interceptor_classes", "read_committed", "connection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Settings of a consumer that fit together. Made by `consumer_settings`."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: Reset | None
    """None: a missing offset is an error."""
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    prefetch_max_bytes: int
    max_poll_records: int
    check_crcs: bool
    corrupt_records: str
    corrupt_records_listener: OnCorrupt | None
    decompressed_batch_max_bytes: int
    read_committed: bool
    exclude_internal_topics: bool
    default_api_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    client_id: str
    client_rack: str
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
    interceptor_classes: tuple[Any, ...]
    connection: Resolved
    """The settings about connections, by their names as attributes."""


def consumer_settings(given: Mapping[str, object]) -> ConsumerSettings:
    """The settings for what was asked for; `ConfigError` says what does not fit.

    >>> consumer_settings({"auto.offset.reset": "earliest", "max_poll_records": 10}).max_poll_records
    10
    """
    values = resolve(CONSUMER, given)
    _check_together(values)
    return ConsumerSettings(
        auto_offset_reset=_reset(str(values["auto_offset_reset"])),
        read_committed=values["isolation_level"] == "read_committed",
        interceptor_classes=_objects(values["interceptor_classes"]),
        connection=values,
        **{name: values[name] for name in ConsumerSettings.__dataclass_fields__ if name not in _MADE_HERE},
    )


def _reset(text: str) -> Reset | None:
    try:
        return parse_reset(text)
    except ValueError as error:
        raise ConfigError(f"auto.offset.reset = {text!r} is not allowed: {error}.") from None


def _check_together(values: Mapping[str, Any]) -> None:
    if str(values["group_protocol"]).lower() == "consumer":
        return
    heartbeat_ms, session_ms = values["heartbeat_interval_ms"], values["session_timeout_ms"]
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"heartbeat.interval.ms = {heartbeat_ms} is not allowed: it must be less than session.timeout.ms, "
            f"{session_ms}, and a third of it at best."
        )


def _objects(given: Any) -> tuple[Any, ...]:
    """Several objects, or one that need not be put into a list."""
    return tuple(given) if isinstance(given, Sequence) else (given,)
