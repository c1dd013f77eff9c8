"""The states of a transactional id: what may follow what, and what an end comes to in each.

- Empty: a producer is known, its transaction has not begun. InitProducerId leads here.
- Ongoing: partitions are being added. The only state that can time out.
- PrepareCommit, PrepareAbort: decided. From this record on the transaction ends that way, whatever crashes; its
  partitions get their markers. Everybody else is told to wait.
- CompleteCommit, CompleteAbort: every partition has its marker. The next transaction may begin.
- PrepareEpochFence: an ongoing transaction is taken from its producer, by a new instance or by time. It exists only
  while that is decided: what is written is PrepareAbort with the next epoch.
- Dead: forgotten. What is written is a tombstone.
"""

from enum import Enum, IntEnum
from typing import Final


class TransactionState(IntEnum):
    """A state, by its number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's word for it.

        >>> TransactionState.PREPARE_COMMIT.label
        'PrepareCommit'
        """
        return self.name.title().replace("_", "")


_S = TransactionState

FOLLOWERS: Final = {
    _S.EMPTY: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD},
    _S.ONGOING: {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE},
    _S.PREPARE_EPOCH_FENCE: {_S.PREPARE_ABORT},
    _S.PREPARE_COMMIT: {_S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {_S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD},
    _S.COMPLETE_ABORT: {_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD},
    _S.DEAD: set[TransactionState](),
}

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETED: Final = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
NEVER_WRITTEN: Final = frozenset({_S.DEAD, _S.PREPARE_EPOCH_FENCE})
EXPIRABLE: Final = frozenset(state for state, followers in FOLLOWERS.items() if _S.DEAD in followers)


class Verdict(Enum):
    """What an EndTxn comes to."""

    END = "the end is decided and written"
    AGAIN = "it was decided before: the same answer once more"
    REFUSE = "it contradicts what was decided, or there is nothing to end"


# State -> (verdict on an abort, verdict on a commit). Prepared transactions are not here: whoever asks has to wait.
# With transaction version 2 every end raises the epoch, so the epoch tells an end that is repeated from the next one.
# There an abort is accepted when nothing was begun: a producer cannot know whether its first write arrived.
END_BY_OLDER_CLIENT: Final = {
    _S.EMPTY: (Verdict.REFUSE, Verdict.REFUSE),
    _S.ONGOING: (Verdict.END, Verdict.END),
    _S.COMPLETE_COMMIT: (Verdict.REFUSE, Verdict.AGAIN),
    _S.COMPLETE_ABORT: (Verdict.AGAIN, Verdict.REFUSE),
}
END_WITH_CURRENT_EPOCH: Final = {
    _S.EMPTY: (Verdict.END, Verdict.REFUSE),
    _S.ONGOING: (Verdict.END, Verdict.END),
    _S.COMPLETE_COMMIT: (Verdict.END, Verdict.REFUSE),
    _S.COMPLETE_ABORT: (Verdict.END, Verdict.REFUSE),
}
END_WITH_PREVIOUS_EPOCH: Final = {
    _S.COMPLETE_COMMIT: (Verdict.REFUSE, Verdict.AGAIN),
    _S.COMPLETE_ABORT: (Verdict.AGAIN, Verdict.REFUSE),
}
