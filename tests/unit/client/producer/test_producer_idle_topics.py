"""Topics that nothing is sent to are forgotten by the producer after a while, and come back with the next record."""

import asyncio
from typing import Any

from headwater.client.producer.idle_topics import IdleTopics
from headwater.client.producer.producer import Producer
from scripted_cluster import TOPIC, scripted_cluster


def test_a_topic_is_idle_once_nothing_was_sent_to_it_for_so_long(core: Any) -> None:
    accumulator = core.accumulator_with()
    orders, bills = accumulator.topic("orders"), accumulator.topic("bills")
    idle = IdleTopics(1000)

    def sent(queue: Any) -> None:
        accumulator.append(queue, 2, None, b"v", None, 1000)

    def written() -> None:
        for ready in accumulator.ready(10**9):
            accumulator.done(accumulator.drain(ready, 10**9), 0)

    assert idle.find([orders, bills], 0) == []
    sent(orders)
    assert idle.find([orders, bills], 999) == []
    assert idle.find([orders, bills], 1000) == ["bills"]
    assert idle.find([orders], 5000) == []  # what is not written yet is no idle topic's
    written()
    assert idle.find([orders], 5999) == []
    sent(orders)
    written()
    assert idle.find([orders], 6500) == []  # a batch was made and written between two looks
    assert idle.find([orders, bills], 7499) == []
    assert idle.find([orders, bills], 7500) == ["orders"]
    assert idle.find([orders, bills], 8000) == []  # it came again, and begins anew


def test_an_idle_topic_is_asked_about_no_more_until_something_is_sent() -> None:
    async def story() -> None:
        async with scripted_cluster() as cluster:
            settings = {"enable_idempotence": False, "metadata_max_age_ms": 20, "linger_ms": 0}
            async with Producer(cluster.bootstrap, **settings) as producer:
                await (await producer.send(TOPIC, b"a"))
                producer._idle_topics = IdleTopics(0)  # as if that long had passed already
                while TOPIC in producer.client.known_topics:
                    await asyncio.sleep(0.005)
                producer._idle_topics = IdleTopics(60_000)
                assert not producer.records.knows(TOPIC)
                cluster.topics_asked_for.clear()
                while len(cluster.topics_asked_for) < 3:
                    await asyncio.sleep(0.005)
                assert TOPIC not in {name for names in cluster.topics_asked_for for name in names}
                await (await producer.send(TOPIC, b"b"))
                assert cluster.topics_asked_for[-1] == [TOPIC]

    asyncio.run(asyncio.wait_for(story(), 20))
