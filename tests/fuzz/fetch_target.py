"""The answer to a Fetch from anybody: a consumer's lane, its records, columns and tables, and Spark's rows of the rest.

Of an input the first byte is the version of the API, the second says how it is read; the rest is the body. Nothing but
the documented errors comes out, reading ends, what is handed out goes up, and a reader that skips never stays in place.
"""

import struct
from uuid import UUID

import pyarrow as pa

from fetched_logs import ABORT, batch, marker, resealed
from headwater.client.consumer.arrow import to_table
from headwater.client.consumer.corrupt_batches import CorruptBatch, ReadingRules
from headwater.client.consumer.fetch_answers import chunk_of, cure
from headwater.client.consumer.fetch_lane import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    PartitionAnswer,
    decode_fetch,
)
from headwater.client.consumer.prefetch import Chunk, Prefetched
from headwater.client.consumer.resets import EARLIEST
from headwater.client.consumer.subscription import Position, SubscriptionState
from headwater.client.errors import ClientError, CorruptRecordError, NotKafkaError, RecordError
from headwater.lake.datasource.columns import CORRUPT, RESCUED, TOMBSTONE, TOPIC_COLUMNS
from headwater.lake.datasource.corrupt_rows import CorruptRows
from headwater.protocol.fetch_lane import PartitionResult, response_parts
from headwater.types import TopicPartition

PLACE = TopicPartition("orders", 3)
LIMIT_BYTES = 1 << 20
_VERSIONS = NEWEST_VERSION - OLDEST_VERSION + 1
_BY_COLUMN, _SKIPPING, _WITHOUT_CRCS, _ONE_BY_ONE = 1, 2, 4, 8
_TAKES = 64
_LEFTOVERS = [
    pa.field(RESCUED, pa.map_(pa.string(), pa.string())),
    pa.field(CORRUPT, pa.string()),
    pa.field(TOMBSTONE, pa.bool_()),
]


def one_input(data: bytes) -> None:
    """Reads one answer as a consumer would."""
    if len(data) < 2:
        return
    version, how = OLDEST_VERSION + data[0] % _VERSIONS, data[1]
    try:
        answer = decode_fetch(version, memoryview(data)[2:])
    except NotKafkaError:
        return
    for each in answer.partitions[:4]:
        _refusal(each)
        _records(each, how)


def _refusal(answer: PartitionAnswer) -> None:
    """What is made of the error code."""
    subscription = SubscriptionState(EARLIEST)
    subscription.assign([PLACE])
    subscription.seek(PLACE, Position(0))
    if answer.error_code:
        try:
            cure(subscription, PLACE, 0, answer)
        except ClientError:
            return


def _records(answer: PartitionAnswer, how: int) -> None:
    wanted = pa.schema([*TOPIC_COLUMNS, *_LEFTOVERS])
    kept = CorruptRows(wanted)
    skipped: list[CorruptBatch] = []

    def take(batch: CorruptBatch) -> None:
        skipped.append(batch)
        kept.take(batch)

    rules = ReadingRules(not how & _WITHOUT_CRCS, LIMIT_BYTES, take if how & _SKIPPING else None)
    subscription = SubscriptionState(EARLIEST)
    subscription.assign([PLACE])
    subscription.seek(PLACE, Position(how >> 4))
    chunk = _chunk(answer, how >> 4, rules)
    if chunk is None:
        return
    prefetched = Prefetched(subscription)
    prefetched.add(PLACE, chunk)
    offsets: list[int] = []
    for _ in range(_TAKES):
        before = prefetched.size_bytes(PLACE)
        try:
            found = _taken(prefetched, how)
        except RecordError:
            if rules.skip is not None:
                raise
            break
        offsets += found
        if not found and before == prefetched.size_bytes(PLACE):
            break
    assert offsets == sorted(set(offsets))
    position = subscription.assigned[PLACE].position
    assert position is not None
    assert not offsets or position.offset > offsets[-1]
    if rules.skip is not None and not prefetched.size_bytes(PLACE):
        assert position.offset > how >> 4, "a fetch from the same place again would bring the same"
    for each in skipped:
        assert each.next_offset >= each.first_offset
    for rows in kept.among(()):
        rows.validate(full=True)


def _chunk(answer: PartitionAnswer, offset: int, rules: ReadingRules) -> Chunk | None:
    """None where nothing in the answer is of any use; the error says where to go on."""
    try:
        return chunk_of(PLACE, offset, answer, rules)
    except CorruptRecordError as error:
        if error.batch.next_offset <= offset:
            raise AssertionError(f"to go on there is to stay: {error}") from error
        return None


def _taken(prefetched: Prefetched, how: int) -> list[int]:
    if how & _BY_COLUMN:
        table = to_table(prefetched.take_columns())
        table.validate(full=True)
        offsets: list[int] = table["offset"].to_pylist()
        return offsets
    if how & _ONE_BY_ONE:
        record = prefetched.take_one(5)
        records = [] if record is None else [record]
    else:
        records = prefetched.take(50)
    for record in records:
        assert repr(record)
    return [record.offset for record in records]


def seeds() -> list[bytes]:
    """Answers of all versions, sound and not."""
    transactional = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    rows = [(b"k", b"v" * 9, [("h", b"x"), ("n", None)], 1_700_000_000_000 + number) for number in range(3)]
    plain = batch(0, rows)
    lies = bytearray(plain)
    struct.pack_into(">i", lies, 57, 2**31 - 1)
    far = bytearray(plain)
    struct.pack_into(">i", far, 23, 2**31 - 1)
    logs = [
        plain + batch(3, rows, compression=4)[:-5],
        plain[:-1] + b"?" + batch(3, rows),
        resealed(lies) + batch(3, [b"x"]),
        resealed(far),
        batch(0, [b"x"], **transactional) + marker(1, 7, ABORT) + batch(2, [b"y"]),
        *(batch(0, rows, compression=codec) + batch(3, rows) for codec in range(1, 5)),
        b"",
    ]
    return [
        bytes([version - OLDEST_VERSION, how]) + _body(version, records)
        for number, records in enumerate(logs)
        for version, how in ((OLDEST_VERSION + number, 2), (11, number), (12, 3), (NEWEST_VERSION, 2 | number << 4))
    ]


def _body(version: int, records: bytes) -> bytes:
    result = PartitionResult(
        PLACE.partition,
        0,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted=[(7, 0)],
        records=records,
        records_size=len(records),
        diverging_epoch=(1, 2) if version >= 12 else None,
    )
    topic: str | bytes = UUID(int=1).bytes if version >= 13 else PLACE.topic
    parts = response_parts(version, 1, 0, 5, [(topic, [result])])
    frame = b"".join(bytes(part) for part in parts)
    # Size, correlation id, and in flexible versions the header's tagged fields.
    return frame[8 + (version >= 12) :]
