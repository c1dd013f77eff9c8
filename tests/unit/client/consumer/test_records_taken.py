"""What a fetch brought is handed out record by record or by column: all that may be seen, once, in order."""

import gc
import pickle
import shutil
import struct
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetched_logs import T0, Log, batch, logs, marker, resealed
from headwater.client.consumer import fetch_lane, records
from headwater.client.errors import RecordError

Form = Callable[[str], ModuleType]


def fetched(form: Form, data: bytes, offset: int = 0, aborted: Any = None, **options: Any) -> Any:
    return form("records").FetchedBatches("orders", 3, data, 0, len(data), offset, aborted, **options)


def shown(record: Any) -> tuple[Any, ...]:
    """A record as `fetched_logs` describes them."""
    assert (record.topic, record.partition) == ("orders", 3)
    by_broker = record.timestamp_type.name == "LOG_APPEND_TIME"
    return (
        record.offset, record.timestamp_ms, by_broker, record.key, record.value, record.headers, record.leader_epoch,
    )  # fmt: skip


def column_rows(columns: Any) -> list[tuple[Any, ...]]:
    return [
        (columns.offsets[i], columns.timestamps_ms[i], columns.keys[i], columns.values[i], columns.headers(i))
        for i in range(len(columns))
    ]


def without_origin(row: tuple[Any, ...]) -> tuple[Any, ...]:
    offset, time_ms, _, key, value, headers, _ = row
    return offset, time_ms, key, value, headers


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler here")
def test_the_compiled_form_is_compiled_where_there_is_a_compiler() -> None:
    for module in (records, fetch_lane):
        assert not str(module.__file__).endswith(".py"), f"{module.__name__}: python setup.py build_ext --inplace"


@settings(deadline=None, max_examples=50)
@given(log=logs(), steps=st.lists(st.integers(1, 7), min_size=1, max_size=4), start=st.floats(0, 1), data=st.data())
def test_committed_records_come_out_as_rows_and_as_columns(
    form: Form, log: Log, steps: list[int], start: float, data: Any
) -> None:
    first = min((row[0] for row in log.visible), default=0)
    offset = first + int(start * (log.end_offset - first))
    batches = fetched(form, log.data, offset, log.aborted)
    rows: list[tuple[Any, ...]] = []
    assert batches.end_offset == max(log.end_offset, offset) or not log.data
    while not batches.exhausted:
        step = steps[len(rows) % len(steps)]
        if data.draw(st.booleans(), label="by column"):
            columns = batches.take_columns(step)
            assert columns.next_offset == batches.next_offset
            found = column_rows(columns)
        else:
            found = [without_origin(shown(record)) for record in batches.take(step)]
        assert len(found) <= step
        assert not found or batches.next_offset > found[-1][0]
        rows += found
    assert rows == [without_origin(row) for row in log.visible if row[0] >= offset]
    assert batches.next_offset == batches.end_offset
    assert (batches.take(1), len(batches.take_columns()), batches.bytes_left) == ([], 0, 0)


@settings(deadline=None, max_examples=50)
@given(log=logs())
def test_every_field_of_a_record_is_that_of_its_batch(form: Form, log: Log) -> None:
    batches = fetched(form, log.data, 0, log.aborted)
    assert [shown(record) for record in batches.take(10**6)] == log.visible
    assert batches.exhausted


