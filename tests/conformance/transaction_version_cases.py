"""The cases of the transaction APIs for `test_every_version.py`: what each answers, in good and in wrong uses."""

from typing import Any

from kio.schema.errors import ErrorCode

from .actions import create_topic, eventually, new_producer, unique_name
from .comparing import by_key, case, comparable
from .raw_groups import new_group, offsets_to_commit, wait_for_transaction_coordinator
from .raw_transactions import TransactionalProducer
from .wire import Wire

A_DAY_MS = 86_400_000


def names_of(producer: TransactionalProducer) -> dict[str, str]:
    return {producer.transactional_id: "<id>"}


@case
def init_producer_id(wire: Wire, version: int) -> Any:
    new_producer(wire)
    transactional_id = unique_name("transactional-id")
    wait_for_transaction_coordinator(wire, transactional_id)
    good = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    asked: list[dict[str, Any]] = [
        {**good, "transactional_id": None},
        {**good, "transactional_id": ""},
        {**good, "transaction_timeout": A_DAY_MS},
        {**good, "transaction_timeout": 0},
        good,
        good,
    ]
    answers = [wire.send("init_producer_id", version, **each) for each in asked]
    if version >= 3:
        mine = {"producer_id": answers[-1].producer_id, "producer_epoch": answers[-1].producer_epoch}
        asked = [
            {**good, **mine, "producer_epoch": 9},
            {**good, **mine, "producer_id": mine["producer_id"] + 1000},
            {**good, **mine, "producer_epoch": -1},
            {**good, **mine},
            {**good, **mine},
            {**good, **mine, "producer_epoch": 0},
            {**good, **mine, "transactional_id": None},
        ]
        answers += [wire.send("init_producer_id", version, **each) for each in asked]
    results = [comparable(answer) for answer in answers]
    producer = TransactionalProducer(wire)
    topic = create_topic(wire)
    producer.add(topic)
    ask = {"transactional_id": producer.transactional_id, "transaction_timeout": 60_000}
    # The running transaction is aborted first; until that is done the client is to come again.
    results.append(comparable(wire.send("init_producer_id", version, **ask)))
    given = eventually(lambda: _settled(wire.send("init_producer_id", version, **ask)), "the abort")
    return [*results, comparable(given), given.producer_epoch - producer.epoch]


def _settled(answer: Any) -> Any:
    return None if answer.error_code is ErrorCode.concurrent_transactions else answer


@case
def add_partitions_to_txn(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, partitions=3)
    producer = TransactionalProducer(wire)
    stranger = unique_name("stranger")
    wait_for_transaction_coordinator(wire, stranger)
    good = producer.identity()
    wrongs: list[dict[str, Any]] = [
        {"transactional_id": ""},
        {"transactional_id": stranger},
        {"producer_id": producer.id + 1000},
        {"producer_epoch": producer.epoch + 1},
        {"producer_epoch": -1},
    ]
    topics = [{"name": topic.name, "partitions": [0, 1]}]
    with_unknown = [*topics, {"name": "absent-topic", "partitions": [0]}]
    names = {**names_of(producer), stranger: "<stranger>"}
    asked = [({**good, **wrong}, topics) for wrong in wrongs]
    asked += [(good, with_unknown), (good, topics), (good, topics)]
    if version < 4:
        answers = [
            wire.send(
                "add_partitions_to_txn",
                version,
                **{f"v3_and_below_{name}": value for name, value in who.items()},
                v3_and_below_topics=what,
            )
            for who, what in asked
        ]
        results = [comparable(answer, topic, names) for answer in answers]
        return [_sorted_partitions(result, "results_by_topic_v3_and_below") for result in results]
    batches = [[{**who, "topics": what, "verify_only": False}] for who, what in asked]
    both_added_and_not = [{"name": topic.name, "partitions": [0, 1, 2]}]
    batches += [[{**good, "topics": what, "verify_only": True}] for what in (topics, both_added_and_not, with_unknown)]
    batches += [
        [{**good, "producer_epoch": 7, "topics": topics, "verify_only": True}],
        [{**good, "topics": topics}, {**good, "transactional_id": stranger, "topics": topics}],
    ]
    results = [
        comparable(wire.send("add_partitions_to_txn", version, transactions=each), topic, names) for each in batches
    ]
    for result in results:
        result["results_by_transaction"] = by_key(result["results_by_transaction"], "transactional_id")
        for transaction in result["results_by_transaction"]:
            _sorted_partitions(transaction, "topic_results")
    return results


