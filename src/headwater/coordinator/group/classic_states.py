"""The states of a classic group, and what moves it from one to the next.

The rules:

- A group begins Empty, and returns there when its last member goes. Only an Empty group can be deleted; one with
  members is removed only when it turns into a consumer group.
- A new member, one that left or died, and one that wants something else each make a rebalance necessary: the group is
  PreparingRebalance until all members have joined again, or the time for it is over.
- Then it is CompletingRebalance: the members of the new generation are known and wait for the leader's assignment.
- What the log says holds. A record with members (the leader's assignment, or a static member that took its place again)
  makes the group Stable; a record without members makes it Empty. After a restart there is no other way into a state.
- A record never comes in the middle of a rebalance that has not got its members yet.
- Dead is a group that was removed. Nothing moves it.
"""

from enum import Enum
from typing import Final


class ClassicState(Enum):
    """Where a group is; the value is Kafka's word for it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicEvent(Enum):
    """What happens to a group."""

    REBALANCE_NEEDED = "a rebalance is needed"
    MEMBERS_JOINED = "the members of the next generation are known"
    NOBODY_LEFT = "no member is left"
    MEMBERS_SAVED = "a record with members was written"
    EMPTINESS_SAVED = "a record without members was written"
    REMOVED = "the group was removed"


_STATE = ClassicState
_EVENT = ClassicEvent

TRANSITIONS: Final[dict[ClassicState, dict[ClassicEvent, ClassicState]]] = {
    _STATE.EMPTY: {
        _EVENT.REBALANCE_NEEDED: _STATE.PREPARING_REBALANCE,
        _EVENT.MEMBERS_SAVED: _STATE.STABLE,
        _EVENT.EMPTINESS_SAVED: _STATE.EMPTY,
        _EVENT.REMOVED: _STATE.DEAD,
    },
    _STATE.PREPARING_REBALANCE: {
        _EVENT.MEMBERS_JOINED: _STATE.COMPLETING_REBALANCE,
        _EVENT.NOBODY_LEFT: _STATE.EMPTY,
        _EVENT.REMOVED: _STATE.DEAD,
    },
    _STATE.COMPLETING_REBALANCE: {
        _EVENT.REBALANCE_NEEDED: _STATE.PREPARING_REBALANCE,
        _EVENT.MEMBERS_SAVED: _STATE.STABLE,
        _EVENT.REMOVED: _STATE.DEAD,
    },
    _STATE.STABLE: {
        _EVENT.REBALANCE_NEEDED: _STATE.PREPARING_REBALANCE,
        _EVENT.MEMBERS_SAVED: _STATE.STABLE,
        _EVENT.EMPTINESS_SAVED: _STATE.EMPTY,
        _EVENT.REMOVED: _STATE.DEAD,
    },
    _STATE.DEAD: {},
}


def next_state(state: ClassicState, event: ClassicEvent) -> ClassicState:
    """The state after `event`; a KeyError is a bug in the coordinator, never a client's doing."""
    return TRANSITIONS[state][event]
