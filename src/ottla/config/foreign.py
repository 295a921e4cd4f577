"""Names of Kafka's broker configuration that this broker ignores or rejects.

A ``server.properties`` for Kafka should also start this broker. Names that tune threads or quorums are ignored, with a
warning. So are the details of what another name enables: that one is rejected, such as GSSAPI in
sasl.enabled.mechanisms for Kerberos. Names that request security which this broker does not have must not be ignored:
the broker does not start, unless their value is Kafka's default. When a name gets a meaning, move it to the table.
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
    "delegation.token.expiry.",
    "delegation.token.max.lifetime.ms",
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
    "remote.",
    "replication.quota.",
    "request.timeout.ms",
    "sasl.kerberos.",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.mechanism.controller.protocol",
    "sasl.oauthbearer.assertion.",
    "sasl.oauthbearer.client.credentials.",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
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
    "delegation.token.master.key": "delegation tokens",
    "delegation.token.secret.key": "delegation tokens",
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
    "sasl.oauthbearer.jwt.validator.class",
    "security.providers",
    "ssl.engine.factory.class",
)
# Kafka's defaults of names that are rejected otherwise: they request nothing.
_DEFAULTS = {
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "remote.log.storage.system.enable": "false",
    "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.ocsp.enable": "false",
}


def is_ignored(name: str, value: object = None) -> bool:
    """Return whether this is one of Kafka's names without an effect here, at least with this value."""
    if rejection_of(name) is not None:
        return value is not None and str(value).strip().lower() in ("", _DEFAULTS.get(name, "").lower())
    return any(_matches(name, each) for each in _IGNORED)


def _matches(name: str, name_or_prefix: str) -> bool:
    return name == name_or_prefix or (name_or_prefix.endswith(".") and name.startswith(name_or_prefix))


def rejection_of(name: str) -> str | None:
    """Return a sentence why one of Kafka's names is rejected. None for a name that is ignored or unknown to Kafka."""
    if name in _SECURITY:
        return f"It requests {_SECURITY[name]}, which this broker does not have. Remove it."
    if name in _JAVA_CODE:
        return "It is the name of a class for Kafka's Java broker, which cannot run here. Remove it."
    if name == "remote.log.storage.system.enable":
        return "It enables remote storage, which this broker does not have. Remove it."
    return None
