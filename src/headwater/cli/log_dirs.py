"""`headwater log dirs`: the log dirs of brokers and what each partition takes up in them."""

from typing import TYPE_CHECKING, Any

from headwater.cli.output import bytes_for_people, fail, print_json, print_table, with_client

if TYPE_CHECKING:
    from headwater.client import Client


def show_dirs(bootstrap: str, *, topics: list[str], brokers: list[int], as_json: bool) -> None:
    """Prints the dirs, and the partitions of the topics asked for; of all when none is."""

    async def run(client: "Client") -> list[dict[str, Any]]:
        from headwater.client.admin.cluster import describe_cluster

        known = [broker.broker_id for broker in (await describe_cluster(client)).brokers]
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
    from headwater.client.admin.log_dirs import describe_log_dirs

    return [
        {
            "path": log_dir.path,
            "error": log_dir.error and log_dir.error.code.name,
            "total_bytes": log_dir.total_bytes,
            "usable_bytes": log_dir.usable_bytes,
            "partitions": [
                {
                    "topic": replica.partition.topic,
                    "partition": replica.partition.partition,
                    "size_bytes": replica.size_bytes,
                    "offset_lag": replica.offset_lag,
                    "is_future": replica.is_future,
                }
                for replica in sorted(log_dir.replicas)
                if not topics or replica.partition.topic in topics
            ],
        }
        for log_dir in (await describe_log_dirs(client, [broker])).one(broker)
    ]
