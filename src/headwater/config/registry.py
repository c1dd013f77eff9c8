"""Finding a config by its name, and saying what was meant when there is none."""

from collections.abc import Iterable, Mapping
from typing import Final

from headwater.config.definitions import ConfigDef, define
from headwater.config.errors import UnknownConfigError
from headwater.config.tables.elsewhere import ELSEWHERE
from headwater.config.tables.groups import GROUPS
from headwater.config.tables.log import LOG
from headwater.config.tables.network import NETWORK
from headwater.config.tables.replication import REPLICATION
from headwater.config.tables.security import SECURITY
from headwater.config.tables.topics import TOPICS
from headwater.config.tables.transactions import TRANSACTIONS
from headwater.config.tables.vocabulary import PASSWORD, STRING


def _by_name(*tables: Iterable[ConfigDef]) -> Mapping[str, ConfigDef]:
    return {definition.name: definition for table in tables for definition in table}


BROKER: Final = _by_name(NETWORK, LOG, REPLICATION, GROUPS, TRANSACTIONS, SECURITY, ELSEWHERE)
TOPIC: Final = _by_name(TOPICS)

_LISTENER_PREFIX: Final = "listener.name."
_PLUGIN_PREFIXES: Final = ("rlmm.config.", "rsm.config.")

_ELSEWHERES: Final = (
    "zookeeper.",
    "confluent.",
    "strimzi.",
    "config.providers.",
    "client.quota.callback.",
    "cruise.control.",
    "kafka.metrics.",
    "ldap.",
    "jmx.",
    "opa.",
)
"""What the names of configs begin with that are ZooKeeper's, another vendor's or a plug-in's."""

_REMOVED: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "config.providers",
        "control.plane.listener.name",
        "delegation.token.master.key",
        "inter.broker.protocol.version",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    }
)
"""What brokers before Kafka 4 knew, and ones of today do without."""

_REMOVED_PREFIX: Final = "password.encoder."

_GONE: Final = {
    "message.format.version": "Kafka 4 removed it, as all records are of format 2; remove it",
    "message.timestamp.difference.max.ms": "Kafka 4 replaced it by message.timestamp.before.max.ms "
    "and message.timestamp.after.max.ms",
    "port": "it is part of listeners, as in listeners=PLAINTEXT://:9092",
    "host.name": "it is part of listeners, as in listeners=PLAINTEXT://host:9092",
    "advertised.host.name": "it is part of advertised.listeners",
    "advertised.port": "it is part of advertised.listeners",
}


def broker_definition(name: str) -> ConfigDef:
    """The broker config of that name; `UnknownConfigError` if there is none.

    A name may be meant for one listener, as `listener.name.internal.ssl.keystore.location`, or for one of its
    SASL mechanisms, as `listener.name.internal.plain.sasl.jaas.config`.
    """
    definition = BROKER.get(name) or _prefixed(name) or _foreign(name)
    if definition is None:
        raise unknown(name, BROKER, "broker")
    return definition


def topic_definition(name: str) -> ConfigDef:
    """The topic config of that name; `UnknownConfigError` if there is none."""
    definition = TOPIC.get(name)
    if definition is None:
        raise unknown(name, TOPIC, "topic")
    return definition


def _prefixed(name: str) -> ConfigDef | None:
    if name.startswith(_PLUGIN_PREFIXES):
        doc = "Config of a remote storage plug-in. Accepted for Kafka's sake; no effect here."
        return define(name, STRING, None, doc=doc, ignored=True, internal=True)
    if not name.startswith(_LISTENER_PREFIX):
        return None
    # The listener's name, and behind it perhaps a mechanism's, hold no dots.
    parts = name.removeprefix(_LISTENER_PREFIX).split(".", 2)
    for rest in (".".join(parts[1:]), ".".join(parts[2:])):
        if rest in BROKER:
            return BROKER[rest]._replace(name=name, synonyms=(rest,), default=None)
    return None


def _foreign(name: str) -> ConfigDef | None:
    """A config that files for Kafka hold although no Kafka of today has a use for it: it says nothing, and may stay."""
    if not (name in _REMOVED or name.startswith((*_ELSEWHERES, _REMOVED_PREFIX)) or _is_of_clients(name)):
        return None
    doc = "Not a config of Kafka 4.1's brokers. Accepted for the sake of files that have it; no effect here."
    # Some of them are secrets, and nobody knows which.
    return define(name, PASSWORD, None, doc=doc, ignored=True, internal=True)


def _is_of_clients(name: str) -> bool:
    """Whether only clients have it: some files set it for brokers too, and Kafka's brokers pass over it."""
    # Only what no table of brokers has pays for this import.
    from headwater.config.client import ADMIN, CONSUMER, PRODUCER

    return name not in TOPIC and any(name in table for table in (PRODUCER, CONSUMER, ADMIN))


def nearest(name: str, table: Mapping[str, ConfigDef] = BROKER) -> tuple[str, ...]:
    """Up to three known names that look like `name`, best first.

    A topic config asked of a broker leads to the broker config behind it, and the other way round.

    >>> nearest("num.partition")[0], nearest("retention.ms")[0]
    ('num.partitions', 'log.retention.ms')
    """
    dotted = name.strip().lower().replace("_", ".").replace("-", ".")
    other = TOPIC if table is BROKER else BROKER
    found = [synonym for synonym in _counterparts(dotted, other) if synonym in table]
    if dotted in table:
        found.append(dotted)
    # Only a mistake pays for this import.
    from difflib import get_close_matches

    found += get_close_matches(dotted, table, n=3, cutoff=0.6)
    return tuple(dict.fromkeys(found))[:3]


def _counterparts(name: str, other: Mapping[str, ConfigDef]) -> tuple[str, ...]:
    if other is TOPIC:
        return TOPIC[name].synonyms if name in TOPIC else ()
    return tuple(topic.name for topic in TOPIC.values() if name in topic.synonyms)


def unknown(name: str, table: Mapping[str, ConfigDef], kind: str) -> UnknownConfigError:
    """The error for a name that `table` does not hold, with the nearest ones that it does."""
    close = nearest(name, table)
    if name in _GONE:
        hint = f": {_GONE[name]}."
    elif close:
        hint = f". Did you mean {' or '.join(close)}?"
    else:
        hint = " and none looks like it. Names are those of Apache Kafka 4.1; remove what is a plug-in's."
    return UnknownConfigError(f"{name} is not a known {kind} config{hint}", name=name, nearest=close)
