"""The configuration table of a topic. It has every name of Kafka 4, with Kafka's defaults and ranges.

To add a name, add a field. The reference page and DescribeConfigs are derived from the table. effective.py maps broker
names to the defaults of topics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ottla.config.fields import (
    LONG_MAX,
    Check,
    at_least,
    between,
    boolean,
    double,
    each_of,
    int32,
    int64,
    listing,
    one_of,
    string,
)
from ottla.config.table import parsed, rows
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVEL = Check("between 1 and 9, or -1", lambda level: 1 <= level <= 9 or level == -1)
LZ4_LEVEL = between(1, 17)
ZSTD_LEVEL = between(-131072, 22)
TIMESTAMP_TYPE = one_of("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = each_of("compact", "delete")
_REPLICA = re.compile(r"[0-9]+:[0-9]+")
THROTTLED_REPLICAS = Check(
    "* or a list of partition:broker, such as 0:1,1:1",
    lambda items: items == ("*",) or all(_REPLICA.fullmatch(item) for item in items),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The typed configuration of one topic. `parse` reads one from names and texts.

    >>> TopicConfig.parse({"cleanup.policy": "compact,delete"}).cleanup_policy == {"compact", "delete"}
    True
    """

    what: ClassVar[str] = "topic configuration"

    cleanup_policy: frozenset[str] = listing(
        frozenset({"delete"}),
        "What happens to old data. delete removes segments past retention. compact keeps the last value of each key. "
        "Both can be combined. An empty list keeps everything.",
        CLEANUP_POLICIES,
        collect=frozenset,
    )
    compression_gzip_level: int = int32(
        -1,
        "The gzip level when compression.type is gzip. -1 is gzip's default.",
        GZIP_LEVEL,
    )
    compression_lz4_level: int = int32(9, "The lz4 level when compression.type is lz4.", LZ4_LEVEL)
    compression_type: str = string(
        "producer",
        "The compression of batches on disk. producer keeps them as sent. With any other value the broker recompresses "
        "batches that differ.",
        one_of(*COMPRESSION_TYPES),
    )
    compression_zstd_level: int = int32(3, "The zstd level when compression.type is zstd.", ZSTD_LEVEL)
    delete_retention_ms: int = int64(
        86_400_000,
        "How long a tombstone stays readable in a compacted topic. A reader that starts at the beginning must finish "
        "within this time to see every deletion.",
        at_least(0),
    )
    file_delete_delay_ms: int = int64(
        60_000,
        "How long a removed segment stays on disk, renamed, before it is deleted.",
        at_least(0),
    )
    flush_messages: int = int64(
        LONG_MAX,
        "Call fsync after this many records. With 1, every batch is on disk before it is acknowledged. By default the "
        "operating system decides.",
        at_least(1),
    )
    flush_ms: int = int64(
        LONG_MAX,
        "Call fsync at the latest after this time. With 0, every batch is on disk before it is acknowledged. By "
        "default the operating system decides.",
        at_least(0),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = listing(
        (), "The follower replicas with throttled replication.", THROTTLED_REPLICAS
    )
    index_interval_bytes: int = int32(
        4096,
        "The bytes of records between two entries of the offset index. A smaller value makes lookups faster and the "
        "index larger.",
        at_least(0),
    )
    internal_segment_bytes: int | None = int32(
        None, "Replaces segment.bytes without its lower bound.", at_least(1), internal=True
    )
    leader_replication_throttled_replicas: tuple[str, ...] = listing(
        (), "The leader replicas with throttled replication.", THROTTLED_REPLICAS
    )
    local_retention_bytes: int = int64(
        -2,
        "The bytes that stay on the broker after the copy to remote storage. -2 means retention.bytes.",
        at_least(-2),
    )
    local_retention_ms: int = int64(
        -2,
        "How long data stays on the broker after the copy to remote storage. -2 means retention.ms.",
        at_least(-2),
    )
    max_compaction_lag_ms: int = int64(
        LONG_MAX, "The longest that a record stays uncompacted in a compacted topic.", at_least(1)
    )
    max_message_bytes: int = int32(
        1_048_588,
        "The size limit of a record batch, after compression, including its header.",
        at_least(0),
    )
    message_timestamp_after_max_ms: int = int64(
        3_600_000,
        "How far a record's timestamp may be ahead of the broker's clock. Not checked with LogAppendTime.",
        at_least(0),
    )
    message_timestamp_before_max_ms: int = int64(
        LONG_MAX,
        "How far a record's timestamp may be behind the broker's clock. Not checked with LogAppendTime.",
        at_least(0),
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "The source of a record's timestamp: the producer (CreateTime) or the broker at the append (LogAppendTime).",
        TIMESTAMP_TYPE,
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Compact a log when this share of it is uncompacted. A smaller value saves space and costs work.",
        between(0, 1),
    )
    min_compaction_lag_ms: int = int64(
        0, "How long a record of a compacted topic is safe from compaction.", at_least(0)
    )
    min_insync_replicas: int = int32(
        1,
        "With acks=all, reject a write while fewer replicas than this are in sync. With a value above the number of "
        "replicas every such write fails.",
        at_least(1),
    )
    preallocate: bool = boolean(False, "Accepted but without effect: files grow as they are written.")
    remote_log_copy_disable: bool = boolean(False, "Stop copying to remote storage.")
    remote_log_delete_on_disable: bool = boolean(
        False, "Delete the data in remote storage when remote storage is turned off."
    )
    remote_storage_enable: bool = boolean(
        False, "Copy segments to remote storage. This broker has none and rejects true."
    )
    retention_bytes: int = int64(
        -1, "Delete the oldest segments of a partition while the others have at least this size. -1 means no limit."
    )
    retention_ms: int = int64(
        604_800_000,
        "Delete segments whose newest record is older than this. -1 means no limit.",
        at_least(-1),
    )
    segment_bytes: int = int32(
        1_073_741_824,
        "Start a new segment before the current one exceeds this size.",
        at_least(1_048_576),
    )
    segment_index_bytes: int = int32(10_485_760, "The size limit of an index file.", at_least(4))
    segment_jitter_ms: int = int64(
        0,
        "Shorten segment.ms by a random time up to this, so that segments do not all roll at once.",
        at_least(0),
    )
    segment_ms: int = int64(
        604_800_000,
        "Start a new segment after this time even if the current one is not full. Compaction skips the current "
        "segment. Retention does not: it replaces one that is due by an empty one.",
        at_least(1),
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Allow an out-of-sync replica to become leader as a last resort, which loses data.",
    )

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read names and values, and check that they fit together."""
        return cls.of(parsed(cls, values)).checked()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the configuration with these attributes, unchecked."""
        small = values.get("internal_segment_bytes")
        return cls(**values) if small is None else cls(**{**values, "segment_bytes": small})

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def suggestion(cls, name: str) -> str:
        """Suggest the topic's name for the broker's: ``retention.ms`` for ``log.retention.ms``."""
        short = name.removeprefix("log.")
        return f" Did you mean {short}?" if short in rows(cls) else did_you_mean(name, rows(cls))

    def checked(self) -> Self:
        """Return this configuration. Raise ConfigError if its values do not fit together."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) must not be greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})."
            )
        if self.remote_storage_enable:
            raise ConfigError("remote.storage.enable must be false, because this broker has no remote storage.")
        return self
