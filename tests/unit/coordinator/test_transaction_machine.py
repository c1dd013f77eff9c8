"""Whatever producers do and whenever the broker dies, transactions are whole and only their owners end them.

Several instances share a transactional id, older clients and newer ones (KIP-890). Answers are lost and requests
repeated, disks are full, markers come late, transactions time out, and the broker may die between any two steps. The
partitions are real logs. A failure prints what reproduces it.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.coordinator.outcome import ProducerIdentity
from headwater.coordinator.transaction.states import TransactionState
from headwater.coordinator.transaction.transaction import LAST_EPOCH
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .test_transaction_init import with_epoch
from .transaction_building import EXPIRATION_MS, TIMEOUT_MS, LogPartition, Runtime, told, transactions

IDS = ("young", "aged")
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("payments", 0))
ACTS = ["write", "write", "write", "commit", "abort", "next epoch"]
_SHUT_OUT = {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping}

Fault: TypeAlias = tuple[str, int]
FAULTS = st.one_of(
    st.sampled_from([("none", 0), ("none", 0), ("none", 0), ("answer lost", 0), ("markers late", 0)]),
    st.tuples(st.just("crash"), st.integers(0, 7)),
    st.tuples(st.just("disk full"), st.integers(0, 1)),
)


@dataclass
class Work:
    """One transaction as its producer sees it."""

    acknowledged: list[bytes] = field(default_factory=list)
    added: set[TopicPartition] = field(default_factory=set)
    commit_asked: bool = False
    told: bool | None = None
    """What its producer was told of its end: True for committed."""


@dataclass
class Instance:
    """A producer: what it knows, and what it does not know that it may do."""

    transactional_id: str
    is_new: bool
    """It speaks transaction version 2."""
    identity: ProducerIdentity | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    work: Work | None = None
    unanswered_write: tuple[TopicPartition, int, bytes] | None = None
    unanswered_end: bool | None = None
    must_abort: bool = False
    must_reinitialize: bool = False
    is_dead: bool = False
    is_fenced: bool = False
    """Another instance was given the id since, so nothing that this one does may have an effect."""
    may_be_fenced: bool = False
    """Another instance asked for the id and got no answer."""
    is_disturbed: bool = False
    """Its transaction may have been aborted by another instance or by time."""
    late: list[tuple[ProducerIdentity, dict[TopicPartition, int]]] = field(default_factory=list)
    """The identities of its finished transactions, with the sequences that came next."""

    @property
    def acts(self) -> bool:
        """Whether it has what it needs and has not given up; one that was fenced never does."""
        return self.identity is not None and (self.is_fenced or not self.is_dead)

    def give_up(self) -> None:
        """After an error that no client goes on from. What is tried all the same begins anew."""
        self.is_dead = True
        self.work = self.unanswered_write = self.unanswered_end = None
        self.must_abort = self.must_reinitialize = False


class Transactions(RuleBasedStateMachine):
    """A coordinator and two partitions, among producers that cannot be relied on."""

    @initialize(are_new=st.tuples(st.booleans(), st.booleans()))
    def start(self, are_new: tuple[bool, bool]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.partitions = {name: LogPartition(self.folder, name) for name in PARTITIONS}
        self.runtime = Runtime(dict(self.partitions))
        self.runtime.after_restart = self.reopen_partitions
        with_epoch(self.runtime, "aged", LAST_EPOCH - 4)
        self.instances: list[Instance] = []
        self.works: list[tuple[str, Work]] = []
        self.owners: dict[ProducerIdentity, Instance] = {}
        self.values = 0
        self.instances_start(are_new)

    def instances_start(self, are_new: tuple[bool, bool]) -> None:
        """Two for each id, of which the second shuts the first out."""
        for is_new, is_fenced in zip(are_new, (True, False), strict=True):
            for transactional_id in IDS:
                instance = Instance(transactional_id, is_new, is_fenced=is_fenced)
                self.instances.append(instance)
                self.give(instance, self.runtime.identity(transactional_id))

    def reopen_partitions(self) -> None:
        for partition in self.partitions.values():
            partition.reopen()

    def teardown(self) -> None:
        if not hasattr(self, "runtime"):
            return
        try:
            self.everything_ends()
        finally:
            for partition in self.partitions.values():
                partition.log.abandon()
            shutil.rmtree(self.folder)

    def everything_ends(self) -> None:
        self.runtime.write_markers()
        self.runtime.pass_time(TIMEOUT_MS + 1)
        for transaction in transactions(self.runtime.shard).values():
            assert transaction.state is not TransactionState.ONGOING
            assert not transaction.is_prepared
        for partition in self.partitions.values():
            assert partition.log.last_stable_offset == partition.log.log_end_offset
        self.transactions_are_whole()

    @rule(data=st.data(), event=st.sampled_from(["instance", "time", "time", "restart", "late", "forgotten"]))
    def meanwhile(self, data: st.DataObject, event: str) -> None:
        are_new = data.draw(st.tuples(st.booleans(), st.booleans()))
        if event == "instance":
            self.another_instance_takes_the_id(data.draw(st.sampled_from(IDS)), are_new[0], data.draw(FAULTS))
        elif event == "time":
            milliseconds = data.draw(st.sampled_from([1, TIMEOUT_MS + 1]))
            self.time_passes(milliseconds, data.draw(FAULTS))
        elif event == "restart":
            self.runtime.restart()
        elif event == "forgotten":
            self.ids_are_forgotten(are_new)
        elif late := [(each, *write) for each in self.instances for write in each.late]:
            index = data.draw(st.integers(0, len(late) - 1))
            self.a_write_of_a_finished_transaction_arrives(*late[index], data.draw(st.sampled_from(PARTITIONS)))

    def another_instance_takes_the_id(self, transactional_id: str, is_new: bool, fault: Fault) -> None:
        waiting = [each for each in self.instances if each.identity is None]
        instance = waiting[0] if waiting else Instance(transactional_id, is_new)
        self.instances = [*[each for each in self.instances if each is not instance][-5:], instance]
        answer, heard = self.send(fault, lambda: self.runtime.init(instance.transactional_id))
        for other in self.others_of(instance):
            if other.identity is None:
                continue
            other.is_disturbed = True
            other.may_be_fenced |= answer is None
            other.is_fenced |= answer is not None and answer.error_code is ErrorCode.none
        if heard is not None and heard.error_code is ErrorCode.none:
            self.give(instance, told(heard))
        elif heard is not None:
            assert heard.error_code is ErrorCode.concurrent_transactions

    @rule(data=st.data(), acts=st.lists(st.tuples(st.sampled_from(ACTS), FAULTS), min_size=1, max_size=6))
    def a_producer_acts(self, data: st.DataObject, acts: list[tuple[str, Fault]]) -> None:
        # The last ones to come are those that were not shut out, most of the time.
        able = [each for each in self.instances if each.acts]
        if not able:
            return
        instance = able[-1 - data.draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])) % len(able)]
        for act, fault in acts:
            if fault[0] == "none":
                self.runtime.write_markers()
            if instance.acts:
                self.act(data, instance, act, fault)

    def act(self, data: st.DataObject, instance: Instance, act: str, fault: Fault) -> None:
        """Does this, unless the instance has to do something else first."""
        if instance.unanswered_end is not None:
            self.end(instance, instance.unanswered_end, fault)
        elif act == "next epoch" or instance.must_reinitialize:
            self.ask_for_the_next_epoch(instance, fault)
        elif act in ("commit", "abort") or instance.must_abort:
            self.end(instance, act == "commit", fault)
        else:
            self.begin_write(instance, data.draw(st.sampled_from(PARTITIONS)), fault)

    def ask_for_the_next_epoch(self, instance: Instance, fault: Fault) -> None:
        identity = self.identity_of(instance)
        _, heard = self.send_as(instance, fault, lambda: self.runtime.init(instance.transactional_id, identity))
        instance.must_reinitialize = True
        if heard is None or heard.error_code is ErrorCode.concurrent_transactions:
            return
        if heard.error_code is ErrorCode.none:
            if instance.work is not None:
                instance.work.told = False
            instance.work = instance.unanswered_write = None
            instance.must_abort = instance.must_reinitialize = instance.is_disturbed = False
            self.give(instance, told(heard))
        else:
            assert heard.error_code in _SHUT_OUT
            assert instance.is_fenced or instance.may_be_fenced
            instance.give_up()

    def begin_write(self, instance: Instance, partition: TopicPartition, fault: Fault) -> None:
        if instance.work is None:
            instance.work = Work()
            self.works.append((instance.transactional_id, instance.work))
        if instance.unanswered_write is None:
            self.values += 1
            instance.unanswered_write = (partition, instance.sequences.get(partition, 0), b"%d" % self.values)
        if instance.is_new or self.add_partition(instance, instance.unanswered_write[0], fault):
            self.write(instance, fault)

    def add_partition(self, instance: Instance, partition: TopicPartition, fault: Fault) -> bool:
        assert instance.work is not None
        if partition in instance.work.added:
            return True
        identity = self.identity_of(instance)
        _, heard = self.send_as(
            instance, fault, lambda: self.runtime.add(instance.transactional_id, identity, partition)
        )
        if heard is ErrorCode.none:
            instance.work.added.add(partition)
            return True
        if heard in _SHUT_OUT:
            instance.give_up()
        return False

    def write(self, instance: Instance, fault: Fault) -> None:
        assert instance.work is not None
        assert instance.unanswered_write is not None
        partition, sequence, value = instance.unanswered_write
        identity = self.identity_of(instance)
        _, heard = self.send_as(instance, fault, lambda: self.produce(instance, identity, partition, sequence, value))
        if heard is ErrorCode.none:
            instance.work.acknowledged.append(value)
            instance.sequences[partition] = sequence + 1
            instance.unanswered_write = None
        elif heard is not None and heard is not ErrorCode.concurrent_transactions:
            assert heard in _SHUT_OUT | {ErrorCode.transaction_abortable}
            assert instance.is_fenced or instance.may_be_fenced or instance.is_disturbed
            instance.must_abort = True

    def produce(
        self, instance: Instance, identity: ProducerIdentity, name: TopicPartition, sequence: int, value: bytes
    ) -> ErrorCode | None:
        """As the broker's Produce does it: what opens a transaction in a partition is checked with the coordinator."""
        log = self.partitions[name].log
        if not log.has_open_transaction(*identity):
            if instance.is_new:
                checked: ErrorCode | None = self.runtime.add_for(instance.transactional_id, identity, name)
            else:
                checked = self.runtime.verify(instance.transactional_id, identity, name)[name]
            if checked is not ErrorCode.none:
                return checked
        try:
            self.partitions[name].write(identity, sequence, value)
        except ApiError as error:
            return error.code
        return ErrorCode.none

    def end(self, instance: Instance, commit: bool, fault: Fault) -> None:
        work = instance.work
        if work is None and not instance.is_new:
            return
        if work is None or instance.must_abort or instance.unanswered_write or not work.acknowledged:
            commit = False
        if work is not None:
            work.commit_asked |= commit
        identity = self.identity_of(instance)
        version = 5 if instance.is_new else 4
        _, heard = self.send_as(
            instance,
            fault,
            lambda: self.runtime.end(instance.transactional_id, identity, commit=commit, version=version),
        )
        if heard is None or heard.error_code is ErrorCode.concurrent_transactions:
            instance.unanswered_end = commit
        elif heard.error_code is ErrorCode.none:
            self.is_over(instance, commit, told(heard))
        else:
            began_nothing = work is None or not work.acknowledged
            assert instance.is_fenced or instance.may_be_fenced or instance.is_disturbed or began_nothing
            instance.give_up()

    def is_over(self, instance: Instance, commit: bool, identity: ProducerIdentity) -> None:
        if instance.work is not None:
            instance.work.told = commit
        instance.must_reinitialize = not instance.is_new and instance.unanswered_write is not None
        instance.work = instance.unanswered_write = instance.unanswered_end = None
        instance.must_abort = instance.is_disturbed = False
        if instance.is_new:
            instance.late.append((self.identity_of(instance), dict(instance.sequences)))
            self.give(instance, identity)

    def a_write_of_a_finished_transaction_arrives(
        self,
        instance: Instance,
        identity: ProducerIdentity,
        sequences: dict[TopicPartition, int],
        partition: TopicPartition,
    ) -> None:
        if self.is_prepared(instance.transactional_id):
            return  # Until its marker is there it is not finished for the partition.
        before = self.everything_written()
        refused = self.produce(instance, identity, partition, sequences.get(partition, 0), b"late")
        assert refused in _SHUT_OUT
        assert self.everything_written() == before

    def time_passes(self, milliseconds: int, fault: Fault) -> None:
        before = transactions(self.runtime.shard)
        self.send(fault, lambda: self.runtime.pass_time(milliseconds))
        after = transactions(self.runtime.shard)
        for instance in self.instances:
            instance.is_disturbed |= before.get(instance.transactional_id) != after.get(instance.transactional_id)

    def ids_are_forgotten(self, are_new: tuple[bool, bool]) -> None:
        self.runtime.write_markers()
        self.runtime.pass_time(EXPIRATION_MS)
        self.runtime.now_ms += EXPIRATION_MS
        self.runtime.expire()
        assert not transactions(self.runtime.shard)
        self.instances.clear()
        self.instances_start(are_new)

    @invariant()
    def consumers_see_what_is_committed(self) -> None:
        for partition in self.partitions.values():
            stable = partition.log.last_stable_offset
            committed = [value for offset, value, fate in partition.fates() if fate == "committed" and offset < stable]
            assert partition.read_committed() == committed

    @invariant()
    def transactions_are_whole(self) -> None:
        all_fates = [fate for partition in self.partitions.values() for fate in partition.fates()]
        fates = {value: fate for _, value, fate in all_fates}
        assert len(fates) == len(all_fates), "a record was written twice"
        for transactional_id, work in self.works:
            found = {fates[value] for value in work.acknowledged}
            assert work.commit_asked or "committed" not in found
            if not self.is_prepared(transactional_id):
                assert len(found) <= 1
                assert work.told is None or found <= {"committed" if work.told else "aborted"}

    @invariant()
    def replay_comes_to_the_same_state(self) -> None:
        assert transactions(self.runtime.replayed()) == transactions(self.runtime.shard)

    def others_of(self, instance: Instance) -> list[Instance]:
        shared_id = instance.transactional_id
        return [each for each in self.instances if each is not instance and each.transactional_id == shared_id]

    def identity_of(self, instance: Instance) -> ProducerIdentity:
        assert instance.identity is not None
        return instance.identity

    def give(self, instance: Instance, identity: ProducerIdentity) -> None:
        assert self.owners.setdefault(identity, instance) is instance, "two instances have the same identity"
        if identity != instance.identity:
            instance.sequences.clear()
        instance.identity = identity

    def is_prepared(self, transactional_id: str) -> bool:
        transaction = self.runtime.transaction(transactional_id)
        return transaction is not None and transaction.is_prepared

    def everything_written(self) -> tuple[int, ...]:
        return len(self.runtime.log), *(each.log.log_end_offset for each in self.partitions.values())

    def send(self, fault: Fault, request: Callable[[], Any]) -> tuple[Any, Any]:
        """The answer, and what the sender hears of it."""
        kind, number = fault
        self.runtime.crash_in_moments = number if kind == "crash" else None
        self.runtime.appends_before_disk_is_full = number if kind == "disk full" else None
        self.runtime.writes_markers = kind != "markers late"
        answer = request()
        self.runtime.crash_in_moments = self.runtime.appends_before_disk_is_full = None
        self.runtime.writes_markers = True
        return answer, None if kind == "answer lost" else answer

    def send_as(self, instance: Instance, fault: Fault, request: Callable[[], Any]) -> tuple[Any, Any]:
        """The same; an instance that another one took the id from changes nothing by it."""
        before = self.everything_written()
        answer, heard = self.send(fault, request)
        if instance.is_fenced and fault[0] != "crash":
            code = getattr(answer, "error_code", answer)
            assert code in _SHUT_OUT | {ErrorCode.concurrent_transactions, ErrorCode.invalid_txn_state}
            assert self.everything_written() == before
        return answer, heard


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
