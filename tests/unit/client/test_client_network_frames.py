"""Answers are cut out of the stream however it is chopped up, and a length alone makes nobody take memory."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.answer_frames import MAX_ANSWER_BYTES, SCRATCH_BYTES, TRUSTED_BYTES, AnswerFrames, BadLengthError


def framed(answer: bytes) -> bytes:
    return struct.pack(">i", len(answer)) + answer


def feed(frames: AnswerFrames, stream: bytes, most: int = 1 << 30) -> list[memoryview]:
    """What comes out when the stream comes in, in pieces of at most so many bytes."""
    whole: list[memoryview] = []
    position = 0
    while position < len(stream):
        room = frames.room()
        piece = stream[position : position + min(len(room), most)]
        room[: len(piece)] = piece
        position += len(piece)
        whole += frames.received(len(piece))
    return whole


answers = st.one_of(
    st.binary(min_size=4, max_size=64),
    st.integers(4, 3 * SCRATCH_BYTES).map(lambda size: b"\xa5" * size),
    st.just(b"\x5a" * (TRUSTED_BYTES + SCRATCH_BYTES)),
)


@given(st.lists(answers, max_size=6), st.one_of(st.integers(5, 100), st.integers(1_000, 2_000_000)))
def test_however_the_stream_is_chopped_up_the_answers_are_the_same(sent: list[bytes], most: int) -> None:
    frames = AnswerFrames()
    most = max(most, sum(map(len, sent)) // 2_000)
    assert feed(frames, b"".join(map(framed, sent)), most) == sent


@given(st.lists(st.binary(min_size=4, max_size=20), max_size=5))
def test_single_bytes_are_enough(sent: list[bytes]) -> None:
    assert feed(AnswerFrames(), b"".join(map(framed, sent)), 1) == sent


@pytest.mark.parametrize("length", [-1, 0, 3, -(2**31), MAX_ANSWER_BYTES + 1, 2**31 - 1])
def test_a_length_that_no_answer_has_is_refused(length: int) -> None:
    with pytest.raises(BadLengthError, match=f"an answer of {length} bytes"):
        feed(AnswerFrames(), struct.pack(">i", length))


def test_a_claimed_length_takes_no_more_than_a_mebibyte_before_that_much_has_come() -> None:
    frames = AnswerFrames()
    feed(frames, struct.pack(">i", MAX_ANSWER_BYTES) + b"x")
    assert len(frames.room()) == TRUSTED_BYTES - 1


def test_an_answer_up_to_a_mebibyte_gets_its_memory_once() -> None:
    frames = AnswerFrames()
    feed(frames, struct.pack(">i", 1_000_000) + b"x")
    room = frames.room()
    assert len(room) == 999_999
    (answer,) = feed(frames, b"x" * 999_999)
    room[0] = ord("y")
    assert answer[1] == ord("y"), "it was copied"


def test_a_broker_that_has_sent_a_large_answer_is_believed_that_size() -> None:
    frames = AnswerFrames()
    feed(frames, framed(b"x" * (5 * TRUSTED_BYTES)))
    feed(frames, struct.pack(">i", 5 * TRUSTED_BYTES) + b"x")
    assert len(frames.room()) == 5 * TRUSTED_BYTES - 1
    frames = AnswerFrames()
    feed(frames, framed(b"x" * (2 * TRUSTED_BYTES)))
    feed(frames, struct.pack(">i", 5 * TRUSTED_BYTES) + b"x")
    assert len(frames.room()) == 2 * TRUSTED_BYTES - 1


def test_each_answer_is_in_memory_of_its_own() -> None:
    frames = AnswerFrames()
    first, second = feed(frames, framed(b"first") + framed(b"second"))
    feed(frames, framed(b"third") * 10)
    assert [first, second] == [b"first", b"second"]
