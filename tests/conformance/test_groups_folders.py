"""Groups and transactions in folders that change hands: the internal topics are Kafka's own, record by record."""

import base64
import functools
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from peers.apache import QUICK_START, ApacheKafka, run_tool
from peers.headwater import HeadwaterProcess
from peers.presence import require_apache

from .actions import LATEST, Topic, create_topic, eventually, list_offsets, wait_for_partitions
from .comparing import comparable, differences
from .conftest import Broker
from .raw_groups import (
    ClassicMember,
    ConsumerMember,
    assignment,
    committed,
    offsets_to_commit,
    settle,
    subscription,
    wait_for_group_coordinator,
    wait_for_transaction_coordinator,
)
from .raw_transactions import RAISING_END, TransactionalProducer
from .wire import Wire

pytestmark = pytest.mark.peer

# One partition each, so that any group is in the folder that is looked at; sessions outlast a change of brokers, and
# offsets that may expire are looked for often.
SETTINGS = {
    "node.id": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.max.session.timeout.ms": "60000",
    "offsets.retention.check.interval.ms": "200",
}
INTERNAL = ("__consumer_offsets-0", "__transaction_state-0")
GROUPS = ("classic", "new", "idle", "gone", "expired", "in-transaction")


def answers_of_nobody(wire: Wire, topic: Topic) -> dict[str, Any]:
    """What a broker says that never had a group or a transaction, as long as nobody has asked for a coordinator."""
    who = {"group_id": "g", "member_id": "m", "generation_id": 1}
    joining = {"session_timeout": 10_000, "protocol_type": "consumer", "protocols": [{"name": "p", "metadata": b""}]}
    offsets, transaction = offsets_to_commit(topic, {0: 1}), {"transactional_id": "t", "producer_id": 1}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("join_group", {"group_id": "g", **joining}),
        ("join_group", {"group_id": "", **joining}),
        ("join_group", {"group_id": "g", **joining, "session_timeout": 1}),
        ("sync_group", who),
        ("heartbeat", who),
        ("heartbeat", {**who, "group_id": ""}),
        ("leave_group", {"group_id": "g", "members": [{"member_id": "m"}]}),
        ("offset_commit", {"group_id": "g", "topics": offsets}),
        ("offset_fetch", {"groups": [{"group_id": "g", "topics": None}]}),
        ("offset_delete", {"group_id": "g", "topics": [{"name": topic.name, "partitions": [{"partition_index": 0}]}]}),
        ("list_groups", {}),
        ("describe_groups", {"groups": ["g"]}),
        ("delete_groups", {"groups_names": ["g"]}),
        ("consumer_group_heartbeat", {"group_id": "g", "member_id": "m", "member_epoch": 5}),
        ("consumer_group_heartbeat", {"group_id": "", "member_id": "m", "member_epoch": 5}),
        ("consumer_group_describe", {"group_ids": ["g"]}),
        ("consumer_group_describe", {"group_ids": [""]}),
        ("init_producer_id", {"transactional_id": "t", "transaction_timeout": 1000}),
        ("init_producer_id", {"transactional_id": "", "transaction_timeout": 1000}),
        ("init_producer_id", {"transactional_id": "t", "transaction_timeout": 100_000_000}),
        ("add_offsets_to_txn", {**transaction, "group_id": "g"}),
        ("txn_offset_commit", {**transaction, "group_id": "g", "topics": offsets}),
        ("end_txn", {**transaction, "committed": True}),
        ("end_txn", {**transaction, "transactional_id": "", "committed": True}),
        ("list_transactions", {}),
        ("describe_transactions", {"transactional_ids": ["t", ""]}),
    ]
    return {
        f"{number} {api}": comparable(wire.send(api, **values), topic) for number, (api, values) in enumerate(asked)
    }


