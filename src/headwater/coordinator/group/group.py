"""What a shard, and the offsets in it, need of a group of either kind."""

from typing import Final, Literal, NamedTuple, Protocol

from headwater.coordinator.outcome import CoordinatorRecord
from headwater.protocol.errors import ApiError, ErrorCode

LONGEST_TEXT_BYTES: Final = 32_767
"""What the key of a record can hold of a text."""
Kind = Literal["classic", "consumer"]


def check_group_id(group_id: str) -> None:
    """ApiError when a group cannot be called so."""
    if not group_id or len(group_id.encode()) > LONGEST_TEXT_BYTES:
        raise ApiError(ErrorCode.invalid_group_id)


class DeadlineName(NamedTuple):
    """A deadline of a shard: whose it is (`kind` says who is called when it is due), of what, in which group.

    >>> DeadlineName("classic", "session", "billing", "c1-4711")
    """

    kind: Kind
    what: str
    group_id: str
    member_id: str = ""


class Group(Protocol):
    """A group of either kind. The checks raise `ApiError` with the code that the client gets."""

    @property
    def group_id(self) -> str:
        """The name of the group."""

    @property
    def kind(self) -> Kind:
        """Which protocol the group speaks."""

    @property
    def state_name(self) -> str:
        """Kafka's word for the group's state, such as `Stable`."""

    @property
    def protocol_type(self) -> str | None:
        """What the members do together, such as `consumer`; None for a group that only keeps offsets."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads `topic`, as far as can be known; True when it cannot be ruled out."""

    def check_offset_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        generation_or_epoch: int,
        version: int,
        transactional: bool,
    ) -> None:
        """Whether this member may commit offsets now; `version` is OffsetCommit's or TxnOffsetCommit's."""

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Whether this member may fetch offsets; a member id of None and an epoch of -1 stand for anybody."""

    def check_offset_delete(self) -> None:
        """Whether offsets of topics that nobody is subscribed to may be deleted."""

    def check_deletable(self) -> None:
        """Whether the group may be deleted now."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that take the group itself away; its offsets are not the group's affair."""

    def offset_expiry_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts; None while no offset of the group may expire."""
