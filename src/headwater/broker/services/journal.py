"""The metadata store as requests write to it: one that cannot take a change is answered, and a broken one noticed."""

import logging
from collections.abc import Callable
from uuid import UUID

from headwater.cluster.changes import Change
from headwater.cluster.embedded import EmbeddedStore
from headwater.cluster.image import ClusterImage
from headwater.log.disk_errors import is_passing
from headwater.log.log_dirs import LogDirs
from headwater.protocol.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


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

    def out_of_sight(self, topic_id: UUID) -> None:
        """The folders of a deleted topic have other names: a start need not look for them once that is durable."""
        self._store.out_of_sight.add(topic_id)

    @property
    def is_long(self) -> bool:
        """Whether `compact` may have something to do."""
        return self._store.is_long

    def compact(self, log_dirs: LogDirs) -> None:
        """Rewrites the journal without what is superseded, if it is long; changes may come in meanwhile. For a thread.

        Not while a log dir is offline: what comes back with it may be of topics that only the journal knows as deleted.
        """
        if any(log_dir.failed is not None for log_dir in log_dirs.dirs):
            return
        gone = set(self._store.out_of_sight)
        try:
            log_dirs.sync_names()
            self._store.forget_deleted(gone)
            self._store.out_of_sight -= gone
            self._store.rewrite_if_long()
        except OSError as error:
            if self._store.is_closed:
                self._on_failure(error)
            else:
                logger.error("the metadata journal %s could not be shortened: %s", self._store.path, error)
