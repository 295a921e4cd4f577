"""What other clients call the configurations: an error that meets such a name can say the right one.

The names are of kafka-python, aiokafka and librdkafka (confluent-kafka); docs/migration.md has them as tables. What
only Java's client can have is told too.
"""

from __future__ import annotations

NAMES = {
    # kafka-python and aiokafka
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "ssl.password": "ssl.key.password",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
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
    "queue.buffering.max.kbytes": "buffer.memory",
    "batch.num.messages": "batch.size",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "partitioner": "partitioner.class",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    # Java
    "ssl.keystore.password": "ssl.key.password",
}

_KEY_STORES = "Java's key stores are not read here: give PEM files (ssl.cafile, ssl.certfile, ssl.keyfile)."
_METRICS = "Leave it out: `metrics()` of a client gives what there is."
_KERBEROS = "Kerberos is not there: PLAIN, SCRAM and OAUTHBEARER are."
_CONTEXT = "Leave it out: Python's ssl module is what there is; ssl.context takes a context of your own."
_TOKENS = "Leave it out: sasl.oauth.token.provider is the function that fetches a token, and knows from where and how."
_JAVA = "Leave it out: it names code for Java's clients."
_SHARE = "Share groups are not there: consumer groups are."
_VERSIONS = "Leave it out: versions are agreed on with each broker."

# Whole names, and beginnings of names that end in a dot.
REASONS = {
    "ssl.truststore.password": _KEY_STORES,
    "ssl.provider": _CONTEXT,
    "ssl.protocol": "Give ssl.enabled.protocols, the versions of TLS to speak.",
    "ssl.keymanager.algorithm": _CONTEXT,
    "ssl.trustmanager.algorithm": _CONTEXT,
    "ssl.secure.random.implementation": _CONTEXT,
    "ssl.engine.factory.class": _CONTEXT,
    "ssl.cipher.suites": "Give an ssl.context with the ciphers that you want.",
    "ssl.ciphers": "Give an ssl.context with the ciphers that you want.",
    "ssl.crlfile": "Give an ssl.context that checks revocations.",
    "sasl.kerberos.": _KERBEROS,
    "sasl.login.": _TOKENS,
    "sasl.oauthbearer.": _TOKENS,
    "sasl.client.callback.handler.class": _TOKENS,
    "security.providers": _JAVA,
    "config.providers": "Leave it out: read secrets in your program, and give them as values.",
    "bootstrap.controllers": "Give bootstrap.servers: controllers are reached through brokers.",
    "share.": _SHARE,
    "transaction.two.phase.commit.enable": "Leave it out: a transaction ends after transaction.timeout.ms.",
    "internal.leave.group.on.close": "Leave it out: a static member (group.instance.id) stays in its group on close.",
    "internal.throw.on.fetch.stable.offset.unsupported": "Leave it out: it is for Kafka Streams.",
    "auto.include.jmx.reporter": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.": _METRICS,
    "enable.metrics.push": _METRICS,
    "statistics.interval.ms": _METRICS,
    "stats.cb": _METRICS,
    "api.version": _VERSIONS,
    "api.version.request": _VERSIONS,
    "broker.version.fallback": _VERSIONS,
    "loop": "Leave it out: an asyncio client belongs to the loop that it is first used on.",
    "consumer.timeout.ms": "Leave it out: `while records := consumer.poll(5)` ends when nothing has come for 5 s.",
    "error.cb": "Leave it out: errors are raised by the calls that they concern, and logged under `ottla`.",
    "enable.auto.offset.store": "Set enable.auto.commit=false and commit what is done.",
    "enable.ssl.certificate.verification": "Set ssl.cafile; an ssl.context of your own can leave out the check.",
}


def hint(name: str, known: frozenset[str]) -> str:
    """What to say of a name that a table does not know; nothing if nobody else knows it either.

    >>> hint("max.batch.size", frozenset({"batch.size"}))
    ' It is called batch.size here, as in Kafka.'
    """
    here = NAMES.get(name)
    if here is not None and here in known:
        return f" It is called {here} here, as in Kafka."
    reason = next(
        (why for each, why in REASONS.items() if name == each or (each[-1] == "." and name.startswith(each))), ""
    )
    return f" {reason}" if reason else ""
