"""DeleteTopics, v1 to v6: takes topics away, by name or (v6) by id.

v1 to v5 hold a plain list of names. v5 adds error messages. `delete.topic.enable=false` refuses all: with
INVALID_REQUEST before v3, with TOPIC_DELETION_DISABLED from v3 on. Internal topics can be deleted, as in
Apache. The timeout is not needed: a topic is gone when the answer is sent; its files follow after
`file.delete.delay.ms`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsByName
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from headwater.broker.services.partition import Topic
from headwater.broker.services.topic_requests import UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID
from headwater.protocol.errors import ApiError
from headwater.protocol.kafka_types import NO_THROTTLE, ErrorCode, TopicName

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.dispatch import RequestContext

_FIRST_WITH_IDS: Final = 6
_FIRST_WITH_DISABLED_ERROR: Final = 3
_Wish = tuple[str | None, UUID | None]


def VERSION(version: int) -> int:  # noqa: N802 -- the dispatcher looks for this name
    """The oldest versions hold names where the newest holds names or ids."""
    return 6 if version >= _FIRST_WITH_IDS else 5


async def handle(context: "RequestContext", request: DeleteTopicsRequest | DeleteTopicsByName) -> DeleteTopicsResponse:
    """Each topic succeeds or fails on its own."""
    broker, pace = context.broker, context.pace
    times: Counter[_Wish] = Counter()
    results = []
    for wish in _wishes(request):
        times[wish] += 1
        await pace.pause()
    async with broker.topics.changing:
        for wish in times:
            await pace.pause()
            topic = _resolve(broker, wish)
            if topic is not None and wish[0] is None and (topic.name, None) in times:
                # Named as well: its name gets the answer, which is a refusal.
                continue
            results.append(await _delete(context, wish, topic, times))
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(results))


async def _delete(
    context: "RequestContext", wish: _Wish, topic: Topic | None, times: Mapping[_Wish, int]
) -> DeletableTopicResult:
    try:
        if not context.broker.config.delete_topic_enable:
            raise _disabled(context.version)
        topic = _check(wish, topic, times)
        await context.broker.topics.delete(topic)
    except ApiError as error:
        return _result(*wish, error.code, error.message)
    return _result(topic.name, topic.topic_id)


def _wishes(request: DeleteTopicsRequest | DeleteTopicsByName) -> Iterator[_Wish]:
    if isinstance(request, DeleteTopicsByName):
        return ((name, None) for name in request.topic_names)
    return ((state.name, state.topic_id) for state in request.topics)


def _disabled(version: int) -> ApiError:
    code = ErrorCode.topic_deletion_disabled if version >= _FIRST_WITH_DISABLED_ERROR else ErrorCode.invalid_request
    return ApiError(code, "Topic deletion is disabled.")


def _resolve(broker: "Broker", wish: _Wish) -> Topic | None:
    name, topic_id = wish
    if name is not None:
        return broker.topics.by_name.get(name)
    return None if topic_id is None else broker.topics.by_id.get(topic_id.bytes)


def _check(wish: _Wish, topic: Topic | None, times: Mapping[_Wish, int]) -> Topic:
    """The one topic that is meant; one that is meant twice is not deleted, as the client is confused."""
    name, topic_id = wish
    if name is None and topic_id is None:
        raise ApiError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        raise ApiError(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if times[wish] > 1:
        raise ApiError(ErrorCode.invalid_request, f"Duplicate topic {'id' if name is None else 'name'}.")
    if topic is None and name is None:
        raise ApiError(ErrorCode.unknown_topic_id, UNKNOWN_TOPIC_ID)
    if topic is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)
    if name is not None and (None, topic.topic_id) in times:
        raise ApiError(ErrorCode.invalid_request, "The provided topic name maps to an ID that was already supplied.")
    return topic


def _result(
    name: str | None,
    topic_id: UUID | None,
    error_code: ErrorCode = ErrorCode.none,
    message: str | None = None,
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=None if name is None else TopicName(name),
        topic_id=topic_id,
        error_code=error_code,
        error_message=message,
    )
