"""Crawls a cluster: its topics, what their values are, and which of them are compacted."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from headwater.client.admin.configs import ConfigResource, describe_configs
from headwater.client.admin.topic_descriptions import list_topics
from headwater.client.client import Client
from headwater.client.errors import ClientError
from headwater.lake.crawling.event_times import event_time_of
from headwater.lake.crawling.proposals import Crawl, Proposal, column_name, with_names_apart
from headwater.lake.crawling.sniffing import is_text
from headwater.lake.datasource.brokers import Brokers
from headwater.lake.datasource.spots import Earliest, Latest, Spots
from headwater.lake.datasource.topic_offsets import TopicRange, find_ranges
from headwater.lake.datasource.topic_reader import read_range
from headwater.lake.shapes import plan_schema, shape_of_json

SAMPLED_PARTITIONS: Final = 3
SAMPLED_RECORDS: Final = 100
"""So many of the newest records of a partition are looked at, fewer where they are large."""
SAMPLED_BYTES: Final = 4 << 20

_DATABASE: Final = "topics"
_CLEANUP: Final = "cleanup.policy"
_REGISTRY_MAGIC: Final = b"\x00"
_REGISTRY_HEAD_BYTES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some records of a topic."""

    offsets: int
    partitions: int
    values: Sequence[bytes | None] = ()
    keyed: int = 0


def crawl_cluster(bootstrap: str, settings: Mapping[str, object] | None = None) -> Crawl:
    """Proposes a load for every topic that has records; the brokers' own topics are left out."""
    proposals: list[Proposal] = []
    left_out: list[str] = []
    with Brokers(bootstrap, settings or {}) as brokers:
        names = [topic.name for topic in brokers.run(list_topics)]
        compacted = brokers.run(lambda client: _compacted(client, names))
        for name in names:
            if name.startswith("__"):
                left_out.append(f"topic {name}: its name says that it belongs to a tool")
                continue
            sample = _sample(brokers, name)
            if sample.offsets == 0:
                left_out.append(f"topic {name}: it has no records yet, so nothing tells what its values are")
            else:
                proposals.append(propose(name, sample, compacted=name in compacted))
    return Crawl(place=bootstrap, proposals=with_names_apart(proposals), left_out=tuple(left_out), bootstrap=bootstrap)


def propose(topic: str, sample: Sample, *, compacted: bool) -> Proposal:
    """The load of one topic, from some of its records."""
    value, why, event_time = _value_format(sample.values)
    size = f"topic {topic}: {sample.offsets:,} offsets in {sample.partitions:,} partition{_s(sample.partitions)}"
    seen = len(sample.values)
    reasons = [f"{size}; {why}", f"{sample.keyed:,} of {seen:,} sampled records have a key."]
    upsert = compacted and sample.keyed > 0
    if upsert:
        reasons.append("The topic is compacted: the newest record of a key counts, a tombstone deletes, so upsert.")
    if event_time is not None:
        reasons.append(f"{event_time} is when a record happened, by its type and name; _timestamp is taken without it.")
    return Proposal(
        source=f"topic:{topic}",
        into=f"{_DATABASE}.{column_name(topic)}",
        reasons=tuple(reasons),
        mode="upsert" if upsert else "append",
        key=("_key",) if upsert else (),
        event_time=event_time,
        options={} if value == "json" else {"value": value},
    )


async def _compacted(client: Client, names: Sequence[str]) -> set[str]:
    """Topics that keep the newest record of each key; none where the brokers do not tell."""
    try:
        results = await describe_configs(client, [ConfigResource.topic(name) for name in names], names=[_CLEANUP])
    except ClientError:
        return set()
    return {
        resource.name
        for resource, configs in results.succeeded.items()
        if _CLEANUP in configs and "compact" in (configs[_CLEANUP].value or "")
    }


def _sample(brokers: Brokers, topic: str) -> Sample:
    """The newest records of the fullest partitions."""
    ranges = find_ranges(
        brokers, [topic], Spots(others=Earliest(), named={}), Spots(others=Latest(), named={}), data_loss="skip"
    )
    fullest = sorted(ranges, key=lambda found: -found.offsets)[:SAMPLED_PARTITIONS]
    values: list[bytes | None] = []
    keyed = 0
    for found in fullest:
        for batch in read_range(
            brokers, _newest(found), columns={"_key", "value"}, data_loss="skip", on_corrupt=lambda _: None
        ):
            values += batch.column("value").to_pylist()
            keyed += len(batch) - batch.column("_key").null_count
    return Sample(offsets=sum(found.offsets for found in ranges), partitions=len(ranges), values=values, keyed=keyed)


def _newest(found: TopicRange) -> TopicRange:
    each_bytes = found.size_bytes // max(found.offsets, 1)
    taken = min(found.offsets, SAMPLED_RECORDS, max(1, SAMPLED_BYTES // max(each_bytes, 1)))
    return replace(found, start=found.end - taken, size_bytes=taken * each_bytes)


def _value_format(values: Sequence[bytes | None]) -> tuple[str, str, str | None]:
    """`json`, `text` or `raw`, the reason in words, and the column that is the event time of JSON records."""
    present = [value for value in values if value is not None]
    if not present:
        return "json", "all sampled values are null, so JSON is a guess.", None
    shape = shape_of_json(pa.array(present, pa.large_binary()))
    objects = shape.records - shape.corrupt
    if objects * 2 > len(present):
        schema = plan_schema(shape).schema
        return "json", f"{objects:,} of {len(present):,} sampled values are JSON objects.", event_time_of(schema)
    if all(is_text(value) for value in present):
        kinds = Counter(_kind_of_text(value) for value in present)
        return "text", f"the {len(present):,} sampled values are text ({kinds.most_common(1)[0][0]}).", None
    if all(value[:1] == _REGISTRY_MAGIC and len(value) > _REGISTRY_HEAD_BYTES for value in present):
        return "raw", "the values begin as those of a schema registry do (a zero, a schema id), so raw bytes.", None
    return "raw", "not all sampled values are text, so raw bytes.", None


def _kind_of_text(value: bytes) -> str:
    try:
        json.loads(value)
    except ValueError:
        return "no JSON"
    return "JSON, but no objects"


def _s(number: int) -> str:
    return "" if number == 1 else "s"
