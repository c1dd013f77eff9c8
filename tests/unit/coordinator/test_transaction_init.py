"""InitProducerId: who gets which producer id and epoch, and who is shut out."""

import pytest

from headwater.coordinator.outcome import ProducerIdentity
from headwater.coordinator.transaction import records
from headwater.coordinator.transaction.transaction import LAST_EPOCH, Transaction
from headwater.protocol.kafka_types import ErrorCode
from headwater.types import TopicPartition

from .transaction_building import NOBODY, NOW_MS, TIMEOUT_MS, Runtime, told

ORDERS = TopicPartition("orders", 0)


def with_epoch(runtime: Runtime, transactional_id: str, epoch: int) -> ProducerIdentity:
    """A transactional id that has come to this epoch."""
    runtime.next_producer_id += 1
    producer_id = runtime.next_producer_id
    value = Transaction.new(producer_id, TIMEOUT_MS, NOW_MS).to_value()
    at_epoch = records.TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        status=value.status,
        partitions=None,
        last_update_ms=NOW_MS,
        start_ms=-1,
    )
    runtime.log.append(records.encode(transactional_id, at_epoch))
    runtime.restart()
    return ProducerIdentity(producer_id, epoch)


def test_a_new_id_begins_with_epoch_0_and_a_producer_id_of_its_own() -> None:
    runtime = Runtime()
    first, second = runtime.identity("a"), runtime.identity("b")
    assert first.producer_epoch == second.producer_epoch == 0
    assert first.producer_id != second.producer_id
    assert runtime.state("a") == "Empty"


def test_another_instance_gets_the_next_epoch_and_shuts_the_first_out() -> None:
    runtime = Runtime()
    first = runtime.identity("a")
    second = runtime.identity("a")
    assert second == (first.producer_id, 1)
    assert runtime.add("a", first, ORDERS) is ErrorCode.producer_fenced
    assert runtime.add("a", second, ORDERS) is ErrorCode.none


@pytest.mark.parametrize(("timeout_ms", "accepted"), [(0, False), (1, True), (900_000, True), (900_001, False)])
def test_a_timeout_beyond_the_brokers_largest_is_refused(timeout_ms: int, accepted: bool) -> None:
    response = Runtime().init("a", timeout_ms=timeout_ms)
    assert response.error_code is (ErrorCode.none if accepted else ErrorCode.invalid_transaction_timeout)


def test_a_request_that_makes_no_sense_is_refused() -> None:
    runtime = Runtime()
    assert runtime.init("").error_code is ErrorCode.invalid_request
    assert runtime.init("a", ProducerIdentity(1, -1)).error_code is ErrorCode.invalid_request
    assert runtime.init("a", ProducerIdentity(-1, 1)).error_code is ErrorCode.invalid_request
    assert not runtime.log


def test_an_open_transaction_is_aborted_before_another_instance_gets_its_epoch() -> None:
    runtime = Runtime()
    first = runtime.identity("a")
    runtime.add("a", first, ORDERS)
    runtime.writes_markers = False
    assert runtime.init("a").error_code is ErrorCode.concurrent_transactions
    assert runtime.state("a") == "PrepareAbort"
    assert runtime.init("a").error_code is ErrorCode.concurrent_transactions
    (markers,) = runtime.unwritten
    assert (markers.producer_id, markers.producer_epoch, markers.commit) == (first.producer_id, 1, False)
    assert markers.partitions == {ORDERS}
    runtime.write_markers()
    assert told(runtime.init("a")) == (first.producer_id, 2)


def test_the_timeout_is_that_of_the_last_instance() -> None:
    runtime = Runtime()
    runtime.init("a", timeout_ms=1000)
    runtime.init("a", timeout_ms=2000)
    transaction = runtime.transaction("a")
    assert transaction is not None
    assert transaction.timeout_ms == 2000


