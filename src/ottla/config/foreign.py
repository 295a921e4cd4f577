"""Names of Kafka's broker configuration that this broker does not have.

A ``server.properties`` made for Kafka should start this broker too. What tunes threads, quorums or replicas
has nothing to tune here and is left aside, with a warning by whoever read the file. What asks for security
must never be left aside: the broker refuses to start. A name that becomes real moves into broker.py.
"""

from __future__ import annotations

# Whole names, and beginnings of names that end in a dot.
_IGNORED = (
    "add.partitions.to.txn.",
    "alter.log.dirs.",
    "auto.leader.rebalance.enable",
    "background.threads",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "connection.failed.authentication.delay.ms",
    "controlled.shutdown.enable",
    "controller.",
    "delete.records.purgatory.",
    "early.start.listeners",
    "fetch.purgatory.",
    "group.coordinator.",
    "group.share.",
    "group.streams.",
    "initial.broker.registration.timeout.ms",
    "inter.broker.listener.name",
    "internal.metadata.",
    "kafka.metrics.",
    "leader.imbalance.",
    "log.cleaner.threads",
    "log.dir.failure.timeout.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "max.connection.creation.rate",
    "metadata.log.",
    "metadata.max.",
    "metric.reporters",
    "metrics.",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.",
    "offsets.commit.timeout.ms",
    "offsets.load.buffer.size",
    "offsets.topic.compression.codec",
    "offsets.topic.replication.factor",
    "process.roles",
    "producer.purgatory.",
    "queued.max.request.bytes",
    "queued.max.requests",
    "quota.window.",
    "replica.fetch.",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.lag.",
    "replica.socket.",
    "replication.quota.",
    "request.timeout.ms",
    "security.inter.broker.protocol",
    "server.max.startup.time.ms",
    "share.",
    "socket.connection.setup.",
    "telemetry.max.bytes",
    "transaction.state.log.load.buffer.size",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
    "transaction.two.phase.commit.enable",
    "unclean.leader.election.interval.ms",
    "unstable.",
)
_SECURITY = ("authorizer.", "delegation.token.", "listener.name.", "sasl.", "ssl.", "super.users")
_JAVA_CODE = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "config.providers",
    "create.topic.policy.class.name",
    "principal.builder.class",
    "replica.selector.class",
    "security.providers",
)


def is_ignored(name: str) -> bool:
    """Whether the name is one of Kafka's that changes nothing here."""
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in _IGNORED)


def refusal_of(name: str) -> str | None:
    """Why a name of Kafka's is refused, as a sentence; None for a name that Kafka does not have either."""
    if name.startswith(_SECURITY) or name == "connections.max.reauth.ms":
        return "It asks for security that this broker does not have, which only speaks PLAINTEXT: remove it."
    if name.startswith(_JAVA_CODE):
        return "It names code for Kafka's Java broker, which cannot be used here: remove it."
    if name.startswith("remote."):
        return "It is about remote storage, which this broker does not have: remove it."
    return None
