"""Races with other writers of a table: Iceberg lets one of them win, and the other has only to begin again."""

from collections.abc import Callable
from typing import Final, TypeVar

from headwater.lake.errors import LakeBusyError, LakeError
from headwater.lake.spark import first_line

T = TypeVar("T")

ATTEMPTS: Final = 10
_SIGNS: Final = (
    "CommitFailedException",
    "CommitStateUnknownException",
    "ValidationException",
    "conflicting",
    # A file that was there when the work was planned is gone: maintenance of another job.
    "NotFoundException",
    "FileNotFoundException",
)


def lost_a_race(error: BaseException) -> bool:
    """Whether an error of Spark means that another writer was quicker."""
    words = str(error)
    return any(sign in words for sign in _SIGNS)


def despite_races(what: str, work: Callable[[], T]) -> T:
    """Does the work again as often as another writer comes first; any other error is a LakeError that names it."""
    for _ in range(ATTEMPTS):
        try:
            return work()
        except LakeError:
            raise
        except Exception as error:
            if not lost_a_race(error):
                raise LakeError(f"{what} failed and changed nothing: {first_line(error)}") from error
    raise LakeBusyError(
        f"other writers were quicker {ATTEMPTS} times in a row than {what}: try again when they are done"
    )
