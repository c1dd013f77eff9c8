"""A process that has little memory to spare reads what strangers claim, and is there afterwards."""

import subprocess
import sys
from pathlib import Path

from fuzz.messages_target import one_input, seeds
from headwater.client.consumer.fetch_lane import NEWEST_VERSION, decode_fetch
from headwater.client.producer.produce_lane import decode_produce
from headwater.protocol import messages
from headwater.protocol.apis import FETCH, PRODUCE, SERVED

TESTS = Path(__file__).resolve().parents[2]
LITTLE_BYTES = 64 * 1024 * 1024

READS_WITH_LITTLE_MEMORY = f"""
import resource
from fuzz.messages_target import one_input, wrongly_long
inputs = wrongly_long()
with open("/proc/self/statm") as sizes:
    limit = int(sizes.read().split()[0]) * resource.getpagesize() + {LITTLE_BYTES}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for data in inputs:
    one_input(data)
print(len(inputs), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_lengths_that_only_claim_cost_no_memory() -> None:
    """Every length of every message in every version, replaced by others: nothing is made for them."""
    done = subprocess.run(
        [sys.executable, "-c", READS_WITH_LITTLE_MEMORY], cwd=TESTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    inputs, grown_kib = map(int, done.stdout.split())
    assert inputs > 50_000
    assert grown_kib * 1024 < LITTLE_BYTES / 4


def test_a_seed_of_every_message_is_read_by_all_who_read_it() -> None:
    """Fuzzing begins with what is valid: messages of all versions, with tagged fields that nobody knows."""
    found = seeds()
    for data in found:
        one_input(data)
        kind, chosen, number = data[:3]
        api = SERVED[sorted(SERVED)[chosen]]
        version, body = api.min_version + number, data[3:]
        if kind == 0:
            messages.decode_request(api, version, body, 0)
        elif kind == 1:
            messages.decode_response(api.key, version, body, 0)
            if api is PRODUCE:
                decode_produce(version, memoryview(body))
            elif api is FETCH and version <= NEWEST_VERSION:
                decode_fetch(version, memoryview(body))
    assert len(found) > 1000
