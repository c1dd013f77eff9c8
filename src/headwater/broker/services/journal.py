"""The metadata store as requests write to it: one that cannot take a change is answered, and a broken one noticed."""

from collections.abc import Callable

from headwater.cluster.changes import Change
from headwater.cluster.embedded import EmbeddedStore
from headwater.cluster.image import ClusterImage
from headwater.log.disk_errors import is_passing
from headwater.protocol.errors import ApiError, ErrorCode


class Journal:
    """Takes changes to the metadata; `on_failure` is called, in the thread that noticed, when it never will again."""

    def __init__(self, store: EmbeddedStore, on_failure: Callable[[OSError], object]) -> None:
        self._store = store
        self._on_failure = on_failure

    @property
    def image(self) -> ClusterImage:
        """The sum of all changes so far."""
        return self._store.image

    def append(self, *changes: Change) -> None:
        """Makes `changes` durable; ApiError KAFKA_STORAGE_ERROR, with nothing changed, when that cannot be."""
        try:
            self._store.append(*changes)
        except OSError as error:
            if not is_passing(error):
                self._on_failure(error)
            reason = f"the change cannot be written to {self._store.path}: {error.strerror}"
            raise ApiError(ErrorCode.kafka_storage_error, reason) from error
