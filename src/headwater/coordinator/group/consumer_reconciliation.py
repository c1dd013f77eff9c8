"""How a member gets from what it has to what it is to have, one heartbeat at a time.

    STABLE ── target is newer ──────────────────────────▶ the next step
    UNREVOKED ── the member no longer reports them ─────▶ the next step
    UNRELEASED ── at every heartbeat ───────────────────▶ the next step

The next step: when the member has partitions that are not in its target, it stays in its epoch and is told to give
them back (UNREVOKED). Else it enters the target's epoch with those partitions of its target that nobody else holds:
with all of them it is STABLE, else it waits for the rest (UNRELEASED). So a partition is given to a member only after
the one before said that it let go of it, or was put out of the group.
"""

from collections.abc import Callable

from headwater.coordinator.group.consumer_member import ConsumerMember, MemberState
from headwater.coordinator.group.consumer_partitions import Partition, Partitions
from headwater.protocol.errors import ApiError, ErrorCode


def reconcile(
    member: ConsumerMember,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    holder: Callable[[Partition], str | None],
) -> ConsumerMember:
    """The member after a heartbeat in which it said to own `owned` (None: it did not say)."""
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owned is None or owned & member.pending:
            return member
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ApiError(
                ErrorCode.fenced_member_epoch,
                f"member {member.member_id} is in a state that this broker does not know; "
                "it must give up its partitions and join again",
            )
        epoch = target_epoch
    kept = member.assigned & target
    surplus = member.assigned - kept
    if surplus and (owned is None or owned & surplus):
        return member.moved(epoch, MemberState.UNREVOKED_PARTITIONS, kept, surplus)
    wanted = target - kept
    nobody_or_itself = (None, member.member_id)
    gained = frozenset([partition for partition in wanted if holder(partition) in nobody_or_itself])
    state = MemberState.STABLE if gained == wanted else MemberState.UNRELEASED_PARTITIONS
    return member.moved(target_epoch, state, kept | gained)
