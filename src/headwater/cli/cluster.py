"""`headwater cluster`: who is there, where the data lies, and which APIs are served."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.apps import new_app
from headwater.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headwater.cli.output import bytes_for_people, print_json, print_table, say, with_client

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
    say(
        f"Cluster id: {cluster['cluster_id']}",
        f"Controller: {'none' if cluster['controller'] is None else cluster['controller']}",
    )
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
    from headwater.client.addresses import Address
    from headwater.client.admin.cluster import describe_cluster

    found = await describe_cluster(client)
    brokers = []
    for broker in found.brokers:
        entry: dict[str, Any] = {
            "id": broker.broker_id,
            "endpoint": str(Address(broker.host, broker.port)),
            "rack": broker.rack,
            "log_dirs": await _log_dirs(client, broker.broker_id),
        }
        if with_apis:
            entry["apis"] = await _served_apis(client, broker.broker_id)
        brokers.append(entry)
    return {"cluster_id": found.cluster_id, "controller": found.controller, "brokers": brokers}


async def _log_dirs(client: "Client", broker: int) -> list[dict[str, Any]]:
    from headwater.client.admin.log_dirs import describe_log_dirs

    return [
        {
            "path": log_dir.path,
            "error": log_dir.error and log_dir.error.code.name,
            "partitions": len(log_dir.replicas),
            "size_bytes": sum(replica.size_bytes for replica in log_dir.replicas),
            "total_bytes": log_dir.total_bytes,
            "usable_bytes": log_dir.usable_bytes,
        }
        for log_dir in (await describe_log_dirs(client, [broker])).one(broker)
    ]


async def _served_apis(client: "Client", broker: int) -> list[dict[str, Any]]:
    from headwater.client.admin.cluster import describe_apis

    return [api._asdict() for api in await describe_apis(client, broker)]
