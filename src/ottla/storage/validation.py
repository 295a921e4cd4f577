"""Check batches before they are appended, and recompress them if the topic requires it.

The header and the CRC are enough for most checks. A batch is decompressed only on a compacted topic (every record needs
a key), with a limit on old timestamps, and if the topic requires another compression than the producer used.
"""

from __future__ import annotations

import random
from typing import NoReturn

from ottla.config import TopicConfig
from ottla.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
)
from ottla.records import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Compression,
    CorruptBatch,
    check_batch,
    decode_batch,
    decode_keys,
    encode_batch,
    read_header,
    scan,
    summarize,
)
from ottla.types import Millis, TopicPartition

_NO_LIMIT = 2**63 - 1
#: One byte each: length, attributes, two deltas, the lengths of key and value, the number of headers.
_SMALLEST_RECORD = 7

_CODECS = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


class RecordErrors(InvalidRecord):
    """A batch was rejected because of some records: (index in the batch, what is wrong)."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class AppendRules:
    """The settings of a topic that matter for appends."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "compacted",
        "config",
        "flush_always",
        "flush_messages",
        "index_interval",
        "level",
        "log_append_time",
        "max_index_size",
        "max_message_bytes",
        "needs_records",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.max_index_size = config.segment_index_bytes
        self.index_interval = config.index_interval_bytes
        self.compacted = config.is_compacted
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.needs_records = self.compacted or (self.before_max_ms != _NO_LIMIT and not self.log_append_time)
        """Whether each record has to be checked."""
        self.codec = _CODECS[config.compression_type]
        self.level = _level(config)
        self.flush_messages = config.flush_messages
        self.flush_always = config.flush_ms == 0
        self.segment_ms = _segment_ms(config)


def _level(config: TopicConfig) -> int | None:
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    level = levels.get(config.compression_type)
    return None if level == -1 and config.compression_type == "gzip" else level


def _segment_ms(config: TopicConfig) -> int:
    """Compaction needs segments within max.compaction.lag.ms; the jitter keeps partitions from rolling together."""
    limit = config.segment_ms
    if config.is_compacted:
        limit = min(limit, config.max_compaction_lag_ms)
    jitter = min(config.segment_jitter_ms, limit)
    return limit - random.randrange(jitter) if jitter else limit


def checked_batch(
    records: memoryview, rules: AppendRules, topic_partition: TopicPartition, *, now: Millis
) -> tuple[memoryview, BatchHeader]:
    """The batch of a client's append as it will be written; a Kafka error says what is wrong with it."""
    try:
        header = read_header(records)
    except CorruptBatch as problem:
        _refuse_bytes(records, problem, topic_partition)
    size = header.batch_length + 12
    if header.magic == MAGIC:
        if size > rules.max_message_bytes:
            raise _too_large(size, rules, topic_partition)
        if BATCH_OVERHEAD <= size < len(records):
            raise InvalidRecord(
                f"{len(records) - size} bytes follow the first batch in an append to {topic_partition}; a request may "
                "have only one batch per partition"
            )
    try:
        check_batch(records, 0, header)
    except CorruptBatch as problem:
        _refuse_bytes(records, problem, topic_partition)
    _check_header(header, topic_partition)
    if header.max_timestamp > now + rules.after_max_ms and not rules.log_append_time:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} in an append to {topic_partition} is more than "
            f"message.timestamp.after.max.ms ({rules.after_max_ms}) after the broker's time {now}"
        )
    if rules.needs_records:
        _check_records(records, header, rules, topic_partition, now)
    if rules.codec is not None and rules.codec != header.attributes & COMPRESSION_MASK:
        return _recompressed(records, header, rules, topic_partition)
    return records, header


