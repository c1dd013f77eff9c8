"""ConsumerGroupHeartbeat: requests that make no sense are refused before anything is looked at."""

from typing import Any

import pytest

from headwater.protocol.kafka_types import ErrorCode

from .building import REBALANCE_MS
from .consumer_building import ConsumerDriver, assigned, numbers

JOIN: dict[str, Any] = {"topics": ["orders"], "owned": (), "rebalance_ms": REBALANCE_MS}


@pytest.mark.parametrize(
    ("member_id", "epoch", "request_fields"),
    [
        ("", 0, JOIN),
        (" ", 3, {}),
        ("m", -3, {}),
        ("m", -2, {}),
        ("m", 0, {**JOIN, "group": ""}),
        ("m", 0, {**JOIN, "instance": " "}),
        ("m", 0, {**JOIN, "rack": ""}),
        ("m", 0, {**JOIN, "rebalance_ms": -1}),
        ("m", 0, {**JOIN, "owned": None}),
        ("m", 0, {**JOIN, "topics": None}),
    ],
    ids=[
        "no member id",
        "blank member id",
        "no such epoch",
        "away without instance id",
        "no group id",
        "blank instance id",
        "empty rack",
        "joins without rebalance timeout",
        "joins without saying what it owns",
        "joins without subscription",
    ],
)
def test_a_request_that_makes_no_sense_is_refused(member_id: str, epoch: int, request_fields: dict[str, Any]) -> None:
    driver = ConsumerDriver()
    call = driver.beat(member_id, epoch, **request_fields)
    assert call.error is ErrorCode.invalid_request
    assert call.response.error_message
    assert not driver.log


def test_a_member_that_joins_must_own_nothing() -> None:
    driver = ConsumerDriver()
    owned = driver.all_partitions("orders")
    assert driver.beat("m", 0, **{**JOIN, "owned": owned}).error is ErrorCode.invalid_request


def test_an_assignor_that_is_not_there_is_refused() -> None:
    call = ConsumerDriver().enter_as_consumer("m", "orders", assignor="fair")
    assert call.error is ErrorCode.unsupported_assignor
    assert "uniform, range" in call.response.error_message


def test_assignors_are_those_that_are_configured() -> None:
    driver = ConsumerDriver(group_consumer_assignors="range")
    assert driver.enter_as_consumer("m", "orders", assignor="uniform").error is ErrorCode.unsupported_assignor
    assert driver.enter_as_consumer("m", "orders").error is ErrorCode.none
    assert driver.describe_consumer_group().assignor_name == "range"


def test_version_0_gives_a_member_its_id() -> None:
    driver = ConsumerDriver()
    call = driver.enter_as_consumer("", "orders", version=0)
    assert call.error is ErrorCode.none
    assert call.response.member_id == "id1"
    assert numbers(assigned(call)) == [0, 1, 2]


def test_a_member_may_join_without_subscribing_to_anything() -> None:
    driver = ConsumerDriver()
    call = driver.beat("m", 0, topics=[], owned=(), rebalance_ms=REBALANCE_MS)
    assert (call.error, call.response.member_epoch, assigned(call)) == (ErrorCode.none, 1, frozenset())
    assert driver.describe_consumer_group().group_state == "Stable"


def test_a_heartbeat_without_news_is_not_written_unless_it_comes_from_elsewhere() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("m", "orders")
    written = len(driver.log)
    driver.beat("m", 1)
    assert len(driver.log) == written
    driver.beat("m", 1, host="/10.0.0.7")
    (member,) = driver.describe_consumer_group().members
    assert (member.client_host, member.subscribed_topic_names) == ("/10.0.0.7", ("orders",))
