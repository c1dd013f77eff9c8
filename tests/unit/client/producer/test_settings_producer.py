"""A producer's settings: Kafka's names and defaults, and errors that say what to change."""

import ssl
import warnings

import pytest

from headwater.aio import Producer
from headwater.client.producer.settings import producer_settings
from headwater.config.client import PRODUCER, resolve
from headwater.config.errors import ConfigError, UnknownConfigError

# `kafka-producer-configs` of Apache Kafka 4.1, as text; what is not here is about security or metrics.
KAFKA_4_1 = {
    "acks": "all",
    "batch.size": 16384,
    "buffer.memory": 33554432,
    "client.id": "",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "none",
    "compression.zstd.level": 3,
    "connections.max.idle.ms": 540000,
    "delivery.timeout.ms": 120000,
    "enable.idempotence": True,
    "linger.ms": 5,
    "max.block.ms": 60000,
    "max.in.flight.requests.per.connection": 5,
    "max.request.size": 1048576,
    "metadata.max.age.ms": 300000,
    "metadata.max.idle.ms": 300000,
    "partitioner.adaptive.partitioning.enable": True,
    "partitioner.availability.timeout.ms": 0,
    "partitioner.ignore.keys": False,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30000,
    "retries": 2147483647,
    "retry.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "socket.connection.setup.timeout.max.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
    "transaction.timeout.ms": 60000,
    "transactional.id": None,
}


def test_defaults_are_those_of_kafka_4_1() -> None:
    assert {name: PRODUCER[name].default for name in KAFKA_4_1} == KAFKA_4_1


def test_names_are_taken_with_dots_and_with_underscores_and_values_as_text() -> None:
    assert resolve(PRODUCER, {"linger.ms": "7", "batch_size": 100})["linger_ms"] == 7
    assert resolve(PRODUCER, {"linger.ms": "7", "batch_size": 100})["batch_size"] == 100


def test_a_name_given_both_ways_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms is given twice"):
        resolve(PRODUCER, {"linger.ms": 7, "linger_ms": 8})


def test_an_unknown_name_leads_to_the_nearest_known_one() -> None:
    with pytest.raises(UnknownConfigError, match=r"lingr\.ms is not a known producer config\. Did you mean linger\.ms"):
        Producer("localhost:9092", lingr_ms=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acks": 2}, r"acks = '2' is not allowed: it must be one of all, -1, 0, 1"),
        ({"compression_type": "brotli"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"batch_size": -1}, "at least 0"),
        ({"linger_ms": "soon"}, "a whole number of 64 bits"),
        ({"max_in_flight_requests_per_connection": 0}, "at least 1"),
        ({"transactional_id": ""}, "a text that is not empty"),
        ({"delivery_timeout_ms": 10}, r"delivery\.timeout\.ms = 10 is not allowed: it must be at least .* 30005"),
        ({"partitioner_class": "random"}, "it must be sticky, round_robin or a function"),
        ({"value_serializer": "json"}, r"value\.serializer = 'json' is not allowed: it must be a function"),
        ({"enable_idempotence": False, "transactional_id": "billing"}, "transactions rest on it"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        producer_settings(given)


BREAKING = [{"acks": 1}, {"acks": "0"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}]


@pytest.mark.parametrize("breaking", BREAKING, ids=str)
@pytest.mark.parametrize("asked", [{"enable_idempotence": True}, {"transactional.id": "billing"}], ids=str)
def test_idempotence_that_is_asked_for_and_broken_is_an_error(
    asked: dict[str, object], breaking: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(asked)).replace('_', '.')} cannot be had with"):
        producer_settings({**asked, **breaking})


@pytest.mark.parametrize("breaking", BREAKING, ids=str)
def test_idempotence_that_is_not_asked_for_is_switched_off_with_a_warning(breaking: dict[str, object]) -> None:
    with pytest.warns(UserWarning, match="idempotence is switched off by"):
        assert not producer_settings(breaking).enable_idempotence


def test_who_switches_idempotence_off_is_not_warned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not producer_settings({"enable_idempotence": False, "acks": 0}).enable_idempotence


def test_a_delivery_timeout_that_nobody_asked_for_follows_what_one_try_takes() -> None:
    assert producer_settings({"request_timeout_ms": 300_000}).delivery_timeout_ms == 300_005


def test_the_level_is_that_of_the_chosen_compression() -> None:
    assert producer_settings({"compression_type": "zstd"}).compression_level == 3
    assert producer_settings({"compression_type": "snappy"}).compression_level is None


def test_a_producer_needs_to_know_a_broker() -> None:
    with pytest.raises(ConfigError, match=r'bootstrap\.servers is not set: name a broker, as in Producer\("localhost'):
        Producer()


def test_a_producer_is_made_from_kafkas_own_names() -> None:
    producer = Producer.from_config({"bootstrap.servers": "localhost:9092", "linger.ms": "20", "client.id": "billing"})
    assert producer.settings.linger_ms == 20
    assert producer.client.settings.client_id == "billing"


def test_a_certificate_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location .* cannot be used \(No such file"):
        Producer("localhost:9092", security_protocol="SSL", ssl_truststore_location="/nowhere/ca.pem")


def test_tls_checks_the_brokers_name_unless_told_not_to() -> None:
    def context(**settings: object) -> ssl.SSLContext | None:
        producer = Producer("localhost:9092", security_protocol="ssl", **settings)
        return producer.client.settings.security.tls

    strict, lenient = context(), context(ssl_endpoint_identification_algorithm="")
    assert strict is not None
    assert strict.check_hostname
    assert lenient is not None
    assert not lenient.check_hostname


def test_sasl_without_a_mechanism_says_where_to_give_one() -> None:
    with pytest.raises(ConfigError, match=r"security=Security\(sasl="):
        Producer("localhost:9092", security_protocol="SASL_SSL")
