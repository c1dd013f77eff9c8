"""Apache's VerifiableConsumer as a process: a Java consumer in a group that tells each of its steps.

Standard library only.
"""

import signal
from pathlib import Path
from typing import Any

from .apache import QUICK_START, java_command
from .telling import TellingProcess

Partition = tuple[str, int]


class VerifiableConsumer(TellingProcess):
    """A member of a group.

    >>> with VerifiableConsumer(bootstrap, "group", "topic", folder) as consumer:
    ...     follow_until(lambda: consumer.owned, "its partitions", consumer)
    """

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "consumer.properties"
        # How often a member of the new protocol beats is the broker's to say.
        heartbeat = "" if "consumer" in arguments else "heartbeat.interval.ms=200\n"
        settings.write_text(f"{heartbeat}fetch.max.wait.ms=50\n")
        self.owned: set[Partition] = set()
        self.consumed = 0
        super().__init__(
            java_command(
                "org.apache.kafka.tools.VerifiableConsumer",
                *("--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic),
                *("--consumer.config", str(settings)),
                *arguments,
                jvm_options=("-Xmx256m", *QUICK_START),
            )
        )

    def heard(self, event: dict[str, Any]) -> None:
        """Keeps what it owns and how much it has read."""
        if event["name"] == "partitions_assigned":
            self.owned |= _partitions(event)
        elif event["name"] == "partitions_revoked":
            self.owned -= _partitions(event)
        elif event["name"] == "records_consumed":
            self.consumed += event["count"]

    def ask_to_end(self) -> None:
        """It closes its consumer, and so leaves the group, on SIGTERM."""
        self.process.send_signal(signal.SIGTERM)


def _partitions(event: dict[str, Any]) -> set[Partition]:
    return {(found["topic"], found["partition"]) for found in event["partitions"]}
