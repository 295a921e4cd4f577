"""The configuration of the broker: Kafka's names, defaults and ranges for what one node really does.

Add a name by adding a field; `dynamic=True` says that the broker takes a new value while it runs. Names of
Kafka that mean nothing here are in foreign.py. Our own names start with ``ottla.``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from ottla.config.checks import check_broker, connection_overrides
from ottla.config.fields import (
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Check,
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
from ottla.config.foreign import is_ignored, refusal_of
from ottla.config.listeners import Listener, parse_address, without_controllers
from ottla.config.table import ConfigTable, attribute
from ottla.config.topic import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    GZIP_LEVEL,
    LZ4_LEVEL,
    TIMESTAMP_TYPE,
    ZSTD_LEVEL,
    TopicConfig,
)
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean

_HOUR = 3_600_000
_MINUTE = 60_000
_BUFFER = Check("at least 1, or -1 for the default of the operating system", lambda size: size >= 1 or size == -1)
_ONE_REPLICA = Check("1, since this broker is alone", lambda replicas: replicas == 1)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ConfigTable):
    """The configuration of the broker, typed. `BrokerConfig.parse` reads one from names and texts.

    >>> BrokerConfig.parse({"num.partitions": "3"}).num_partitions
    3
    """

    what: ClassVar[str] = "broker configuration"

    # Who the broker is and where it listens.
    node_id: int = int32(1, "The id of this broker.", at_least(0))
    broker_id: int = int32(-1, "The older name of node.id; -1 leaves it to node.id.", at_least(-1))
    broker_rack: str | None = string(None, "Where the broker stands; clients may choose replicas by it.")
    listeners: tuple[Listener, ...] = listing(
        (Listener("PLAINTEXT", "", 9092),),
        "Where the broker listens, as NAME://host:port separated by commas. An empty host is every "
        "interface, port 0 picks a free port.",
        item=Listener.parse,
    )
    advertised_listeners: tuple[Listener, ...] | None = listing(
        None,
        "The addresses that clients are told to connect to, if others than those of listeners; for a broker"
        " behind a proxy, in a container, or on every interface.",
        item=Listener.parse,
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each name of a listener, as NAME:PROTOCOL separated by commas.",
    )
    log_dir: str = string("ottla-data", "The directory of the logs, if log.dirs is not given.")
    log_dirs: tuple[str, ...] | None = listing(
        None, "The directories of the logs; a new partition goes to the one with the fewest."
    )

    # Connections and requests.
    connections_max_idle_ms: int = int64(
        600_000, "A connection without a request for this long is closed; -1 never closes one.", at_least(-1)
    )
    fetch_max_bytes: int = int32(
        57_671_680,
        "The most bytes that one fetch answer carries, whatever the client asks for. A single batch that is"
        " larger is still delivered.",
        at_least(1024),
    )
    max_connections: int = int32(
        INT_MAX,
        "How many connections the broker holds at once; more are closed at once.",
        at_least(0),
        dynamic=True,
    )
    max_connections_per_ip: int = int32(
        INT_MAX, "How many connections one address may hold at once.", at_least(0), dynamic=True
    )
    max_connections_per_ip_overrides: str = string(
        "", "Other limits for single addresses, as address:number separated by commas.", dynamic=True
    )
    max_incremental_fetch_session_cache_slots: int = int32(1000, "How many fetch sessions are remembered.", at_least(0))
    max_request_partition_size_limit: int = int32(
        2000, "The most partitions that one answer to DescribeTopicPartitions lists.", at_least(1)
    )
    socket_listen_backlog_size: int = int32(50, "How many new connections may wait to be accepted.", at_least(1))
    socket_receive_buffer_bytes: int = int32(
        102_400, "The receive buffer of a socket; -1 leaves it to the operating system.", _BUFFER
    )
    socket_request_max_bytes: int = int32(104_857_600, "A larger request closes its connection.", at_least(1))
    socket_send_buffer_bytes: int = int32(
        102_400, "The send buffer of a socket; -1 leaves it to the operating system.", _BUFFER
    )

    # Topics.
    auto_create_topics_enable: bool = boolean(True, "Whether a topic is created when a client first asks for it.")
    default_replication_factor: int = int32(1, "The replication factor of a topic that names none.", _ONE_REPLICA)
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    num_partitions: int = int32(1, "How many partitions a topic gets that names no number.", at_least(1))

    # What a topic has unless it says otherwise. Each is described at the topic's own name.
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
        "Default of a topic's flush.ms; log.flush.scheduler.interval.ms if not set.",
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
        168, "Default of a topic's retention.ms, in hours, if neither minutes nor ms are set; -1 is no limit."
    )
    log_retention_minutes: int | None = int32(
        None, "Default of a topic's retention.ms, in minutes, if log.retention.ms is not set; -1 is no limit."
    )
    log_retention_ms: int | None = int64(None, "Default of a topic's retention.ms; -1 is no limit.", dynamic=True)
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
        15_000, "How long compaction rests when no log needs it.", at_least(0), dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = int64(
        134_217_728,
        "Memory for the keys of the log under compaction. More keys than fit are done in several passes.",
        at_least(1),
        dynamic=True,
    )
    log_cleaner_enable: bool = boolean(True, "Whether compaction runs. Without it compacted topics only grow.")
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "How full the memory for keys may get.", between(0, 1), dynamic=True
    )
    log_cleaner_io_buffer_size: int = int32(
        524_288, "Memory for reading and writing during compaction.", at_least(0), dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        DOUBLE_MAX, "Compaction reads and writes no faster than this.", dynamic=True
    )
    log_flush_offset_checkpoint_interval_ms: int = int32(
        60_000, "How often the recovery points are written down.", at_least(0)
    )
    log_initial_task_delay_ms: int = int64(
        30_000, "How long after the start the background work begins.", at_least(0), internal=True
    )
    log_retention_check_interval_ms: int = int64(300_000, "How often retention is looked at.", at_least(1))

    # Producers.
    producer_id_expiration_check_interval_ms: int = int32(
        600_000, "How often idle producers are looked for.", at_least(1), internal=True
    )
    producer_id_expiration_ms: int = int32(
        86_400_000,
        "A producer that has written nothing for this long is forgotten.",
        at_least(1),
        dynamic=True,
    )

    # Consumer groups.
    group_min_session_timeout_ms: int = int32(
        6_000, "The shortest session timeout that a member of a classic group may ask for.", at_least(1)
    )
    group_max_session_timeout_ms: int = int32(
        1_800_000, "The longest session timeout that a member of a classic group may ask for.", at_least(1)
    )
    group_initial_rebalance_delay_ms: int = int32(
        3_000,
        "How long a new classic group waits for more members before its first assignment. An embedded broker with"
        " temporary data does not wait.",
        at_least(0),
    )
    group_max_size: int = int32(INT_MAX, "The most members that a classic group may have.", at_least(1))
    group_consumer_session_timeout_ms: int = int32(
        45_000, "A member of a consumer group that is silent for this long is removed.", at_least(1)
    )
    group_consumer_min_session_timeout_ms: int = int32(
        45_000, "The shortest session timeout that a consumer group may be given.", at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = int32(
        60_000, "The longest session timeout that a consumer group may be given.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = int32(
        5_000, "How often members of consumer groups are told to send heartbeats.", at_least(1)
    )
    group_consumer_min_heartbeat_interval_ms: int = int32(
        5_000, "The shortest heartbeat interval that a consumer group may be given.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = int32(
        15_000, "The longest heartbeat interval that a consumer group may be given.", at_least(1)
    )
    group_consumer_max_size: int = int32(INT_MAX, "The most members that a consumer group may have.", at_least(1))
    group_consumer_assignors: tuple[Any, ...] = plugins(
        ("uniform", "range"),
        "The assignors that consumer groups may use; the first is the default. One of your own is a subclass of "
        "`ottla.assignors.Assignor`, written as module.Class.",
        Check("at least one name", lambda names: len(names) > 0),
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Which groups may change their protocol while they run.",
        one_of("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms: int = int32(
        600_000, "How often subscriptions by pattern are compared with the topics anew.", at_least(10_000)
    )
    offset_metadata_max_bytes: int = int32(4_096, "The longest text that may be committed with an offset.", at_least(0))
    offsets_retention_minutes: int = int32(
        10_080, "How long the offsets of a group without members are kept.", at_least(1)
    )
    offsets_retention_check_interval_ms: int = int64(600_000, "How often expired offsets are looked for.", at_least(1))
    offsets_topic_num_partitions: int = int32(
        50, "How many partitions __consumer_offsets is made with, which is for ever.", at_least(1)
    )
    offsets_topic_segment_bytes: int = int32(104_857_600, "The segment size of __consumer_offsets.", at_least(1))

    # Transactions.
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10_000, "How often transactions are looked for that are open for longer than their timeout.", at_least(1)
    )
    transaction_max_timeout_ms: int = int32(
        900_000, "The longest timeout that a transactional producer may ask for.", at_least(1)
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Whether a batch is only taken if its transaction is ongoing and has the partition in it. Without it a request"
        " that was late can leave a transaction open for ever.",
        dynamic=True,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3_600_000, "How often transactional ids are looked for that have expired.", at_least(1)
    )
    transaction_state_log_num_partitions: int = int32(
        50, "How many partitions __transaction_state is made with, which is for ever.", at_least(1)
    )
    transaction_state_log_segment_bytes: int = int32(
        104_857_600, "The segment size of __transaction_state.", at_least(1)
    )
    transactional_id_expiration_ms: int = int32(
        604_800_000, "A transactional id that nobody has used for this long is forgotten.", at_least(1)
    )

    # Our own.
    ottla_log_format: str = string("text", "How the broker's own log lines look.", one_of("text", "json"))
    ottla_log_level: str = string(
        "INFO", "Which of the broker's own log lines are shown.", one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )
    ottla_metrics_listener: str | None = string(
        None,
        "Where GET /metrics (for Prometheus) and GET /healthz are answered, as host:port; nowhere if not set.",
        Check("an address such as 127.0.0.1:9090", _is_address),
    )
    ottla_request_receive_timeout_ms: int = int32(
        30_000, "A connection that leaves a request half sent for this long is closed.", at_least(1)
    )

    # Not rows of the table: what was given, and where (see describe.py).
    given: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    dynamic: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    dynamic_default: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    ignored: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """The configuration that has these values and the defaults for everything else.

        Names of Kafka that mean nothing here end up in `ignored`, for the caller to tell the user. Names that
        ask for security which this broker does not have are refused.
        """
        ignored = tuple(name for name in values if is_ignored(name.replace("_", ".")))
        named = cls.named({name: value for name, value in values.items() if name not in ignored})
        rows = cls.rows()
        for name in {"listeners", "advertised.listeners"} & named.keys():
            named[name] = without_controllers(rows[name].parse(named[name]), values)
        parsed = {attribute(name): rows[name].parse(value) for name, value in named.items()}
        texts = {name: rows[name].canonical(value) for name, value in named.items()}
        given = {name: text for name, text in texts.items() if text is not None}
        return cls(**_with_one_id(parsed), given=given, ignored=ignored).checked()

    def with_dynamic(self, dynamic: Mapping[str, str], default: Mapping[str, str] | None = None) -> Self:
        """This configuration with what was altered at run time, for this broker and for all brokers."""
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
        """log.dirs, or log.dir."""
        return self.log_dirs or (self.log_dir,)

    def max_connections_from(self, address: str) -> int:
        """How many connections this address may hold."""
        overrides = connection_overrides(self.max_connections_per_ip_overrides)
        return overrides.get(address, self.max_connections_per_ip)

    @classmethod
    def suggestion(cls, name: str) -> str:
        """People write the topic's name of a setting: ``retention.ms`` for ``log.retention.ms``."""
        refusal = refusal_of(name)
        if refusal:
            return f" {refusal}"
        if TopicConfig.rows().get(name):
            return f" It is a name of topics; for the default of all topics see {_topic_default(name)}."
        return did_you_mean(name, cls.rows())

    def checked(self) -> Self:
        check_broker(self)
        return self


def _with_one_id(values: dict[str, Any]) -> dict[str, Any]:
    """Makes the two names of the id one."""
    older = values.get("broker_id", -1)
    newest = values.get("node_id", BrokerConfig.rows()["node.id"].default if older == -1 else older)
    if older not in (-1, newest):
        raise ConfigError(f"broker.id ({older}) is not node.id ({newest}): give only one of them.")
    return {**values, "node_id": newest, "broker_id": newest}


def _topic_default(name: str) -> str:
    near = did_you_mean(f"log.{name}", BrokerConfig.rows())
    return near.removeprefix(" Did you mean ").removesuffix("?") or "the names that start with log."
