"""Records of `__consumer_offsets`: the bytes are Apache Kafka's, and every version there was is read."""

import contextlib
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.coordinator.group import records
from headwater.coordinator.group.consumer_partitions import from_rows
from headwater.coordinator.group.partition_rows import EncodedPartitions, TopicPartitions, encoded
from headwater.coordinator.group.records import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    CONSUMER_MEMBER,
    CURRENT_MEMBER,
    OFFSET,
    REGEX,
    TARGET_EPOCH,
    TARGET_MEMBER,
    ClassicGroupValue,
    ClassicMemberValue,
    ClassicMetadata,
    ClassicProtocol,
    ConsumerGroupValue,
    ConsumerMemberValue,
    CurrentMemberValue,
    GroupKey,
    MemberKey,
    OffsetKey,
    OffsetValue,
    RecordType,
    RegexKey,
    RegexValue,
    TargetEpochValue,
    TargetMemberValue,
)
from headwater.coordinator.outcome import CoordinatorRecord
from headwater.coordinator.schema import CorruptRecordError, Struct
from headwater.protocol.errors import ApiError

_MODERN = MemberKey("modern", "l+Q6Ek7xQDyMv8A0l2BR0g")
_MODERN_KEY = "00066d6f6465726e00166c2b5136456b37785144794d763841306c3242523067"
_THREE = (TopicPartitions(UUID("d464b69a-87af-461d-9d0e-4c4561d8485f"), (0, 1, 2)),)

# Read from the segment of an Apache Kafka 4.1 broker.
_FROM_APACHE = [
    pytest.param(
        OFFSET,
        OffsetKey("billing", "orders", 0),
        OffsetValue(offset=7, metadata="meta\0", commit_timestamp_ms=1794808783305),
        "0001000762696c6c696e6700066f726465727300000000",
        "00040000000000000007ffffffff066d65746100000001a1e2f0a1c900",
        id="offset",
    ),
    pytest.param(
        CLASSIC_GROUP,
        GroupKey("billing"),
        ClassicGroupValue(
            protocol_type="", generation=0, protocol=None, leader=None, state_timestamp_ms=1794808783123, members=()
        ),
        "0002000762696c6c696e67",
        "0003000000000000ffffffff000001a1e2f0a11300000000",
        id="empty classic group",
    ),
    pytest.param(
        CLASSIC_GROUP,
        GroupKey("billing"),
        ClassicGroupValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader="i1-406b6b79-5949-4f58-a604-ccaf87d5176b",
            state_timestamp_ms=1794808783133,
            members=(
                ClassicMemberValue(
                    member_id="i1-406b6b79-5949-4f58-a604-ccaf87d5176b",
                    instance_id="i1",
                    client_id="cl",
                    client_host="/127.0.0.1",
                    rebalance_timeout_ms=300_000,
                    session_timeout_ms=45_000,
                    subscription=bytes.fromhex("00030000000100066f72646572730000000000000000ffffffff0000"),
                    assignment=bytes.fromhex("00000000000100066f72646572730000000300000000000000010000000200000000"),
                ),
            ),
        ),
        "0002000762696c6c696e67",
        "00030008636f6e73756d657200000001000572616e6765002769312d34303662366237392d353934392d346635382d613630342d6363616638"
        "37643531373662000001a1e2f0a11d00000001002769312d34303662366237392d353934392d346635382d613630342d6363616638376435"
        "31373662000269310002636c000a2f3132372e302e302e31000493e00000afc80000001c00030000000100066f7264657273000000000000"
        "0000ffffffff00000000002200000000000100066f72646572730000000300000000000000010000000200000000",
        id="classic group",
    ),
    pytest.param(
        CONSUMER_GROUP,
        GroupKey("modern"),
        ConsumerGroupValue(epoch=1, metadata_hash=-6614972423729587428),
        "000300066d6f6465726e",
        "000000000001010008a432e5a0d497db1c",
        id="consumer group",
    ),
    pytest.param(
        CONSUMER_GROUP,
        GroupKey("modern"),
        ConsumerGroupValue(epoch=2),
        "000300066d6f6465726e",
        "00000000000200",
        id="consumer group without topics",
    ),
    pytest.param(
        CONSUMER_MEMBER,
        _MODERN,
        ConsumerMemberValue(
            client_id="rdkafka",
            client_host="/127.0.0.1",
            subscribed_topics=("orders",),
            subscribed_regex="",
            rebalance_timeout_ms=300_000,
        ),
        "0005" + _MODERN_KEY,
        "000000000872646b61666b610b2f3132372e302e302e3102076f726465727301000493e00001000100",
        id="consumer member",
    ),
    pytest.param(
        TARGET_EPOCH,
        GroupKey("modern"),
        TargetEpochValue(1),
        "000600066d6f6465726e",
        "00000000000100",
        id="target epoch",
    ),
    pytest.param(
        TARGET_MEMBER,
        _MODERN,
        TargetMemberValue(_THREE),
        "0007" + _MODERN_KEY,
        "000002d464b69a87af461d9d0e4c4561d8485f040000000000000001000000020000",
        id="target member",
    ),
    pytest.param(
        CURRENT_MEMBER,
        _MODERN,
        CurrentMemberValue(epoch=1, previous_epoch=0, state=0, assigned=_THREE, pending_revocation=()),
        "0008" + _MODERN_KEY,
        "000000000001000000000002d464b69a87af461d9d0e4c4561d8485f04000000000000000100000002000100",
        id="current member",
    ),
]


