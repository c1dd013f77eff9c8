"""The cases of the group APIs for `test_every_version.py`: what each answers, in good and in wrong uses.

What must be there first (a group, a member) is made with the newest versions; only the call that the case is named
after is made in the version under test.
"""

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from .actions import Topic, create_topic, eventually, unique_name
from .comparing import by_key, case, comparable
from .raw_groups import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ClassicMember,
    ConsumerMember,
    assignment,
    new_group,
    offsets_to_commit,
    settle,
    subscription,
    wait_for_transaction_coordinator,
)
from .wire import Wire

NOBODY = "nobody-00000000"
# A group may have no name as long as it has no members: offsets can be committed to it.
NAMELESS = ""


def stable_member(wire: Wire, group: str, topic: Topic | None = None, *, instance_id: str | None = None) -> Any:
    """The only member of a group that has its share."""
    wanted = topic.name if topic else "a-topic"
    member = ClassicMember(
        wire.bootstrap, group, instance_id=instance_id, protocols={"range": subscription(wanted), "other": b"x"}
    )
    assert member.join().error_code is ErrorCode.none
    assert member.sync({member.id: assignment(wanted, 0)}).error_code is ErrorCode.none
    return member


@case
def find_coordinator(wire: Wire, version: int) -> Any:
    group, transactional_id = new_group(wire), unique_name("transactional-id")
    wait_for_transaction_coordinator(wire, transactional_id)
    names = {group: "<group>", transactional_id: "<id>"}
    # The kind of a key came with version 1; before that all were groups.
    share = f"g:{uuid.UUID(int=5)}:0"
    kinds = [(0, [group]), (0, ["", group]), (1, [transactional_id]), (2, [share]), (9, ["g"])]
    asked = kinds if version else kinds[:2]
    answers = []
    for kind, keys in asked:
        answer = wire.send("find_coordinator", version, key=keys[0], key_type=kind, coordinator_keys=keys)
        answers.append(comparable(answer, names=names))
    return answers


@case
def join_group(wire: Wire, version: int) -> Any:
    group = new_group(wire)
    with ClassicMember(wire.bootstrap, group) as member:
        good = member.join_values()
    names = {group: "<group>"}
    wrongs: list[dict[str, Any]] = [
        {"group_id": ""},
        {"member_id": NOBODY},
        {"session_timeout": 1},
        {"session_timeout": 10_000_000},
        {"protocols": []},
        {"protocol_type": ""},
    ]
    answers = [comparable(wire.send("join_group", version, **{**good, **wrong}), names=names) for wrong in wrongs]
    answer = wire.send("join_group", version, **good)
    if answer.error_code is ErrorCode.member_id_required:
        answers.append(comparable(answer, names={**names, answer.member_id: "<first>"}))
        answer = wire.send("join_group", version, **{**good, "member_id": answer.member_id})
    names[answer.member_id] = "<first>"
    answers.append(comparable(answer, names=names))
    strange = ({"protocol_type": "connect"}, {"protocols": [{"name": "strange", "metadata": b""}]})
    refused = [wire.send("join_group", version, **{**good, **wrong}) for wrong in strange]
    return answers + [comparable(answer, names=names) for answer in refused]


@case
def sync_group(wire: Wire, version: int) -> Any:
    group = new_group(wire)
    with ClassicMember(wire.bootstrap, group) as member:
        member.join()
        good = {
            **member.identity(),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member.id, "assignment": assignment("a-topic", 0, 1)}],
        }
        wrongs: list[dict[str, Any]] = [
            {"group_id": ""},
            {"group_id": unique_name("absent")},
            {"member_id": NOBODY},
            {"generation_id": 7},
        ]
        if version >= 5:
            wrongs += [{"protocol_type": "connect"}, {"protocol_name": "roundrobin"}]
        # At the end once by the leader, and once more after all is settled, when anybody is told the same.
        asked = [*wrongs, {}, {}]
        return [comparable(wire.send("sync_group", version, **{**good, **changed})) for changed in asked]


@case
def heartbeat(wire: Wire, version: int) -> Any:
    group = new_group(wire)
    with stable_member(wire, group, instance_id="one") as member:
        good = member.identity()
        wrongs: list[dict[str, Any]] = [
            {"group_id": ""},
            {"group_id": unique_name("absent")},
            {"member_id": NOBODY},
            {"generation_id": 0},
            {"generation_id": 2},
            {"group_instance_id": "two"},
        ]
        asked = [{}, *wrongs]
        return [comparable(wire.send("heartbeat", version, **{**good, **wrong})) for wrong in asked]


