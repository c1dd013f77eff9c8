"""What can go wrong, in Kafka's words: every error that reaches a client is an `ApiError` with a code of the wire."""

from headwater.protocol.kafka_types import ErrorCode

__all__ = ["ApiError", "ErrorCode", "MalformedRequestError", "MalformedResponseError"]


class ApiError(Exception):
    """A request, or a part of one, that is answered with an error code.

    `message` is for people; newer versions of most APIs carry it to the client.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message or code.name.replace("_", " ")


class MalformedRequestError(ValueError):
    """Bytes that are no request of the protocol. The connection they came from is closed; nothing else is harmed."""


class TooManyItemsError(MalformedRequestError):
    """A request that asks for more at once than the broker works on."""


class ResponseTooLongError(Exception):
    """A response that no client would take."""


class MalformedResponseError(ValueError):
    """Bytes that are no response of the protocol; the connection they came from is of no use any more."""
