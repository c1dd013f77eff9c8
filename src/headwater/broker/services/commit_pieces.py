"""Commits of very many offsets, decided piece by piece.

All that a coordinator decides at once is decided, written and replayed in one turn of the event loop. A commit of
100,000 offsets would take seconds of it, so a long one is cut into pieces, each a decision of its own with a batch of
its own. Kafka promises nothing about the offsets of one request as a whole: a member that is put out of its group in
between hears so for the rest of them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from headwater.broker.services.turns import Work
from headwater.protocol.each import each
from headwater.protocol.errors import ErrorCode

R = TypeVar("R")

_PIECE: Final = 200
"""How many offsets are decided at once: a few milliseconds."""


def is_short(topics: Sequence[Any]) -> bool:
    """Whether a commit of these topics is decided at once."""
    return sum([max(len(topic.partitions), 1) for topic in topics]) <= _PIECE


def in_pieces(request: R, topics: Sequence[Any], decide: Callable[[R], Any], response: type[Any]) -> Work[Any]:
    """The response to a commit: what `decide` says of one piece after another, put together.

    `decide` takes the request with some of its topics' partitions, and gives a response or a future of one.
    """
    rows: dict[Any, list[Any]] = {}
    answered = None
    for piece in _pieces(topics):
        answer = decide(dataclasses.replace(request, topics=piece))  # type: ignore[type-var]
        if not isinstance(answer, response):
            answer = yield answer
        answered = answered or answer
        if getattr(answer, "error_code", ErrorCode.none) is not ErrorCode.none:
            return answer
        for topic in answer.topics:
            rows.setdefault(topic.name, []).extend(topic.partitions)
        yield None
    if answered is None or not answered.topics:
        return answered
    kind = type(answered.topics[0])
    return dataclasses.replace(
        answered, topics=each(lambda row: kind(name=row[0], partitions=tuple(row[1])), rows.items())
    )


def _pieces(topics: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    piece: list[Any] = []
    size = 0
    for topic in topics:
        for first in range(0, len(topic.partitions), _PIECE) or (0,):
            some = topic.partitions[first : first + _PIECE]
            piece.append(dataclasses.replace(topic, partitions=some))
            # A topic without partitions is work, too.
            size += max(len(some), 1)
            if size >= _PIECE:
                yield tuple(piece)
                piece, size = [], 0
    if piece:
        yield tuple(piece)