@case
def leave_group(wire: Wire, version: int) -> Any:
    group = new_group(wire)
    with stable_member(wire, group, instance_id="one") as member:
        names = {member.id: "<member>"}
        if version < 3:
            asked = [
                {"group_id": "", "member_id": member.id},
                {"group_id": unique_name("absent"), "member_id": member.id},
                {"group_id": group, "member_id": NOBODY},
                {"group_id": group, "member_id": member.id},
                {"group_id": group, "member_id": member.id},
            ]
        else:
            unknown = [{"member_id": NOBODY}, {"member_id": "", "group_instance_id": "two"}]
            fenced = [{"member_id": NOBODY, "group_instance_id": "one"}]
            asked = [
                {"group_id": "", "members": unknown},
                {"group_id": unique_name("absent"), "members": unknown},
                {"group_id": group, "members": []},
                {"group_id": group, "members": unknown + fenced},
                {"group_id": group, "members": [{"member_id": "", "group_instance_id": "one"}, *unknown]},
            ]
        answers = [comparable(wire.send("leave_group", version, **each), names=names) for each in asked]
        return [*answers, wire.send("describe_groups", groups=[group]).groups[0].group_state]


@case
def offset_commit(wire: Wire, version: int) -> Any:
    topic, alone, group = create_topic(wire, partitions=2), new_group(wire), new_group(wire)
    nobodys = {"group_id": alone, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time": -1}
    simple = {**nobodys, "topics": offsets_to_commit(topic, {0: 5, 1: 6, 7: 1}, "note")}
    asked = [
        {**simple, "topics": offsets_to_commit(topic, {0: 7}, None)},
        simple,
        {**simple, "topics": offsets_to_commit(topic, {0: 9}, "x" * 4097)},
        {**simple, "topics": offsets_to_commit(Topic(name="absent-topic", id=uuid.uuid4()), {0: 1})},
        {**simple, "group_id": ""},
        {**simple, "group_id": unique_name("absent"), "generation_id_or_member_epoch": 3, "member_id": NOBODY},
        {**simple, "generation_id_or_member_epoch": 3, "member_id": NOBODY},
    ]
    with stable_member(wire, group, topic) as member:
        with_member = {**nobodys, "group_id": group, "topics": offsets_to_commit(topic, {0: 5, 1: 6}, "by a member")}
        good = {"member_id": member.id, "generation_id_or_member_epoch": member.generation}
        asked += [
            {**with_member, **changed}
            for changed in (
                good,
                {**good, "generation_id_or_member_epoch": 9},
                {**good, "member_id": NOBODY},
                {},
                {**good, "group_instance_id": "strange"},
            )
        ]
        results = [comparable(wire.send("offset_commit", version, **each), topic) for each in asked]
    for result in results:
        for of_topic in result["topics"]:
            of_topic["partitions"] = by_key(of_topic["partitions"], "partition_index")
    fetched = [{"group_id": name, "topics": None} for name in (alone, group)]
    answer = wire.send("offset_fetch", groups=fetched)
    return results, in_order(comparable(answer, topic, {alone: "<alone>", group: "<group>"}))


def in_order(answer: Any) -> Any:
    """An answer of OffsetFetch with its topics and partitions sorted."""
    for group in answer.get("groups", [answer]):
        group["topics"] = by_key(group["topics"], "name")
        for topic in group["topics"]:
            topic["partitions"] = by_key(topic["partitions"], "partition_index")
    return answer


@case
def offset_fetch(wire: Wire, version: int) -> Any:
    topic, group = create_topic(wire, partitions=3), new_group(wire)
    absent = unique_name("absent")
    for offsets, note in (({0: 5}, "note"), ({1: 0}, "")):
        wire.send("offset_commit", group_id=group, topics=offsets_to_commit(topic, offsets, note))
    some = [{"name": topic.name, "partition_indexes": [0, 1, 2, 9]}, {"name": "absent-topic", "partition_indexes": [0]}]
    names = {group: "<group>", absent: "<absent>"}
    if version < 8:
        asked: list[dict[str, Any]] = [
            {"group_id": group, "topics": some},
            {"group_id": group, "topics": []},
            {"group_id": absent, "topics": some},
            {"group_id": "", "topics": some},
        ]
        if version >= 2:
            asked += [{"group_id": name, "topics": None} for name in (group, absent)]
    else:
        wanted: list[dict[str, Any]] = [
            {"group_id": group, "topics": some},
            {"group_id": absent, "topics": some},
            {"group_id": "", "topics": some},
            {"group_id": group, "topics": None},
            {"group_id": absent, "topics": None},
        ]
        asked = [{"groups": [one]} for one in wanted] + [{"groups": wanted[:2]}, {"groups": []}]
        if version >= 9:
            asked.append({"groups": [{**wanted[0], "member_id": NOBODY, "member_epoch": 3}]})
    stable = {"require_stable": True} if version >= 7 else {}
    return [
        in_order(comparable(wire.send("offset_fetch", version, **each, **more), topic, names))
        for each in asked
        for more in ({}, stable)
    ]


@case
def offset_delete(wire: Wire, version: int) -> Any:
    topic, other, group, used = (
        create_topic(wire, partitions=3),
        create_topic(wire),
        new_group(wire),
        new_group(wire),
    )
    wire.send("offset_commit", group_id=group, topics=offsets_to_commit(topic, {0: 5, 1: 6}))
    asked_partitions = [{"partition_index": index} for index in (0, 2, 9)]
    topics = [{"name": topic.name, "partitions": asked_partitions}]
    with stable_member(wire, used, topic) as member:
        commit = {"group_id": used, "member_id": member.id, "generation_id_or_member_epoch": member.generation}
        for committed in (topic, other):
            wire.send("offset_commit", **commit, topics=offsets_to_commit(committed, {0: 5}))
        unsubscribed = [{"name": other.name, "partitions": asked_partitions[:1]}]
        absent = [{"name": "absent-topic", "partitions": asked_partitions[:1]}]
        asked = [("", topics), (unique_name("absent"), topics), (group, absent), (group, topics), (group, topics)]
        asked += [(used, topics), (used, unsubscribed)]
        answers = [wire.send("offset_delete", version, group_id=name, topics=each) for name, each in asked]
    results = [comparable(answer, topic, {other.name: "<other>"}) for answer in answers]
    for result in results:
        for of_topic in result["topics"]:
            of_topic["partitions"] = by_key(of_topic["partitions"], "partition_index")
    left = wire.send("offset_fetch", groups=[{"group_id": name, "topics": None} for name in (group, used)])
    names = {other.name: "<other>", group: "<group>", used: "<used>"}
    return results, in_order(comparable(left, topic, names))


@case
def list_groups(wire: Wire, version: int) -> Any:
    topic, simple, stable = create_topic(wire), new_group(wire), new_group(wire)
    new = new_group(wire, knows=topic)
    wire.send("offset_commit", group_id=simple, topics=offsets_to_commit(topic, {0: 5}))
    consumer = ConsumerMember(wire, new, "member", subscribed_topic_names=[topic.name])
    consumer.join()
    settle(consumer)
    names = {simple: "<simple>", stable: "<stable>", new: "<new>"}
    filters: list[dict[str, Any]] = [{}]
    if version >= 4:
        filters += [{"states_filter": states} for states in (["Stable"], ["empty", "Dead"], ["NoSuchState"])]
    if version >= 5:
        filters += [{"types_filter": types} for types in (["consumer"], ["Classic"], ["no such type"])]
        filters.append({"types_filter": ["classic"], "states_filter": ["Stable"]})
    with stable_member(wire, stable, topic):
        results = [comparable(wire.send("list_groups", version, **each), names=names) for each in filters]
    for result in results:
        ours = [group for group in result["groups"] if group["group_id"] in names.values()]
        result["groups"] = by_key(ours, "group_id")
    return results


@case
def describe_groups(wire: Wire, version: int) -> Any:
    topic, simple, stable = create_topic(wire), new_group(wire), new_group(wire)
    new = new_group(wire, knows=topic)
    for group in (simple, NAMELESS):
        wire.send("offset_commit", group_id=group, topics=offsets_to_commit(topic, {0: 5}))
    ConsumerMember(wire, new, "member", subscribed_topic_names=[topic.name]).join()
    with stable_member(wire, stable, instance_id="one") as member:
        names = {simple: "<simple>", stable: "<stable>", new: "<new>", member.id: "<member>"}
        ids = [simple, stable, new, "no-such-group", NAMELESS]
        more = {"include_authorized_operations": True}
        answers = [wire.send("describe_groups", version, groups=ids, **each) for each in ({}, more)]
        waiting = ClassicMember(wire.bootstrap, stable)
        waiting.introduce()
        waiting.start_joining()
        eventually(lambda: member.heartbeat() is ErrorCode.rebalance_in_progress, "the rebalance")
        answers.append(wire.send("describe_groups", version, groups=[stable]))
        names[waiting.id] = "<waiting>"
        results = [comparable(answer, names=names) for answer in answers]
        waiting.wire.close()
    for result in results:
        result["groups"] = by_key(result["groups"], "group_id")
        for found in result["groups"]:
            found["members"] = by_key(found["members"], "member_id")
    return results


@case
def delete_groups(wire: Wire, version: int) -> Any:
    topic, simple, stable = create_topic(wire), new_group(wire), new_group(wire)
    for group in (simple, NAMELESS):
        wire.send("offset_commit", group_id=group, topics=offsets_to_commit(topic, {0: 5}))
    with stable_member(wire, stable) as member:
        ids = [simple, stable, "no-such-group", NAMELESS]
        answers = [wire.send("delete_groups", version, groups_names=ids) for _ in range(2)]
        member.leave()
        answers.append(wire.send("delete_groups", version, groups_names=[stable]))
    results = [comparable(answer, names={simple: "<simple>", stable: "<stable>"}) for answer in answers]
    for result in results:
        result["results"] = by_key(result["results"], "group_id")
    gone = wire.send("offset_fetch", groups=[{"group_id": simple, "topics": None}])
    return results, comparable(gone, names={simple: "<simple>"})


@case
def consumer_group_heartbeat(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, partitions=4)
    group = new_group(wire, knows=topic)
    first = ConsumerMember(wire, group, "first")
    second = ConsumerMember(wire, group, "second", instance_id="two")
    names = {group: "<group>"}
    answers: list[Any] = []

    def note(answer: Any) -> None:
        answers.append(comparable(answer, topic, names))

    joining = {
        "member_epoch": JOINING,
        "rebalance_timeout": 20_000,
        "subscribed_topic_names": [topic.name],
        "topic_partitions": [],
    }
    wrongs: list[dict[str, Any]] = [
        {"group_id": ""},
        {"member_id": "" if version else NOBODY, "member_epoch": 5},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": topic.id, "partitions": [0]}]},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"server_assignor": "no such assignor"},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": LEAVING},
        {"member_epoch": LEAVING_FOR_A_WHILE, "instance_id": "x"},
        {"member_epoch": -3},
        {"member_epoch": 3},
    ]
    if version >= 1:
        wrongs.append({"subscribed_topic_names": None, "subscribed_topic_regex": "(unclosed"})
        wrongs.append({"member_id": ""})
    for wrong in wrongs:
        note(first.heartbeat(version, **{**joining, **wrong}))
    note(first.heartbeat(version, **joining))
    note(first.report_owned(version))
    for wrong in (
        {"member_epoch": 7},
        {"member_epoch": first.epoch - 1, "topic_partitions": []},
        {"member_id": NOBODY},
    ):
        note(first.heartbeat(version, **wrong))
    note(second.heartbeat(version, **joining, server_assignor="range"))
    # The first is told to give up half, the second gets it once that is done.
    note(first.heartbeat(version))
    note(second.heartbeat(version))
    note(first.report_owned(version))
    note(second.heartbeat(version))
    note(second.report_owned(version))
    again = ConsumerMember(wire, group, "second again", instance_id="two")
    note(again.heartbeat(version, **joining))
    note(second.heartbeat(version, member_epoch=LEAVING_FOR_A_WHILE))
    note(again.heartbeat(version, **joining))
    note(second.heartbeat(version))
    note(first.heartbeat(version, member_epoch=LEAVING))
    note(first.heartbeat(version))
    return answers


