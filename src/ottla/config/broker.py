"""The configuration table of the broker. Names, defaults and ranges are Kafka's.

To add a name, add a field. `dynamic=True` means that the broker accepts a new value while it runs. replication.py has
the rows about clusters, channels.py and security.py those about security. foreign.py lists Kafka's names that this
broker ignores or rejects. Our own names start with ``ottla.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from ottla.config.channels import ChannelConfig
from ottla.config.checks import check_broker, connection_overrides, security_protocols
from ottla.config.fields import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Check,
    ConfigType,
    Key,
    at_least,
    between,
    boolean,
    double,
    int32,
    int64,
    listing,
    one_of,
    plugins,
    string,
)
from ottla.config.foreign import is_ignored, rejection_of
from ottla.config.listeners import Listener, controller_listeners, parse_address
from ottla.config.replication import BUFFER, ReplicationConfig
from ottla.config.security import PREFIX, ListenerSecurity, Override, SecurityConfig
from ottla.config.table import attribute, key, named, rows
from ottla.config.topic import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    GZIP_LEVEL,
    LZ4_LEVEL,
    TIMESTAMP_TYPE,
    ZSTD_LEVEL,
    TopicConfig,
)
from ottla.config.unused import UNUSED
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean

_HOUR = 3_600_000
_MINUTE = 60_000


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ReplicationConfig, ChannelConfig, SecurityConfig):
    """The typed configuration of the broker. `parse` reads one from names and texts.

    >>> BrokerConfig.parse({"num.partitions": "3"}).num_partitions
    3
    """

    what: ClassVar[str] = "broker configuration"

    # Listeners.
    listeners: tuple[Listener, ...] = listing(
        (Listener("PLAINTEXT", "", 9092),),
        "Where the broker listens, as NAME://host:port separated by commas. An empty host means all interfaces. Port 0 "
        "picks a free port.",
        item=Listener.parse,
    )
    advertised_listeners: tuple[Listener, ...] | None = listing(
        None,
        "The addresses that clients connect to, if they differ from listeners: behind a proxy, in a container, or on "
        "all interfaces.",
        item=Listener.parse,
    )
    log_dir: str = string("ottla-data", "The data directory, if log.dirs is not set.")
    log_dirs: tuple[str, ...] | None = listing(
        None, "The data directories. A new partition goes to the one with the fewest partitions."
    )

    # Connections and requests.
    connection_failed_authentication_delay_ms: int = int32(
        100, "How long after its request a client that fails to authenticate gets the answer.", at_least(0)
    )
    connections_max_idle_ms: int = int64(
        600_000, "Close a connection without a request for this long. -1 never closes one.", at_least(-1)
    )
    fetch_max_bytes: int = int32(
        57_671_680,
        "The most bytes in one fetch response, whatever the client requests. A larger first batch is still returned.",
        at_least(1024),
    )
    max_connections: int = int32(
        INT_MAX,
        "The most open connections. The broker closes further ones immediately.",
        at_least(0),
        dynamic=True,
    )
    max_connections_per_ip: int = int32(
        INT_MAX, "The most open connections from one address.", at_least(0), dynamic=True
    )
    max_connections_per_ip_overrides: str = string(
        "", "Limits for specific addresses, as address:number separated by commas.", dynamic=True
    )
    max_incremental_fetch_session_cache_slots: int = int32(1000, "The most fetch sessions to keep.", at_least(0))
    max_request_partition_size_limit: int = int32(
        2000, "The most partitions in one DescribeTopicPartitions response.", at_least(1)
    )
    socket_listen_backlog_size: int = int32(
        50,
        "The most new connections that wait to be accepted. If not set, as many as the operating system allows, up to "
        "4096.",
        at_least(1),
    )
    socket_receive_buffer_bytes: int = int32(
        102_400, "The receive buffer of a socket. -1 lets the operating system choose.", BUFFER
    )
    socket_request_max_bytes: int = int32(
        104_857_600, "The size limit of a request. The broker closes the connection of a larger one.", at_least(1)
    )
    socket_send_buffer_bytes: int = int32(
        102_400, "The send buffer of a socket. -1 lets the operating system choose.", BUFFER
    )

    # Topics.
    auto_create_topics_enable: bool = boolean(True, "Create a missing topic when a client first requests it.")
    delete_topic_enable: bool = boolean(True, "Allow clients to delete topics.")
    num_partitions: int = int32(1, "The number of partitions of a topic that does not set one.", at_least(1))

    # Defaults of topics. topic.py describes each under the topic's own name.
    compression_gzip_level: int = int32(-1, "Default of a topic's compression.gzip.level.", GZIP_LEVEL, dynamic=True)
    compression_lz4_level: int = int32(9, "Default of a topic's compression.lz4.level.", LZ4_LEVEL, dynamic=True)
    compression_type: str = string(
        "producer", "Default of a topic's compression.type.", one_of(*COMPRESSION_TYPES), dynamic=True
    )
    compression_zstd_level: int = int32(3, "Default of a topic's compression.zstd.level.", ZSTD_LEVEL, dynamic=True)
    log_cleaner_delete_retention_ms: int = int64(
        86_400_000, "Default of a topic's delete.retention.ms.", at_least(0), dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = int64(
        LONG_MAX, "Default of a topic's max.compaction.lag.ms.", at_least(1), dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, "Default of a topic's min.cleanable.dirty.ratio.", between(0, 1), dynamic=True
    )
    log_cleaner_min_compaction_lag_ms: int = int64(
        0, "Default of a topic's min.compaction.lag.ms.", at_least(0), dynamic=True
    )
    log_cleanup_policy: frozenset[str] = listing(
        frozenset({"delete"}),
        "Default of a topic's cleanup.policy.",
        CLEANUP_POLICIES,
        collect=frozenset,
        dynamic=True,
    )
    log_flush_interval_messages: int = int64(
        LONG_MAX, "Default of a topic's flush.messages.", at_least(1), dynamic=True
    )
    log_flush_interval_ms: int | None = int64(
        None,
        "Default of a topic's flush.ms. If not set, log.flush.scheduler.interval.ms.",
        at_least(0),
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = int64(
        LONG_MAX, "Default of a topic's flush.ms if log.flush.interval.ms is not set.", at_least(0)
    )
    log_index_interval_bytes: int = int32(4096, "Default of a topic's index.interval.bytes.", at_least(0), dynamic=True)
    log_index_size_max_bytes: int = int32(
        10_485_760, "Default of a topic's segment.index.bytes.", at_least(4), dynamic=True
    )
    log_local_retention_bytes: int = int64(
        -2, "Default of a topic's local.retention.bytes.", at_least(-2), dynamic=True
    )
    log_local_retention_ms: int = int64(-2, "Default of a topic's local.retention.ms.", at_least(-2), dynamic=True)
    log_message_timestamp_after_max_ms: int = int64(
        _HOUR, "Default of a topic's message.timestamp.after.max.ms.", at_least(0), dynamic=True
    )
    log_message_timestamp_before_max_ms: int = int64(
        LONG_MAX, "Default of a topic's message.timestamp.before.max.ms.", at_least(0), dynamic=True
    )
    log_message_timestamp_type: str = string(
        "CreateTime", "Default of a topic's message.timestamp.type.", TIMESTAMP_TYPE, dynamic=True
    )
    log_preallocate: bool = boolean(False, "Default of a topic's preallocate.", dynamic=True)
    log_retention_bytes: int = int64(-1, "Default of a topic's retention.bytes.", dynamic=True)
    log_retention_hours: int = int32(
        168, "Default of a topic's retention.ms, in hours, if neither minutes nor ms are set. -1 means no limit."
    )
    log_retention_minutes: int | None = int32(
        None, "Default of a topic's retention.ms, in minutes, if log.retention.ms is not set. -1 means no limit."
    )
    log_retention_ms: int | None = int64(None, "Default of a topic's retention.ms. -1 means no limit.", dynamic=True)
    log_roll_hours: int = int32(
        168, "Default of a topic's segment.ms, in hours, if log.roll.ms is not set.", at_least(1)
    )
    log_roll_jitter_hours: int = int32(
        0, "Default of a topic's segment.jitter.ms, in hours, if log.roll.jitter.ms is not set.", at_least(0)
    )
    log_roll_jitter_ms: int | None = int64(None, "Default of a topic's segment.jitter.ms.", at_least(0), dynamic=True)
    log_roll_ms: int | None = int64(None, "Default of a topic's segment.ms.", at_least(1), dynamic=True)
    log_segment_bytes: int = int32(
        1_073_741_824, "Default of a topic's segment.bytes.", at_least(1_048_576), dynamic=True
    )
    log_segment_delete_delay_ms: int = int64(
        60_000, "Default of a topic's file.delete.delay.ms.", at_least(0), dynamic=True
    )
    message_max_bytes: int = int32(1_048_588, "Default of a topic's max.message.bytes.", at_least(0), dynamic=True)
    min_insync_replicas: int = int32(1, "Default of a topic's min.insync.replicas.", at_least(1), dynamic=True)
    unclean_leader_election_enable: bool = boolean(
        False, "Default of a topic's unclean.leader.election.enable.", dynamic=True
    )

    # Background work.
    log_cleaner_backoff_ms: int = int64(
        15_000, "How long the log cleaner sleeps when no log needs compaction.", at_least(0), dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = int64(
        134_217_728,
        "Memory for the keys of the log under compaction. More keys need several passes.",
        at_least(1),
        dynamic=True,
    )
    log_cleaner_enable: bool = boolean(True, "Run compaction. Without it, compacted topics only grow.")
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "The share of the memory for keys that may be used.", between(0, 1), dynamic=True
    )
    log_cleaner_io_buffer_size: int = int32(
        524_288, "Memory for reading and writing during compaction.", at_least(0), dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        DOUBLE_MAX, "The most bytes per second that compaction reads and writes.", dynamic=True
    )
    log_flush_offset_checkpoint_interval_ms: int = int32(60_000, "How often to write the recovery points.", at_least(0))
    log_initial_task_delay_ms: int = int64(
        30_000,
        "How long after its start the broker begins with background work: retention, flushes, checkpoints.",
        at_least(0),
    )
    log_retention_check_interval_ms: int = int64(300_000, "How often to apply retention.", at_least(1))

    # Producers.
    producer_id_expiration_check_interval_ms: int = int32(
        600_000, "How often to check for idle producers.", at_least(1), internal=True
    )
    producer_id_expiration_ms: int = int32(
        86_400_000,
        "Forget the state of a producer that has written nothing for this long.",
        at_least(1),
        dynamic=True,
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = int32(
        6_000, "The shortest session timeout of a member of a classic group.", at_least(1)
    )
    group_max_session_timeout_ms: int = int32(
        1_800_000, "The longest session timeout of a member of a classic group.", at_least(1)
    )
    group_initial_rebalance_delay_ms: int = int32(
        3_000,
        "How long a new classic group waits for more members before its first rebalance. An embedded broker with "
        "temporary data does not wait, nor does `ottla broker` without a file and without a cluster.",
        at_least(0),
    )
    group_max_size: int = int32(INT_MAX, "The most members of a classic group.", at_least(1))
    group_consumer_session_timeout_ms: int = int32(
        45_000, "Remove a member of a consumer group without a heartbeat for this long.", at_least(1)
    )
    group_consumer_min_session_timeout_ms: int = int32(
        45_000, "The shortest session timeout that can be set for a consumer group.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = int32(
        60_000, "The longest session timeout that can be set for a consumer group.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = int32(
        5_000, "The heartbeat interval of members of consumer groups.", at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms: int = int32(
        5_000, "The shortest heartbeat interval that can be set for a consumer group.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = int32(
        15_000, "The longest heartbeat interval that can be set for a consumer group.", at_least(1)
    )
    group_consumer_max_size: int = int32(INT_MAX, "The most members of a consumer group.", at_least(1))
    group_consumer_assignors: tuple[Any, ...] = plugins(
        ("uniform", "range"),
        "The assignors of consumer groups. The first is the default. Your own is a subclass of "
        "`ottla.assignors.Assignor`, given as module.Class.",
        Check("at least one name", lambda names: len(names) > 0),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Whether groups may switch between the classic and the consumer protocol while they run.",
        one_of("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms: int = int32(
        600_000, "How often to match subscribed patterns against the topics again.", at_least(10_000)
    )
    offset_metadata_max_bytes: int = int32(4_096, "The longest metadata text of a committed offset.", at_least(0))
    offsets_retention_minutes: int = int32(
        10_080, "How long to keep the offsets of a group without members.", at_least(1)
    )
    offsets_commit_timeout_ms: int = int32(
        5_000,
        "How long commits of offsets and other changes of groups wait for the replicas of __consumer_offsets. Then the "
        "client gets COORDINATOR_NOT_AVAILABLE, and tries again.",
        at_least(1),
    )
    offsets_retention_check_interval_ms: int = int64(600_000, "How often to check for expired offsets.", at_least(1))
    offsets_topic_num_partitions: int = int32(
        50, "The number of partitions of __consumer_offsets. It cannot change later.", at_least(1)
    )
    offsets_topic_segment_bytes: int = int32(104_857_600, "The segment size of __consumer_offsets.", at_least(1))

    # Transactions.
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10_000, "How often to check for transactions that exceed their timeout.", at_least(1)
    )
    transaction_max_timeout_ms: int = int32(900_000, "The longest transaction.timeout.ms of a producer.", at_least(1))
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Accept a transactional batch only if its transaction is ongoing and includes the partition. Without this "
        "check a late request can leave a transaction open forever.",
        dynamic=True,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3_600_000, "How often to check for expired transactional ids.", at_least(1)
    )
    transaction_state_log_num_partitions: int = int32(
        50, "The number of partitions of __transaction_state. It cannot change later.", at_least(1)
    )
    transaction_state_log_segment_bytes: int = int32(
        104_857_600, "The segment size of __transaction_state.", at_least(1)
    )
    transactional_id_expiration_ms: int = int32(
        604_800_000, "Forget a transactional id that is not used for this long.", at_least(1)
    )

    # Our own.
    ottla_authentication_max_connections_per_ip: int = int32(
        1_000,
        "The most connections from one address whose clients have not authenticated yet, on each listener with TLS or "
        "SASL. Further ones are closed immediately.",
        at_least(1),
    )
    ottla_authentication_timeout_ms: int = int32(
        30_000, "Close a connection whose client has not finished the TLS handshake and SASL in this time.", at_least(1)
    )
    ottla_log_format: str = string("text", "The format of the broker's log lines.", one_of("text", "json"))
    ottla_log_level: str = string(
        "INFO", "The lowest level of log lines that the broker shows.", one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )
    ottla_metrics_listener: str | None = string(
        None,
        "The host:port that serves GET /metrics (for Prometheus) and GET /healthz. Off if not set.",
        Check("an address such as 127.0.0.1:9090", _is_address),
    )
    ottla_faults_listener: str | None = string(
        None,
        "For tests only: the host:port of an HTTP server that lets anybody inject faults. Off if not set.",
        Check("an address such as 127.0.0.1:9090", _is_address),
    )
    ottla_request_receive_timeout_ms: int = int32(
        30_000, "Close a connection that leaves a request half sent for this long.", at_least(1)
    )

    # Not rows: the layers in which values were set (see describe.py).
    given: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    ignored: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read names and values, and check that they fit together.

        Kafka's names without a meaning here go to `ignored`, so that the caller can warn about them.
        """
        left_out = controller_listeners(values)
        ignored = tuple(name for name, value in values.items() if _has_no_meaning(name, value, left_out))
        for name in values:
            if name not in ignored:
                _refuse(name.replace("_", "."))
        used = {name: value for name, value in values.items() if name not in ignored}
        overrides = {Override.of(name): value for name, value in used.items() if name.startswith(PREFIX)}
        known = named(cls, {name: value for name, value in used.items() if not name.startswith(PREFIX)})
        table = rows(cls)
        for name in {"listeners", "advertised.listeners"} & known.keys():
            listeners = table[name].parse(known[name])
            known[name] = listeners and tuple(each for each in listeners if each.name not in left_out)
        parsed = {attribute(name): table[name].parse(value) for name, value in known.items()}
        texts = {name: table[name].canonical(value) for name, value in known.items()}
        texts.update((each.name, each.key.canonical(value)) for each, value in overrides.items())
        unused = {name.replace("_", "."): values[name] for name in ignored}
        texts.update((name, UNUSED[name].canonical(value)) for name, value in unused.items() if name in UNUSED)
        config = cls(
            **_with_one_id(parsed),
            overrides=tuple((each, each.key.parse(value)) for each, value in overrides.items()),
            given={name: text for name, text in texts.items() if text is not None},
            ignored=ignored,
        )
        check_broker(config)
        return config

    def with_dynamic(self, dynamic: Mapping[str, str], default: Mapping[str, str] | None = None) -> Self:
        """Return this configuration with the dynamic settings of this broker and of all brokers."""
        default = default or {}
        changed = type(self).parse({**self.given, **default, **dynamic})
        return replace(
            changed,
            listeners=self.listeners,
            given=self.given,
            dynamic=dict(dynamic),
            dynamic_default=dict(default),
            ignored=self.ignored,
        )

    @property
    def id(self) -> int:
        """The id of this broker."""
        return self.node_id

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """The value of log.dirs, or else of log.dir."""
        return self.log_dirs or (self.log_dir,)

    def listener(self, name: str) -> ListenerSecurity:
        """Return the security of a listener: its own values, and the broker's where it has none."""
        values = {each.name: getattr(self, each.name) for each in fields(ChannelConfig)}
        mechanisms: dict[str, dict[str, Any]] = {}
        for override, value in self.overrides:
            if override.listener == name:
                target = mechanisms.setdefault(override.mechanism, {}) if override.mechanism else values
                target[attribute(override.row.name)] = value
        protocol = security_protocols(self.listener_security_protocol_map)[name]
        return ListenerSecurity(**values, name=name, protocol=protocol, mechanisms=mechanisms)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that other brokers connect to."""
        names = [listener.name for listener in self.listeners]
        wanted = self.inter_broker_listener_name or self.security_inter_broker_protocol
        return wanted if wanted in names else names[0]

    def max_connections_from(self, address: str) -> int:
        """Return the most connections that this address may open."""
        overrides = connection_overrides(self.max_connections_per_ip_overrides)
        return overrides.get(address, self.max_connections_per_ip)

    @classmethod
    def suggestion(cls, name: str) -> str:
        """Explain a name that belongs to topics: ``retention.ms`` for ``log.retention.ms``."""
        if name in rows(TopicConfig):
            return f" It is a topic setting. To set the default of all topics, use {_topic_default(name)}."
        return did_you_mean(name, rows(cls))


def broker_key(name: str) -> Key:
    """Return the row of a name, which may be one of a single listener. Raise ConfigError if there is none."""
    if name.startswith(PREFIX):
        return Override.of(name).key
    _refuse(name)
    if is_ignored(name) and name not in UNUSED:
        raise ConfigError(f"{name} has no effect on this broker.")
    return UNUSED[name] if name in UNUSED else key(BrokerConfig, name)


def _refuse(name: str) -> None:
    """Raise ConfigError for a name of Kafka that must not be ignored."""
    if (reason := rejection_of(name)) is not None:
        raise ConfigError(f"{BrokerConfig.what} {name} is not supported. {reason}")


def _has_no_meaning(name: str, value: object, controllers: frozenset[str]) -> bool:
    """Whether a name of Kafka is for threads, quorums or controllers."""
    return has_no_effect(name, value) or (name.startswith(PREFIX) and Override.of(name).listener in controllers)


def has_no_effect(name: str, value: object) -> bool:
    """Whether a name of Kafka has no effect here with this value, for all listeners or for one.

    >>> has_no_effect("sasl.kerberos.service.name", "kafka"), has_no_effect("num.partitions", "1")
    (True, False)
    """
    if name.startswith(PREFIX):
        return is_ignored(name.removeprefix(PREFIX).partition(".")[2], value)
    return is_ignored(name.replace("_", "."), value)


def is_secret(name: str) -> bool:
    """Whether the value of a broker config must not be shown, for a single listener too.

    >>> is_secret("listener.name.inside.ssl.key.password"), is_secret("num.partitions")
    (True, False)
    """
    secrets = (each.name for each in rows(BrokerConfig).values() if each.type is ConfigType.PASSWORD)
    return any(name == each or name.endswith(f".{each}") for each in secrets)


def _with_one_id(values: dict[str, Any]) -> dict[str, Any]:
    """Give node.id and broker.id the same value."""
    older = values.get("broker_id", -1)
    newest = values.get("node_id", rows(BrokerConfig)["node.id"].default if older == -1 else older)
    if older not in (-1, newest):
        raise ConfigError(f"broker.id ({older}) and node.id ({newest}) differ. Set only one of them.")
    return {**values, "node_id": newest, "broker_id": newest}


def _topic_default(name: str) -> str:
    near = did_you_mean(f"log.{name}", rows(BrokerConfig))
    return near.removeprefix(" Did you mean ").removesuffix("?") or "a name that starts with log."