def _refuse_bytes(records: memoryview, problem: CorruptBatch, topic_partition: TopicPartition) -> NoReturn:
    if not len(records):
        raise InvalidRecord(f"an append to {topic_partition} has no batch")
    magic = records[MAGIC_AT] if len(records) > MAGIC_AT else MAGIC
    if magic in (0, 1):
        raise InvalidRecord(
            f"message format {magic} in an append to {topic_partition} is not supported, only {MAGIC} is: use a "
            "client for Kafka 0.11 or later"
        )
    # As in Kafka, only a wrong CRC is a CorruptMessage: the network may have caused it, so clients retry.
    error = CorruptMessage if problem.reason.startswith("crc") or magic > MAGIC else InvalidRecord
    raise error(f"the batch in an append to {topic_partition} is corrupt: {problem.reason}")


def _too_large(size: int, rules: AppendRules, topic_partition: TopicPartition) -> MessageTooLarge:
    return MessageTooLarge(
        f"the batch in an append to {topic_partition} has {size} bytes, but max.message.bytes is "
        f"{rules.max_message_bytes}"
    )


def _check_header(header: BatchHeader, topic_partition: TopicPartition) -> None:
    attributes, count = header.attributes, header.record_count
    if header.base_offset:
        problem = f"has base offset {header.base_offset}, but a producer must send 0"
    elif attributes & CONTROL:
        problem = "is a control batch, which clients must not write"
    elif count <= 0 or count != header.last_offset_delta + 1:
        problem = f"claims {count} records, but its last offset delta is {header.last_offset_delta}"
    elif not attributes & COMPRESSION_MASK and header.size < BATCH_OVERHEAD + count * _SMALLEST_RECORD:
        problem = f"claims {count} records, which do not fit into its {header.size} bytes"
    elif attributes & COMPRESSION_MASK > Compression.ZSTD:
        problem = f"has the unknown compression {attributes & COMPRESSION_MASK}"
    elif attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp(
            f"the batch in an append to {topic_partition} has the timestamp type LogAppendTime, which only the "
            "broker may set"
        )
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = f"of producer {header.producer_id} has no sequence number or no epoch"
    else:
        return
    raise InvalidRecord(f"the batch in an append to {topic_partition} {problem}")


def _check_records(
    records: memoryview, header: BatchHeader, rules: AppendRules, topic_partition: TopicPartition, now: Millis
) -> None:
    try:
        summary = summarize(records)
    except CorruptBatch as problem:
        raise InvalidRecord(f"cannot read the records in an append to {topic_partition}: {problem.reason}") from problem
    if rules.compacted and summary.keyless:
        raise RecordErrors(
            f"{summary.keyless} of {header.record_count} records in an append to the compacted {topic_partition} have "
            "no key",
            [
                (number, "a record of a compacted topic needs a key")
                for number, (_, _, key, _) in enumerate(decode_keys(records))
                if key is None
            ],
        )
    too_old = 0 <= summary.min_timestamp < now - rules.before_max_ms
    if too_old and not rules.log_append_time:
        raise InvalidTimestamp(
            f"timestamp {summary.min_timestamp} in an append to {topic_partition} is more than "
            f"message.timestamp.before.max.ms ({rules.before_max_ms}) before the broker's time {now}"
        )


def _recompressed(
    records: memoryview, header: BatchHeader, rules: AppendRules, topic_partition: TopicPartition
) -> tuple[memoryview, BatchHeader]:
    """The same records in the topic's compression."""
    assert rules.codec is not None
    try:
        decoded = decode_batch(records)
    except CorruptBatch as problem:
        raise InvalidRecord(f"cannot read the records in an append to {topic_partition}: {problem.reason}") from problem
    data = bytearray(
        encode_batch(
            decoded,
            base_offset=0,
            last_offset=header.last_offset_delta,
            compression=rules.codec,
            level=rules.level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )
    if len(data) > rules.max_message_bytes:
        raise _too_large(len(data), rules, topic_partition)
    return memoryview(data), read_header(data)


def split_batches(records: memoryview, topic_partition: TopicPartition) -> list[tuple[int, BatchHeader]]:
    """The checked batches of an append by the broker itself."""
    found = scan(records, 0, len(records))
    if found.end != len(records) or not found.batches:
        raise CorruptMessage(
            f"an append to {topic_partition} is corrupt at byte {found.end}: {found.problem or 'it is incomplete'}"
        )
    return list(found.batches)