def _read_back(record: CoordinatorRecord) -> tuple[RecordType, Any, Any] | None:
    return records.decode(record.key, record.value)


@pytest.mark.parametrize(("kind", "key", "value", "key_hex", "value_hex"), _FROM_APACHE)
def test_what_apache_wrote_is_read_and_written_the_same(
    kind: RecordType, key: object, value: object, key_hex: str, value_hex: str
) -> None:
    theirs = CoordinatorRecord(bytes.fromhex(key_hex), bytes.fromhex(value_hex))
    assert records.decode(theirs.key, theirs.value) == (kind, key, value)
    assert kind.record(key, value) == theirs


_TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_PARTITION_ROWS = st.lists(
    st.builds(TopicPartitions, st.uuids(), st.lists(_INT32, max_size=4).map(tuple)), max_size=3
).map(tuple)
_OFFSETS = st.builds(
    OffsetValue,
    offset=_INT64,
    leader_epoch=_INT32,
    metadata=_TEXT,
    commit_timestamp_ms=_INT64,
    topic_id=st.none() | st.uuids(),
)
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    OFFSET.number: _OFFSETS,
    CLASSIC_GROUP.number: st.builds(
        ClassicGroupValue,
        protocol_type=_TEXT,
        generation=_INT32,
        protocol=st.none() | _TEXT,
        leader=st.none() | _TEXT,
        state_timestamp_ms=_INT64,
        members=st.lists(
            st.builds(
                ClassicMemberValue,
                member_id=_TEXT,
                instance_id=st.none() | _TEXT,
                client_id=_TEXT,
                client_host=_TEXT,
                rebalance_timeout_ms=_INT32,
                session_timeout_ms=_INT32,
                subscription=st.binary(),
                assignment=st.binary(),
            ),
            max_size=3,
        ).map(tuple),
    ),
    CONSUMER_GROUP.number: st.builds(ConsumerGroupValue, epoch=_INT32, metadata_hash=_INT64),
    CONSUMER_MEMBER.number: st.builds(
        ConsumerMemberValue,
        instance_id=st.none() | _TEXT,
        rack_id=st.none() | _TEXT,
        client_id=_TEXT,
        client_host=_TEXT,
        subscribed_topics=st.lists(_TEXT, max_size=3).map(tuple),
        subscribed_regex=st.none() | _TEXT,
        rebalance_timeout_ms=_INT32,
        server_assignor=st.none() | _TEXT,
        classic=st.none()
        | st.builds(
            ClassicMetadata, _INT32, st.lists(st.builds(ClassicProtocol, _TEXT, st.binary()), max_size=2).map(tuple)
        ),
    ),
    TARGET_EPOCH.number: st.builds(TargetEpochValue, _INT32),
    TARGET_MEMBER.number: st.builds(TargetMemberValue, _PARTITION_ROWS),
    CURRENT_MEMBER.number: st.builds(
        CurrentMemberValue,
        epoch=_INT32,
        previous_epoch=_INT32,
        state=st.integers(0, 2),
        assigned=_PARTITION_ROWS,
        pending_revocation=_PARTITION_ROWS,
    ),
    REGEX.number: st.builds(
        RegexValue, topics=st.lists(_TEXT, max_size=3).map(tuple), version=_INT64, timestamp_ms=_INT64
    ),
}
_KEYS: dict[int, st.SearchStrategy[Any]] = {
    OFFSET.number: st.builds(OffsetKey, _TEXT, _TEXT, _INT32),
    CLASSIC_GROUP.number: st.builds(GroupKey, _TEXT),
    CONSUMER_GROUP.number: st.builds(GroupKey, _TEXT),
    CONSUMER_MEMBER.number: st.builds(MemberKey, _TEXT, _TEXT),
    TARGET_EPOCH.number: st.builds(GroupKey, _TEXT),
    TARGET_MEMBER.number: st.builds(MemberKey, _TEXT, _TEXT),
    CURRENT_MEMBER.number: st.builds(MemberKey, _TEXT, _TEXT),
    REGEX.number: st.builds(RegexKey, _TEXT, _TEXT),
}
_KINDS = [OFFSET, CLASSIC_GROUP, CONSUMER_GROUP, CONSUMER_MEMBER, TARGET_EPOCH, TARGET_MEMBER, CURRENT_MEMBER, REGEX]


