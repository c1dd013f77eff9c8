"""Old records go: the check of every partition for segments that its topic's settings do not keep.

What there is to delete is found in a thread, as it may read from cold files; it is deleted on the event loop.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from headwater.broker.services.partition import Partition
from headwater.log.retention import count_old_segments, delete_old_segments
from headwater.log.segment import CorruptSegmentError
from headwater.protocol.errors import ApiError

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)


async def enforce_retention(broker: "Broker") -> None:
    """Deletes what is too old or too much, once over all partitions. One that fails does not keep the others."""
    now_ms = int(time.time() * 1000)
    partitions = broker.topics.partitions()
    affected = await asyncio.to_thread(lambda: [each for each in partitions if _has_old_segments(broker, each, now_ms)])
    for partition in affected:
        # A cleaner at work on a log would have to begin anew; there is another check soon.
        if partition.is_offline or partition.log.is_closed or broker.cleaning.is_under_way(partition.log):
            continue
        try:
            delete_old_segments(partition.log, high_watermark=partition.high_watermark, now_ms=now_ms)
        except OSError as error:
            logger.error("old segments of %s cannot be deleted: %s", partition.log.path, error)
            broker.failures.storage_error(partition.log, "delete from", error)
        broker.jobs.remove_files_later(partition)
        await asyncio.sleep(0)


def _has_old_segments(broker: "Broker", partition: Partition, now_ms: int) -> bool:
    try:
        log = partition.log
        return count_old_segments(log, high_watermark=log.log_end_offset, now_ms=now_ms) > 0
    except ApiError:
        return False  # it went offline
    except (OSError, CorruptSegmentError) as error:
        if not log.is_closed:
            logger.error("the age of the segments of %s is not known: %s", log.path, error)
        # A file that is not there was dropped meanwhile.
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            broker.failures.storage_error(log, "read", error)
        return False
