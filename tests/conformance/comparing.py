"""How two brokers' answers to one request are compared: as wholes, with only that masked which must differ.

A case is a function that asks one broker and returns what is comparable of its answers. Cases of all APIs are
registered here; `test_every_version.py` runs each, in every version of its API, against both brokers.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from .actions import Topic
from .wire import Wire, plain

# Given by chance, by the machine or by the clock.
VOLATILE = frozenset(
    {
        "cluster_id",
        "port",
        "session_id",
        "log_dir",
        "total_bytes",
        "usable_bytes",
        "documentation",
        "last_timestamp",
    }
)
# Numbers of which only that matters whether one was given: otherwise they are -1.
GIVEN = frozenset({"producer_id", "transaction_start_time_ms"})
# Each broker has its own words for errors, and ours has some where Apache has none.
WORDS = frozenset({"error_message", "batch_index_error_message"})

Case = Callable[[Wire, int], Any]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def comparable(answer: Any, topic: Topic | None = None, names: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The answer with what may differ taken out; `names` says what stands for names and ids that were made up."""
    of_topic = {topic.name: "<topic>", str(topic.id): "<topic id>"} if topic else {}
    return _masked(plain(answer), {**of_topic, **names})


def _masked(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        kept = {key: inner for key, inner in value.items() if key not in VOLATILE and key not in WORDS}
        return {key: inner >= 0 if key in GIVEN else _masked(inner, names) for key, inner in kept.items()}
    if isinstance(value, list):
        return [_masked(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def differences(got: Any, expected: Any, path: str = "answer") -> list[str]:
    """Where two answers differ, one line for each place."""
    if isinstance(got, dict) and isinstance(expected, dict) and got.keys() == expected.keys():
        return [line for key in expected for line in differences(got[key], expected[key], f"{path}.{key}")]
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple) and len(got) == len(expected):
        pairs = enumerate(zip(got, expected, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{path}[{index}]")]
    return [] if got == expected else [f"{path}: got {got!r}, Apache says {expected!r}"]


def by_key(items: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """Entries of a comparable answer in a settled order, where brokers give them in any."""
    return sorted(items, key=lambda item: str(item[key]))