class Story:
    """What a broker was told before its folder went to another, with names that are the same for every broker."""

    def __init__(self, broker: Broker, *, killed: bool = False) -> None:
        with broker, Wire(broker.bootstrap) as wire:
            self.topic = create_topic(wire, partitions=2, name="orders")
            self.first_answers = answers_of_nobody(wire, self.topic)
            for group in GROUPS:
                wait_for_group_coordinator(wire, group)
            self.classic = self._classic_group(broker)
            self.new = ConsumerMember(wire, "new", "the-member", subscribed_topic_names=[self.topic.name])
            self.new.join()
            self.new.wait_for_share()
            settle(self.new)
            identity = {"member_id": self.new.id, "generation_id_or_member_epoch": self.new.epoch}
            wire.send("offset_commit", group_id="new", **identity, topics=offsets_to_commit(self.topic, {0: 3}))
            for group in ("idle", "gone"):
                wire.send("offset_commit", group_id=group, topics=offsets_to_commit(self.topic, {0: 1}))
            wire.send("delete_groups", groups_names=["gone"])
            self._expiring_group(wire)
            self.ended, self.running = self._transactions(wire)
            self.producer_ids = {"ended": self.ended.id, "running": self.running.id}
            if killed:
                broker.kill()
        self.path = broker.data_dir

    def _classic_group(self, broker: Broker) -> ClassicMember:
        protocols = {"range": subscription(self.topic.name)}
        lasting = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
        member = ClassicMember(broker.bootstrap, "classic", instance_id="one", protocols=protocols, **lasting)
        with member:
            member.join()
            member.sync({member.id: assignment(self.topic.name, 0, 1)})
            assert member.commit(self.topic, 5, metadata="a note") is ErrorCode.none
        return member

    def _expiring_group(self, wire: Wire) -> None:
        """Old clients say how long their commit is good for; the group goes with its last offset."""
        nobody = {"group_id": "expired", "generation_id_or_member_epoch": -1, "member_id": ""}
        for partition, version in enumerate((2, 4)):
            topics = offsets_to_commit(self.topic, {partition: 6})
            wire.send("offset_commit", version, **nobody, retention_time=300, topics=topics)
            assert committed(wire, "expired", self.topic, [partition])[partition].committed_offset == 6

        def is_dead() -> bool:
            (found,) = wire.send("describe_groups", groups=["expired"]).groups
            return found.error_code is ErrorCode.group_id_not_found

        eventually(is_dead, "the end of the group")

    def _transactions(self, wire: Wire) -> tuple[TransactionalProducer, TransactionalProducer]:
        """One that has committed, aborted and raised its epoch, and one that is still open."""
        ended, running = TransactionalProducer(wire, "ended"), TransactionalProducer(wire, "running")
        ended.add(self.topic, 0)
        ended.send(self.topic, b"committed")
        ended.send_offsets("in-transaction", self.topic, {0: 4})
        ended.end(committed=True)
        ended.wait_until_complete()
        ended.add(self.topic, 0)
        ended.send(self.topic, b"aborted")
        ended.end(committed=False, version=RAISING_END)
        ended.wait_until_complete()
        running.add(self.topic, 1)
        running.send(self.topic, b"open", partition=1)
        running.send_offsets("in-transaction", self.topic, {1: 8})
        return ended, running

    def wait_until_loaded(self, wire: Wire) -> None:
        """Waits until the broker that has the folder now serves what is in it."""
        wait_for_partitions(wire, self.topic.name, 2)
        for group in GROUPS:
            wait_for_group_coordinator(wire, group)
        for transactional_id in ("ended", "running"):
            wait_for_transaction_coordinator(wire, transactional_id)

    def assert_offsets_are_known(self, wire: Wire) -> None:
        """All commits, none of groups that are no more, and of an open transaction only that there is one."""
        expected = {"classic": 5, "new": 3, "idle": 1, "gone": -1, "expired": -1, "in-transaction": 4}
        found = {group: committed(wire, group, self.topic)[0] for group in GROUPS}
        assert {group: offset.committed_offset for group, offset in found.items()} == expected
        assert found["classic"].metadata == "a note"
        pending = committed(wire, "in-transaction", self.topic, [1], require_stable=True)[1]
        assert pending.error_code is ErrorCode.unstable_offset_commit

    def assert_classic_member_goes_on(self, bootstrap: str) -> None:
        """Its heartbeat is taken, and it comes back under its instance id without a rebalance."""
        with ClassicMember(bootstrap, "classic", instance_id="one", protocols=self.classic.protocols) as member:
            member.id, member.generation = self.classic.id, self.classic.generation
            assert member.heartbeat() is ErrorCode.none
            member.id = ""
            answer = member.join()
            assert (answer.error_code, answer.generation_id) == (ErrorCode.none, self.classic.generation)
            assert member.sync().assignment == assignment(self.topic.name, 0, 1)

    def assert_new_member_goes_on(self, wire: Wire) -> None:
        """It keeps its partitions; its epoch may rise, as what a group remembers of its topics is a hash of our own."""
        before = self.new.epoch
        self.new.wire = wire
        settle(self.new)
        assert self.new.epoch in (before, before + 1)
        assert self.new.partitions(self.topic) == [0, 1]

    def assert_transactions_go_on(self, wire: Wire) -> None:
        """The open one is committed by its producer; the other's id is taken up with a higher epoch."""
        self.running.wire = self.ended.wire = wire
        assert (self.running.state(), self.ended.state()) == ("Ongoing", "CompleteAbort")
        assert self.stable_offsets(wire) == [4, 0]
        assert self.running.end(committed=True) is ErrorCode.none
        assert self.running.wait_until_complete() == "CompleteCommit"
        eventually(lambda: self.stable_offsets(wire) == [4, 2], "the marker")
        eventually(lambda: committed(wire, "in-transaction", self.topic, [1])[1].committed_offset == 8, "the offset")
        again = TransactionalProducer(wire, "ended")
        assert (again.id, again.epoch) == (self.ended.id, self.ended.epoch + 1)

    def stable_offsets(self, wire: Wire) -> list[int]:
        found = list_offsets(wire, self.topic.name, {0: LATEST, 1: LATEST}, isolation_level=1)
        return [found[partition].offset for partition in (0, 1)]


