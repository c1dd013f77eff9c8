"""A member of a classic group: what it told when it joined, what it was assigned, and what it waits for."""

from dataclasses import dataclass
from typing import Self

from headwater.coordinator.group.records import ClassicMemberValue, ClassicProtocol
from headwater.coordinator.outcome import Waiter


@dataclass(slots=True, kw_only=True)
class ClassicMember:
    """One member. Who waits for it and whether it is new is forgotten by a restart."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """In the order in which the member likes them."""
    assignment: bytes = b""
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None
    is_new: bool = False
    """Whether it waits for its first generation: only then can its session end while it waits."""

    @classmethod
    def from_value(cls, value: ClassicMemberValue, protocol: str | None) -> Self:
        """A member as a record has it: of its protocols, only the one that was chosen is known."""
        return cls(
            member_id=value.member_id,
            instance_id=value.instance_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=(
                value.session_timeout_ms if value.rebalance_timeout_ms == -1 else value.rebalance_timeout_ms
            ),
            session_timeout_ms=value.session_timeout_ms,
            protocols=(ClassicProtocol(protocol or "", value.subscription),),
        )

    def to_value(self, protocol: str | None, assignment: bytes) -> ClassicMemberValue:
        """The member as a record keeps it."""
        return ClassicMemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol) or b"",
            assignment=assignment,
        )

    def metadata(self, protocol: str | None) -> bytes | None:
        """What the member says for `protocol`; None when it does not support it."""
        return next((supported.metadata for supported in self.protocols if supported.name == protocol), None)

    @property
    def is_waiting(self) -> bool:
        """Whether a request of the member is parked: it cannot send heartbeats meanwhile, so it need not."""
        return self.join_waiter is not None or self.sync_waiter is not None
