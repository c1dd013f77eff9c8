"""What the map of offsets finds out about batches, for the cleaner that makes their successors."""

from array import array

DROP, COPY, REWRITE = 1, 2, 3
"""What becomes of a batch: nothing is left of it, it is as it was, or it loses records or gets a delete horizon."""

OUTCOME_FIELDS = 5
"""How many numbers `Survivors.outcomes` has for each batch."""


class Survivors:
    """What a filter found: `outcomes` has five numbers for each batch, all -1 for one that was not looked at.

    They are: how many records stay, whether a tombstone is among them, the largest timestamp among them, and where in
    `kept` their bytes begin and end, when not all stay. The next filter of the same map writes over `kept`.
    """

    __slots__ = ("kept", "outcomes")

    def __init__(self, outcomes: "array[int]", kept: bytearray) -> None:
        self.outcomes = outcomes
        self.kept = kept
