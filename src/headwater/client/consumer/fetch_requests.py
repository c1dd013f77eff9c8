"""One Fetch to one broker: the version, the session and the bytes. Retries nothing and changes no position."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from headwater.client.client import Client
from headwater.client.consumer.fetch_lane import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    FetchAnswer,
    FetchPartition,
    Topic,
    decode_fetch,
    encode_fetch,
)
from headwater.client.consumer.fetch_sessions import FINAL_EPOCH, FetchPlan, FetchSession, Wanted
from headwater.client.consumer.settings import ConsumerSettings
from headwater.client.errors import UnsupportedError
from headwater.types import TopicPartition

FETCH_KEY: Final = 1
LANE: Final = "fetch"
"""A fetch waits for records in the broker; what is asked by other lanes need not wait behind it."""
_FIRST_FLEXIBLE: Final = 12
_LAST_WITH_NAMES: Final = 12
_T = TypeVar("_T")


async def fetch(
    client: Client,
    node: int,
    session: FetchSession,
    wanted: Mapping[TopicPartition, Wanted],
    settings: ConsumerSettings,
    max_bytes: int,
) -> FetchAnswer:
    """Asks for everything that is `wanted` of a broker, and waits for its answer."""
    connection = await client.connection(node, lane=LANE)
    oldest, newest = connection.supported(FETCH_KEY)
    version = min(newest, NEWEST_VERSION)
    if any(want.topic_id is None for want in wanted.values()):
        version = min(version, _LAST_WITH_NAMES)
    if version < max(oldest, OLDEST_VERSION):
        raise UnsupportedError(f"the broker at {connection.address} serves no version of Fetch that this client speaks")
    if version <= _LAST_WITH_NAMES:
        wanted = {partition: want._replace(topic_id=None) for partition, want in wanted.items()}
    body = _body(version, session.plan(wanted), settings, max_bytes)
    timeout_s = (settings.request_timeout_ms + settings.fetch_max_wait_ms) / 1000
    answer = connection.submit_raw(FETCH_KEY, version, body, flexible=version >= _FIRST_FLEXIBLE, timeout_s=timeout_s)
    return decode_fetch(version, await answer)


async def end_session(client: Client, node: int, session: FetchSession) -> None:
    """Has a broker forget a session, so that its place there is free at once; asks for nothing."""
    # Not by the lane of fetches, where it would stand behind one that waits for records.
    connection = await client.connection(node)
    version = min(connection.supported(FETCH_KEY)[1], NEWEST_VERSION)
    body = encode_fetch(
        version, (), max_wait_ms=0, min_bytes=0, max_bytes=0, session_id=session.id, session_epoch=FINAL_EPOCH
    )
    await connection.submit_raw(
        FETCH_KEY, version, body, flexible=version >= _FIRST_FLEXIBLE, timeout_s=client.timeout_s
    )


def _body(version: int, plan: FetchPlan, settings: ConsumerSettings, max_bytes: int) -> list[bytes]:
    asked = [
        (partition, want, FetchPartition(partition.partition, want.leader_epoch, want.offset, -1, -1, want.max_bytes))
        for partition, want in plan.ask.items()
    ]
    forgotten = [(partition, want, partition.partition) for partition, want in plan.forget.items()]
    return encode_fetch(
        version,
        _by_topic(asked),
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(settings.read_committed),
        session_id=plan.session_id,
        session_epoch=plan.epoch,
        forgotten=_by_topic(forgotten),
        rack_id=settings.client_rack,
    )


def _by_topic(items: Sequence[tuple[TopicPartition, Wanted, _T]]) -> list[tuple[Topic, list[_T]]]:
    """Items sorted into topics, which go by their id where there is one."""
    topics: dict[Topic, list[_T]] = {}
    for partition, want, item in items:
        topics.setdefault(want.topic_id or partition.topic, []).append(item)
    return [*topics.items()]