@pytest.fixture(scope="module")
def apache_story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    require_apache()
    return Story(ApacheKafka(tmp_path_factory.mktemp("apache-groups"), SETTINGS, jvm_options=QUICK_START))


@pytest.fixture(scope="module")
def our_story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    require_apache()
    return Story(HeadwaterProcess(tmp_path_factory.mktemp("our-groups"), SETTINGS))


def test_a_broker_without_any_coordinator_says_the_same(apache_story: Story, our_story: Story) -> None:
    assert "\n".join(differences(our_story.first_answers, apache_story.first_answers, "")) == ""


@pytest.fixture
def taken_over(apache_story: Story, tmp_path: Path) -> Iterator[HeadwaterProcess]:
    """headwater on a copy of Apache's folder."""
    copy = tmp_path / "copy"
    shutil.copytree(apache_story.path, copy)
    with HeadwaterProcess(tmp_path / "run", SETTINGS, data_dir=copy) as broker:
        yield broker


def test_groups_and_transactions_of_apache_go_on_with_us(apache_story: Story, taken_over: HeadwaterProcess) -> None:
    with Wire(taken_over.bootstrap) as wire:
        apache_story.wait_until_loaded(wire)
        apache_story.assert_offsets_are_known(wire)
        apache_story.assert_classic_member_goes_on(taken_over.bootstrap)
        apache_story.assert_new_member_goes_on(wire)
        apache_story.assert_transactions_go_on(wire)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_groups_and_transactions_survive_a_restart(tmp_path: Path, *, killed: bool) -> None:
    broker = HeadwaterProcess(tmp_path, SETTINGS)
    story = Story(broker, killed=killed)
    with broker, Wire(broker.bootstrap) as wire:
        story.wait_until_loaded(wire)
        story.assert_offsets_are_known(wire)
        story.assert_classic_member_goes_on(broker.bootstrap)
        story.assert_new_member_goes_on(wire)
        story.assert_transactions_go_on(wire)