@case
def consumer_group_describe(wire: Wire, version: int) -> Any:
    topic = create_topic(wire, partitions=3)
    group, empty, classic = new_group(wire, knows=topic), new_group(wire, knows=topic), new_group(wire)
    members = [
        ConsumerMember(wire, group, "first", subscribed_topic_names=[topic.name], rack_id="a rack"),
        ConsumerMember(wire, group, "second", instance_id="two", subscribed_topic_names=[topic.name, "absent-topic"]),
    ]
    gone = ConsumerMember(wire, empty, "gone", subscribed_topic_names=[topic.name])
    for member in (*members, gone):
        member.join()
    settle(*members)
    gone.heartbeat(member_epoch=LEAVING)
    names = {group: "<group>", empty: "<empty>", classic: "<classic>"}
    with stable_member(wire, classic):
        ids = [group, empty, classic, "no-such-group", ""]
        more = {"include_authorized_operations": True}
        answers = [wire.send("consumer_group_describe", version, group_ids=ids, **each) for each in ({}, more)]
    results = [comparable(answer, topic, names) for answer in answers]
    for result in results:
        result["groups"] = by_key(result["groups"], "group_id")
        for found in result["groups"]:
            found["members"] = by_key(found["members"], "member_id")
            for member_of in found["members"]:
                member_of["subscribed_topic_names"].sort()
    return results
