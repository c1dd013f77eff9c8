"""Plays the runtime of a transaction shard: a clock that tests move, a log that is a list, partitions for markers.

`LogPartition` is a real log, written and read as a broker and a read_committed consumer would.

Every step that a crash can come before or after is a moment; `crash_in_moments` makes one of them the last.
"""

import struct
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from headwater.config import BrokerConfig, TopicConfig
from headwater.coordinator.outcome import Caller, CoordinatorRecord, Markers, Outcome, ProducerIdentity
from headwater.coordinator.transaction.records import decode
from headwater.coordinator.transaction.shard import TransactionShard
from headwater.coordinator.transaction.transaction import Transaction
from headwater.log.filesystem import FileSystem
from headwater.log.log import Log
from headwater.log.producer_state import read_marker
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode, ProducerId, i16, i32Timedelta
from headwater.protocol.records import BatchHeader, check_batches, decode_records, encode_batch, scan_headers
from headwater.types import TopicPartition

from kio.schema.end_txn.v5.request import EndTxnRequest  # isort: skip
from kio.schema.end_txn.v5.response import EndTxnResponse  # isort: skip
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest  # isort: skip
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse  # isort: skip
from kio.schema.types import TransactionalId  # isort: skip

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
EXPIRATION_MS = 604_800_000
NOBODY = ProducerIdentity(-1, -1)


class CrashError(Exception):
    """The process died here."""


class Partition(Protocol):
    """What can take a marker."""

    def write_marker(self, markers: Markers) -> None:
        """Writes one of these markers."""


class MarkersOnly:
    """A partition that keeps the markers it got and nothing else."""

    def __init__(self) -> None:
        self.markers: list[Markers] = []

    def write_marker(self, markers: Markers) -> None:
        self.markers.append(markers)


