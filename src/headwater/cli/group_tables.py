"""Groups for people and for machines: the tables of Kafka's tool, its remarks, and JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headwater.cli.output import complain, print_table
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.cli.group_lag import PartitionLag
    from headwater.client.admin.group_descriptions import Group, Member

_OFFSET_COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
_STATE_COLUMNS = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def print_lags(found: "Sequence[tuple[Group, Sequence[PartitionLag]]]", *, with_group: bool) -> None:
    """Every partition of every group, and what there is to say of the groups."""
    rows = [(group.group_id, *asdict(lag).values()) for group, lags in found for lag in lags]
    columns = ("GROUP", *_OFFSET_COLUMNS)
    first = 0 if with_group else 1
    if rows:
        print_table(
            columns[first:], [row[first:] for row in rows], numeric=_OFFSET_COLUMNS[1:5], shortened=("CONSUMER-ID",)
        )
    for group, lags in found:
        remark_on_state(group, "" if lags else " and no committed offsets")


def print_states(groups: "Sequence[Group]") -> None:
    """Where each group is coordinated, and what it is doing."""
    rows = [
        (
            group.group_id,
            f"{group.coordinator.address} ({group.coordinator.broker})",
            group.assignor or None,
            group.state,
            len(group.members),
        )
        for group in groups
    ]
    print_table(_STATE_COLUMNS, rows, numeric=("#MEMBERS",))


def print_members(members: "Sequence[Member]", *, verbose: bool) -> None:
    """The columns of Kafka's tool; those that would be empty for all members are left out."""
    columns: dict[str, list[Any]] = {
        "CONSUMER-ID": [member.member_id for member in members],
        "GROUP-INSTANCE-ID": [member.instance_id for member in members],
        "HOST": [member.host for member in members],
        "CLIENT-ID": [member.client_id for member in members],
        "#PARTITIONS": [len(member.assignment) for member in members],
    }
    if not any(columns["GROUP-INSTANCE-ID"]):
        del columns["GROUP-INSTANCE-ID"]
    if verbose:
        columns["ASSIGNMENT"] = [partitions_text(member.assignment) or None for member in members]
        targets = [
            member.assignment if member.target_assignment is None else member.target_assignment for member in members
        ]
        if any(member.assignment != target for member, target in zip(members, targets, strict=True)):
            columns["TARGET-ASSIGNMENT"] = [partitions_text(target) or None for target in targets]
    print_table(tuple(columns), list(zip(*columns.values(), strict=True)), numeric=("#PARTITIONS",))


def remark_on_state(group: "Group", addition: str = "") -> None:
    """What Kafka's tool says besides the table, on stderr as there."""
    if not group.members:
        complain(f"group {group.group_id} has no active members{addition}")
    elif group.state in _REBALANCING:
        complain(f"group {group.group_id} is rebalancing ({group.state}): its assignment is about to change")


def partitions_text(partitions: Sequence[TopicPartition]) -> str:
    """Partitions as Kafka's tool writes an assignment.

    >>> partitions_text([TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("stock", 1)])
    'orders:0,2;stock:1'
    """
    by_topic: dict[str, list[str]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())


def group_as_json(group: "Group", lags: "Sequence[PartitionLag] | None") -> dict[str, Any]:
    """A group with its partitions, or without where they were not asked for."""
    found: dict[str, Any] = {
        "group": group.group_id,
        "type": group.group_type.capitalize(),
        "state": group.state,
        "coordinator": group.coordinator.broker,
        "coordinator_address": str(group.coordinator.address),
        "assignment_strategy": group.assignor or None,
        "members": len(group.members),
    }
    return found if lags is None else {**found, "partitions": [asdict(lag) for lag in lags]}


def member_as_json(member: "Member") -> dict[str, Any]:
    """All that is known of a member."""

    def listed(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": number} for topic, number in partitions]

    return {
        "consumer_id": member.member_id,
        "group_instance_id": member.instance_id,
        "host": member.host,
        "client_id": member.client_id,
        "epoch": member.epoch,
        "assignment": listed(member.assignment),
        "target_assignment": None if member.target_assignment is None else listed(member.target_assignment),
    }
