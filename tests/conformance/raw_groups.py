"""Members of groups without a client's help: each is one connection and does nothing that it is not told.

Answers are kio's objects; what a member learns from them (its id, its generation) it keeps for its next request.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Self

from kio.schema.errors import ErrorCode

from .actions import Topic, eventually, unique_name
from .wire import APIS, Wire

GROUP, TRANSACTION = 0, 1
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
_NOT_YET = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


def wait_for_group_coordinator(wire: Wire, group: str) -> None:
    """Waits until this group's requests are served: the first one makes the broker create a topic."""

    def serves() -> bool:
        (found,) = wire.send("find_coordinator", key_type=GROUP, coordinator_keys=[group]).coordinators
        if found.error_code in _NOT_YET:
            return False
        (described,) = wire.send("describe_groups", groups=[group]).groups
        return described.error_code not in _NOT_YET

    eventually(serves, f"the coordinator of group {group}")


def wait_for_transaction_coordinator(wire: Wire, transactional_id: str) -> None:
    """The same for a transactional id."""

    def serves() -> bool:
        ask = {"key_type": TRANSACTION, "coordinator_keys": [transactional_id]}
        (found,) = wire.send("find_coordinator", **ask).coordinators
        if found.error_code in _NOT_YET:
            return False
        (described,) = wire.send("describe_transactions", transactional_ids=[transactional_id]).transaction_states
        return described.error_code not in _NOT_YET

    eventually(serves, f"the coordinator of transactional id {transactional_id}")


def new_group(wire: Wire, *, knows: Topic | None = None) -> str:
    """The id of a group that does not exist yet, with its coordinator ready.

    `knows`: a topic of which that coordinator has heard, so that the first member gets its share when it joins.
    """
    name = unique_name("group")
    # To Java's hash of strings "Aa" is "BB": both groups have the same coordinator.
    group, scouting = f"{name}-Aa", f"{name}-BB"
    wait_for_group_coordinator(wire, group)
    if knows:
        scout = ConsumerMember(wire, scouting, "scout", subscribed_topic_names=[knows.name])
        assert scout.join().error_code is ErrorCode.none
        scout.wait_for_share()
        assert scout.heartbeat(member_epoch=LEAVING).error_code is ErrorCode.none
    return group


def subscription(*topics: str) -> bytes:
    """What a consumer says of itself in JoinGroup, in its oldest form: the topics that it wants."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """What a consumer gets from SyncGroup, in its oldest form."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    return struct.pack(f">hi{len(name)}si{len(partitions)}ii", 0, 1, name, len(partitions), *partitions, -1)


class ClassicMember:
    """A member of a classic group.

    >>> with ClassicMember(bootstrap, "group") as member:
    ...     member.join()
    ...     member.sync({member.id: b"all"})
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        session_timeout_ms: int = 20_000,
        rebalance_timeout_ms: int = 20_000,
    ) -> None:
        self.wire = Wire(bootstrap)
        self.group = group
        self.instance_id = instance_id
        self.protocols = protocols or {"range": subscription("a-topic")}
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.id = ""
        self.generation = -1
        self._joining = -1
        self._syncing = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def join(self) -> Any:
        """Joins and waits for the answer; takes the id that it is given and, if that is all, comes again with it."""
        self.start_joining()
        answer = self.joined()
        if answer.error_code is ErrorCode.member_id_required:
            self.start_joining()
            answer = self.joined()
        return answer

    def introduce(self) -> None:
        """Gets an id, so that the next join is one that counts."""
        self.start_joining()
        answer = self.joined()
        assert answer.error_code is ErrorCode.member_id_required, answer

    def start_joining(self) -> None:
        """Sends the request; `joined` waits for its answer."""
        self._joining = self.wire.send_only("join_group", **self.join_values())

    def join_values(self) -> dict[str, Any]:
        """The request as this member would send it."""
        return {
            "group_id": self.group,
            "session_timeout": self.session_timeout_ms,
            "rebalance_timeout": self.rebalance_timeout_ms,
            "member_id": self.id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in self.protocols.items()],
        }

    def joined(self) -> Any:
        """The answer to `start_joining`."""
        answer = self._receive("join_group", self._joining)
        if answer.error_code in (ErrorCode.none, ErrorCode.member_id_required):
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> Any:
        """Says who gets what (as the leader), and waits for this member's share."""
        self.start_syncing(assignments)
        return self.synced()

    def start_syncing(self, assignments: Mapping[str, bytes] | None = None) -> None:
        """Sends the request; `synced` waits for its answer."""
        given = [{"member_id": member, "assignment": share} for member, share in (assignments or {}).items()]
        names = {"protocol_type": "consumer", "protocol_name": next(iter(self.protocols))}
        self._syncing = self.wire.send_only("sync_group", **self.identity(), **names, assignments=given)

    def synced(self) -> Any:
        """The answer to `start_syncing`."""
        return self._receive("sync_group", self._syncing)

    def identity(self) -> dict[str, Any]:
        """Who this member is, as most requests want it."""
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance_id,
        }

    def heartbeat(self) -> ErrorCode:
        """What a heartbeat is answered with."""
        error: ErrorCode = self.wire.send("heartbeat", **self.identity()).error_code
        return error

    def leave(self) -> ErrorCode:
        """Leaves by its member id, as a dynamic member does."""
        identity = {"member_id": self.id, "group_instance_id": self.instance_id}
        (left,) = self.wire.send("leave_group", group_id=self.group, members=[identity]).members
        error: ErrorCode = left.error_code
        return error

    def commit(self, topic: Topic, offset: int, *, metadata: str = "", partition: int = 0) -> ErrorCode:
        """What a commit of one offset is answered with."""
        identity = self.identity()
        identity["generation_id_or_member_epoch"] = identity.pop("generation_id")
        topics = offsets_to_commit(topic, {partition: offset}, metadata)
        answer = self.wire.send("offset_commit", **identity, topics=topics)
        error: ErrorCode = answer.topics[0].partitions[0].error_code
        return error

    def _receive(self, api: str, correlation_id: int) -> Any:
        key, _, newest = APIS[api]
        return self.wire.receive(key, newest, correlation_id)