class TestAnInstanceThatShowsWhatItHas:
    """KIP-360: it goes on after an error, with an epoch of its own."""

    def test_gets_the_next_epoch(self) -> None:
        runtime = Runtime()
        producer = runtime.identity("a")
        assert runtime.identity("a", producer) == (producer.producer_id, 1)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_gets_the_same_answer_again_when_it_asks_again(self, restarts: bool) -> None:
        runtime = Runtime()
        producer = runtime.identity("a")
        answer = runtime.identity("a", producer)
        if restarts:
            runtime.restart()
        assert runtime.identity("a", producer) == answer
        assert runtime.identity("a", producer) == answer

    def test_is_shut_out_once_another_instance_came(self) -> None:
        runtime = Runtime()
        producer = runtime.identity("a")
        bumped = runtime.identity("a", producer)
        runtime.identity("a")
        for shown in (producer, bumped):
            assert runtime.init("a", shown).error_code is ErrorCode.producer_fenced
            assert runtime.init("a", shown, version=3).error_code is ErrorCode.invalid_producer_epoch

    def test_is_shut_out_with_the_producer_id_of_another(self) -> None:
        runtime = Runtime()
        runtime.identity("a")
        other = runtime.identity("b")
        assert runtime.init("a", other).error_code is ErrorCode.producer_fenced

    def test_gets_a_new_producer_id_when_its_own_was_forgotten(self) -> None:
        runtime = Runtime()
        given = runtime.identity("a", ProducerIdentity(7, 3))
        assert given.producer_epoch == 0
        assert given.producer_id != 7

    def test_aborts_its_own_open_transaction(self) -> None:
        runtime = Runtime()
        producer = runtime.identity("a")
        runtime.add("a", producer, ORDERS)
        assert runtime.init("a", producer).error_code is ErrorCode.concurrent_transactions
        assert runtime.state("a") == "CompleteAbort"
        assert runtime.identity("a", producer) == (producer.producer_id, 1)

    def test_does_not_abort_the_open_transaction_of_a_newer_instance(self) -> None:
        runtime = Runtime()
        old = runtime.identity("a")
        new = runtime.identity("a")
        runtime.add("a", new, ORDERS)
        assert runtime.init("a", old).error_code is ErrorCode.producer_fenced
        assert runtime.state("a") == "Ongoing"


class TestWhenTheEpochsAreUsedUp:
    def test_the_next_instance_gets_a_new_producer_id(self) -> None:
        runtime = Runtime()
        last = with_epoch(runtime, "a", LAST_EPOCH)
        given = runtime.identity("a")
        assert given.producer_epoch == 0
        assert given.producer_id != last.producer_id

    def test_so_does_the_instance_itself_and_it_may_ask_again(self) -> None:
        runtime = Runtime()
        last = with_epoch(runtime, "a", LAST_EPOCH)
        given = runtime.identity("a", last)
        assert given.producer_epoch == 0
        runtime.restart()
        assert runtime.identity("a", last) == given
        runtime.add("a", given, ORDERS)
        assert runtime.init("a", last).error_code is ErrorCode.producer_fenced

    def test_the_last_epoch_can_be_fenced_and_no_higher_one_is_given_out(self) -> None:
        runtime = Runtime()
        last = with_epoch(runtime, "a", LAST_EPOCH)
        runtime.add("a", last, ORDERS)
        runtime.writes_markers = False
        assert runtime.init("a").error_code is ErrorCode.concurrent_transactions
        assert runtime.unwritten[0].producer_epoch == LAST_EPOCH + 1
        runtime.write_markers()
        timed_out = runtime.end("a", last, commit=False)
        assert timed_out.error_code is ErrorCode.none
        assert timed_out.producer_epoch == 0
        assert told(runtime.init("a")) == (timed_out.producer_id, 1)

    def test_an_epoch_that_apache_left_beyond_the_last_is_not_given_out(self) -> None:
        runtime = Runtime()
        beyond = with_epoch(runtime, "a", LAST_EPOCH + 1)
        assert runtime.init("a", ProducerIdentity(beyond.producer_id, LAST_EPOCH)).error_code is (
            ErrorCode.producer_fenced
        )
        assert runtime.identity("a").producer_epoch == 0

    def test_nothing_changes_while_there_is_no_producer_id_to_be_had(self) -> None:
        runtime = Runtime()
        last = with_epoch(runtime, "a", LAST_EPOCH)
        runtime.add("a", last, ORDERS)
        runtime.has_producer_ids = False
        written = list(runtime.log)
        assert runtime.init("b").error_code is ErrorCode.coordinator_load_in_progress
        assert runtime.init("a").error_code is ErrorCode.coordinator_load_in_progress
        assert runtime.end("a", last).error_code is ErrorCode.coordinator_load_in_progress
        runtime.pass_time(TIMEOUT_MS + 1)
        assert runtime.log == written
        runtime.has_producer_ids = True
        runtime.pass_time(0)
        assert runtime.state("a") == "CompleteAbort"


def test_a_record_that_cannot_be_written_leaves_everything_as_it_was() -> None:
    runtime = Runtime()
    producer = runtime.identity("a")
    runtime.appends_before_disk_is_full = 0
    assert runtime.init("a") is None
    assert runtime.identity("a", NOBODY) == (producer.producer_id, 1)
