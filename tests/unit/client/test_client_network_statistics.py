"""What a client counts, it counts right: quantiles within a quarter, and text that Prometheus can read."""

import math
import re
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.addresses import Address
from headwater.client.consumer.statistics import ConsumerStatistics
from headwater.client.latency import LatencyHistogram
from headwater.client.producer.statistics import ProducerStatistics
from headwater.client.statistics import ClientStatistics
from headwater.types import TopicPartition

SAMPLE = re.compile(r'^[a-z_]+\{([a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+\} -?[0-9.e+-]+$')


@given(st.lists(st.floats(1e-6, 3_000), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_within_a_quarter_of_the_true_one(latencies_s: list[float], quantile: float) -> None:
    histogram = LatencyHistogram()
    for latency_s in latencies_s:
        histogram.add(latency_s)
    true_s = sorted(latencies_s)[math.ceil(quantile * len(latencies_s)) - 1]
    assert min(true_s, 2_147) * 0.999 <= histogram.quantile_s(quantile) <= true_s * 1.251 + 1e-6
    assert math.isclose(histogram.average_s, sum(latencies_s) / len(latencies_s))
    assert histogram.largest_s == max(latencies_s)


@given(st.lists(st.floats(0, 100), max_size=100))
def test_the_buckets_for_prometheus_count_what_stayed_below_their_bounds(latencies_s: list[float]) -> None:
    histogram = LatencyHistogram()
    for latency_s in latencies_s:
        histogram.add(latency_s)
    for bound_s, count in histogram.cumulative():
        assert count == sum(int(latency_s * 1e6) < round(bound_s * 1e6) for latency_s in latencies_s)


def test_a_clock_that_jumps_breaks_nothing() -> None:
    histogram = LatencyHistogram()
    for latency_s in (-1.0, 0.0, 1e9):
        histogram.add(latency_s)
    assert histogram.count == 3


def test_nothing_counted_is_zero() -> None:
    assert (LatencyHistogram().average_s, LatencyHistogram().quantile_s(0.99)) == (0, 0)


def test_the_text_for_prometheus_has_every_number_once() -> None:
    statistics = ClientStatistics('bil"ling\\')
    for port in (9092, 9093):
        one = statistics.of(Address("kafka", port))
        one.requests, one.answers, one.in_flight, one.bytes_in, one.bytes_out = 5, 3, 2, 100, 200
        one.latency.add(0.010)
    lines = statistics.prometheus().splitlines()
    samples = [line for line in lines if not line.startswith("# TYPE")]
    assert [line for line in samples if not SAMPLE.match(line)] == []
    names = [line.split("{")[0] for line in samples]
    assert names.count("headwater_client_requests_total") == 2
    assert len(set(samples)) == len(samples)
    assert len({line.split()[2] for line in lines if line.startswith("# TYPE")}) == 10
    labels = 'client_id="bil\\"ling\\\\",broker="kafka:9093"'
    assert f"headwater_client_requests_in_flight{{{labels}}} 2" in samples
    assert f'headwater_client_request_latency_seconds_bucket{{{labels},le="0.008192"}} 0' in samples
    assert f'headwater_client_request_latency_seconds_bucket{{{labels},le="0.016384"}} 1' in samples


def test_a_snapshot_has_the_numbers_by_address() -> None:
    statistics = ClientStatistics("billing")
    one = statistics.of(Address("kafka", 9092))
    one.connects, one.requests = 3, 7
    assert statistics.of(Address("kafka", 9092)) is one
    found = statistics.snapshot()["connections"]["kafka:9092"]
    assert (found["reconnects"], found["requests"], found["latency_p99_ms"]) == (2, 7, 0)


def test_statistics_are_printed_as_one_line_of_their_numbers() -> None:
    client = ClientStatistics("billing")
    connection = client.of(Address("kafka", 9092))
    connection.requests = 7
    client.metadata_refreshes = 2
    assert (
        repr(client)
        == "ClientStatistics(client_id='billing', metadata_refreshes=2, metadata_failures=0, connections=1)"
    )
    assert repr(connection).startswith("ConnectionStatistics(requests=7, answers=0, in_flight=0, bytes_in=0,")
    accumulator: Any = SimpleNamespace(pending_records=3, used_bytes=16_384)
    producer = ProducerStatistics(client, accumulator)
    producer.records_written = 5
    assert repr(producer) == (
        "ProducerStatistics(records_written=5, records_failed=0, batches_written=0, bytes_written=0, "
        "batches_sent_again=0, batches_split=0, records_pending=3, buffer_bytes=16384)"
    )
    lags = {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 4}
    consumer = ConsumerStatistics(client, lambda: lags, lambda: 2)
    consumer.polls, consumer.records = 4, 60
    assert repr(consumer) == (
        "ConsumerStatistics(polls=4, records=60, fetches=0, fetch_failures=0, sessions_lost=0, bytes_fetched=0, "
        "corrupt_batches=0, corrupt_bytes=0, "
        "assigned_partitions=2, lag=7)"
    )
    consumer.group.heartbeat_answered(0.0123456)
    assert "heartbeats=1," in repr(consumer.group)
    assert "heartbeat_latency_average_ms=12.346," in repr(consumer.group)
