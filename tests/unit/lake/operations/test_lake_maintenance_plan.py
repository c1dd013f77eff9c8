"""Which snapshots may go, and which loads still need their files: decided without Spark."""

import pytest

from headwater.catalog.entries import Load
from headwater.lake import LakeUsageError
from headwater.lake.operations.maintenance import DAY_S, Care, needed_since_s, open_loads
from headwater.lake.operations.snapshots import Figures, Snapshot, TableHistory


def history(*snapshots: tuple[int, int | None, int], **named: int) -> TableHistory:
    """Snapshots as (id, parent, when), and which of them have names."""
    return TableHistory(
        snapshots=[
            Snapshot(snapshot_id=number, parent_id=parent, at_ms=at_ms, summary={"total-data-files": str(number)})
            for number, parent, at_ms in snapshots
        ],
        named=named,
        manifests=2,
        properties={},
    )


LINE = ((1, None, 100), (2, 1, 200), (3, 2, 300), (4, 3, 400))


def test_a_snapshot_goes_when_it_was_replaced_long_enough_ago_however_old_it_is() -> None:
    assert history(*LINE, main=4).expired(before_ms=300, keep=1) == [1]
    assert history(*LINE, main=4).expired(before_ms=301, keep=1) == [1, 2]
    assert history(*LINE, main=4).expired(before_ms=10_000, keep=1) == [1, 2, 3]


def test_the_last_states_of_a_table_stay() -> None:
    assert history(*LINE, main=4).expired(before_ms=10_000, keep=2) == [1, 2]
    assert history(*LINE, main=4).expired(before_ms=10_000, keep=9) == []


def test_snapshots_with_a_name_stay() -> None:
    assert history(*LINE, main=4, audit=2).expired(before_ms=10_000, keep=1) == [1, 3]


def test_a_snapshot_that_nobody_built_on_goes_by_its_own_age() -> None:
    assert history(*LINE, (5, 3, 350), main=4).expired(before_ms=10_000, keep=2) == [1, 2, 5]
    assert history(*LINE, (5, 3, 350), main=4).expired(before_ms=350, keep=1) == [1, 2]


def test_a_table_without_a_commit_has_nothing() -> None:
    assert history().expired(before_ms=10_000, keep=1) == []
    assert TableHistory(snapshots=[], named={}, manifests=0, properties={}).figures == Figures()


def test_the_current_snapshot_tells_how_much_there_is() -> None:
    assert history(*LINE, main=3).figures == Figures(data_files=3, manifests=2, snapshots=4)


def load(number: int, source: str, state: str) -> Load:
    return Load(
        load_id=str(number),
        table="t",
        source=source,
        mode="append",
        state=state,
        before=None,
        after=None,
        details={},
        begun_ms=number,
    )


def test_a_pending_load_needs_its_files_until_a_later_one_of_its_source_was_committed() -> None:
    newest_first = [
        load(9, "a", "pending"),
        load(8, "b", "committed"),
        load(7, "a", "failed"),
        load(6, "b", "pending"),
        load(5, "a", "committed"),
        load(4, "a", "pending"),
    ]
    assert [each.load_id for each in open_loads(newest_first)] == ["9"]


def test_files_stay_that_a_running_load_may_have_written_and_not_for_ever() -> None:
    now_s = 100 * DAY_S

    def begun(days_ago: float) -> Load:
        return load(int((100 - days_ago) * DAY_S * 1000), "a", "pending")

    assert needed_since_s([], Care(), now_s) == 99 * DAY_S
    assert needed_since_s([begun(0.5)], Care(), now_s) == 99 * DAY_S
    assert needed_since_s([begun(3)], Care(), now_s) == 97 * DAY_S
    assert needed_since_s([begun(3), begun(8)], Care(), now_s) == 97 * DAY_S
    assert needed_since_s([begun(8)], Care(orphans_older_than_s=2 * DAY_S), now_s) == 98 * DAY_S


def test_care_never_takes_what_may_be_in_use() -> None:
    with pytest.raises(LakeUsageError, match="younger than a day"):
        Care(orphans_older_than_s=3600)
    with pytest.raises(LakeUsageError, match="current state"):
        Care(keep=0)