def _sorted_partitions(result: Any, topics_key: str) -> Any:
    result[topics_key] = by_key(result[topics_key], "name")
    for of_topic in result[topics_key]:
        of_topic["results_by_partition"] = by_key(of_topic["results_by_partition"], "partition_index")
    return result


@case
def add_offsets_to_txn(wire: Wire, version: int) -> Any:
    producer, group, stranger = TransactionalProducer(wire), new_group(wire), unique_name("stranger")
    wait_for_transaction_coordinator(wire, stranger)
    good = {**producer.identity(), "group_id": group}
    wrongs: list[dict[str, Any]] = [
        {"transactional_id": ""},
        {"transactional_id": stranger},
        {"producer_id": producer.id + 1000},
        {"producer_epoch": producer.epoch + 1},
        {"group_id": ""},
        {},
        {},
    ]
    return [comparable(wire.send("add_offsets_to_txn", version, **{**good, **wrong})) for wrong in wrongs]


@case
def txn_offset_commit(wire: Wire, version: int) -> Any:
    topic, group = create_topic(wire, partitions=2), new_group(wire)
    producer = TransactionalProducer(wire)
    good = {**producer.identity(), "group_id": group, "topics": offsets_to_commit(topic, {0: 5, 9: 5}, "note")}
    # Before it was added, and after: from version 5 on a commit adds the group by itself.
    answers = [wire.send("txn_offset_commit", version, **good)]
    if version < 5:
        wire.send("add_offsets_to_txn", **producer.identity(), group_id=group)
    wrongs: list[dict[str, Any]] = [
        {},
        {"producer_epoch": producer.epoch + 1},
        {"group_id": ""},
        {"topics": offsets_to_commit(topic, {1: 1}, "x" * 4097)},
    ]
    if version >= 3:
        wrongs += [{"generation_id": 3, "member_id": "nobody"}, {"member_id": "nobody"}]
    answers += [wire.send("txn_offset_commit", version, **{**good, **wrong}) for wrong in wrongs]
    results = [comparable(answer, topic) for answer in answers]
    for result in results:
        for of_topic in result["topics"]:
            of_topic["partitions"] = by_key(of_topic["partitions"], "partition_index")
    partitions = [{"name": topic.name, "partition_indexes": [0, 1]}]
    groups = [{"group_id": group, "topics": partitions}]
    pending = [wire.send("offset_fetch", groups=groups, require_stable=stable) for stable in (False, True)]
    assert producer.end(committed=True) is ErrorCode.none
    producer.wait_until_complete()
    eventually(lambda: _is_stable(wire.send("offset_fetch", groups=groups, require_stable=True)), "the commit")
    pending.append(wire.send("offset_fetch", groups=groups, require_stable=True))
    return results, [comparable(answer, topic, {group: "<group>"}) for answer in pending]


def _is_stable(answer: Any) -> bool:
    return bool(answer.groups[0].topics[0].partitions[0].committed_offset >= 0)


@case
def end_txn(wire: Wire, version: int) -> Any:
    topic, stranger = create_topic(wire), unique_name("stranger")
    producer = TransactionalProducer(wire)
    wait_for_transaction_coordinator(wire, stranger)
    good = {**producer.identity(), "committed": True}
    # The last two find no transaction. Only an abort by a client whose epoch rises is then no error.
    wrongs: list[dict[str, Any]] = [
        {"transactional_id": ""},
        {"transactional_id": stranger},
        {"producer_id": producer.id + 1000},
        {"producer_epoch": producer.epoch + 1},
        {},
        {"committed": False},
    ]
    answers = [wire.send("end_txn", version, **{**good, **wrong}) for wrong in wrongs]
    for committed in (True, False):
        producer = TransactionalProducer(wire)
        assert producer.add(topic) is ErrorCode.none
        assert producer.send(topic, b"value") is ErrorCode.none
        good = producer.identity()
        answers.append(wire.send("end_txn", version, **good, committed=committed))
        producer.wait_until_complete()
        # The same again is a retry, the opposite is not.
        answers.append(wire.send("end_txn", version, **good, committed=committed))
        answers.append(wire.send("end_txn", version, **good, committed=not committed))
    return [comparable(answer) for answer in answers]


