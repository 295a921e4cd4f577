"""The rows of the broker's table about identity, ZooKeeper and replicas. broker.py has the others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ottla.config.fields import (
    LONG_MAX,
    Check,
    at_least,
    between,
    boolean,
    each_of,
    int16,
    int32,
    int64,
    listing,
    one_of,
    password,
    string,
)
from ottla.config.listeners import parse_address
from ottla.security.jaas import Jaas

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

BUFFER = Check("at least 1, or -1 for the operating system's default", lambda size: size >= 1 or size == -1)
_CHROOT = re.compile(r"(/[A-Za-z0-9._-]+)*")


def _is_ensemble(text: str) -> bool:
    servers, slash, chroot = text.partition("/")
    if _CHROOT.fullmatch(slash + chroot) is None:
        return False
    try:
        addresses = [parse_address(server.strip()) for server in servers.split(",")]
    except ValueError:
        return False
    return all(host and port for host, port in addresses)


def _has_login(text: str) -> bool:
    try:
        jaas = Jaas.parse(text)
    except ValueError:
        return False
    return bool(jaas.username and jaas.password)


_STORE_TYPES = one_of("PEM", "PKCS12", "JKS")
_STORE_TYPE = "Without effect: the content of the file says whether it is PEM or PKCS12."
_ENSEMBLE = Check(
    "host:port of each server, separated by commas, and maybe a path, such as zk1:2181/ottla", _is_ensemble
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """What a broker knows about itself, the other brokers and ZooKeeper."""

    # Identity.
    node_id: int = int32(1, "The id of this broker.", at_least(0))
    broker_id: int = int32(-1, "The old name of node.id. -1 means node.id.", at_least(-1))
    broker_rack: str | None = string(
        None, "The rack of the broker. Replicas are spread over racks, and consumers may read from their own."
    )
    inter_broker_listener_name: str | None = string(
        None, "The listener that other brokers connect to. If not set, the first one.", item=str.upper
    )

    # ZooKeeper.
    zookeeper_connect: str | None = string(
        None,
        "The ZooKeeper servers of the cluster. A path keeps clusters apart that share servers. Without it, the "
        "broker is alone and stores its metadata itself.",
        _ENSEMBLE,
    )
    zookeeper_connection_timeout_ms: int | None = int32(
        None,
        "How long to wait for ZooKeeper at the start. If not set, zookeeper.session.timeout.ms.",
        at_least(1),
    )
    zookeeper_session_timeout_ms: int = int32(
        6_000,
        "Fence a broker that ZooKeeper has not heard from for this long: a hung or disconnected machine. A dead "
        "process is noticed at once. Kafka's default is 18000; here a false alarm costs only a change of leaders.",
        at_least(1),
    )

    zookeeper_set_acl: bool = boolean(
        False, "Let only brokers with the same login read and change what this broker creates in ZooKeeper."
    )
    zookeeper_ssl_client_enable: bool = boolean(False, "Connect to ZooKeeper with TLS.")
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = listing(
        None, "The TLS versions to use with ZooKeeper. If not set, 1.2 and 1.3.", each_of("TLSv1.2", "TLSv1.3")
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "HTTPS",
        "With HTTPS, ZooKeeper's certificate must match its host name. Empty disables the check.",
        one_of("HTTPS", ""),
        item=str.upper,
    )
    zookeeper_ssl_keystore_location: str | None = string(
        None, "The file with the key and certificate of this broker for ZooKeeper, PEM or PKCS12."
    )
    zookeeper_ssl_keystore_password: str | None = password(None, "The password of that key or file.")
    zookeeper_ssl_keystore_type: str | None = string(None, _STORE_TYPE, _STORE_TYPES, item=str.upper)
    zookeeper_ssl_truststore_location: str | None = string(
        None, "The file with the authorities that sign ZooKeeper's certificate, PEM or PKCS12."
    )
    zookeeper_ssl_truststore_password: str | None = password(None, "The password of a PKCS12 file.")
    zookeeper_ssl_truststore_type: str | None = string(None, _STORE_TYPE, _STORE_TYPES, item=str.upper)
    ottla_zookeeper_digest: str | None = password(
        None,
        "The login at ZooKeeper with its `digest` scheme, as user:password.",
        Check("a user and a password such as broker:secret", lambda text: ":" in text.strip(":")),
    )
    ottla_zookeeper_jaas_config: str | None = password(
        None,
        "The login at ZooKeeper with SASL (DIGEST-MD5), which Kafka has in a JAAS file: "
        '`org.apache.zookeeper.server.auth.DigestLoginModule required username="..." password="...";`.',
        Check("the entry of a JAAS file with username and password", _has_login),
    )

    # Topics.
    default_replication_factor: int = int32(
        1, "The replication factor of a topic that does not set one. More than 1 needs zookeeper.connect.", at_least(1)
    )
    offsets_topic_replication_factor: int = int16(
        3,
        "The replication factor of __consumer_offsets. Groups wait until there are that many brokers. A broker without "
        "zookeeper.connect uses 1.",
        at_least(1),
    )
    transaction_state_log_replication_factor: int = int16(
        3,
        "The replication factor of __transaction_state. Transactions wait until there are that many brokers. A broker "
        "without zookeeper.connect uses 1.",
        at_least(1),
    )
    transaction_state_log_min_isr: int = int32(
        2, "The min.insync.replicas of __transaction_state. A broker without zookeeper.connect uses 1.", at_least(1)
    )

    # Followers.
    num_replica_fetchers: int = int32(
        1,
        "Accepted but without effect: a broker has one fetcher for each leader it follows.",
        at_least(1),
        dynamic=True,
    )
    replica_fetch_backoff_ms: int = int32(1_000, "How long a follower waits after a failed fetch.", at_least(0))
    replica_fetch_max_bytes: int = int32(
        1_048_576,
        "The most bytes of one partition in a follower's fetch. A larger first batch is still returned.",
        at_least(0),
    )
    replica_fetch_min_bytes: int = int32(1, "A leader answers a follower when it has this many bytes.")
    replica_fetch_response_max_bytes: int = int32(
        10_485_760, "The most bytes in the response to a follower. A larger first batch is still returned.", at_least(0)
    )
    replica_fetch_wait_max_ms: int = int32(
        500, "A leader answers a follower at the latest after this time.", at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms: int = int64(
        5_000, "How often to write the high watermarks to disk.", at_least(1)
    )
    replica_lag_time_max_ms: int = int64(
        30_000, "Remove a follower from the in-sync replicas if it has not caught up for this long.", at_least(1)
    )
    replica_selector_class: str | None = string(
        None,
        "With RackAwareReplicaSelector, a consumer with client.rack reads from a replica in its rack. Otherwise from "
        "the leader.",
        one_of(RACK_AWARE_SELECTOR, LEADER_SELECTOR),
    )
    replica_socket_receive_buffer_bytes: int = int32(
        65_536, "Accepted but without effect: the operating system chooses the buffers between brokers.", BUFFER
    )
    replica_socket_timeout_ms: int = int32(
        30_000, "How long a broker waits for the response of another broker.", at_least(1)
    )
    follower_replication_throttled_rate: int = int64(
        LONG_MAX,
        "The most bytes per second that this broker copies into follower.replication.throttled.replicas.",
        at_least(0),
        dynamic=True,
    )
    leader_replication_throttled_rate: int = int64(
        LONG_MAX,
        "The most bytes per second that this broker sends from leader.replication.throttled.replicas.",
        at_least(0),
        dynamic=True,
    )

    # Leaders.
    auto_leader_rebalance_enable: bool = boolean(True, "Give leadership back to the first replica of each partition.")
    leader_imbalance_check_interval_seconds: int = int64(
        300, "How often to look for leaders that are not the first replica.", at_least(1)
    )
    leader_imbalance_per_broker_percentage: int = int32(
        10,
        "Rebalance if another broker leads more than this share of the partitions that a broker should lead.",
        between(0, 100),
    )
    controlled_shutdown_enable: bool = boolean(
        True, "Hand leadership over to other brokers before a stop, so that clients hardly notice it."
    )
    controlled_shutdown_max_retries: int = int32(3, "How often to try again to hand leadership over.", at_least(0))
    controlled_shutdown_retry_backoff_ms: int = int64(
        5_000, "The delay before another try to hand leadership over. More than 500 counts as 500.", at_least(0)
    )

    @property
    def is_clustered(self) -> bool:
        """Whether ZooKeeper connects this broker with others."""
        return self.zookeeper_connect is not None

    @property
    def has_zookeeper_login(self) -> bool:
        """Whether ZooKeeper knows who this broker is."""
        has_certificate = self.zookeeper_ssl_client_enable and self.zookeeper_ssl_keystore_location is not None
        return has_certificate or bool(self.ottla_zookeeper_digest or self.ottla_zookeeper_jaas_config)

    @property
    def offsets_topic_replicas(self) -> int:
        """The replication factor of __consumer_offsets: 1 for a broker that is alone."""
        return self.offsets_topic_replication_factor if self.is_clustered else 1

    @property
    def transaction_log_replicas(self) -> int:
        """The replication factor of __transaction_state: 1 for a broker that is alone."""
        return self.transaction_state_log_replication_factor if self.is_clustered else 1

    @property
    def transaction_log_min_isr(self) -> int:
        """The min.insync.replicas of __transaction_state: 1 for a broker that is alone."""
        return self.transaction_state_log_min_isr if self.is_clustered else 1