class ConsumerMember:
    """A member of a consumer group (KIP-848), which does nothing but heartbeat.

    Its id is its own choice; assignors go by the order of ids, so cases that care choose them.
    """

    def __init__(
        self, wire: Wire, group: str, member_id: str, *, instance_id: str | None = None, **subscribed: Any
    ) -> None:
        self.wire = wire
        self.group = group
        self.id = member_id
        self.instance_id = instance_id
        self.subscribed = subscribed
        self.epoch = 0
        self.owned: dict[uuid.UUID, tuple[int, ...]] = {}

    def join(self, **more: Any) -> Any:
        """The first heartbeat, which says all there is to say."""
        everything = {"rebalance_timeout": 20_000, "topic_partitions": [], **self.subscribed, **more}
        return self.heartbeat(member_epoch=JOINING, **everything)

    def heartbeat(self, version: int | None = None, /, **more: Any) -> Any:
        """One heartbeat; its epoch and assignment are taken over."""
        answer = self.wire.send("consumer_group_heartbeat", version, **{**self.heartbeat_values(), **more})
        if answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {found.topic_id: found.partitions for found in answer.assignment.topic_partitions}
        return answer

    def heartbeat_values(self) -> dict[str, Any]:
        """The request as this member would send it when nothing has changed."""
        return {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout": -1,
            "topic_partitions": None,
        }

    def report_owned(self, version: int | None = None) -> Any:
        """A heartbeat that says which partitions it holds."""
        held = [{"topic_id": topic, "partitions": partitions} for topic, partitions in self.owned.items()]
        return self.heartbeat(version, topic_partitions=held)

    def wait_for_share(self) -> None:
        """Heartbeats until it is given something.

        A coordinator hears of a new topic later than Metadata tells it; in Apache each partition of its log does.
        """
        eventually(lambda: self.report_owned() and self.owned, f"the share of {self.id}")

    def partitions(self, topic: Topic) -> list[int]:
        """What it holds of this topic."""
        return sorted(self.owned.get(topic.id, ()))


def settle(*members: ConsumerMember) -> None:
    """Lets members heartbeat in turn until none is told anything new."""

    def quiet() -> bool:
        answers = [member.report_owned() for member in members for _ in range(2)]
        epochs = {answer.member_epoch for answer in answers}
        return len(epochs) == 1 and all(answer.assignment is None for answer in answers[1::2])

    eventually(quiet, "the end of the rebalance")


def offsets_to_commit(topic: Topic, offsets: Mapping[int, int], metadata: str | None = "") -> list[dict[str, Any]]:
    """The topics of an OffsetCommit or TxnOffsetCommit: partition to offset, in one topic."""
    partitions = [
        {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        for partition, offset in offsets.items()
    ]
    return [{"name": topic.name, "partitions": partitions}]


def committed(
    wire: Wire, group: str, topic: Topic, partitions: Sequence[int] = (0,), *, require_stable: bool = False
) -> dict[int, Any]:
    """What the group has committed, by partition: the entries of OffsetFetch."""
    topics = [{"name": topic.name, "partition_indexes": partitions}]
    asked = [{"group_id": group, "topics": topics}]
    (answer,) = wire.send("offset_fetch", groups=asked, require_stable=require_stable).groups
    assert answer.error_code is ErrorCode.none, answer
    return {found.partition_index: found for found in answer.topics[0].partitions}
