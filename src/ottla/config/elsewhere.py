"""Hints for configuration names of other clients: kafka-python, aiokafka, librdkafka (confluent-kafka) and Java.

docs/migration.md has the same names as tables.
"""

from __future__ import annotations

from collections.abc import Set

NAMES = {
    # kafka-python and aiokafka
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "ssl.password": "ssl.key.password",
    "max.batch.size": "batch.size",
    "rebalance.timeout.ms": "max.poll.interval.ms",
    "max.in.flight.requests": "max.in.flight.requests.per.connection",
    # librdkafka
    "metadata.broker.list": "bootstrap.servers",
    "ssl.ca.location": "ssl.cafile",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keyfile",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.mechanisms": "sasl.mechanism",
    "oauth.cb": "sasl.oauth.token.provider",
    "message.timeout.ms": "delivery.timeout.ms",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "auto.commit.enable": "enable.auto.commit",
    "fetch.error.backoff.ms": "retry.backoff.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}

_METRICS = "Leave it out. Use the client's `metrics()` instead."
_KERBEROS = "Kerberos is not supported. Use PLAIN, SCRAM or OAUTHBEARER."
_CONTEXT = "Leave it out. To configure Python's ssl module, pass your own context as ssl.context."
_TOKENS = "Leave it out. The function sasl.oauth.token.provider fetches the token."
_JAVA = "Leave it out. It is the name of a Java class."
_SHARE = "Share groups are not supported. Use consumer groups."
_SOCKET = "Leave it out. The client chooses it."
_QUEUE = "Leave it out. fetch.max.bytes limits what is fetched ahead, in bytes."
_VERSIONS = "Leave it out. The client negotiates versions with each broker."

# Whole names, and prefixes, which end in a dot.
REASONS = {
    "ssl.provider": _CONTEXT,
    "ssl.protocol": "Use ssl.enabled.protocols to set the TLS versions.",
    "ssl.keymanager.algorithm": _CONTEXT,
    "ssl.trustmanager.algorithm": _CONTEXT,
    "ssl.secure.random.implementation": _CONTEXT,
    "ssl.engine.factory.class": _CONTEXT,
    "ssl.cipher.suites": "Pass an ssl.context with these ciphers.",
    "ssl.ciphers": "Pass an ssl.context with these ciphers.",
    "ssl.crlfile": "Pass an ssl.context that checks revocations.",
    "sasl.kerberos.": _KERBEROS,
    "sasl.login.": _TOKENS,
    "sasl.oauthbearer.": _TOKENS,
    "sasl.client.callback.handler.class": _TOKENS,
    "security.providers": _JAVA,
    "config.providers": "Leave it out. ${env:NAME} and ${file:path} work in every value.",
    "bootstrap.controllers": "Use bootstrap.servers. The client reaches controllers through brokers.",
    "share.": _SHARE,
    "transaction.two.phase.commit.enable": "Leave it out. A transaction ends after transaction.timeout.ms.",
    "internal.leave.group.on.close": "Leave it out. A static member (group.instance.id) stays in its group on close.",
    "internal.throw.on.fetch.stable.offset.unsupported": "Leave it out. It is for Kafka Streams.",
    "auto.include.jmx.reporter": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.": _METRICS,
    "enable.metrics.push": _METRICS,
    "statistics.interval.ms": _METRICS,
    "stats.cb": _METRICS,
    "api.version": _VERSIONS,
    "api.version.request": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "loop": "Leave it out. An asyncio client uses the event loop of its first call.",
    "consumer.timeout.ms": "Leave it out. `while records := consumer.poll(5)` ends after 5 s without records.",
    "on.delivery": "Leave it out. Pass a callback(metadata, error) to each send.",
    "delivery.report.only.error": "Leave it out. The callback of a send gets the error.",
    "dr.cb": "Leave it out. Pass a callback(metadata, error) to each send.",
    "dr.msg.cb": "Leave it out. Pass a callback(metadata, error) to each send.",
    "logger": "Leave it out. Configure the logger `ottla` of Python's logging.",
    "log.level": "Leave it out. Configure the logger `ottla` of Python's logging.",
    "enable.partition.eof": "Leave it out. An assigned partition is read to its end when `consumer.position(partition) "
    ">= consumer.end_offsets([partition])[partition]`. An empty poll does not tell that.",
    "default.topic.config": "Leave it out, and give its entries like other configs.",
    "ssl.check.hostname": 'Leave it out. Instead of False, write ssl.endpoint.identification.algorithm="".',
    "queue.buffering.max.messages": "Leave it out. buffer.memory limits the bytes.",
    "queue.buffering.max.kbytes": "Use buffer.memory, in bytes.",
    "batch.num.messages": "Leave it out. batch.size limits the bytes of a batch.",
    "partitioner": "Leave it out for murmur2, as in Java. partitioner.class takes a function or class of your own.",
    "compression.level": "Use compression.gzip.level, compression.lz4.level or compression.zstd.level.",
    "queued.min.messages": _QUEUE,
    "queued.max.messages.kbytes": _QUEUE,
    "socket.keepalive.enable": _SOCKET,
    "socket.nagle.disable": _SOCKET,
    "broker.address.family": _SOCKET,
    "selector": _SOCKET,
    "sock.chunk.": _SOCKET,
    "debug": "Leave it out. Set the level of the logger `ottla` of Python's logging to DEBUG.",
    "log.connection.close": "Leave it out. Configure the logger `ottla` of Python's logging.",
    "on.commit": "Leave it out. Pass a callback to `commit_async`.",
    "zookeeper.connect": "Use bootstrap.servers, the addresses of brokers.",
    "error.cb": "Leave it out. Calls raise their errors, and the logger `ottla` logs the others.",
    "enable.auto.offset.store": "Set enable.auto.commit=false and commit after processing.",
    "enable.ssl.certificate.verification": "Set ssl.cafile. To disable the check, pass your own ssl.context.",
}


def hint(name: str, known: Set[str]) -> str:
    """Return a sentence about a name of another client, or an empty text.

    >>> hint("max.batch.size", {"batch.size"})
    ' Use batch.size, as in Kafka.'
    """
    here = NAMES.get(name)
    if here is not None and here in known:
        return f" Use {here}, as in Kafka."
    reason = next(
        (why for each, why in REASONS.items() if name == each or (each[-1] == "." and name.startswith(each))), ""
    )
    return f" {reason}" if reason else ""