class LogPartition:
    """A real partition's log in a folder."""

    def __init__(self, folder: Path, name: TopicPartition) -> None:
        self._path = folder / str(name)
        self._config = TopicConfig.from_values({}, BrokerConfig.from_values({}))
        self.log = self._open()

    def _open(self) -> Log:
        return Log.open(FileSystem(), str(self._path), config=self._config, clean=False, now_ms=NOW_MS)

    def reopen(self) -> None:
        """What the next process does with it after a crash."""
        self.log.abandon()
        self.log = self._open()

    def write_marker(self, markers: Markers) -> None:
        key, value = struct.pack(">hh", 0, int(markers.commit)), struct.pack(">hi", 0, markers.coordinator_epoch)
        batch = encode_batch(
            [(key, value, (), NOW_MS)],
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            transactional=True,
            control=True,
        )
        self._append(batch, verify_producer=False)

    def write(self, producer: ProducerIdentity, sequence: int, value: bytes) -> None:
        """Writes a record in the producer's transaction; ApiError when the log does not take it."""
        batch = encode_batch(
            [(None, value, (), NOW_MS)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self._append(batch, verify_producer=True)

    def _append(self, batch: bytearray, *, verify_producer: bool) -> None:
        buffer = memoryview(batch)
        headers = check_batches(buffer, 0, len(buffer))
        self.log.append_as_leader(
            buffer, 0, len(buffer), headers, leader_epoch=0, now_ms=NOW_MS, verify_producer=verify_producer
        )

    def _batches(self) -> tuple[bytes, list[BatchHeader]]:
        end = self.log.log_end_offset
        content = self.log.read(0, 1 << 24, up_to_offset=end).read() if end else b""
        return content, scan_headers(content, 0, len(content))

    def fates(self) -> list[tuple[int, bytes, str]]:
        """Offset, value and fate of every record, as the markers after it say: committed, aborted or open."""
        content, headers = self._batches()
        found: list[tuple[int, bytes, str]] = []
        undecided: dict[int, list[int]] = {}
        for header in headers:
            marker = read_marker(content, header) if header.is_control else None
            if marker is None:
                undecided.setdefault(header.producer_id, []).append(len(found))
                found += [(record.offset, record.value or b"", "open") for record in decode_records(content, header)]
                continue
            for index in undecided.pop(header.producer_id, []):
                found[index] = (*found[index][:2], "aborted" if marker.is_abort else "committed")
        return found

    def read_committed(self) -> list[bytes]:
        """What a consumer shows: up to the last stable offset, without what the broker lists as aborted."""
        stable = self.log.last_stable_offset
        aborted = sorted(self.log.aborted_transactions(0, stable), key=lambda txn: txn.first_offset)
        content, headers = self._batches()
        shown: list[bytes] = []
        skipped: set[int] = set()
        for header in headers:
            if header.base_offset >= stable:
                break
            while aborted and aborted[0].first_offset <= header.base_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)
            elif header.producer_id not in skipped:
                shown += [record.value or b"" for record in decode_records(content, header)]
        return shown


class Runtime:
    """One shard, with everything that a broker has around it."""

    def __init__(self, partitions: dict[TopicPartition, Partition] | None = None, **settings: object) -> None:
        values = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig.from_values(values)
        self.partitions: dict[TopicPartition, Partition] = {} if partitions is None else partitions
        self.now_ms = NOW_MS
        self.log: list[CoordinatorRecord] = []
        self.coordinator_epoch = 0
        self.next_producer_id = 1000
        self.has_producer_ids = True
        self.writes_markers = True
        """When off, markers wait in `unwritten` for `write_markers`."""
        self.unwritten: list[Markers] = []
        self.crash_in_moments: int | None = None
        self.appends_before_disk_is_full: int | None = None
        self.after_restart: Callable[[], None] = lambda: None
        self.shard = self.fresh_shard()
        self._answer: Any = None

    def fresh_shard(self) -> TransactionShard:
        """A shard that has replayed nothing."""
        return TransactionShard(
            config=lambda: self.config,
            take_producer_id=self._take_producer_id,
            coordinator_epoch=lambda: self.coordinator_epoch,
        )

    def _take_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise ApiError(ErrorCode.coordinator_load_in_progress)
        self.next_producer_id += 1
        return self.next_producer_id

    def request(self, decide: Callable[[TransactionShard], Outcome]) -> Any:
        """What the caller is told, None when the answer does not come because of a crash or a full disk."""
        self._answer = None
        self._until_crash(lambda: self._carry_out_all([decide(self.shard)]))
        return self._answer

    def run(self, decide: Callable[[TransactionShard], Iterable[Outcome]]) -> None:
        """What the shard does on its own account."""
        self._until_crash(lambda: self._carry_out_all(decide(self.shard)))

    def _until_crash(self, act: Callable[[], None]) -> None:
        try:
            act()
        except CrashError:
            self.restart()
        finally:
            self.crash_in_moments = None
            self.appends_before_disk_is_full = None

    def restart(self) -> None:
        """The next process: its shard replays the log and goes on with what was decided."""
        self.crash_in_moments = None
        self.coordinator_epoch += 1
        self.unwritten = []
        self.after_restart()
        self.shard = self.replayed()
        self._carry_out_all(self.shard.loaded(self.now_ms))

    def replayed(self) -> TransactionShard:
        """A shard that has replayed the log."""
        shard = self.fresh_shard()
        for record in self.log:
            shard.replay(CoordinatorRecord(record.key, record.value))
        return shard

    def _carry_out_all(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._carry_out(outcome)

    def _carry_out(self, outcome: Outcome) -> bool:
        if outcome.records and not self._append(outcome.records):
            return False
        if outcome.response is not None:
            self._answer = outcome.response
        for markers in outcome.markers:
            if self.writes_markers:
                self._write(markers)
            else:
                self.unwritten.append(markers)
        return True

    def _append(self, records: list[CoordinatorRecord]) -> bool:
        self._moment()
        if self.appends_before_disk_is_full is not None:
            self.appends_before_disk_is_full -= 1
            if self.appends_before_disk_is_full < 0:
                return False
        self.log += records
        self._moment()
        for record in records:
            assert record.meaning == decode(record.key, record.value), "replay and a restart would differ"
            self.shard.replay(record)
        return True

    def write_markers(self) -> None:
        """Writes the markers that were held back, or whose end could not be written."""
        held, self.unwritten = self.unwritten, []
        for markers in held:
            self._write(markers)

    def _write(self, markers: Markers) -> None:
        for partition in sorted(markers.partitions):
            self._moment()
            if partition in self.partitions:
                self.partitions[partition].write_marker(markers)
        self._moment()
        if not self._carry_out(self.shard.markers_written(markers, self.now_ms)):
            self.unwritten.append(markers)

    def _moment(self) -> None:
        if self.crash_in_moments is not None:
            self.crash_in_moments -= 1
            if self.crash_in_moments < 0:
                raise CrashError

    def init(
        self,
        transactional_id: str | None,
        shown: ProducerIdentity = NOBODY,
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
    ) -> Any:
        """InitProducerId."""
        request = InitProducerIdRequest(
            transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
            producer_id=ProducerId(shown.producer_id),
            producer_epoch=i16(shown.producer_epoch),
        )
        return self.request(lambda shard: shard.init_producer_id(request, caller(version), self.now_ms))

    def identity(self, transactional_id: str, shown: ProducerIdentity = NOBODY) -> ProducerIdentity:
        """InitProducerId, tried until it does not have to wait for the end of another transaction."""
        response = self.init(transactional_id, shown)
        while response.error_code is ErrorCode.concurrent_transactions:
            response = self.init(transactional_id, shown)
        assert response.error_code is ErrorCode.none
        return told(response)

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *partitions: TopicPartition,
        version: int = 3,
        transaction_version: int = 0,
    ) -> Any:
        """AddPartitionsToTxn."""
        return self.request(
            lambda shard: shard.add_partitions(
                transactional_id,
                *producer,
                frozenset(partitions),
                caller(version),
                self.now_ms,
                transaction_version=transaction_version,
            )
        )

    def add_for(self, transactional_id: str, producer: ProducerIdentity, *partitions: TopicPartition) -> Any:
        """What a broker asks for when a client of transaction version 2 writes to partitions for the first time."""
        return self.add(transactional_id, producer, *partitions, version=5, transaction_version=2)

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, *partitions: TopicPartition
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn that only asks."""
        return self.shard.verify_partitions(transactional_id, *producer, frozenset(partitions))

    def end(self, transactional_id: str, producer: ProducerIdentity, *, commit: bool = True, version: int = 5) -> Any:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=TransactionalId(transactional_id),
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=i16(producer.producer_epoch),
            committed=commit,
        )
        return self.request(lambda shard: shard.end(request, caller(version), self.now_ms))

    def pass_time(self, milliseconds: int) -> None:
        """Time goes on, and the shard aborts what has lasted too long."""
        self.now_ms += milliseconds
        self.run(lambda shard: shard.abort_timed_out(self.now_ms))

    def expire(self) -> None:
        """The shard forgets ids that are not in use."""
        self.run(lambda shard: [shard.expire_ids(self.now_ms)])

    def transaction(self, transactional_id: str) -> Transaction | None:
        """What the shard knows of an id."""
        return transactions(self.shard).get(transactional_id)

    def state(self, transactional_id: str) -> str:
        """The state of an id, in Kafka's words."""
        return self.shard.describe(transactional_id).transaction_state


def transactions(shard: TransactionShard) -> dict[str, Transaction]:
    """All that a shard knows."""
    return dict(shard._transactions)


def caller(version: int) -> Caller:
    """Someone who sends this version of a request."""
    return Caller(version=version, client_id="tests", host="127.0.0.1")


def told(response: InitProducerIdResponse | EndTxnResponse) -> ProducerIdentity:
    """The identity in a response."""
    return ProducerIdentity(response.producer_id, response.producer_epoch)