@given(st.data(), st.sampled_from(_KINDS))
def test_a_record_comes_back_as_it_was_written(data: st.DataObject, kind: RecordType) -> None:
    key = data.draw(_KEYS[kind.number])
    value = data.draw(st.none() | _VALUES[kind.number])
    assert _read_back(kind.record(key, value)) == (kind, key, value)


_PARTITION_SETS = _PARTITION_ROWS.map(from_rows).map(encoded)


@given(_INT32, _INT32, st.integers(0, 2), _PARTITION_SETS, _PARTITION_SETS)
def test_sets_of_partitions_come_back_as_the_rows_that_they_are_equal_to(
    epoch: int, previous_epoch: int, state: int, assigned: EncodedPartitions, pending: EncodedPartitions
) -> None:
    target = TargetMemberValue(assigned)
    assert _read_back(TARGET_MEMBER.record(_MODERN, target)) == (TARGET_MEMBER, _MODERN, target)
    assert TARGET_MEMBER.record(_MODERN, target) == TARGET_MEMBER.record(_MODERN, TargetMemberValue(assigned.rows))
    current = CurrentMemberValue(
        epoch=epoch, previous_epoch=previous_epoch, state=state, assigned=assigned, pending_revocation=pending
    )
    as_rows = replace(current, assigned=assigned.rows, pending_revocation=pending.rows)
    assert _read_back(CURRENT_MEMBER.record(_MODERN, current)) == (CURRENT_MEMBER, _MODERN, as_rows)
    assert CURRENT_MEMBER.record(_MODERN, current) == CURRENT_MEMBER.record(_MODERN, as_rows)


@given(_OFFSETS)
@example(OffsetValue(offset=1, metadata="m" * 125, commit_timestamp_ms=2))
@example(OffsetValue(offset=1, metadata="m" * 126, commit_timestamp_ms=2))
def test_the_short_way_for_offsets_writes_the_bytes_of_the_long_one(value: OffsetValue) -> None:
    written = OFFSET.value.encode(value, 4)
    assert written == Struct.encode(OFFSET.value, value, 4)
    assert Struct.decode(OFFSET.value, written, 4) == value


