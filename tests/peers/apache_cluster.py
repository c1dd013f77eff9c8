"""Apache Kafka as a cluster of several brokers on loopback, of which each can be stopped, killed and started again.

The first node is controller and broker, the others are brokers alone: never end the first, as nobody would choose new
leaders then. Each node has a rack of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from .apache import QUICK_START, ApacheKafka

CONTROLLER = 1

_SETTINGS = {
    # Whoever dies is missed soon. A node that is late on a busy machine loses its leaderships for a while, no more.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2500",
    # Leaders stay where a test has put them.
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
    "unclean.leader.election.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


class ApacheCluster:
    """Nodes 1, 2, … in one folder.

    >>> with ApacheCluster(tmp_path) as cluster:
    ...     cluster.kill(2)
    ...     cluster.start(2)
    """

    def __init__(self, folder: Path, overrides: Mapping[str, str] | None = None, *, brokers: int = 3) -> None:
        copies = str(brokers)
        settings = {
            **_SETTINGS,
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.num.partitions": copies,
            "transaction.state.log.min.isr": str(brokers - 1),
            "min.insync.replicas": str(brokers - 1),
            **(overrides or {}),
        }
        self.nodes: dict[int, ApacheKafka] = {}
        """By id."""
        for node in range(CONTROLLER, CONTROLLER + brokers):
            self.nodes[node] = ApacheKafka(
                folder / f"node-{node}",
                {**settings, "broker.rack": rack_of(node)},
                heap="256m",
                jvm_options=QUICK_START,
                node_id=node,
                controller=self.nodes.get(CONTROLLER),
            )

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self, *nodes: int) -> None:
        """Starts nodes side by side, all that do not run unless some are named; returns once all know of each other."""
        self.launch(*nodes)
        self.wait_until_answering()

    def launch(self, *nodes: int) -> None:
        """The first half of a start, which takes no time: nodes end with the thread that calls this."""
        for node in nodes or self.nodes:
            if not self.nodes[node].is_running:
                self.nodes[node].launch()

    def wait_until_answering(self) -> None:
        """The second half of a start, from any thread."""
        running = [node for node in self.nodes.values() if node.is_running]
        for node in running:
            node.wait_until_answering(brokers=len(running))

    def stop(self, node: int) -> None:
        """A clean stop: the node hands its leaderships over first."""
        self.nodes[node].stop()

    def kill(self, node: int) -> None:
        """Death without warning (kill -9)."""
        self.nodes[node].kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        # Nobody reads its data any more, and a clean stop of the last ones would wait for those that are gone.
        self._kill_all()

    def _kill_all(self) -> None:
        for node in self.nodes.values():
            node.kill()


def rack_of(node: int) -> str:
    """The rack in which a node stands."""
    return f"rack-{node}"
