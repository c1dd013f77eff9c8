"""One broker: puts the parts together, starts and stops them.

It owns no thread and no process: it runs on the event loop that starts it, so several may live in one process.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from headwater.broker import frame_limits
from headwater.broker.dispatch import Dispatcher
from headwater.broker.services.background import BackgroundJobs
from headwater.broker.services.cleaning import LogCleaning
from headwater.broker.services.coordinators import group_coordinator, transaction_coordinator
from headwater.broker.services.fetch_sessions import FetchSessions
from headwater.broker.services.log_dir_failures import LogDirFailures
from headwater.broker.services.loop_watchdog import LoopWatchdog
from headwater.broker.services.markers import MarkerWriter
from headwater.broker.services.producer_ids import ProducerIds
from headwater.broker.services.purgatory import Purgatory
from headwater.broker.services.record_checks import RecordChecks
from headwater.broker.services.replica_moves import ReplicaMoves
from headwater.broker.services.storage import StartupError, Storage, effective_config
from headwater.broker.services.threads import run_to_end
from headwater.broker.services.topic_directory import BrokerTopics
from headwater.broker.services.topic_news import TopicNews
from headwater.broker.services.topics import Topics
from headwater.cluster.changes import BrokerConfigured
from headwater.config import BrokerConfig, Listener
from headwater.log.filesystem import FileSystem
from headwater.net.server import Server

logger = logging.getLogger(__name__)

_PLAIN: Final = (
    "; the broker has neither TLS nor SASL yet and listens in plain text: let only hosts that you trust reach it"
)
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 -- listened on when asked for, never told to clients


class Broker:
    """A broker with its data in `config.log_dirs`, listening on the first plain listener of `config`.

    `fs` takes the place of this machine's files, for tests.
    """

    def __init__(self, config: BrokerConfig, *, fs: FileSystem | None = None) -> None:
        if not config.log_dirs:
            raise StartupError("no data dir is set: give log.dirs, or --data on the command line")
        self._static_config = config
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = ""
        self.host, self.port = "", 0
        self.listening_port = 0
        self.gave_up = asyncio.Event()
        """Set when nothing can be served any more: whoever runs the broker stops it."""
        self._fs = fs
        self._listener = _plain_listener(config)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running = False

    async def start(self) -> None:
        """Opens the logs and begins to serve; StartupError when that cannot be."""
        storage = await asyncio.to_thread(Storage, self._static_config, self._fs)
        self.log_dirs, self._store, self.config = storage.log_dirs, storage.store, storage.config
        self.cluster_id = self.log_dirs.cluster_id
        ignored = self._static_config.ignored()
        if ignored:
            secure = any("ssl." in name or "sasl." in name for name in ignored)
            logger.warning("these settings have no effect here: %s%s", ", ".join(ignored), _PLAIN if secure else "")
        if open_dirs := self.log_dirs.open_to_others():
            logger.warning(
                "other users of this machine can read the records in %s: forbid it with chmod -R go-rwx",
                ", ".join(open_dirs),
            )
        self.purgatory = Purgatory(asyncio.get_running_loop())
        self.fetch_sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots)
        self.failures = LogDirFailures(self, self._store)
        self.topics = Topics(lambda: self.config, self.failures.journal, self.log_dirs, self.purgatory)
        await asyncio.to_thread(self.topics.load)
        self.failures.watch()
        self.dispatcher = Dispatcher(self)
        self.watchdog = LoopWatchdog(self.dispatcher.under_way)
        self.record_checks = RecordChecks()
        self.jobs = BackgroundJobs(self)
        self.cleaning = LogCleaning(self)
        self.moves = ReplicaMoves(self)
        self.producer_ids = ProducerIds(self.failures.journal)
        self.markers = MarkerWriter(self)
        self.topic_directory = BrokerTopics(self.topics, lambda: self.topic_news.tell_later())
        self.topic_news = TopicNews(self, self.topic_directory.learn)
        self.groups = group_coordinator(self)
        self.transactions = transaction_coordinator(self)
        try:
            self._listen()
        except StartupError:
            self.log_dirs.close()
            self._store.close()
            raise
        self.groups.start()
        self.transactions.start()
        self.topics.listeners.append(self._topics_changed)
        self.jobs.start()
        await self.moves.start()
        self.cleaning.start()
        self.watchdog.start()
        self._running = True

    async def stop(self) -> None:
        """Stops serving, writes what a clean start needs, lets go of the data dirs."""
        if not self._running:
            return
        self._running = False
        self.watchdog.stop()
        self.topic_news.stop()
        self.groups.stop()
        self.transactions.stop()
        await asyncio.sleep(0)  # whoever waited in a group hears of it before the connections close
        self.server.close()
        await self.cleaning.stop()
        await self.jobs.stop()
        await self.dispatcher.close()
        await self.moves.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.record_checks.stop()
        threads = self.config.num_recovery_threads_per_data_dir
        watermarks = self.topics.high_watermarks()
        await asyncio.to_thread(self.log_dirs.close, watermarks, threads_per_dir=threads)
        self._store.close()

    def give_up(self, reason: str) -> None:
        """Serves nobody any more, as nothing can be kept; the rest is up to whoever waits for `gave_up`."""
        if not self.gave_up.is_set():
            logger.critical("the broker stops: %s", reason)
            self.gave_up.set()
            # Not under the feet of the request that found it out.
            asyncio.get_running_loop().call_soon(self.server.close)

    @property
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def broker_configs(self) -> dict[str, dict[str, str]]:
        """Dynamic settings by broker id as text; those of all brokers under ''."""
        return self._store.image.broker_configs

    async def configure_broker(self, name: str, overrides: dict[str, str]) -> None:
        """Replaces the dynamic settings of one broker, or of all for ''; they take effect at once."""
        effective = effective_config(self._static_config, {**self.broker_configs, name: overrides})
        configured = BrokerConfigured(broker=name, configs=overrides)
        await run_to_end(lambda: self.failures.journal.append(configured))
        self.config = effective
        self.topics.reconfigure_all()
        self.server.limit_connections(*self._connection_limits())

    def _topics_changed(self, deleted: str | None) -> None:
        """Groups forget the offsets of a deleted topic and look at their subscriptions again."""
        if deleted is not None:
            for coordinator in (self.groups, self.transactions):
                if deleted == coordinator.topic:
                    coordinator.stop()
        self.topic_news.tell(deleted)

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs `work` on the loop; it ends with the broker at the latest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("background work failed; this is a bug in headwater", exc_info=task.exception())

    def _listen(self) -> None:
        config, listener = self.config, self._listener
        self.server = Server(
            self.dispatcher.handle,
            max_frame_bytes=config.socket_request_max_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            check_frame=frame_limits.check_frame,
            unchecked_frame_bytes=frame_limits.UNCHECKED,
            took_long=self.watchdog.request_took,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        self.server.limit_connections(*self._connection_limits())
        try:
            host, port = self.server.listen(listener.host or "0.0.0.0", listener.port)  # noqa: S104 -- asked for by ''
        except OSError as error:
            self.server.close()
            raise StartupError(_listen_problem(listener, error)) from error
        self.listening_port = port
        self.host, self.port = self._advertised(host, port)

    def _connection_limits(self) -> tuple[int, int, Mapping[str, int]]:
        config = self.config
        return config.max_connections, config.max_connections_per_ip, config.max_connections_per_ip_overrides

    def _advertised(self, host: str, port: int) -> tuple[str, int]:
        """Where clients are told to connect."""
        for listener in self.config.advertised_listeners or ():
            return listener.host, listener.port or port
        return (socket.gethostname() if self._listener.host in _EVERYWHERE else host), port


def _plain_listener(config: BrokerConfig) -> Listener:
    if len(config.listeners) != 1 or config.listeners[0].security_protocol != "PLAINTEXT":
        raise StartupError(
            "listeners must name one PLAINTEXT listener, as in listeners=PLAINTEXT://127.0.0.1:9092: TLS, SASL and"
            " further listeners are not served yet"
        )
    return config.listeners[0]


def _listen_problem(listener: Listener, error: OSError) -> str:
    address = f"{listener.host}:{listener.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use by another process: stop it, or choose another port with --port (0: any free one)"
    if error.errno == errno.EACCES:
        return f"not allowed to listen on {address}: choose a port above 1023 with --port"
    return f"cannot listen on {address}: {error.strerror or error}; choose another address with --host"
