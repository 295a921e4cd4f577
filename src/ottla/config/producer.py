"""The configuration table of the producer. Names and defaults are Kafka's. client.py has the shared rows.

Rules that involve several names are at the end.
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
from ottla.config.table import key, named
from ottla.errors import ConfigError

log = logging.getLogger(__name__)

ALL_REPLICAS = -1
IN_FLIGHT_OF_IDEMPOTENCE = 5
"""A broker remembers this many batches of a producer. It could not deduplicate more in flight."""

FIRST_CONTACT_MS = 5_000
"""A wrong address is told after this time, although `send` may wait longer for a broker that is only away."""

_ACKS = {"all": ALL_REPLICAS, "-1": ALL_REPLICAS, "0": 0, "1": 1}
_GZIP_LEVEL = Check("-1, or between 1 and 9", lambda level: level == -1 or 1 <= level <= 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The configuration of a producer.

    >>> ProducerConfig.given({"bootstrap.servers": "localhost:9092"}, {"linger_ms": 20}).linger_ms
    20
    """

    what: ClassVar[str] = "producer configuration"

    # Acknowledgements and retries.
    acks: str = string(
        "all", "Who must acknowledge a record: all in-sync replicas, the leader (1), or nobody (0).", one_of(*_ACKS)
    )
    enable_idempotence: bool = boolean(
        True, "Write each record exactly once and in order, even when requests are retried."
    )
    retries: int = int32(
        INT_MAX,
        "How often a batch is retried after a transient error. delivery.timeout.ms also ends the retries.",
        at_least(0),
    )
    delivery_timeout_ms: int = int32(
        120_000,
        "The longest time from `send` to success or failure, including retries. If not set, it is raised to linger.ms "
        "+ request.timeout.ms when these are longer.",
        at_least(0),
    )
    max_in_flight_requests_per_connection: int = int32(
        5, "The most requests to one broker without a response.", at_least(1)
    )
    transactional_id: str | None = string(
        None,
        "The permanent name of a transactional producer. A second producer with the same name fences the first. "
        "Transactions require it, and it implies idempotence.",
    )
    transaction_timeout_ms: int = int32(
        60_000, "The coordinator aborts a transaction that is open for longer.", at_least(1)
    )

    # Batches and memory.
    batch_size: int = int32(16_384, "The size of a full batch of one partition, before compression.", at_least(0))
    linger_ms: int = int64(
        5,
        "How long a batch waits for more records before it is sent. It does not wait if a thread waits for one of its "
        "records, as `send(…).get()` does.",
        at_least(0),
    )
    buffer_memory: int = int64(
        33_554_432, "The memory for records that are not sent yet. `send` blocks when it is full.", at_least(0)
    )
    max_block_ms: int = int64(60_000, "The longest that `send` blocks for memory or metadata.", at_least(0))
    max_request_size: int = int32(1_048_576, "The size limit of a record and of a request.", at_least(0))
    compression_type: str = string(
        "none", "The compression of batches.", one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_gzip_level: int = int32(-1, "The gzip level. -1 is gzip's default.", _GZIP_LEVEL)
    compression_lz4_level: int = int32(9, "The lz4 level.", between(1, 17))
    compression_zstd_level: int = int32(3, "The zstd level.", between(-131_072, 22))

    # Partitions.
    partitioner_class: Any = plugin(
        None,
        "Replaces the built-in partitioner (hash of the key, else sticky): a Partitioner, a function with the same "
        "arguments, or the text RoundRobinPartitioner.",
    )
    partitioner_ignore_keys: bool = boolean(False, "Spread records with a key like records without one.")
    partitioner_adaptive_partitioning_enable: bool = boolean(
        True, "Send more of the records without a key to fast brokers."
    )
    partitioner_availability_timeout_ms: int = int64(
        0, "Avoid partitions of a broker that accepts nothing for this long. 0 disables the check.", at_least(0)
    )

    # Code that runs in `send`.
    key_serializer: Any = plugin(
        None, "Converts keys to bytes: a function, a name (`string`, `json`), or a Serializer (`ottla.serializers`)."
    )
    value_serializer: Any = plugin(None, "Converts values to bytes, like key.serializer.")
    interceptor_classes: Any = plugins(
        (), "ProducerInterceptors, which see each record before it is sent and when it is acknowledged."
    )

    first_contact_ms: int = FIRST_CONTACT_MS
    """How long to wait for brokers that were never reached: max.block.ms if that is set. Not a configuration."""

    # Metadata.
    metadata_max_idle_ms: int = int64(
        300_000, "Stop refreshing the metadata of a topic that is not used for this long.", at_least(5_000)
    )

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        given = named(cls, values)
        if type(given.get("acks")) is int:
            given["acks"] = str(given["acks"])
        # Idempotence is required by a transactional id. Otherwise its default gives way to settings that exclude it.
        required = given.get("transactional.id") is not None
        config = super(ProducerConfig, cls).parse({"enable.idempotence": required, **cls._raised(given), **given})
        if "max.block.ms" in given:
            config = replace(config, first_contact_ms=config.max_block_ms)
        if given.get("enable.idempotence") is not None or any(_idempotence(config)):
            return config
        return replace(config, enable_idempotence=True)

    @classmethod
    def _raised(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        """Raise a delivery.timeout.ms that is not set to what a batch may need, as Kafka does."""
        timeout, *parts = (key(cls, name) for name in ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"))
        least = min(sum(row.parse(given.get(row.name, row.default)) for row in parts), INT_MAX)
        if timeout.name in given or least <= timeout.default:
            return {}
        log.warning("delivery.timeout.ms is raised to linger.ms + request.timeout.ms = %d", least)
        return {timeout.name: least}

    @property
    def required_acks(self) -> int:
        """The value of acks in a request."""
        return _ACKS[self.acks]

    @property
    def compression_level(self) -> int | None:
        """The level for compression.type. None for a codec without levels."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    def checked(self) -> Self:
        ClientConfig.checked(self)
        for problem in _problems(self):
            raise ConfigError(problem)
        return self


def _problems(config: ProducerConfig) -> Iterator[str]:
    if config.transactional_id == "":
        yield "transactional.id must not be empty. Give it a name, or leave it out."
    if config.transactional_id is not None and not config.enable_idempotence:
        yield "transactional.id requires enable.idempotence=true."
    if config.enable_idempotence:
        yield from _idempotence(config)
    least = min(config.linger_ms + config.request_timeout_ms, INT_MAX)
    if config.delivery_timeout_ms < least:
        yield (
            f"delivery.timeout.ms ({config.delivery_timeout_ms}) must be at least linger.ms + request.timeout.ms "
            f"({least})."
        )


def _idempotence(config: ProducerConfig) -> Iterator[str]:
    """Yield what contradicts idempotence."""
    if config.required_acks != ALL_REPLICAS:
        yield f"enable.idempotence requires acks=all, not acks={config.acks}. Set acks=all or enable.idempotence=false."
    if config.max_in_flight_requests_per_connection > IN_FLIGHT_OF_IDEMPOTENCE:
        yield (
            f"enable.idempotence requires max.in.flight.requests.per.connection of at most {IN_FLIGHT_OF_IDEMPOTENCE}, "
            f"not {config.max_in_flight_requests_per_connection}. Lower it, or set enable.idempotence=false."
        )
    if config.retries == 0:
        yield "enable.idempotence requires retries above 0. Raise retries, or set enable.idempotence=false."
