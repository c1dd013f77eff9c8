"""Commits over the wire are exactly once: whatever is repeated, raced or lost, data and position move together."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog_parts import SOURCE, TABLE, Writer, commit_of, error_of, moving, offset, snapshot
from headwater.catalog.entries import COMMITTED, FAILED


def test_a_load_moves_the_position_with_its_data(writer: Writer) -> None:
    assert writer.ledger.position(TABLE, SOURCE) is None
    first = writer.load(None, offset(10))
    assert writer.ledger.position(TABLE, SOURCE) == offset(10)
    second = writer.load(offset(10), offset(25))
    assert writer.ledger.position(TABLE, SOURCE) == offset(25)
    newest, oldest = writer.ledger.loads(table=TABLE)
    assert (oldest.state, oldest.snapshot_id, oldest.before, oldest.after) == (COMMITTED, first, None, offset(10))
    assert (newest.state, newest.snapshot_id, newest.before, newest.after) == (
        COMMITTED,
        second,
        offset(10),
        offset(25),
    )


def test_a_commit_whose_answer_was_lost_is_answered_again(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
    first = writer.send(request)
    again = writer.send(request)
    assert first.status_code == again.status_code == 200
    assert again.json() == first.json()
    assert [each["snapshot-id"] for each in writer.metadata()["snapshots"]] == [1]


def test_a_lost_answer_is_given_again_after_another_commit_has_followed(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
    assert writer.send(request).status_code == 200
    follower = writer.insert()
    again = writer.send(request)
    assert again.status_code == 200
    assert again.json()["metadata"]["current-snapshot-id"] == follower


def test_a_lost_answer_is_given_again_after_the_snapshot_has_expired(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
    assert writer.send(request).status_code == 200
    writer.insert()
    expire = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [1]}]}
    assert writer.send(expire).status_code == 200
    again = writer.send(request)
    assert again.status_code == 200, "a refusal would make the client delete files of a committed snapshot"
    assert 1 not in [each["snapshot-id"] for each in writer.metadata()["snapshots"]]


def test_a_table_that_has_moved_on_is_a_conflict_that_the_client_may_retry(writer: Writer) -> None:
    writer.insert()
    status, kind, _ = error_of(writer.send(commit_of(snapshot(7, None), parent=None)))
    assert (status, kind) == (409, "CommitFailedException")


def test_a_conflict_leaves_the_load_pending_so_that_its_retry_succeeds(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    summary = moving(None, offset(10), load_id)
    compaction = writer.insert()
    assert writer.send(commit_of(snapshot(7, None, summary), parent=None)).status_code == 409
    retry = commit_of(snapshot(7, compaction, summary), parent=compaction)
    assert writer.send(retry).status_code == 200
    assert writer.ledger.load(load_id).state == COMMITTED


def test_a_position_that_somebody_else_has_moved_is_a_final_refusal(writer: Writer) -> None:
    late = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    quick = writer.load(None, offset(10))
    answer = writer.send(commit_of(snapshot(8, quick, moving(None, offset(12), late)), parent=quick))
    status, kind, words = error_of(answer)
    assert (status, kind) == (400, "BadRequestException")
    assert SOURCE in words
    assert '{"0":10}' in words
    assert writer.ledger.position(TABLE, SOURCE) == offset(10)


def test_a_position_without_the_one_it_follows_is_refused(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    summary = moving(None, offset(10), load_id)
    del summary["headwater.expect"]
    status, _, words = error_of(writer.send(commit_of(snapshot(1, None, summary))))
    assert status == 400
    assert "headwater.expect" in words


@pytest.mark.parametrize("maintenance", ["replace", "delete", "append"])
def test_whoever_knows_nothing_of_positions_carries_them_forward(writer: Writer, maintenance: str) -> None:
    loaded = writer.load(None, offset(10))
    assert writer.send(commit_of(snapshot(5, loaded, operation=maintenance), parent=loaded)).status_code == 200
    expire = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [loaded]}]}
    assert writer.send(expire).status_code == 200
    assert writer.ledger.position(TABLE, SOURCE) == offset(10)
    writer.load(offset(10), offset(20))


def test_sources_of_one_table_move_independently(writer: Writer) -> None:
    other = "files:file:///in"
    late = writer.ledger.begin_load(table=TABLE, source=other)
    loaded = writer.load(None, offset(10))
    answer = writer.send(commit_of(snapshot(5, loaded, moving(None, {"load": late}, late, other)), parent=loaded))
    assert answer.status_code == 200
    assert writer.ledger.position(TABLE, SOURCE) == offset(10)
    assert writer.ledger.position(TABLE, other) == {"load": late}


def test_a_roll_back_takes_the_position_back_with_the_data(writer: Writer) -> None:
    first = writer.load(None, offset(10))
    writer.load(offset(10), offset(20))
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first}
    assert writer.send({"requirements": [], "updates": [back]}).status_code == 200
    assert writer.ledger.position(TABLE, SOURCE) == offset(10)


def test_a_branch_keeps_the_position_for_the_day_it_becomes_main(writer: Writer) -> None:
    loaded = writer.load(None, offset(10))
    fork = {"action": "set-snapshot-ref", "ref-name": "audit", "type": "branch", "snapshot-id": loaded}
    assert writer.send({"requirements": [], "updates": [fork]}).status_code == 200
    assert writer.send(commit_of(snapshot(5, loaded), branch="audit", parent=loaded)).status_code == 200
    forward = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5}
    assert writer.send({"requirements": [], "updates": [forward]}).status_code == 200
    assert writer.ledger.position(TABLE, SOURCE) == offset(10)


def test_a_load_that_was_given_up_cannot_be_committed_late(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    assert writer.ledger.fail_load(load_id, "the job was stopped").state == FAILED
    status, _, words = error_of(writer.send(commit_of(snapshot(1, None, moving(None, offset(10), load_id)))))
    assert status == 400
    assert "failed" in words


def test_a_committed_load_cannot_be_given_up(writer: Writer) -> None:
    writer.load(None, offset(10))
    load = writer.ledger.loads()[0]
    assert writer.ledger.fail_load(load.load_id, "too late").state == COMMITTED


def test_racing_writers_commit_each_load_once(writer: Writer) -> None:
    """Four writers load the same hundred records in tens; whoever is late reads the position again."""

    def run(_number: int) -> int:
        mine = Writer(str(writer.http.base_url).removesuffix("/v1/"))
        committed = 0
        try:
            while (read := mine.ledger.position(TABLE, SOURCE)) != offset(100):
                after = offset((read["topics"]["events"]["0"] if read else 0) + 10)
                load_id = mine.ledger.begin_load(table=TABLE, source=SOURCE, before=read, after=after)
                parent = mine.current()
                new = uuid.uuid4().int >> 65
                answer = mine.send(commit_of(snapshot(new, parent, moving(read, after, load_id)), parent=parent))
                assert answer.status_code in (200, 400, 409), answer.text
                committed += answer.status_code == 200
        finally:
            mine.close()
        return committed

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(4))) == 10
    loads = [load for load in writer.ledger.loads(limit=1000) if load.state == COMMITTED]
    assert [load.after for load in loads] == [offset(number) for number in range(100, 0, -10)]
    assert len(writer.metadata()["snapshots"]) == 10


def test_the_same_commit_sent_by_many_at_once_happens_once(writer: Writer) -> None:
    load_id = writer.ledger.begin_load(table=TABLE, source=SOURCE)
    request = commit_of(snapshot(1, None, moving(None, offset(10), load_id)))
    together = threading.Barrier(6)

    def run(_number: int) -> int:
        together.wait()
        return writer.send(request).status_code

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(run, range(6))) == {200}
    assert len(writer.metadata()["snapshots"]) == 1


def test_changes_that_do_not_contradict_each_other_all_succeed(writer: Writer) -> None:
    def run(number: int) -> int:
        update = {"action": "set-properties", "updates": {f"owner.{number}": "ann"}}
        return writer.send({"requirements": [], "updates": [update]}).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(run, range(20))) == {200}
    assert len(writer.metadata()["properties"]) == 20


def test_a_commit_to_two_tables_is_all_or_nothing(writer: Writer) -> None:
    import pyarrow as pa

    writer.ledger.evolve("db.other", pa.schema([("id", pa.int64())]))
    good = {"identifier": {"namespace": ["db"], "name": "events"}, **commit_of(snapshot(1, None))}
    bad = {"identifier": {"namespace": ["db"], "name": "other"}, **commit_of(snapshot(2, 99), parent=99)}
    answer = writer.http.post("/transactions/commit", json={"table-changes": [good, bad]})
    assert error_of(answer)[:2] == (409, "CommitFailedException")
    assert writer.current() is None
    well = {"identifier": {"namespace": ["db"], "name": "other"}, **commit_of(snapshot(2, None))}
    for _ in range(2):  # the second time the answer is said to have been lost
        answer = writer.http.post("/transactions/commit", json={"table-changes": [good, well]})
        assert answer.status_code == 204
    assert writer.current() == 1
    assert writer.metadata("other")["current-snapshot-id"] == 2


def test_a_commit_to_a_table_of_many_snapshots_costs_little_more(writer: Writer) -> None:
    """Processor time of client and server together, against that of the first commits to the same table."""

    def spent_s(times: int) -> float:
        began = time.process_time()
        for _ in range(times):
            writer.insert()
        return time.process_time() - began

    first = spent_s(20)
    many = commit_of(*(snapshot(each, each - 1) for each in range(10_000_000, 10_001_000)), parent=writer.current())
    many["updates"][0]["snapshot"]["parent-snapshot-id"] = writer.current()
    assert writer.send(many).status_code == 200
    assert spent_s(20) < 12 * first, "measured at 2 to 4 times, reading the answer included"


def test_a_commit_to_no_table_is_not_found(writer: Writer) -> None:
    status, kind, _ = error_of(writer.send(commit_of(snapshot(1, None)), table="nothing"))
    assert (status, kind) == (404, "NoSuchTableException")
