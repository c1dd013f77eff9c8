"""The bytes that members hand each other: as Java writes them, in every version, and never an accident when damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.group_protocol import (
    StickyUserData,
    Subscription,
    decode_assignment,
    decode_generation,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_generation,
    encode_sticky_user_data,
    encode_subscription,
)
from headwater.client.errors import ClientError
from headwater.types import TopicPartition

PLACES = st.builds(TopicPartition, st.text("abc-", min_size=1, max_size=5), st.integers(0, 1000))
OWNED = st.lists(PLACES, unique=True, max_size=8).map(lambda found: tuple(sorted(found)))
SUBSCRIPTIONS = st.builds(
    Subscription,
    topics=st.lists(st.text("abc", min_size=1), unique=True, max_size=5).map(lambda found: tuple(sorted(found))),
    user_data=st.none() | st.binary(max_size=20),
    owned=OWNED,
    generation=st.integers(-1, 100),
    rack=st.none() | st.text("xyz", min_size=1, max_size=5),
)


@given(SUBSCRIPTIONS)
def test_a_subscription_survives_the_newest_version(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(SUBSCRIPTIONS, st.integers(0, 3))
def test_older_versions_say_less(subscription: Subscription, version: int) -> None:
    assert decode_subscription(encode_subscription(subscription, version)) == Subscription(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned=subscription.owned if version >= 1 else (),
        generation=subscription.generation if version >= 2 else -1,
        rack=subscription.rack if version >= 3 else None,
    )


def test_a_version_of_tomorrow_is_read_as_far_as_it_is_known() -> None:
    known = encode_subscription(Subscription(topics=("a",), rack="east"))
    assert decode_subscription(b"\x00\x07" + known[2:] + b"more", instance_id="i") == Subscription(
        topics=("a",), rack="east", instance_id="i"
    )


@given(OWNED)
def test_an_assignment_survives(partitions: tuple[TopicPartition, ...]) -> None:
    assert decode_assignment(encode_assignment(partitions)) == partitions


def test_no_bytes_are_no_partitions() -> None:
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize("damaged", [b"\x00", b"\x00\x03\x00\x00\x00\x09", b"\xff\xff\x00\x00\x00\x00"])
def test_damaged_bytes_are_an_error_that_names_the_member(damaged: bytes) -> None:
    with pytest.raises(ClientError, match="ann"):
        decode_subscription(damaged, member="ann")
    with pytest.raises(ClientError, match="leader"):
        decode_assignment(damaged)


@given(OWNED, st.integers(0, 2**31 - 1))
def test_sticky_user_data_survive_and_version_0_lacks_the_generation(
    owned: tuple[TopicPartition, ...], generation: int
) -> None:
    data = encode_sticky_user_data(owned, generation)
    assert decode_sticky_user_data(data) == StickyUserData(owned, generation)
    assert decode_sticky_user_data(data[:-4]) == StickyUserData(owned, None)


def test_sticky_user_data_are_javas() -> None:
    owned = [TopicPartition("t", 1), TopicPartition("t", 0)]
    assert encode_sticky_user_data(owned, 3).hex() == "0000000100017400000002000000010000000000000003"


@given(st.binary(max_size=30))
def test_sticky_user_data_of_strangers_never_fail(data: bytes) -> None:
    assert decode_sticky_user_data(data).generation is None or data


@pytest.mark.parametrize(
    ("data", "generation"), [(None, None), (b"\x01", -1), (encode_generation(7), 7), (encode_generation(-1), -1)]
)
def test_the_generation_of_a_cooperative_member(data: bytes | None, generation: int | None) -> None:
    assert decode_generation(data) == generation