@case
def write_txn_markers(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    producer = TransactionalProducer(wire, TransactionalProducer(wire).transactional_id)
    producer.add(topic)
    producer.send(topic, b"value")
    topics = [{"name": topic.name, "partition_indexes": [0, 7]}, {"name": "absent-topic", "partition_indexes": [0]}]
    marker = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": topics,
    }
    # An older epoch is refused, then the transaction ends, then a marker finds none to end.
    asked = [[{**marker, "producer_epoch": producer.epoch - 1}], [marker], [marker], []]
    results = [comparable(wire.send("write_txn_markers", version, markers=each), topic) for each in asked]
    for result in results:
        for found in result["markers"]:
            found["topics"] = by_key(found["topics"], "name")
            for of_topic in found["topics"]:
                of_topic["partitions"] = by_key(of_topic["partitions"], "partition_index")
    producer.end(committed=False)
    return results


@case
def list_transactions(wire: Wire, version: int) -> Any:
    topic = create_topic(wire)
    prefix = unique_name("listed")
    running, ended, new = (TransactionalProducer(wire, f"{prefix}.{name}") for name in ("running", "ended", "new"))
    for producer in (running, ended):
        producer.add(topic)
    ended.end(committed=False)
    ended.wait_until_complete()
    filters: list[dict[str, Any]] = [
        {},
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["CompleteAbort", "NoSuchState"]},
        {"producer_id_filters": [running.id, new.id]},
        {"producer_id_filters": [new.id], "state_filters": ["Ongoing"]},
    ]
    if version >= 1:
        filters += [{"duration_filter": after_ms} for after_ms in (0, A_DAY_MS)]
    if version >= 2:
        patterns = (f"{prefix}.*ing", "", "no such id", "(unclosed")
        filters += [{"transactional_id_pattern": pattern} for pattern in patterns]
    names = {producer.transactional_id: producer.transactional_id[len(prefix) :] for producer in (running, ended, new)}
    results = [comparable(wire.send("list_transactions", version, **each), names=names) for each in filters]
    for result in results:
        ours = [found for found in result["transaction_states"] if found["transactional_id"] in names.values()]
        result["transaction_states"] = by_key(ours, "transactional_id")
    running.end(committed=False)
    return results


@case
def describe_transactions(wire: Wire, version: int) -> Any:
    topic, group = create_topic(wire, partitions=3), new_group(wire)
    running, ended, new = (TransactionalProducer(wire, timeout_ms=12_345) for _ in range(3))
    for producer in (running, ended):
        producer.add(topic, 0, 2)
    running.wire.send("add_offsets_to_txn", **running.identity(), group_id=group)
    ended.end(committed=True)
    ended.wait_until_complete()
    names = {running.transactional_id: "<running>", ended.transactional_id: "<ended>", new.transactional_id: "<new>"}
    ids = [*names, "no-such-id", ""]
    result = comparable(wire.send("describe_transactions", version, transactional_ids=ids), topic, names)
    result["transaction_states"] = by_key(result["transaction_states"], "transactional_id")
    for found in result["transaction_states"]:
        found["topics"] = by_key(found["topics"], "topic")
        for of_topic in found["topics"]:
            # Which partition of the offsets topic a group is kept in follows from its name, made up here.
            of_topic["partitions"] = sorted(of_topic["partitions"]) if of_topic["topic"] == "<topic>" else "<one>"
    running.end(committed=False)
    return result
