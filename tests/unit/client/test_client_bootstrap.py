"""`--bootstrap` is read as people write it, and what it cannot be is said."""

import pytest

from headwater.client import parse_bootstrap


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", ["localhost:9092"]),
        ("kafka", ["kafka:9092"]),
        (" a:1 , b:2,", ["a:1", "b:2"]),
        ("[::1]:9093", ["[::1]:9093"]),
        ("[::1]", ["[::1]:9092"]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[str]) -> None:
    assert [str(address) for address in parse_bootstrap(text)] == addresses


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:", "host:port", "host:0", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_bootstrap(text)
