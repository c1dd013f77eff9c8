"""The demo's strangers: bytes that no client would send, and what the broker makes of them.

The first are a request that claims more items than any memory holds; they once ended a broker. The second are a batch
whose checksum is right and whose records make no sense. Both must leave the broker and its topics as they were.
"""

import asyncio
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from crc32c import crc32c

from headwater.cli.demo_broker import DemoError
from headwater.cli.demo_records import CLIENT_ID
from headwater.client import Client, parse_bootstrap
from headwater.client.admin.records import list_offsets
from headwater.client.client import duration
from headwater.protocol.kafka_types import ErrorCode, TopicName, i16, i32
from headwater.protocol.records import HEADER_SIZE, encode_batch
from headwater.types import TopicPartition

from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData  # isort: skip
from kio.schema.produce.v9.response import ProduceResponse  # isort: skip
from kio.static.primitive import Records  # isort: skip

CLAIM: Final = bytes.fromhex("00000011 0003 0009 00000007 0001 78 00 ffffffff0f")
"""Metadata v9 of a client `x`; its last five bytes are the length of the array of topics, plus one."""
CLAIMED_TOPICS: Final = 2**32 - 2
GARBAGE_RECORDS: Final = 100
_CHECKSUM_AT: Final = 17
_COVERED_BY_CHECKSUM: Final = 21
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Withstood:
    """What the broker answered, and where the partition still ends."""

    error: str
    reason: str
    end_offset: int


async def send_hostile_bytes(bootstrap: str, place: TopicPartition) -> Withstood:
    """Sends both; DemoError unless the connection is closed, the batch refused and the partition as it was."""
    async with Client(bootstrap, client_id=CLIENT_ID) as client:
        end_before = await _end_of(client, place)
        await _demand_closed(bootstrap)
        error, reason = await _send_garbage(client, place)
        end_offset = await _end_of(client, place)
    if error is not ErrorCode.invalid_record:
        raise DemoError(f"a batch of garbage was answered with {error.name.upper()}")
    if end_offset != end_before:
        raise DemoError(f"{place} ended at offset {end_before:,} and ends at {end_offset:,} after a batch of garbage")
    return Withstood(error=error.name.upper(), reason=reason, end_offset=end_offset)


async def _demand_closed(bootstrap: str) -> None:
    """Sends the claim on a connection of its own, which the broker must close without an answer."""
    ((host, port),) = parse_bootstrap(bootstrap)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(CLAIM)
        answer = b""
        with suppress(ConnectionResetError):
            answer = await asyncio.wait_for(reader.read(), _PATIENCE_S)
    except TimeoutError:
        raise DemoError(f"the broker kept a connection open for {_PATIENCE_S:g} s that claims too much") from None
    finally:
        writer.close()
    if answer:
        raise DemoError("the broker answered a request that claims too much")


async def _send_garbage(client: Client, place: TopicPartition) -> tuple[ErrorCode, str]:
    """The error code and the reason that the broker gives for a batch of garbage."""
    data = PartitionProduceData(index=i32(place.partition), records=cast(Records, _garbage_batch()))
    request = ProduceRequest(
        acks=i16(-1),
        timeout=duration(_PATIENCE_S),
        topic_data=(TopicProduceData(name=TopicName(place.topic), partition_data=(data,)),),
    )
    answer = await client.send(request, ProduceResponse)
    found = answer.responses[0].partition_responses[0]
    reasons = [each.batch_index_error_message for each in found.record_errors] + [found.error_message]
    return found.error_code, next((reason for reason in reasons if reason), "")


def _garbage_batch() -> bytes:
    """A batch whose header is honest and whose records are not."""
    batch = encode_batch([(None, b"crate", (), 0)] * GARBAGE_RECORDS)
    size = len(batch) - HEADER_SIZE
    batch[HEADER_SIZE:] = (bytes(range(255, -1, -1)) * (size // 256 + 1))[:size]
    struct.pack_into(">I", batch, _CHECKSUM_AT, crc32c(bytes(batch[_COVERED_BY_CHECKSUM:])))
    return bytes(batch)


async def _end_of(client: Client, place: TopicPartition) -> int:
    return (await list_offsets(client, [place])).one(place).offset
