"""Topics of consumer groups: they come, grow and go, and patterns find them."""

import pytest

from headwater.protocol.kafka_types import ErrorCode

from .consumer_building import BEAT_MS, Consumer, ConsumerDriver, assigned

REFRESH_MS = 600_000


def test_new_partitions_go_to_the_members() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "orders")
    a.beat()
    driver.grow("orders", 5)
    assert driver.describe_consumer_group().group_state == "Assigning"
    a.beat()
    assert (a.epoch, a.reads) == (2, driver.all_partitions("orders"))
    assert len(a.reads) == 5


def test_a_topic_that_does_not_exist_yet_is_read_once_it_does() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "later")
    a.beat()
    assert (a.epoch, a.reads) == (1, frozenset())
    driver.create("later", 2)
    a.beat()
    assert (a.epoch, a.reads) == (2, driver.all_partitions("later"))


def test_partitions_of_a_topic_that_is_gone_are_given_back() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "orders", "payments")
    a.beat()
    driver.delete("orders")
    a.beat()
    assert a.reads == driver.all_partitions("payments")
    a.beat()
    assert driver.describe_consumer_group().group_state == "Stable"


def test_a_topic_that_is_made_anew_is_another_topic() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "orders")
    a.beat()
    before = a.reads
    driver.delete("orders")
    driver.create("orders", 3)
    for _ in range(3):
        a.beat()
    assert a.reads == driver.all_partitions("orders")
    assert not a.reads & before


def test_topics_that_nobody_subscribes_to_disturb_nobody() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "orders")
    a.beat()
    written = len(driver.log)
    driver.grow("payments", 7)
    driver.create("other", 1)
    driver.restart()
    a.beat()
    assert (a.epoch, len(driver.log)) == (1, written)


def test_topics_that_changed_while_the_broker_was_down_are_noticed_at_its_start() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", "orders")
    a.beat()
    driver.topics.partitions["orders"] = 4
    driver.restart()
    a.beat()
    assert (a.epoch, len(a.reads)) == (2, 4)


def test_a_pattern_finds_topics_that_are_there_and_those_that_come() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", regex="(orders|pay).*")
    a.beat()
    assert a.reads == driver.all_partitions("orders", "payments")
    driver.create("pay-later", 2)
    a.beat()
    assert a.reads == driver.all_partitions("orders", "payments", "pay-later")
    driver.delete("orders")
    a.beat()
    assert a.reads == driver.all_partitions("payments", "pay-later")
    assert driver.consumer_group().is_subscribed_to("pay-later")


def test_a_pattern_matches_whole_names() -> None:
    driver = ConsumerDriver()
    assert assigned(driver.enter_as_consumer("a", regex="order")) == frozenset()


def test_names_and_a_pattern_add_up() -> None:
    driver = ConsumerDriver()
    call = driver.enter_as_consumer("a", "orders", regex="pay.*")
    assert assigned(call) == driver.all_partitions("orders", "payments")


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    driver = ConsumerDriver()
    call = driver.enter_as_consumer("a", regex=pattern)
    assert call.error is ErrorCode.invalid_regular_expression
    assert not driver.log


def test_a_pattern_that_nobody_has_any_longer_is_forgotten() -> None:
    driver = ConsumerDriver()
    driver.enter_as_consumer("a", regex="orders")
    driver.enter_as_consumer("b", regex="orders")
    driver.beat("a", 1, regex="payments")
    assert set(driver.consumer_group().regexes) == {"orders", "payments"}
    driver.beat("b", -1)
    assert set(driver.consumer_group().regexes) == {"payments"}
    driver.beat("a", driver.consumer_group().members["a"].epoch, regex="", topics=["orders"])
    assert driver.consumer_group().regexes == {}


def test_a_topic_that_a_pattern_finds_late_is_shared_even_if_others_read_it_already() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", regex="pay.*")
    a.beat()
    driver.fail_appends = True
    driver.create("pay-later", 4)
    driver.fail_appends = False
    b = Consumer(driver, "b", "pay-later")
    b.beat()
    assert b.reads == driver.all_partitions("pay-later")
    driver.topics_changed()
    for consumer in (a, b, a, b, a):
        consumer.beat()
    assert (len(a.reads), len(b.reads)) == (3, 3)


def test_patterns_are_looked_up_again_from_time_to_time() -> None:
    driver = ConsumerDriver()
    a = Consumer(driver, "a", regex="pay.*")
    a.beat()
    driver.topics.partitions["pay-later"] = 1
    driver.topics.ids["pay-later"] = driver.topics.ids["orders"]
    for _ in range(REFRESH_MS // BEAT_MS - 1):
        driver.pass_time(BEAT_MS)
        a.beat()
    assert a.reads == driver.all_partitions("payments")
    driver.pass_time(BEAT_MS)
    a.beat()
    assert a.reads == driver.all_partitions("payments", "pay-later")