def test_readers_of_uncommitted_records_see_all_but_markers(form: Form) -> None:
    data = batch(0, [b"a"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    data += marker(1, 7, 0) + batch(2, [b"b"])
    batches = fetched(form, data)
    assert [record.value for record in batches.take(10)] == [b"a", b"b"]
    assert batches.next_offset == 3


def test_a_marker_at_the_end_moves_the_offset(form: Form) -> None:
    batches = fetched(form, marker(5, 7, 1), 5)
    assert not batches.exhausted
    assert batches.take(10) == []
    assert (batches.next_offset, batches.exhausted) == (6, True)


def test_a_batch_that_compaction_has_emptied_moves_the_offset(form: Form) -> None:
    for batches in (
        fetched(form, batch(5, [], offsets_lost=10), 7),
        fetched(form, batch(5, [b"x"], offsets_lost=9), 7),
    ):
        assert len(batches.take_columns()) == 0
        assert (batches.next_offset, batches.exhausted) == (15, True)


@pytest.mark.parametrize("cut", [1, 20, 60, 61, 70])
def test_part_of_a_batch_at_the_end_is_ignored(form: Form, cut: int) -> None:
    second = batch(1, [b"b" * 20])
    batches = fetched(form, batch(0, [b"a"]) + second[:-cut])
    assert [record.value for record in batches.take(10)] == [b"a"]
    assert (batches.next_offset, batches.exhausted, batches.end_offset) == (1, True, 1)


def test_bytes_without_a_whole_batch_are_an_error_that_says_so(form: Form) -> None:
    batches = fetched(form, batch(40, [b"x" * 100])[:-1], 42)
    assert not batches.exhausted
    for take in (batches.take, batches.take_columns):
        with pytest.raises(RecordError, match=r"record 42 of partition orders-3 .* hold no whole batch"):
            take(1)


def test_nothing_fetched_is_nothing_to_take(form: Form) -> None:
    batches = fetched(form, b"", 9)
    assert (batches.exhausted, batches.take(5), batches.next_offset, batches.end_offset) == (True, [], 9, 9)


def damaged(base_offset: int) -> bytes:
    changed = bytearray(batch(base_offset, [b"one", b"two"]))
    changed[-2] ^= 1
    return bytes(changed)


def test_what_comes_before_damage_is_handed_out_and_then_the_error_stays(form: Form) -> None:
    data = batch(0, [b"a", b"b"]) + damaged(2) + batch(4, [b"c"])
    batches = fetched(form, data)
    assert [record.value for record in batches.take(10)] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(RecordError, match="its batch, offsets 2 to 3: the checksum does not match") as caught:
            batches.take(10)
        assert (caught.value.partition, caught.value.offset) == (("orders", 3), 2)
        with pytest.raises(RecordError, match="checksum"):
            batches.take_columns()
    assert (batches.next_offset, batches.exhausted) == (2, False)
    by_column = fetched(form, data)
    assert len(by_column.take_columns()) == 2
    with pytest.raises(RecordError, match="checksum"):
        by_column.take_columns()


def test_without_check_crcs_checksums_are_not_looked_at(form: Form) -> None:
    batches = fetched(form, damaged(2), 2, check_crcs=False)
    assert [record.value for record in batches.take(10)] == [b"one", b"twn"]


@pytest.mark.parametrize("codec", range(5))
def test_records_that_do_not_parse_are_an_error_behind_those_that_do(form: Form, codec: int) -> None:
    honest = bytearray(batch(10, [b"a" * 20, b"b" * 20, b"c" * 20], compression=codec))
    # One record more than there are: the bytes end before it.
    struct.pack_into(">i", honest, 57, 4)
    struct.pack_into(">i", honest, 23, 3)
    data = resealed(honest)
    batches = fetched(form, data, 11)
    assert [record.value for record in batches.take(10)] == [b"b" * 20, b"c" * 20]
    for take in (batches.take, batches.take_columns):
        with pytest.raises(RecordError, match=r"record 13 .* offsets 10 to 13: record 3 of 4 does not parse"):
            take(1)
    assert len(fetched(form, data, 11).take_columns()) == 2


def test_a_header_that_makes_no_sense_is_an_error_behind_the_batches_before_it(form: Form) -> None:
    bad = bytearray(batch(2, [b"x"]))
    bad[16] = 1
    batches = fetched(form, batch(0, [b"a", b"b"]) + bytes(bad) + batch(3, [b"c"]))
    assert batches.end_offset == 2
    assert len(batches.take(10)) == 2
    with pytest.raises(RecordError, match="record 2 of partition orders-3 cannot be read: magic 1"):
        batches.take(10)


@pytest.mark.parametrize("codec", range(1, 5))
def test_what_would_grow_beyond_the_limit_is_refused(form: Form, codec: int) -> None:
    data = batch(0, [bytes(100_000)], compression=codec)
    with pytest.raises(RecordError, match=r"record 0 of partition orders-3 .* limit"):
        fetched(form, data, limit_bytes=50_000).take(1)
    assert fetched(form, data, limit_bytes=200_000).take(1)[0].value == bytes(100_000)


@settings(deadline=None, max_examples=50)
@given(log=logs(), changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4))
def test_hostile_bytes_are_an_error_or_records_in_order_the_same_as_columns(
    form: Form, log: Log, changes: list[tuple[int, int]]
) -> None:
    changed = bytearray(log.data or b"?")
    for at, octet in changes:
        changed[at % len(changed)] = octet

    def all_of(batches: Any, take: Callable[[], Any]) -> tuple[list[Any], str | None]:
        rows: list[Any] = []
        while not batches.exhausted:
            try:
                rows += take()
            except RecordError as error:
                return rows, str(error)
        return rows, None

    options = {"check_crcs": False, "limit_bytes": 1 << 20}
    one = fetched(form, bytes(changed), 0, log.aborted, **options)
    two = fetched(form, bytes(changed), 0, log.aborted, **options)
    rows = all_of(one, lambda: [without_origin(shown(record)) for record in one.take(5)])
    assert rows == all_of(two, lambda: column_rows(two.take_columns()))
    offsets = [row[0] for row in rows[0]]
    assert offsets == sorted(set(offsets))
    assert one.next_offset == two.next_offset


def test_columns_end_at_a_size_and_go_on_from_there(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"".join(batch(offset, [b"x" * 100] * 10, compression=4) for offset in range(0, 100, 10))
    module = form("records")
    batches = fetched(form, log)
    monkeypatch.setattr(module, "COLUMNS_BYTES", 3000)
    sizes = []
    while not batches.exhausted:
        sizes.append(len(batches.take_columns()))
    assert sizes == [30, 30, 30, 10]


def test_deserializers_are_shown_what_is_there_and_nulls_are_not(form: Form) -> None:
    rows = [(b"1", b"one", [], T0), (None, b"two", [], T0), (b"3", None, [("h", b"x")], T0)]
    taken = fetched(form, batch(0, rows)).take(10, int, bytes.decode)
    assert [(record.key, record.value) for record in taken] == [(1, "one"), (None, "two"), (3, None)]
    assert taken[2].headers == (("h", b"x"),)
    assert [record.key for record in fetched(form, batch(0, rows), 1).take(10, int)] == [None, 3]
    assert [record.value for record in fetched(form, batch(0, rows)).take(10, None, len)] == [3, 3, None]


def test_a_deserializer_that_fails_names_the_record_and_may_be_tried_again(form: Form) -> None:
    batches = fetched(form, batch(10, [b"1", b"2", b"three", b"4"]), 11)
    assert [record.value for record in batches.take(10, None, int)] == [2]
    for _ in range(2):
        with pytest.raises(RecordError, match=r"record 12 of partition orders-3 .* a deserializer failed") as caught:
            batches.take(10, None, int)
        assert isinstance(caught.value.__cause__, ValueError)
        assert (caught.value.offset, batches.next_offset) == (12, 12)
    assert [record.value for record in batches.take(10, None, bytes)] == [b"three", b"4"]


def test_a_record_is_a_value(form: Form) -> None:
    module = form("records")
    row = (b"k", b"v", [("h", b"x"), ("n", None)], T0)
    (taken,) = fetched(form, batch(7, [row], leader_epoch=4)).take(1)
    made = module.Record(
        "orders", 3, 7, T0, module.TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"), ("n", None)), 4
    )
    assert taken == made
    assert hash(taken) == hash(made)
    assert taken != module.Record("orders", 3, 8, T0)
    assert taken != "a record"
    assert repr(taken) == (
        f"Record(topic='orders', partition=3, offset=7, timestamp_ms={T0}, timestamp_type=CREATE_TIME, key=b'k', "
        "value=b'v', headers=(('h', b'x'), ('n', None)), leader_epoch=4)"
    )


def test_a_record_as_users_get_it_can_be_pickled_and_not_be_changed() -> None:
    data = batch(7, [(b"k", b"v", [("h", b"x")], T0)], leader_epoch=4)
    (taken,) = records.FetchedBatches("orders", 3, data, 0, len(data), 0).take(1)
    assert pickle.loads(pickle.dumps(taken)) == taken
    if str(records.__file__).endswith(".py"):
        pytest.skip("only the compiled form forbids changes")
    for name in ("topic", "partition", "offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"):
        with pytest.raises(AttributeError):
            setattr(taken, name, None)


def test_records_do_not_keep_the_answer_they_came_from(form: Form) -> None:
    class Answer(bytearray):
        """Bytes that can be asked whether they are still there."""

    answer = Answer(batch(0, [(b"k", b"v", [("h", b"x")], T0)] * 3))
    gone = weakref.ref(answer)
    batches = form("records").FetchedBatches("orders", 3, answer, 0, len(answer), 0)
    taken = batches.take(10)
    del answer, batches
    gc.collect()
    assert gone() is None
    assert [record.headers for record in taken] == [(("h", b"x"),)] * 3


def test_a_deserialized_record_in_a_circle_is_collected(form: Form) -> None:
    class Value(list[Any]):
        """A list that can be asked whether it is still there."""

    (record,) = fetched(form, batch(0, [b"x"])).take(1, None, lambda _: Value())
    record.value.append(record)
    gone = weakref.ref(record.value)
    del record
    gc.collect()
    assert gone() is None
