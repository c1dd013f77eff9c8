"""Files that others ship for their brokers start ours: what means nothing here is named, and mistakes still show."""

import pytest

from headwater.config import BrokerConfig, ConfigError, parse_properties

COMMON = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
KRAFT = """
node.id=1
controller.quorum.voters=1@localhost:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs=/tmp/kraft-combined-logs
"""
ZOOKEEPER = """
broker.id=0
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
FILES = {
    "apache 3.9 with ZooKeeper": COMMON + ZOOKEEPER,
    "apache 3.9 kraft/server": COMMON
    + KRAFT
    + """
process.roles=broker,controller
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
""",
    "apache 3.9 kraft/broker": COMMON
    + KRAFT
    + """
process.roles=broker
listeners=PLAINTEXT://localhost:9092
advertised.listeners=PLAINTEXT://localhost:9092
""",
    "apache 2.8, upgraded often": COMMON
    + ZOOKEEPER
    + """
broker.id.generation.enable=true
reserved.broker.max.id=1000
inter.broker.protocol.version=2.8
log.message.format.version=2.4-IV1
log.message.downconversion.enable=true
log.message.timestamp.difference.max.ms=9223372036854775807
zookeeper.session.timeout.ms=18000
zookeeper.set.acl=false
zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
zookeeper.ssl.keystore.password=secret
password.encoder.secret=secret
control.plane.listener.name=CONTROLLER
""",
    "confluent 5, community": COMMON
    + ZOOKEEPER
    + """
confluent.support.metrics.enable=true
confluent.support.customer.id=anonymous
""",
    "confluent 7, server": COMMON
    + ZOOKEEPER
    + """
metric.reporters=io.confluent.metrics.reporter.ConfluentMetricsReporter
confluent.metrics.reporter.bootstrap.servers=localhost:9092
confluent.metrics.reporter.topic.replicas=1
confluent.license=abc
confluent.license.topic.replication.factor=1
confluent.metadata.topic.replication.factor=1
confluent.security.event.logger.exporter.kafka.topic.replicas=1
confluent.balancer.enable=true
confluent.balancer.topic.replication.factor=1
confluent.metadata.server.listeners=http://0.0.0.0:8090
confluent.telemetry.api.secret=secret
confluent.log.placement.constraints={"version":2,"replicas":[{"count":1}]}
jmx.port=10000
ldap.java.naming.provider.url=ldap://ldap
""",
    "bitnami": COMMON
    + """
node.id=0
process.roles=controller,broker
controller.quorum.voters=0@kafka:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://:9092
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=/bitnami/kafka/data
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=
sasl.mechanism.controller.protocol=
max.partition.fetch.bytes=1048576
max.request.size=1048576
""",
    "strimzi, with a plain listener": """
node.id=2
process.roles=broker
config.providers=strimzienv,strimzifile,strimzidir
config.providers.strimzienv.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.strimzienv.param.allowlist.pattern=.*
listener.name.controlplane-9090.ssl.keystore.location=/tmp/kafka/cluster.keystore.p12
listener.name.controlplane-9090.ssl.keystore.password=${strimzienv:CERTS_STORE_PASSWORD}
listener.name.controlplane-9090.ssl.keystore.type=PKCS12
listener.name.controlplane-9090.ssl.client.auth=required
controller.listener.names=CONTROLPLANE-9090
controller.quorum.voters=0@c-0:9090
listeners=PLAIN-9092://0.0.0.0:9092
advertised.listeners=PLAIN-9092://c-kafka-2.ns.svc:9092
listener.security.protocol.map=CONTROLPLANE-9090:SSL,PLAIN-9092:PLAINTEXT
inter.broker.listener.name=PLAIN-9092
sasl.enabled.mechanisms=
ssl.endpoint.identification.algorithm=HTTPS
client.quota.callback.static.produce=1000
cruise.control.metrics.topic=metrics
log.dirs=/var/lib/kafka/data-0/kafka-log2
min.insync.replicas=2
""",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_others_is_taken_and_what_means_nothing_is_named(name: str) -> None:
    given = parse_properties(FILES[name])
    config = BrokerConfig.from_values(given)
    assert len(config.listeners) == 1
    prefixes = ("zookeeper.", "confluent.", "config.providers", "max.", "jmx.", "sasl.", "ssl.", "listener.name.")
    foreign = {each for each in given if each.startswith(prefixes)}
    assert foreign <= set(config.ignored())
    assert "num.partitions" not in config.ignored()
    assert "log.dirs" not in config.ignored()


def test_what_nobody_knows_may_be_a_secret() -> None:
    config = BrokerConfig.from_values({"confluent.license": "abc", "zookeeper.ssl.keystore.password": "abc"})
    shown = {each.name: each.type.name for each in config.definitions() if each.name in config.ignored()}
    assert shown == {"confluent.license": "PASSWORD", "zookeeper.ssl.keystore.password": "PASSWORD"}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("num.partition", r"Did you mean num\.partitions"),
        ("log.cleaner.enble", r"Did you mean log\.cleaner\.enable"),
        ("retention.ms", r"Did you mean log\.retention\.ms"),
        ("zookeper.connect", "none looks like it.*remove what is a plug-in's"),
        ("port", "it is part of listeners"),
    ],
)
def test_a_mistake_still_shows(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig.from_values({name: "1"})


def test_a_value_that_a_provider_would_give_is_refused_where_it_counts() -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs = '/data/\$\{env:ID\}' is not allowed: .*config\.providers"):
        BrokerConfig.from_values({"config.providers": "env", "log.dirs": "/data/${env:ID}"})
