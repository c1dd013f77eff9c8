"""`headwater cluster`: who is there, where the data lies, and which APIs are served."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headwater.cli.output import bytes_for_people, print_json, print_table, with_client

if TYPE_CHECKING:
    from headwater.client import Client

app = new_app()


@app.command()
def show_cluster(
    apis: Annotated[bool, typer.Option("--apis", help="Also the APIs and versions of each broker.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the cluster: its id, controller, brokers and log dirs."""

    async def run(client: "Client") -> dict[str, Any]:
        return await _look_around(client, with_apis=apis)

    cluster = with_client(bootstrap, run)
    if as_json:
        print_json(cluster)
        return
    print(f"Cluster id: {cluster['cluster_id']}")
    print(f"Controller: {'none' if cluster['controller'] is None else cluster['controller']}")
    brokers = cluster["brokers"]
    print()
    print_table(
        ("Broker", "Endpoint", "Rack"),
        [(broker["id"], broker["endpoint"], broker["rack"]) for broker in brokers],
        numeric=("Broker",),
    )
    print()
    print_table(
        ("Broker", "LogDir", "Partitions", "Size", "Free"),
        [
            (
                broker["id"],
                log_dir["path"],
                log_dir["partitions"] if log_dir["error"] is None else log_dir["error"],
                bytes_for_people(log_dir["size_bytes"]),
                None if log_dir["usable_bytes"] is None else bytes_for_people(log_dir["usable_bytes"]),
            )
            for broker in brokers
            for log_dir in broker["log_dirs"]
        ],
        numeric=("Broker", "Partitions", "Size", "Free"),
    )
    if apis:
        print()
        rows = [
            (broker["id"], api["key"], api["name"], api["min_version"], api["max_version"])
            for broker in brokers
            for api in broker["apis"]
        ]
        print_table(("Broker", "Key", "Api", "Oldest", "Newest"), rows, numeric=("Broker", "Key", "Oldest", "Newest"))


async def _look_around(client: "Client", *, with_apis: bool) -> dict[str, Any]:
    from headwater.client.connection import Address
    from headwater.client.thin.admin import describe_cluster

    found = await describe_cluster(client)
    brokers = []
    for broker in sorted(found.brokers, key=lambda broker: int(broker.broker_id)):
        entry: dict[str, Any] = {
            "id": broker.broker_id,
            "endpoint": str(Address(broker.host, broker.port)),
            "rack": broker.rack,
            "log_dirs": await _log_dirs(client, broker.broker_id),
        }
        if with_apis:
            entry["apis"] = await _served_apis(client, broker.broker_id)
        brokers.append(entry)
    controller = None if found.controller_id < 0 else int(found.controller_id)
    return {"cluster_id": found.cluster_id, "controller": controller, "brokers": brokers}


async def _log_dirs(client: "Client", broker: int) -> list[dict[str, Any]]:
    from headwater.client.thin.admin import describe_log_dirs

    found = []
    for log_dir in await describe_log_dirs(client, broker):
        sizes = [int(p.partition_size) for topic in log_dir.topics for p in topic.partitions]
        found.append(
            {
                "path": log_dir.log_dir,
                "error": None if log_dir.error_code == 0 else log_dir.error_code.name,
                "partitions": len(sizes),
                "size_bytes": sum(sizes),
                "total_bytes": None if log_dir.total_bytes < 0 else log_dir.total_bytes,
                "usable_bytes": None if log_dir.usable_bytes < 0 else log_dir.usable_bytes,
            }
        )
    return found


async def _served_apis(client: "Client", broker: int) -> list[dict[str, Any]]:
    from kio.schema.index import api_key_map

    versions = (await client.connection(broker)).versions
    return [
        {"key": key, "name": _api_name(api_key_map.get(key)), "min_version": oldest, "max_version": newest}
        for key, (oldest, newest) in sorted(versions.items())
    ]


def _api_name(name: str | None) -> str | None:
    """`list_offsets` as Kafka spells it: `ListOffsets`."""
    return name and "".join(word.capitalize() for word in name.split("_"))
