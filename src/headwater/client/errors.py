"""What can stop a client. `str(error)` is a sentence: what happened, to what, what to do next."""

from typing import TYPE_CHECKING, Final

from headwater.protocol.errors import ErrorCode
from headwater.terminal_text import printable
from headwater.types import TopicPartition

if TYPE_CHECKING:
    from headwater.client.consumer.corrupt_batches import CorruptBatch


class ClientError(Exception):
    """Anything that stops a client; its text can be shown as it is."""

    def __str__(self) -> str:
        # It may quote what a broker said, or a name that somebody else has chosen.
        return printable(super().__str__())


class CannotConnectError(ClientError):
    """No connection to an address."""


class AuthenticationError(ClientError):
    """A broker does not accept who the client says it is."""


class NotKafkaError(ClientError):
    """Something answers at the address, but not in Kafka's protocol."""


class NoTalkError(CannotConnectError, NotKafkaError):
    """A fresh connection was closed or left without an answer: not Kafka, or a broker that is stopping or starting."""


class UnsupportedError(ClientError):
    """The broker does not serve an API, or no version of it that this client speaks."""


class ConnectionLostError(ClientError):
    """The connection ended before the answer came. Whether the request was carried out is unknown."""


class TimedOutError(ClientError):
    """No answer, or no success, before the deadline."""


class ClosedError(ClientError):
    """The client is closed, or was closed while the call waited."""


class RecordTooLargeError(ClientError):
    """A record is larger than a request or the producer's memory may be; other records are not harmed."""


class ForkedError(ClientError):
    """A client of the parent process was used in a child process that was forked off."""


class WrongThreadError(ClientError):
    """A thread used the client that may not use it now: a second one at a time, or a callback that would wait."""


class RecordError(ClientError):
    """A record that cannot be handed out: its batch is damaged or too large, or a deserializer failed on it.

    The consumer's position stays before it: seek behind it to go on.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, reason: str, what_to_do: str = "seek past it to go on"
    ) -> None:
        super().__init__(f"record {offset} of partition {partition} cannot be read: {reason}; {what_to_do}")
        self.partition = partition
        self.offset = offset


class CorruptRecordError(RecordError):
    """A batch of records that cannot be read, or not from `offset` on. `batch` says what is known of it.

    To go on, seek to `batch.next_offset`, or have such batches skipped: `corrupt_records="skip"`. `batch.raw` has its
    bytes for those who want to keep them.
    """

    def __init__(self, batch: "CorruptBatch") -> None:
        size = f" ({batch.size_bytes:,} bytes)" if batch.raw else ""
        super().__init__(
            batch.partition,
            batch.first_offset,
            f"{batch.reason}{size}",
            f"seek to offset {batch.next_offset} to go on behind it, or set corrupt.records = skip",
        )
        self.batch = batch


class RefusedError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, subject: str, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{subject}: {_sentence(code, message)}")
        self.subject = subject
        self.code = code

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later.

        A topic that is not there is not waited for: whoever mistypes a name wants to know at once.
        """
        return self.code.retriable and self.code is not ErrorCode.unknown_topic_or_partition


def error_code(number: int) -> ErrorCode:
    """The error that a broker's answer names; one that is not known yet, or never will be, counts as unknown.

    >>> error_code(9999).name
    'unknown_server_error'
    """
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error


class ProducerFencedError(RefusedError):
    """Somebody else goes by the producer's transactional id now; this producer can only be closed."""


_WORDS: Final = {
    ErrorCode.unknown_topic_or_partition: "no such topic or partition; `headwater topics list` shows all",
    ErrorCode.unknown_topic_id: "the topic was deleted or made anew in the meantime; run the command again",
    ErrorCode.invalid_topic_exception: "not a topic name; use at most 249 letters, digits, '.', '_', '-'",
    ErrorCode.topic_already_exists: "the topic exists already; --if-not-exists makes that no error",
    ErrorCode.message_too_large: "a batch is larger than the topic's max.message.bytes; "
    "use a smaller --batch-bytes, or raise max.message.bytes if one record alone is too large",
    ErrorCode.record_list_too_large: "a batch is larger than the topic's segment.bytes; use a smaller --batch-bytes",
    ErrorCode.not_enough_replicas: "too few replicas are in sync for acks=all; "
    "bring brokers back or lower min.insync.replicas",
    ErrorCode.leader_not_available: "the partition has no leader; is the broker that holds it running?",
    ErrorCode.offset_out_of_range: "the offset is outside of the log; see `headwater offsets`",
    ErrorCode.topic_deletion_disabled: "the broker forbids deleting topics (delete.topic.enable=false)",
    ErrorCode.topic_authorization_failed: "not authorized for this topic",
    ErrorCode.cluster_authorization_failed: "not authorized for this operation on the cluster",
    ErrorCode.policy_violation: "a policy of the cluster forbids it",
    ErrorCode.group_id_not_found: "no such group; `headwater groups list` shows all",
    ErrorCode.invalid_group_id: "not a name that a group can have",
    ErrorCode.non_empty_group: "the group has members; stop its consumers first, `headwater groups members` shows them",
    ErrorCode.unknown_member_id: "consumers have joined the group in the meantime; stop them and run the command again",
    ErrorCode.group_authorization_failed: "not authorized for this group",
    ErrorCode.coordinator_not_available: "there is no coordinator for it; are all brokers running?",
    ErrorCode.coordinator_load_in_progress: "its coordinator is still loading",
    ErrorCode.transactional_id_not_found: "no such transactional id; `headwater transactions list` shows all",
    ErrorCode.transactional_id_authorization_failed: "not authorized for this transactional id",
    ErrorCode.invalid_producer_epoch: "the producer goes by a newer epoch now; "
    "`headwater transactions describe-producers` shows it",
    ErrorCode.transaction_coordinator_fenced: "a newer coordinator has written here since; "
    "`headwater transactions describe-producers` shows its epoch",
}
# Of these the broker's own words tell less than ours.
_OURS_SAY_MORE: Final = frozenset(
    {
        ErrorCode.topic_already_exists,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.group_id_not_found,
        ErrorCode.transactional_id_not_found,
    }
)


def _sentence(code: ErrorCode, message: str | None) -> str:
    """The broker's own words where it has some beyond the code's name, else our advice where we have any."""
    if not message or code in _OURS_SAY_MORE:
        return _WORDS.get(code) or code.name.replace("_", " ")
    return message.rstrip(".")
