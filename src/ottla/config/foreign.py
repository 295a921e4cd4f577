"""Names of Kafka's broker configuration that this broker ignores or rejects.

A ``server.properties`` for Kafka should also start this broker. Names that tune threads or quorums are
ignored, with a warning. Names that request security must not be ignored: the broker does not start. When a name gets a
meaning, move it to broker.py.
"""

from __future__ import annotations

# Whole names, and prefixes, which end in a dot.
_IGNORED = (
    "add.partitions.to.txn.",
    "alter.log.dirs.",
    "background.threads",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "config.providers",
    "config.providers.",
    "connection.failed.authentication.delay.ms",
    "controller.",
    "delete.records.purgatory.",
    "early.start.listeners",
    "fetch.purgatory.",
    "group.coordinator.",
    "group.share.",
    "group.streams.",
    "initial.broker.registration.timeout.ms",
    "internal.metadata.",
    "kafka.metrics.",
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
    "num.replica.alter.log.dirs.threads",
    "offsets.load.buffer.size",
    "offsets.topic.compression.codec",
    "process.roles",
    "producer.purgatory.",
    "queued.max.request.bytes",
    "queued.max.requests",
    "quota.window.",
    "replication.quota.",
    "request.timeout.ms",
    "security.inter.broker.protocol",
    "server.max.startup.time.ms",
    "share.",
    "socket.connection.setup.",
    "telemetry.max.bytes",
    "transaction.state.log.load.buffer.size",
    "transaction.two.phase.commit.enable",
    "unclean.leader.election.interval.ms",
    "unstable.",
    "zookeeper.max.in.flight.requests",
    "zookeeper.metadata.migration.enable",
    "zookeeper.sync.time.ms",
)
_SECURITY = (
    "authorizer.",
    "delegation.token.",
    "listener.name.",
    "sasl.",
    "ssl.",
    "super.users",
    "zookeeper.clientCnxnSocket",
    "zookeeper.set.acl",
    "zookeeper.ssl.",
)
_JAVA_CODE = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "principal.builder.class",
    "security.providers",
)


def is_ignored(name: str) -> bool:
    """Return whether this is one of Kafka's names without an effect here."""
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in _IGNORED)


def rejection_of(name: str) -> str | None:
    """Return a sentence why one of Kafka's names is rejected. None for a name unknown to Kafka."""
    if name.startswith(_SECURITY) or name == "connections.max.reauth.ms":
        return "It requests security, but this broker supports only PLAINTEXT. Remove it."
    if name.startswith(_JAVA_CODE):
        return "It is the name of a class for Kafka's Java broker, which cannot run here. Remove it."
    if name.startswith("remote."):
        return "It configures remote storage, which this broker does not have. Remove it."
    return None
