"""What people read about groups that are on the move."""

import pytest

from headwater.cli.group_tables import print_members, remark_on_state
from headwater.client.admin.group_descriptions import Group, Member
from headwater.client.connection import Address
from headwater.client.coordinators import Coordinator
from headwater.types import TopicPartition

ORDERS = [TopicPartition("orders", number) for number in range(3)]


def member(name: str, assignment: list[TopicPartition], target: list[TopicPartition] | None = None) -> Member:
    return Member(
        member_id=name,
        instance_id=None,
        client_id="till",
        host="/127.0.0.1",
        assignment=tuple(assignment),
        target_assignment=None if target is None else tuple(target),
    )


def group(state: str, *members: Member) -> Group:
    return Group(
        group_id="billing",
        group_type="consumer",
        protocol_type="consumer",
        state=state,
        assignor="uniform",
        coordinator=Coordinator(1, Address("localhost", 9092)),
        members=members,
    )


def test_where_partitions_are_to_go_is_shown_while_they_are_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    print_members([member("a", ORDERS, ORDERS[:2]), member("b", [], ORDERS[2:])], verbose=True)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT", "TARGET-ASSIGNMENT"],
        ["a", "/127.0.0.1", "till", "3", "orders:0,1,2", "orders:0,1"],
        ["b", "/127.0.0.1", "till", "0", "-", "orders:2"],
    ]


def test_a_target_that_is_reached_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    print_members([member("a", ORDERS, ORDERS), member("classic", [])], verbose=True)
    assert "TARGET-ASSIGNMENT" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("Stable", ""),
        ("Reconciling", "headwater: group billing is rebalancing (Reconciling): its assignment is about to change\n"),
        ("PreparingRebalance", "headwater: group billing is rebalancing (PreparingRebalance): its assignment"),
    ],
)
def test_a_rebalance_is_told(state: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    remark_on_state(group(state, member("a", ORDERS)))
    printed = capsys.readouterr().err
    assert printed.startswith(says)
    assert bool(printed) == bool(says)
