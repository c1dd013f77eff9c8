"""What the ledger remembers of a source: enough to ask it again, and no secret."""

import pytest

from headwater.lake.sources.reach import Reach


def test_brokers_and_plain_options_are_remembered() -> None:
    kept = Reach.without_secrets("broker:9092", {"starting": "latest", "settle_s": 30, "kafka.check.crcs": "false"})
    assert kept.details == {
        "bootstrap": "broker:9092",
        "options": {"starting": "latest", "settle_s": 30, "kafka.check.crcs": "false"},
    }


@pytest.mark.parametrize(
    "option",
    [
        {"password": "s3cret"},
        {"user": "s3cret"},
        {"kafka.sasl.jaas.config": "s3cret"},
        {"kafka.sasl.password": "s3cret"},
        {"kafka.ssl.keystore.password": "s3cret"},
        {"kafka.ssl.key": "s3cret"},
        {"access_key": "s3cret"},
        {"oauthToken": "s3cret"},
        {"settings": {"sasl.password": "s3cret"}},
        {"proxy": "http://me:s3cret@host"},
        {"url": "postgresql://host/db?password=s3cret"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_what_may_be_a_secret_is_not(option: dict[str, object]) -> None:
    kept = Reach.without_secrets("broker:9092", {**option, "value": "json"})
    assert "s3cret" not in repr(kept)
    assert kept.options == {"value": "json"}


def test_a_load_that_left_nothing_has_no_reach() -> None:
    assert Reach.of(None) == Reach()
    assert Reach.of(None).overridden("b:1", {"value": "text"}) == Reach(bootstrap="b:1", options={"value": "text"})
