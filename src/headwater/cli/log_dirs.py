"""`headwater log dirs`: the log dirs of brokers and what each partition takes up in them."""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from headwater.cli.output import bytes_for_people, fail, print_json, print_table, with_client

if TYPE_CHECKING:
    from headwater.client import Client


def show_dirs(bootstrap: str, *, topics: list[str], brokers: list[int], as_json: bool) -> None:
    """Prints the dirs, and the partitions of the topics asked for; of all when none is."""

    async def run(client: "Client") -> list[dict[str, Any]]:
        from headwater.client.thin.admin import describe_cluster

        known = sorted(int(broker.broker_id) for broker in (await describe_cluster(client)).brokers)
        unknown = sorted(set(brokers) - set(known))
        if unknown:
            fail(f"there is no broker {unknown[0]}; there are {', '.join(map(str, known))}")
        return [{"broker": broker, "log_dirs": await _dirs_of(client, broker, topics)} for broker in brokers or known]

    found = with_client(bootstrap, run)
    if as_json:
        print_json({"version": 1, "brokers": found})
        return
    print_table(
        ("Broker", "LogDir", "Partitions", "Size", "Error"),
        [
            (entry["broker"], log_dir["path"], len(log_dir["partitions"]), _total(log_dir), log_dir["error"])
            for entry in found
            for log_dir in entry["log_dirs"]
        ],
        numeric=("Broker", "Partitions", "Size"),
    )
    print()
    print_table(
        ("Topic", "Partition", "Broker", "LogDir", "Size", "OffsetLag", "Future"),
        sorted(
            (
                replica["topic"],
                replica["partition"],
                entry["broker"],
                log_dir["path"],
                bytes_for_people(replica["size_bytes"]),
                replica["offset_lag"],
                "yes" if replica["is_future"] else "no",
            )
            for entry in found
            for log_dir in entry["log_dirs"]
            for replica in log_dir["partitions"]
        ),
        numeric=("Partition", "Broker", "Size", "OffsetLag"),
    )


def _total(log_dir: dict[str, Any]) -> str:
    return bytes_for_people(sum(replica["size_bytes"] for replica in log_dir["partitions"]))


async def _dirs_of(client: "Client", broker: int, topics: list[str]) -> list[dict[str, Any]]:
    from headwater.client.thin.admin import describe_log_dirs

    return [
        {
            "path": log_dir.log_dir,
            "error": None if log_dir.error_code == 0 else log_dir.error_code.name,
            "total_bytes": None if log_dir.total_bytes < 0 else log_dir.total_bytes,
            "usable_bytes": None if log_dir.usable_bytes < 0 else log_dir.usable_bytes,
            "partitions": [
                {
                    "topic": topic.name,
                    "partition": replica.partition_index,
                    "size_bytes": replica.partition_size,
                    "offset_lag": replica.offset_lag,
                    "is_future": replica.is_future_key,
                }
                for topic in sorted(log_dir.topics, key=attrgetter("name"))
                if not topics or topic.name in topics
                for replica in sorted(topic.partitions, key=attrgetter("partition_index"))
            ],
        }
        for log_dir in await describe_log_dirs(client, broker)
    ]
