"""A picture of the cluster only gets newer, and begins anew where the cluster or a topic was made anew."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.addresses import Address
from headwater.client.leader_hints import LeaderHint, NodeEndpoint
from headwater.client.metadata import ClusterPicture, Leader
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, TopicName, i32
from headwater.types import TopicPartition

from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

FIRST_ID, SECOND_ID = uuid.UUID(int=1), uuid.UUID(int=2)


def topic(
    name: str,
    *leaders: tuple[int, int],
    topic_id: uuid.UUID | None = FIRST_ID,
    error: ErrorCode = ErrorCode.none,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=TopicName(name),
        topic_id=topic_id,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(number),
                leader_id=BrokerId(node),
                leader_epoch=i32(epoch),
            )
            for number, (node, epoch) in enumerate(leaders)
        ),
    )


def answer(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2), cluster: str = "c") -> MetadataResponse:
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(node), host="h", port=i32(9000 + node)) for node in brokers
        ),
        cluster_id=cluster,
        controller_id=BrokerId(1),
        topics=topics,
    )


@given(st.lists(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 9)), min_size=1, max_size=3), min_size=1))
def test_an_older_epoch_never_replaces_a_newer_one(pictures: list[list[tuple[int, int]]]) -> None:
    picture = ClusterPicture()
    newest: dict[int, tuple[int, int]] = {}
    for leaders in pictures:
        picture.apply(answer(topic("t", *leaders)))
        for number, (node, epoch) in enumerate(leaders):
            if number not in newest or epoch >= newest[number][1]:
                newest[number] = (node, epoch)
    for number, (node, epoch) in newest.items():
        assert picture.leader_of("t", number) == (Leader(node, epoch) if node >= 0 else None)
    assert len(picture.topics["t"].partitions) == len(newest)


def test_a_topic_made_anew_begins_from_nothing() -> None:
    picture = ClusterPicture()
    picture.apply(answer(topic("t", (1, 7), (1, 7))))
    picture.apply(answer(topic("t", (2, 0), topic_id=SECOND_ID)))
    assert (picture.leader_of("t", 0), picture.leader_of("t", 1)) == (Leader(2, 0), None)
    assert picture.topics["t"].topic_id == SECOND_ID


def test_a_cluster_made_anew_at_the_same_address_begins_from_nothing() -> None:
    picture = ClusterPicture()
    picture.apply(answer(topic("gone", (1, 7)), topic("t", (1, 7), topic_id=None)))
    picture.apply(answer(topic("t", (2, 0), topic_id=None), cluster="another"))
    assert (picture.leader_of("gone", 0), picture.leader_of("t", 0)) == (None, Leader(2, 0))


def test_an_old_broker_that_has_no_epochs_is_believed() -> None:
    picture = ClusterPicture()
    picture.apply(answer(topic("t", (1, 7))))
    picture.apply(answer(topic("t", (2, -1))))
    assert picture.leader_of("t", 0) == Leader(2, -1)


def test_a_topic_that_is_gone_is_forgotten_and_one_in_trouble_is_not() -> None:
    picture = ClusterPicture()
    picture.apply(answer(topic("gone", (1, 0)), topic("troubled", (1, 0))))
    picture.apply(
        answer(
            topic("gone", topic_id=None, error=ErrorCode.unknown_topic_or_partition),
            topic("troubled", topic_id=None, error=ErrorCode.leader_not_available),
        )
    )
    assert (picture.leader_of("gone", 0), picture.leader_of("troubled", 0)) == (None, Leader(1, 0))
    assert picture.errors == {
        "gone": ErrorCode.unknown_topic_or_partition,
        "troubled": ErrorCode.leader_not_available,
    }
    picture.apply(answer(topic("gone", (1, 0), topic_id=SECOND_ID), topic("troubled", (1, 0))))
    assert picture.errors == {}


def test_an_answer_about_all_topics_ends_those_that_it_does_not_name() -> None:
    picture = ClusterPicture()
    picture.apply(answer(topic("a", (1, 0)), topic("b", (1, 0))))
    picture.apply(answer(topic("b", (1, 0))))
    assert set(picture.topics) == {"a", "b"}
    picture.apply(answer(topic("b", (1, 0))), all_topics=True)
    assert set(picture.topics) == {"b"}


def test_brokers_are_those_of_the_last_answer_but_an_empty_list_is_no_answer() -> None:
    picture = ClusterPicture()
    picture.apply(answer(brokers=(1, 2)))
    picture.apply(answer(brokers=(2, 3)))
    picture.apply(answer(brokers=()))
    assert {node: broker.address for node, broker in picture.brokers.items()} == {
        2: Address("h", 9002),
        3: Address("h", 9003),
    }


def test_a_hint_counts_where_it_is_newer_and_its_broker_can_be_reached() -> None:
    picture = ClusterPicture()
    picture.apply(answer(topic("orders", (1, 5), (1, 5))))
    there = NodeEndpoint(3, "other", 9003, None)

    def hint(partition: int, node: int, epoch: int, *, of: str = "orders") -> LeaderHint:
        return LeaderHint(TopicPartition(of, partition), node, epoch)

    for useless in (hint(0, 2, 5), hint(0, 3, 6), hint(0, -1, 6), hint(7, 2, 6), hint(0, 2, 6, of="bills")):
        assert not picture.take_hints([useless], [])
    assert picture.leader_of("orders", 0) == Leader(1, 5)
    assert picture.take_hints([hint(0, 2, 6), hint(1, 3, 7)], [there])
    assert [picture.leader_of("orders", number) for number in (0, 1)] == [Leader(2, 6), Leader(3, 7)]
    assert picture.brokers[3].address == Address("other", 9003)
    picture.apply(answer(topic("orders", (1, 5), (1, 8))))
    assert [picture.leader_of("orders", number) for number in (0, 1)] == [Leader(2, 6), Leader(1, 8)]
