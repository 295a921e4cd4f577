"""The producer's table: Kafka's names and defaults, and the rules that tie them together.

What all clients share is in client.py. A new name is a new row; what it does is in `ottla.producing` (decisions) or
`ottla.clients` (plugins, timeouts of calls).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ottla.config.client import ClientConfig
from ottla.config.fields import (
    INT_MAX,
    Check,
    at_least,
    between,
    boolean,
    int32,
    int64,
    one_of,
    plugin,
    plugins,
    string,
)
from ottla.errors import ConfigError

log = logging.getLogger(__name__)

ALL_REPLICAS = -1
IN_FLIGHT_OF_IDEMPOTENCE = 5
"""A broker remembers this many batches of a producer: more in flight could not be told apart."""

_ACKS = {"all": ALL_REPLICAS, "-1": ALL_REPLICAS, "0": 0, "1": 1}
_GZIP_LEVEL = Check("-1, or between 1 and 9", lambda level: level == -1 or 1 <= level <= 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The configuration of a producer.

    >>> ProducerConfig.given({"bootstrap.servers": "localhost:9092"}, {"linger_ms": 20}).linger_ms
    20
    """

    what: ClassVar[str] = "producer configuration"

    # What is acknowledged, and how long it is tried.
    acks: str = string(
        "all", "Whose acknowledgement a record waits for: all in-sync replicas, the leader (1), nobody (0).",
        one_of(*_ACKS),
    )  # fmt: skip
    enable_idempotence: bool = boolean(
        True, "Records are written exactly once and in order even if requests have to be sent again."
    )
    retries: int = int32(
        INT_MAX, "How often a batch is sent again after a passing error; delivery.timeout.ms ends it too.", at_least(0)
    )
    delivery_timeout_ms: int = int32(
        120_000,
        "From `send` to success or failure it takes at most this long, retries included; not set, it is raised to "
        "linger.ms + request.timeout.ms where these are longer.",
        at_least(0),
    )
    max_in_flight_requests_per_connection: int = int32(
        5, "How many requests a broker may have that it has not answered yet.", at_least(1)
    )
    transactional_id: str | None = string(
        None,
        "The name under which the producer writes transactions, over its restarts: a second producer of the same name "
        "fences the first. Without one there are no transactions. It implies idempotence.",
    )
    transaction_timeout_ms: int = int32(
        60_000, "A transaction that is open for longer is aborted by its coordinator.", at_least(1)
    )

    # Batches and memory.
    batch_size: int = int32(
        16_384, "The size at which a batch of one partition is full, before compression.", at_least(0)
    )
    linger_ms: int = int64(5, "How long a batch that is not full waits for more records.", at_least(0))
    buffer_memory: int = int64(
        33_554_432, "How many bytes of records may wait in the producer; after that `send` waits.", at_least(0)
    )
    max_block_ms: int = int64(60_000, "How long `send` may wait for memory or for metadata.", at_least(0))
    max_request_size: int = int32(1_048_576, "The largest record, and the largest request.", at_least(0))
    compression_type: str = string(
        "none", "How batches are compressed.", one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_gzip_level: int = int32(-1, "The level of gzip; -1 is its default.", _GZIP_LEVEL)
    compression_lz4_level: int = int32(9, "The level of lz4.", between(1, 17))
    compression_zstd_level: int = int32(3, "The level of zstd.", between(-131_072, 22))

    # Partitions.
    partitioner_class: Any = plugin(
        None,
        "Who chooses partitions instead of the built-in rule (hash of the key, else sticky): a Partitioner, a function "
        "of the same arguments, or the text RoundRobinPartitioner.",
    )
    partitioner_ignore_keys: bool = boolean(False, "Records with a key are spread like those without.")
    partitioner_adaptive_partitioning_enable: bool = boolean(
        True, "Records without a key go rather to partitions whose brokers are fast."
    )
    partitioner_availability_timeout_ms: int = int64(
        0, "Partitions of a broker that takes nothing for this long are avoided; 0 does not look.", at_least(0)
    )

    # What runs in `send`.
    key_serializer: Any = plugin(
        None, "Makes bytes of keys: a function, its name (`string`, `json`), or a Serializer (`ottla.serializers`)."
    )
    value_serializer: Any = plugin(
        None, "Makes bytes of values: a function, its name (`string`, `json`), or a Serializer (`ottla.serializers`)."
    )
    interceptor_classes: Any = plugins((), "Interceptors, which see every record before it is sent and once it is.")

    # Metadata.
    metadata_max_idle_ms: int = int64(
        300_000, "A topic that is not written to for this long is not asked for any more.", at_least(5_000)
    )

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        named = cls.named(values)
        if type(named.get("acks")) is int:
            named["acks"] = str(named["acks"])
        # Transactions ask for idempotence, too.
        asked = named.get("transactional.id") is not None
        given = super(ProducerConfig, cls).parse({"enable.idempotence": asked, **cls._patient(named), **named})
        wished = named.get("enable.idempotence") is not None
        if wished or any(_idempotence(given)):
            return given
        return replace(given, enable_idempotence=True)

    @classmethod
    def _patient(cls, named: Mapping[str, object]) -> Mapping[str, object]:
        """As in Kafka a delivery.timeout.ms that nobody set is raised to what a batch may need."""
        timeout, *parts = (cls.key(name) for name in ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"))
        least = min(sum(key.parse(named.get(key.name, key.default)) for key in parts), INT_MAX)
        if timeout.name in named or least <= timeout.default:
            return {}
        log.warning("delivery.timeout.ms is raised to linger.ms + request.timeout.ms, %d: set it yourself", least)
        return {timeout.name: least}

    @property
    def required_acks(self) -> int:
        """The number on the wire."""
        return _ACKS[self.acks]

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use, None for a codec without levels."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    def checked(self) -> Self:
        ClientConfig.checked(self)
        for problem in _problems(self):
            raise ConfigError(problem)
        return self


def _problems(config: ProducerConfig) -> Iterator[str]:
    if config.transactional_id == "":
        yield "transactional.id cannot be empty: give it a name, or leave it out."
    if config.transactional_id is not None and not config.enable_idempotence:
        yield "transactional.id needs idempotence: leave enable.idempotence out, or set it to true."
    if config.enable_idempotence:
        yield from _idempotence(config)
    least = min(config.linger_ms + config.request_timeout_ms, INT_MAX)
    if config.delivery_timeout_ms < least:
        yield (
            f"delivery.timeout.ms ({config.delivery_timeout_ms}) must be at least linger.ms + request.timeout.ms "
            f"({least}): lower one of these or raise it."
        )


def _idempotence(config: ProducerConfig) -> Iterator[str]:
    """What contradicts idempotence. As in Kafka it is an error only if idempotence was asked for: otherwise its
    default gives way (see `parse`)."""
    if config.required_acks != ALL_REPLICAS:
        yield f"acks={config.acks} cannot be had with idempotence: set acks=all or enable.idempotence=false."
    if config.max_in_flight_requests_per_connection > IN_FLIGHT_OF_IDEMPOTENCE:
        yield (
            f"max.in.flight.requests.per.connection={config.max_in_flight_requests_per_connection} cannot be had with "
            f"idempotence: set it to at most {IN_FLIGHT_OF_IDEMPOTENCE}, or enable.idempotence=false."
        )
    if config.retries == 0:
        yield "retries=0 cannot be had with idempotence: raise it, or set enable.idempotence=false."
