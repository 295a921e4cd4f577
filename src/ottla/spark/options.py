"""The options of `format("ottla")`, with the names of Spark's Kafka source and sink, checked before a query runs.

`ReadOptions.of` and `WriteOptions.of` return typed values, or raise `OptionError`. Names are case-insensitive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.config.admin import AdminConfig
from ottla.config.consumer import ConsumerConfig
from ottla.config.producer import ProducerConfig
from ottla.config.table import rows
from ottla.spark.given import EXAMPLES, Given, OptionError
from ottla.types import Millis, TopicPartition

__all__ = ["Bound", "Offsets", "OptionError", "ReadOptions", "Topics", "WriteOptions"]

EARLIEST = "earliest"
LATEST = "latest"
COMMITTED = "committed"
#: Their numbers in JSON.
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

_WHAT = ("subscribe", "subscribePattern", "assign")
_READ_NAMES = (
    *_WHAT,
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "group.id",
    "kafkaConsumer.pollTimeoutMs",
    "partition.metadata.cache.ttl.ms",
)
_TXN = ("txnAppId", "txnVersion", "txnRunId")
_ID_PREFIX = "transactionalIdPrefix"
ID_PREFIX = "ottla-spark"
# Spark passes the query name and the checkpoint as options.
_WRITE_NAMES = ("topic", "deliver", *_TXN, _ID_PREFIX, "checkpointLocation", "queryName", "includeHeaders")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or end of reading: a word, offsets by partition, or a time (global or by partition)."""

    word: str | None = None
    offsets: Offsets | None = None
    timestamp: Millis | None = None
    timestamps: dict[TopicPartition, Millis] | None = None

    def is_latest(self, key: TopicPartition) -> bool:
        return self.word == LATEST or (self.offsets or {}).get(key) == LATEST_NUMBER


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to read; exactly one field is set."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def select(self, key: TopicPartition) -> bool:
        """Whether a partition is selected, even if it does not exist.

        >>> Topics(pattern="a.*").select(TopicPartition("ab", 0)), Topics(names=("a",)).select(TopicPartition("b", 0))
        (True, False)
        """
        if self.pattern is not None:
            return re.fullmatch(self.pattern, key.topic) is not None
        return key in self.partitions if self.partitions is not None else key.topic in (self.names or ())


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of `read` and `readStream`."""

    topics: Topics
    start: Bound
    end: Bound
    kafka: dict[str, str]
    group_id: str | None = None
    latest_when_too_young: bool = False
    """startingOffsetsByTimestampStrategy=latest: a time after the last record means the end."""
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: Millis = 15 * 60_000
    min_partitions: int | None = None
    max_records: int | None = None
    include_headers: bool = False
    poll_timeout_ms: Millis = 120_000
    partitions_ttl_ms: Millis = 1000
    """How long a stream may use known topics and partitions before it looks for new ones."""

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """The options of a batch or a streaming query."""
        options = Given(given, _READ_NAMES)
        options.reject(_BATCH_ONLY if streaming else (), "does not work with readStream: a stream has no end")
        options.reject(_STREAM_ONLY if not streaming else (), "requires readStream: a batch query reads everything")
        kafka = options.kafka(ConsumerConfig, AdminConfig)
        read = cls(
            topics=_topics(options),
            start=_bound(options, "starting", default=LATEST if streaming else EARLIEST),
            end=_bound(options, "ending", default=LATEST),
            kafka=kafka,
            group_id=_group_id(options, kafka),
            latest_when_too_young=options.choice("startingOffsetsByTimestampStrategy", "error", "latest") == "latest",
            fail_on_data_loss=options.boolean("failOnDataLoss", True),
            max_offsets=options.positive("maxOffsetsPerTrigger"),
            min_offsets=options.positive("minOffsetsPerTrigger"),
            max_delay_ms=options.duration("maxTriggerDelay", 15 * 60_000),
            min_partitions=options.positive("minPartitions"),
            max_records=options.positive("maxRecordsPerPartition"),
            include_headers=options.boolean("includeHeaders", False),
            poll_timeout_ms=options.positive("kafkaConsumer.pollTimeoutMs") or 120_000,
            partitions_ttl_ms=_ttl(options, 1000),
        )
        return read._checked(streaming)

    def _checked(self, streaming: bool) -> ReadOptions:
        if not streaming:
            _reject_latest(self.start)
        if self.start.word == COMMITTED and self.group_id is None:
            raise OptionError("startingOffsets=committed requires group.id")
        if self.min_offsets and self.max_offsets and self.min_offsets > self.max_offsets:
            raise OptionError(
                f"minOffsetsPerTrigger ({self.min_offsets}) is larger than maxOffsetsPerTrigger ({self.max_offsets})"
            )
        ConsumerConfig.given(self.consumer_config(), {})
        return self

    def consumer_config(self) -> dict[str, str]:
        """The config of a consumer without a group that reads a range of offsets.

        The records exist, so fetches need not wait; batches of columns should be large.
        """
        known = rows(ConsumerConfig)
        given = {name: value for name, value in self.kafka.items() if name in known and not name.startswith("group.")}
        defaults = {
            "fetch.max.wait.ms": "20",
            "max.partition.fetch.bytes": str(2 * 1024 * 1024),
            "client.id": "ottla-spark",
        }
        fixed = {"auto.offset.reset": "none", "allow.auto.create.topics": "false"}
        return {**defaults, **given, **fixed}

    def admin_config(self) -> dict[str, str]:
        known = rows(AdminConfig)
        return {"client.id": "ottla-spark", **{name: text for name, text in self.kafka.items() if name in known}}

    @property
    def isolation_level(self) -> str:
        return self.kafka.get("isolation.level", "read_uncommitted")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of `write` and `writeStream`."""

    kafka: dict[str, str]
    topic: str | None = None
    exactly_once: bool = False
    id_prefix: str = ID_PREFIX
    """The prefix of transactional ids and of the ledger's group."""
    txn_app_id: str | None = None
    txn_version: int | None = None
    txn_run_id: str | None = None
    """The run of the application; without it, every job is a run."""

    @classmethod
    def of(cls, given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
        options = Given(given, _WRITE_NAMES)
        exactly_once = options.choice("deliver", AT_LEAST_ONCE, EXACTLY_ONCE) == EXACTLY_ONCE
        options.reject(_TXN if streaming else (), "requires write: a stream tracks its batches itself")
        options.reject(() if exactly_once else (*_TXN, _ID_PREFIX), "requires deliver=exactly-once")
        kafka = options.kafka(ProducerConfig)
        write = cls(
            kafka=kafka,
            topic=options.filled("topic", "name the topic, or remove the option and add a topic column"),
            exactly_once=exactly_once,
            id_prefix=options.filled(_ID_PREFIX, "set it, or remove the option") or ID_PREFIX,
            txn_app_id=options.filled("txnAppId", "name the application"),
            txn_version=options.number("txnVersion"),
            txn_run_id=options.filled("txnRunId", "set it, or remove the option"),
        )
        return write._checked()

    def _checked(self) -> WriteOptions:
        if (self.txn_app_id is None) != (self.txn_version is None):
            raise OptionError("txnAppId and txnVersion must be set together")
        if self.txn_run_id is not None and self.txn_app_id is None:
            raise OptionError("txnRunId requires txnAppId and txnVersion")
        if self.txn_version is not None and self.txn_version < 0:
            raise OptionError(f"option txnVersion must be at least 0, not {self.txn_version}")
        ProducerConfig.given(self.producer_config(), {})
        return self

    def producer_config(self) -> dict[str, str]:
        """Transactions stay open from the first row to the end of the batch, even if the driver restarts."""
        own = {"client.id": "ottla-spark"}
        if not self.exactly_once:
            return {**own, **self.kafka}
        own["transaction.timeout.ms"] = str(15 * 60_000)
        return {**own, **self.kafka, "transactional.id": self.id_prefix}


# ── Parsing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _topics(options: Given) -> Topics:
    given = [name for name in _WHAT if options.text(name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are set" if given else "none is set"
        raise OptionError(f"set exactly one of subscribe, subscribePattern and assign: {found}")
    text = options.text(given[0]) or ""
    if given[0] == "assign":
        return Topics(partitions=_assigned(options.json("assign")))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"option subscribePattern is not a valid regular expression: {text!r} ({error})"
            ) from None
        if not text:
            raise OptionError("option subscribePattern is empty: set a regular expression, such as orders-.*")
        return Topics(pattern=text)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise OptionError("option subscribe is empty: name topics, separated by commas")
    return Topics(names=names)


def _assigned(found: Any) -> tuple[TopicPartition, ...]:
    if not isinstance(found, dict) or not found:
        raise OptionError(f"option assign names no partitions. {EXAMPLES['assign']}")
    partitions = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise OptionError(f"option assign requires a list of partitions for topic {topic}. {EXAMPLES['assign']}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    return tuple(sorted(set(partitions)))


def _bound(options: Given, which: str, *, default: str) -> Bound:
    """As in Spark's source, a global time overrides times by partition, which override offsets."""
    timestamp = options.number(f"{which}Timestamp")
    if timestamp is not None:
        if timestamp < 0:
            raise OptionError(f"option {which}Timestamp must be epoch milliseconds, not negative")
        return Bound(timestamp=timestamp)
    name = f"{which}OffsetsByTimestamp"
    if options.text(name) is not None:
        return Bound(timestamps=_by_partition(name, options.json(name), lowest=0))
    name = f"{which}Offsets"
    text = options.text(name)
    words = (EARLIEST, LATEST, COMMITTED) if which == "starting" else (LATEST,)
    if text is None or text.lower() in words:
        return Bound(word=default if text is None else text.lower())
    if text.lower() == EARLIEST:
        raise OptionError("option endingOffsets must not be earliest: nothing would be read")
    lowest = EARLIEST_NUMBER if which == "starting" else LATEST_NUMBER
    return Bound(offsets=_by_partition(name, options.json(name), lowest=lowest))


def _reject_latest(start: Bound) -> None:
    """As in Spark's source: a batch query that starts at the end reads nothing."""
    if start.word == LATEST or (start.offsets is not None and LATEST_NUMBER in start.offsets.values()):
        raise OptionError(
            "startingOffsets of a batch query must not be latest (-1): nothing would be read. Use earliest (-2), an "
            "offset or startingTimestamp"
        )


def _by_partition(name: str, found: Any, *, lowest: int) -> dict[TopicPartition, int]:
    if not isinstance(found, dict) or not found:
        raise OptionError(f"option {name} names no partitions. {EXAMPLES[name]}")
    numbers: dict[TopicPartition, int] = {}
    for topic, values in found.items():
        if not isinstance(values, dict):
            raise OptionError(f"option {name} has no partitions for topic {topic}. {EXAMPLES[name]}")
        for partition, value in values.items():
            if not partition.isdecimal() or type(value) is not int or value < lowest:
                raise OptionError(
                    f"option {name} has an invalid value for topic {topic}: {partition!r}: {value!r}. {EXAMPLES[name]}"
                )
            numbers[TopicPartition(topic, int(partition))] = value
    return numbers


def _ttl(options: Given, default: Millis) -> Millis:
    """-1, which is Spark's default, looks every time there; an idle query here asks every few milliseconds."""
    name = "partition.metadata.cache.ttl.ms"
    return default if options.number(name) == -1 else options.positive(name) or default


def _group_id(options: Given, kafka: Mapping[str, str]) -> str | None:
    ours, theirs = options.text("group.id"), kafka.get("group.id")
    if ours is not None and theirs is not None and ours != theirs:
        raise OptionError(f"group.id ({ours}) and kafka.group.id ({theirs}) are the same option: remove one")
    group_id = ours if ours is not None else theirs
    if group_id == "":
        raise OptionError("group.id is empty: name the group, or remove the option")
    return group_id
