"""A client loads what it needs, and starts the sooner: nothing of a broker, no transactions that nobody asked for."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("client", ["Producer", "Consumer", "Admin"])
def test_a_client_loads_nothing_of_a_broker_or_of_transactions(client: str) -> None:
    program = f"import sys, headwater; headwater.{client}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "headwater.config.client" in loaded
    for needless in (
        "headwater.config.broker",
        "headwater.config.registry",
        "headwater.client.producer.transaction_messages",
        "kio.schema.end_txn",
    ):
        assert needless not in loaded