@given(st.sampled_from(_KINDS), st.binary(max_size=60), st.integers(0, 5))
def test_damaged_bytes_are_refused_and_nothing_worse(kind: RecordType, content: bytes, version: int) -> None:
    key = kind.record(*_A_KEY_OF[kind.number]).key
    with contextlib.suppress(CorruptRecordError):
        records.decode(key, version.to_bytes(2, "big") + content)
    with contextlib.suppress(CorruptRecordError):
        records.decode(kind.number.to_bytes(2, "big") + content, None)


_A_KEY_OF: dict[int, tuple[Any, None]] = {
    OFFSET.number: (OffsetKey("g", "t", 0), None),
    CLASSIC_GROUP.number: (GroupKey("g"), None),
    CONSUMER_GROUP.number: (GroupKey("g"), None),
    CONSUMER_MEMBER.number: (MemberKey("g", "m"), None),
    TARGET_EPOCH.number: (GroupKey("g"), None),
    TARGET_MEMBER.number: (MemberKey("g", "m"), None),
    CURRENT_MEMBER.number: (MemberKey("g", "m"), None),
    REGEX.number: (RegexKey("g", "r"), None),
}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_an_offset_is_read(version: int) -> None:
    full = OffsetValue(
        offset=5, leader_epoch=3, metadata="m", commit_timestamp_ms=7, expire_timestamp_ms=9, topic_id=UUID(int=1)
    )
    decoded = _read_back(OFFSET.record(OffsetKey("g", "t", 0), full, version))
    assert decoded is not None
    assert decoded[2] == OffsetValue(
        offset=5,
        leader_epoch=3 if version >= 3 else -1,
        metadata="m",
        commit_timestamp_ms=7,
        expire_timestamp_ms=9 if version == 1 else -1,
        topic_id=UUID(int=1) if version >= 4 else None,
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_a_classic_group_is_read(version: int) -> None:
    member = {"member_id": "m", "client_id": "c", "client_host": "/h", "session_timeout_ms": 6}
    content = {"subscription": b"s", "assignment": b"a"}
    full = ClassicGroupValue(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m",
        state_timestamp_ms=8,
        members=(ClassicMemberValue(**member, **content, instance_id="i", rebalance_timeout_ms=7),),  # type: ignore[arg-type]
    )
    decoded = _read_back(CLASSIC_GROUP.record(GroupKey("g"), full, version))
    assert decoded is not None
    value = decoded[2]
    assert value.state_timestamp_ms == (8 if version >= 2 else -1)
    assert value.members[0].rebalance_timeout_ms == (7 if version >= 1 else -1)
    assert value.members[0].instance_id == ("i" if version >= 3 else None)
    assert (value.generation, value.members[0].assignment) == (5, b"a")


def test_the_oldest_key_of_an_offset_is_read() -> None:
    newest = OFFSET.record(OffsetKey("g", "t", 0), None)
    assert records.decode(b"\0\0" + newest.key[2:], None) == (OFFSET, OffsetKey("g", "t", 0), None)


def test_kinds_that_are_not_served_are_passed_over() -> None:
    share_group = b"\0\x0b\0\1g"
    assert records.decode(share_group, b"\0\0\0") is None


def test_tags_that_are_not_known_are_passed_over() -> None:
    known = OFFSET.record(OffsetKey("g", "t", 0), OffsetValue(offset=5, commit_timestamp_ms=7))
    assert known.value is not None
    with_tag = known.value[:-1] + b"\1\x09\2ab"
    assert records.decode(known.key, with_tag) == (
        OFFSET,
        OffsetKey("g", "t", 0),
        OffsetValue(offset=5, commit_timestamp_ms=7),
    )


def test_a_text_that_a_key_cannot_hold_is_refused() -> None:
    assert OFFSET.record(OffsetKey("g" * 32_767, "t", 0), None).value is None
    with pytest.raises(ApiError, match="too long"):
        OFFSET.record(OffsetKey("g" * 32_768, "t", 0), None)


def test_a_version_from_the_future_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="version 9"):
        records.decode(OFFSET.record(OffsetKey("g", "t", 0), None).key, b"\0\x09")
