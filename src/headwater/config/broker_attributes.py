"""The broker configs that code reads, as typed attributes. Nothing but their names and types.

An attribute is called like its config with `_` for `.`, has the config's type in the table (a test compares
them), and is filled in by `BrokerConfig`. Those in the first block are parsed further than the table does.
"""

from collections.abc import Mapping

from headwater.config.listeners import Listener


class BrokerAttributes:
    """Typed names of what `BrokerConfig` holds."""

    node_id: int
    listeners: tuple[Listener, ...]
    """Without those of a KRaft controller. An empty host means every interface, port 0 any free port."""
    advertised_listeners: tuple[Listener, ...] | None
    """None when unset: what is advertised is then where the broker really listens."""
    log_dirs: tuple[str, ...]
    """From `log.dirs`, else `log.dir`; empty when neither is set, so that the caller must choose."""
    inter_broker_listener_name: str
    max_connections_per_ip_overrides: Mapping[str, int]

    broker_rack: str | None
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_send_buffer_bytes: int
    socket_request_max_bytes: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    connections_max_reauth_ms: int
    queued_max_requests: int
    queued_max_request_bytes: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    background_threads: int
    quota_window_num: int
    quota_window_size_seconds: int

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    message_max_bytes: int
    log_retention_check_interval_ms: int
    log_segment_delete_delay_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_dir_failure_timeout_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float
    num_recovery_threads_per_data_dir: int
    num_replica_alter_log_dirs_threads: int | None

    unclean_leader_election_enable: bool
    unclean_leader_election_interval_ms: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    controlled_shutdown_enable: bool
    controller_socket_timeout_ms: int
    min_insync_replicas: int
    num_replica_fetchers: int
    replica_lag_time_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_socket_timeout_ms: int
    replica_socket_receive_buffer_bytes: int
    replica_selector_class: str | None
    replica_alter_log_dirs_io_max_bytes_per_second: int

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_coordinator_append_linger_ms: int
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int
    offsets_load_buffer_size: int
    offsets_commit_timeout_ms: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int

    transactional_id_expiration_ms: int
    transaction_max_timeout_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool
    transaction_two_phase_commit_enable: bool
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    ssl_client_auth: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_cipher_suites: tuple[str, ...]
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_server_max_receive_size: int
