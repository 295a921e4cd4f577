"""Names of Kafka's broker configuration that this broker ignores or rejects.

A ``server.properties`` for Kafka should also start this broker. Names that tune threads or quorums are
ignored, with a warning. Names that request security which this broker does not have must not be ignored: the broker
does not start. When a name gets a meaning, move it to the table.
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
    "controller.listener.names",
    "controller.performance.",
    "controller.quorum.",
    "controller.socket.timeout.ms",
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
    "replication.quota.",
    "request.timeout.ms",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.mechanism.controller.protocol",
    "server.max.startup.time.ms",
    "share.",
    "socket.connection.setup.",
    "ssl.allow.",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "telemetry.max.bytes",
    "transaction.state.log.load.buffer.size",
    "transaction.two.phase.commit.enable",
    "unclean.leader.election.interval.ms",
    "unstable.",
    "zookeeper.clientCnxnSocket",
    "zookeeper.max.in.flight.requests",
    "zookeeper.metadata.migration.enable",
    "zookeeper.ssl.protocol",
    "zookeeper.sync.time.ms",
)
_SECURITY = {
    "delegation.token.": "delegation tokens",
    "sasl.kerberos.": "Kerberos",
    "sasl.oauthbearer.assertion.": "an OAUTHBEARER login of the broker itself",
    "sasl.oauthbearer.client.credentials.": "an OAUTHBEARER login of the broker itself",
    "sasl.oauthbearer.scope": "an OAUTHBEARER login of the broker itself",
    "sasl.oauthbearer.token.endpoint.url": "an OAUTHBEARER login of the broker itself",
    "zookeeper.ssl.cipher.suites": "cipher suites for ZooKeeper",
    "zookeeper.ssl.crl.enable": "lists of revoked certificates",
    "zookeeper.ssl.ocsp.enable": "lists of revoked certificates",
}
_JAVA_CODE = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
    "principal.builder.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.jwt.",
    "security.providers",
    "ssl.engine.factory.class",
)


def is_ignored(name: str) -> bool:
    """Return whether this is one of Kafka's names without an effect here."""
    return any(_matches(name, each) for each in _IGNORED)


def _matches(name: str, name_or_prefix: str) -> bool:
    return name == name_or_prefix or (name_or_prefix.endswith(".") and name.startswith(name_or_prefix))


def rejection_of(name: str) -> str | None:
    """Return a sentence why one of Kafka's names is rejected. None for a name unknown to Kafka."""
    for each, what in _SECURITY.items():
        if _matches(name, each):
            return f"It requests {what}, which this broker does not have. Remove it."
    if name.startswith(_JAVA_CODE):
        return "It is the name of a class for Kafka's Java broker, which cannot run here. Remove it."
    if name.startswith("remote."):
        return "It configures remote storage, which this broker does not have. Remove it."
    return None