def test_our_groups_and_transactions_go_on_with_apache(our_story: Story, tmp_path: Path) -> None:
    """Our partition folders are put in the place of empty ones of Apache's, which keep their topic ids."""
    broker = ApacheKafka(tmp_path, SETTINGS, jvm_options=QUICK_START)
    with broker:
        with Wire(broker.bootstrap) as wire:
            create_topic(wire, partitions=2, name=our_story.topic.name)
            wait_for_group_coordinator(wire, "classic")
            wait_for_transaction_coordinator(wire, "running")
        broker.stop()
        for name in (*INTERNAL, "orders-0", "orders-1"):
            metadata = (broker.data_dir / name / "partition.metadata").read_text()
            shutil.rmtree(broker.data_dir / name)
            shutil.copytree(our_story.path / name, broker.data_dir / name)
            (broker.data_dir / name / "partition.metadata").write_text(metadata)
        broker.start()
        with Wire(broker.bootstrap) as wire:
            our_story.wait_until_loaded(wire)
            our_story.assert_offsets_are_known(wire)
            our_story.assert_classic_member_goes_on(broker.bootstrap)
            (described,) = wire.send("consumer_group_describe", group_ids=["new"]).groups
            assert [found.member_id for found in described.members] == [our_story.new.id]
            our_story.assert_transactions_go_on(wire)


@functools.cache
def decoded(folder: Path, decoder: str) -> str:
    """What Apache's tool makes of a log."""
    files = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    return run_tool("kafka.tools.DumpLogSegments", decoder, "--files", files)


# What is ours on purpose, and Apache reads as well: the hash over the topics that a group is subscribed to; the id of
# the topic with each offset, so that one made again does not inherit it; and null for "no regular expression".
OUR_OWN = (
    (r'"metadataHash":-?\d+', '"metadataHash":<hash>'),
    (r',"topicId":"<topic id>"\}', "}"),
    (r'"subscribedTopicRegex":(null|"")', '"subscribedTopicRegex":<none>'),
)


def records(said: str, masks: Mapping[str, str]) -> dict[str, list[str]]:
    """For each key all its values, in order; what chance and the clock gave is masked."""
    for found, mask in masks.items():
        said = said.replace(found, mask)
    said = re.sub(r"\b1[789]\d{11}\b", "<time>", said)
    for ours, common in OUR_OWN:
        said = re.sub(ours, common, said)
    found_records: dict[str, list[str]] = {}
    for line in said.splitlines():
        if match := re.match(r"\| offset: .* key: (\{.*?\}\}) payload: (.*)$", line):
            found_records.setdefault(match[1], []).append(match[2])
    return found_records


def masks_of(story: Story) -> dict[str, str]:
    ids = {f'"producerId":{number},': f'"producerId":<{name}>,' for name, number in story.producer_ids.items()}
    return {story.classic.id: "<classic member>", as_kafka_writes(story.topic.id): "<topic id>", **ids}


def as_kafka_writes(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def test_the_group_topic_is_apaches_key_by_key(apache_story: Story, our_story: Story) -> None:
    """The newest value of each key: on the way there Apache writes some in between."""
    ours, theirs = (
        {key: values[-1] for key, values in records(said, masks_of(story)).items()}
        for story in (our_story, apache_story)
        for said in (decoded(story.path / INTERNAL[0], "--offsets-decoder"),)
    )
    assert {json.loads(key)["type"] for key in theirs} >= {"1", "2", "3", "5", "6", "7", "8"}
    assert "\n".join(differences(ours, theirs, "")) == ""


def test_the_transaction_topic_is_apaches_record_by_record(apache_story: Story, our_story: Story) -> None:
    ours, theirs = (
        records(decoded(story.path / INTERNAL[1], "--transaction-log-decoder"), masks_of(story))
        for story in (our_story, apache_story)
    )
    assert len(theirs) == 2
    assert "\n".join(differences(ours, theirs, "")) == ""


def test_the_tool_finds_no_fault_in_our_batches(our_story: Story) -> None:
    for name, decoder in zip(INTERNAL, ("--offsets-decoder", "--transaction-log-decoder"), strict=True):
        said = decoded(our_story.path / name, decoder)
        assert said.count("isvalid: true") == said.count("baseOffset: ") > 0
        assert not re.search(r"(?i)mismatch|corrupt|exception|non-consecutive|isvalid: false", said)
    # The end of a transaction stands among the offsets that were committed in it.
    said = decoded(our_story.path / INTERNAL[0], "--offsets-decoder")
    assert re.search(r"isTransactional: true isControl: true", said)
    assert "endTxnMarker: COMMIT" in said
