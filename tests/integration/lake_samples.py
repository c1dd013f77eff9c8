"""Data like that of the world, from a seed: months of taxi trips as CSV, events of a code host as lines of JSON."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

MONEY = ("fare_amount", "extra", "tip_amount", "tolls_amount", "total_amount", "congestion_surcharge", "airport_fee")


def taxi_trips(random: Random, month: int, count: int) -> Iterator[dict[str, str]]:
    """Trips with all columns there ever were; some fares are negative, and some cars cannot tell their passengers."""
    for _ in range(count):
        pickup = datetime(2026, month, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(28 * 86_400))
        knows = random.random() < 0.95
        sign = -1 if random.random() < 0.02 else 1
        yield {
            "VendorID": str(random.choice((1, 2, 6))),
            "tpep_pickup_datetime": _local(pickup),
            "tpep_dropoff_datetime": _local(pickup + timedelta(seconds=random.randrange(60, 5000))),
            "passenger_count": str(random.randrange(7)) if knows else "",
            "trip_distance": f"{random.expovariate(0.3):.2f}",
            "RatecodeID": str(random.choice((1, 1, 1, 2, 99))) if knows else "",
            "store_and_fwd_flag": random.choice("NNNY") if knows else "",
            "PULocationID": str(random.randrange(1, 266)),
            **{name: f"{sign * random.randrange(20_000) / 100:.2f}" for name in MONEY},
        }


def _local(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def as_csv(trips: Sequence[dict[str, str]], columns: dict[str, str]) -> str:
    """A file of trips with these columns, each under the name that this file gives it."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns.values())
    writer.writerows([[trip[column] for column in columns] for trip in trips])
    return text.getvalue()


def events(random: Random, first_id: int, count: int, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Events whose payload depends on their type."""
    for number in range(first_id, first_id + count):
        kind = random.choice(kinds)
        person = {"id": random.randrange(10**6), "login": random.choice(("octo", "zoë", "李雷", "o'neil"))}
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
        yield {
            "id": str(10**10 + number),
            "type": kind,
            "actor": person,
            "repo": {"id": number % 97, "name": f"{person['login']}/r{number % 97}"},
            "payload": _payload(random, kind, person),
            "public": True,
            "created_at": at.isoformat().replace("+00:00", "Z"),
            **({"org": {"id": 1, "gravatar_id": ""}} if random.random() < 0.2 else {}),
        }


def _payload(random: Random, kind: str, person: dict[str, Any]) -> dict[str, Any]:
    if kind == "PushEvent":
        return {
            "size": 1,
            "ref": "refs/heads/main",
            "commits": [_commit(random, person) for _ in range(random.randrange(4))],
        }
    if kind == "IssuesEvent":
        labels = [{"name": name, "default": name == "bug"} for name in ("bug", "ü 🐛")[: random.randrange(3)]]
        issue = {"number": random.randrange(1, 10**4), "title": "läuft\nnicht ✓", "labels": labels, "assignee": None}
        return {"action": random.choice(("opened", "closed")), "issue": issue}
    if kind == "CreateEvent":
        # Of a new repository there is no branch yet.
        return {"ref": random.choice((None, "dev")), "ref_type": "branch", "description": None}
    if kind == "ReleaseEvent":
        assets = [{"name": "a.whl", "size": 2**31 + random.randrange(99)}]
        return {"action": "published", "release": {"tag_name": "v1.0", "assets": assets, "body": None}}
    return {}


def _commit(random: Random, person: dict[str, Any]) -> dict[str, Any]:
    author = {"name": person["login"], "email": f"{person['id']}@example.org"}
    return {
        "sha": f"{random.getrandbits(160):040x}",
        "author": author,
        "message": 'fix "it"\n\n🎉',
        "distinct": random.random() < 0.9,
    }


def as_lines(records: Sequence[dict[str, Any]], *, escaped: bool) -> str:
    """A file of JSON lines, its letters escaped or as they are."""
    return "".join(json.dumps(record, ensure_ascii=escaped) + "\n" for record in records)
