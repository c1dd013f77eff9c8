"""Things are asked at their homes until each has an answer, and whatever one of them meets is no other's trouble."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import Client, ClientError, RefusedError
from headwater.client.admin.results import Results, for_each
from headwater.client.admin.routing import ask_each, leaders
from headwater.client.back_off import BackOff
from headwater.client.errors import CannotConnectError, ConnectionLostError, TimedOutError, UnsupportedError
from headwater.protocol.kafka_types import NO_THROTTLE, BrokerId, ErrorCode, TopicName, i32
from headwater.types import TopicPartition

from kio.schema.metadata.v12.response import (  # isort: skip
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

MOVED = RefusedError("a thing", ErrorCode.not_leader_or_follower)
FORBIDDEN = RefusedError("a thing", ErrorCode.topic_authorization_failed)
HOMES = (1, 2, 3)


def impatient_client(patience_s: float = 5.0) -> Client:
    """A client that is never connected, and does not wait between two tries."""
    client = Client("localhost:9")
    client.patience_s = patience_s
    client._retry_back_off = BackOff(0, 0)
    return client


class Script:
    """What homes say: for each thing a row of answers, the last of which stays.

    A number is an answer, None loses the connection to the home where the thing is. Things move to the next home each
    time they are asked. Whoever asks for something that has its answer already is told so.
    """

    def __init__(self, rows: dict[str, list[int | RefusedError | None]]) -> None:
        self.rows = rows
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.settled: set[str] = set()
        self.rounds = 0
        self.requests: list[tuple[int, int, tuple[str, ...]]] = []

    async def homes(self, things: Sequence[str]) -> dict[str, int | ClientError]:
        self.rounds += 1
        return {thing: HOMES[(len(thing) + self.asked[thing]) % len(HOMES)] for thing in things}

    async def ask(self, home: int, things: Sequence[str]) -> dict[str, int | ClientError]:
        assert self.settled.isdisjoint(things), "asked again"
        self.requests.append((self.rounds, home, tuple(things)))
        said = {thing: self._next(thing) for thing in things}
        answers: dict[str, int | ClientError] = {thing: each for thing, each in said.items() if each is not None}
        if len(answers) < len(said):
            raise ConnectionLostError("the connection was lost")
        self.settled |= {thing for thing, answer in answers.items() if not _may_pass(answer)}
        return answers

    def _next(self, thing: str) -> int | RefusedError | None:
        row = self.rows[thing]
        self.asked[thing] += 1
        return row[min(self.asked[thing], len(row)) - 1]


def _may_pass(answer: int | ClientError) -> bool:
    return isinstance(answer, RefusedError) and answer.retriable


def ask_all(script: Script, client: Client | None = None) -> Results[str, int]:
    return asyncio.run(ask_each(client or impatient_client(), script.rows, script.homes, script.ask))


ANSWERS = st.one_of(st.integers(0, 9), st.just(MOVED), st.just(FORBIDDEN), st.none())
ROWS = st.dictionaries(
    st.text("ab", min_size=1, max_size=3),
    st.builds(lambda row, last: [*row, last], st.lists(ANSWERS, max_size=3), st.integers(0, 9)),
    max_size=6,
)


@given(ROWS)
def test_every_thing_gets_the_answer_that_its_home_gave_for_good(
    rows: dict[str, list[int | RefusedError | None]],
) -> None:
    script = Script(rows)
    results = ask_all(script)
    assert list(results) == list(rows)
    assert results == {thing: row[: script.asked[thing]][-1] for thing, row in rows.items()}
    assert all(result is FORBIDDEN or isinstance(result, int) for result in results.values())
    assert len({(turn, home) for turn, home, _ in script.requests}) == len(script.requests)


def test_things_of_one_home_go_in_one_request() -> None:
    script = Script({"a": [1], "b": [2], "ab": [3]})
    assert ask_all(script).or_raise() == {"a": 1, "b": 2, "ab": 3}
    assert sorted(script.requests) == [(1, 2, ("a", "b")), (1, 3, ("ab",))]


def test_what_does_not_pass_in_time_names_its_own_reason() -> None:
    script = Script({"good": [1], "bad": [MOVED]})
    results = ask_all(script, impatient_client(0.05))
    assert results["good"] == 1
    with pytest.raises(TimedOutError, match=r"gave up after 0.05 s: a thing: not leader or follower"):
        results.one("bad")


def test_each_that_is_late_has_its_own_reason() -> None:
    other = RefusedError("another", ErrorCode.leader_not_available)
    results = ask_all(Script({"a": [MOVED], "b": [other]}), impatient_client(0.05))
    assert [str(error).partition(": ")[2] for error in results.failed.values()] == [str(MOVED), str(other)]


def test_codes_that_are_not_said_to_pass_are_final() -> None:
    script = Script({"a": [MOVED, 1]})
    call = ask_each(impatient_client(), ["a"], script.homes, script.ask, passing={ErrorCode.not_controller})
    assert asyncio.run(call) == {"a": MOVED}


def test_a_thing_without_a_home_fails_alone_and_at_once() -> None:
    gone = CannotConnectError("broker 7 is not part of the cluster")

    async def homes(things: Sequence[str]) -> dict[str, int | ClientError]:
        return {thing: gone if thing == "lost" else 1 for thing in things}

    script = Script({"kept": [1]})
    results = asyncio.run(ask_each(impatient_client(), ["lost", "kept"], homes, script.ask))
    assert results == {"lost": gone, "kept": 1}


def test_an_answer_that_leaves_something_out_is_an_error() -> None:
    async def ask(_: int, things: Sequence[str]) -> dict[str, int | ClientError]:
        return dict.fromkeys(things[1:], 1)

    results = asyncio.run(ask_each(impatient_client(), ["a", "b"], Script({}).homes, ask))
    assert results["b"] == 1
    with pytest.raises(ClientError, match="leaves out a"):
        results.one("a")


@pytest.mark.parametrize(
    "stop", [UnsupportedError("the broker does not serve it"), CannotConnectError("cannot connect to localhost:9")]
)
def test_what_stops_the_whole_call_is_raised(stop: ClientError) -> None:
    async def ask(_: int, __: Sequence[str]) -> dict[str, int | ClientError]:
        raise stop

    with pytest.raises(type(stop)):
        asyncio.run(ask_each(impatient_client(), ["a", "b"], Script({}).homes, ask))


class Pictured(Client):
    """A client that is told what the cluster looks like."""

    async def metadata(self, topics: Sequence[str] | None = None, *, create_missing: bool = False) -> MetadataResponse:
        led = MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=TopicName("led"),
            topic_id=None,
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=ErrorCode.none, partition_index=i32(number), leader_id=BrokerId(leader)
                )
                for number, leader in enumerate((1, 2, 1, -1))
            ),
        )
        forbidden = MetadataResponseTopic(
            error_code=ErrorCode.topic_authorization_failed, name=TopicName("forbidden"), topic_id=None, partitions=()
        )
        return MetadataResponse(throttle_time=NO_THROTTLE, brokers=(), topics=(led, forbidden))


def test_the_home_of_a_partition_is_its_leader() -> None:
    led = [TopicPartition("led", number) for number in range(5)]
    forbidden, absent = TopicPartition("forbidden", 0), TopicPartition("absent", 0)
    homes = asyncio.run(_find_leaders([*led, forbidden, absent]))
    assert [homes[place] for place in led[:3]] == [1, 2, 1]
    assert {place: home.code for place, home in homes.items() if isinstance(home, RefusedError)} == {
        led[3]: ErrorCode.leader_not_available,
        led[4]: ErrorCode.unknown_topic_or_partition,
        forbidden: ErrorCode.topic_authorization_failed,
        absent: ErrorCode.unknown_topic_or_partition,
    }


async def _find_leaders(places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ClientError]:
    return await leaders(Pictured("localhost:9"))(places)


def test_results_are_a_dict_that_raises_when_asked_to() -> None:
    results: Results[str, int] = Results({"a": 1, "b": FORBIDDEN, "c": MOVED})
    assert (results.succeeded, results.failed) == ({"a": 1}, {"b": FORBIDDEN, "c": MOVED})
    assert results.one("a") == 1
    with pytest.raises(RefusedError) as caught:
        results.or_raise()
    assert caught.value is FORBIDDEN


def test_for_each_keeps_refusals_and_timeouts_apart_and_raises_the_rest() -> None:
    late = TimedOutError("gave up")

    async def look(thing: str) -> str:
        if thing == "bug":
            raise ZeroDivisionError
        if thing != "good":
            raise {"late": late, "forbidden": FORBIDDEN}[thing]
        return "found"

    assert asyncio.run(for_each(["late", "good", "forbidden", "good"], look)) == {
        "late": late,
        "good": "found",
        "forbidden": FORBIDDEN,
    }
    with pytest.raises(ZeroDivisionError):
        asyncio.run(for_each(["good", "bug"], look))


def test_a_lone_name_is_not_taken_for_its_letters() -> None:
    script = Script({})
    with pytest.raises(TypeError, match=r"\['orders'\]"):
        asyncio.run(ask_each(impatient_client(), "orders", script.homes, script.ask))
