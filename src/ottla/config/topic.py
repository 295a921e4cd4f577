"""The configuration of a topic: every name that Kafka 4 has, with Kafka's defaults and ranges.

Add a name by adding a field; the documentation and DescribeConfigs follow from the table. Names of the broker
that set the default of a topic's name are in effective.py.
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
from ottla.config.table import ConfigTable
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
class TopicConfig(ConfigTable):
    """The configuration of one topic, typed. `TopicConfig.parse` reads one from names and texts.

    >>> TopicConfig.parse({"cleanup.policy": "compact,delete"}).cleanup_policy == {"compact", "delete"}
    True
    """

    what: ClassVar[str] = "topic configuration"

    cleanup_policy: frozenset[str] = listing(
        frozenset({"delete"}),
        "What happens to old data: delete removes whole segments that are past retention, compact keeps the"
        " last value of every key, both together do both. An empty list keeps everything.",
        CLEANUP_POLICIES,
        collect=frozenset,
    )
    compression_gzip_level: int = int32(
        -1,
        "The gzip level the broker uses when compression.type is gzip; -1 is gzip's own default.",
        GZIP_LEVEL,
    )
    compression_lz4_level: int = int32(9, "The lz4 level the broker uses when compression.type is lz4.", LZ4_LEVEL)
    compression_type: str = string(
        "producer",
        "How batches are compressed on disk: producer keeps them as the producer sent them, anything else "
        "makes the broker compress anew the batches that came in another form.",
        one_of(*COMPRESSION_TYPES),
    )
    compression_zstd_level: int = int32(3, "The zstd level the broker uses when compression.type is zstd.", ZSTD_LEVEL)
    delete_retention_ms: int = int64(
        86_400_000,
        "How long a tombstone stays readable in a compacted topic. A reader that starts at the beginning "
        "has to be through within this time to see every deletion.",
        at_least(0),
    )
    file_delete_delay_ms: int = int64(
        60_000,
        "How long a removed segment stays on disk under another name before it is deleted.",
        at_least(0),
    )
    flush_messages: int = int64(
        LONG_MAX,
        "Records are forced to disk (fsync) each time this many have come in. With 1, every batch is on "
        "disk before it is acknowledged. The default leaves it to the operating system.",
        at_least(1),
    )
    flush_ms: int = int64(
        LONG_MAX,
        "Records are forced to disk (fsync) at the latest after this time. With 0, every batch is on disk "
        "before it is acknowledged. The default leaves it to the operating system.",
        at_least(0),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = listing(
        (), "The follower replicas whose replication is throttled.", THROTTLED_REPLICAS
    )
    index_interval_bytes: int = int32(
        4096,
        "How many bytes of records lie between two entries of an offset index. Smaller is a faster look-up "
        "and a larger index.",
        at_least(0),
    )
    internal_segment_bytes: int | None = int32(
        None, "Replaces segment.bytes without its lower bound.", at_least(1), internal=True
    )
    leader_replication_throttled_replicas: tuple[str, ...] = listing(
        (), "The leader replicas whose replication is throttled.", THROTTLED_REPLICAS
    )
    local_retention_bytes: int = int64(
        -2,
        "How many bytes stay on the broker once segments are copied to remote storage; -2 follows retention.bytes.",
        at_least(-2),
    )
    local_retention_ms: int = int64(
        -2,
        "How long data stays on the broker once it is copied to remote storage; -2 follows retention.ms.",
        at_least(-2),
    )
    max_compaction_lag_ms: int = int64(
        LONG_MAX, "A record of a compacted topic waits for compaction no longer than this.", at_least(1)
    )
    max_message_bytes: int = int32(
        1_048_588,
        "The largest record batch that is accepted, counted after compression, with its header.",
        at_least(0),
    )
    message_timestamp_after_max_ms: int = int64(
        3_600_000,
        "How far the timestamp of a record may lie in the future of the broker's clock. Not checked with "
        "LogAppendTime.",
        at_least(0),
    )
    message_timestamp_before_max_ms: int = int64(
        LONG_MAX,
        "How far the timestamp of a record may lie in the past of the broker's clock. Not checked with LogAppendTime.",
        at_least(0),
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whose time a record has: that of the producer (CreateTime) or that of the broker at the append "
        "(LogAppendTime).",
        TIMESTAMP_TYPE,
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "A log is compacted once this share of it has not been compacted yet. Smaller means less space and more work.",
        between(0, 1),
    )
    min_compaction_lag_ms: int = int64(
        0, "A record of a compacted topic is left alone for at least this long.", at_least(0)
    )
    min_insync_replicas: int = int32(
        1,
        "With acks=all a write is refused while fewer replicas than this are in sync. More than the number "
        "of replicas means that no such write succeeds.",
        at_least(1),
    )
    preallocate: bool = boolean(
        False, "Taken for the sake of clients that set it: files grow here as they are written."
    )
    remote_log_copy_disable: bool = boolean(False, "Whether nothing more is copied to remote storage.")
    remote_log_delete_on_disable: bool = boolean(
        False, "Whether data in remote storage is deleted when remote storage is turned off."
    )
    remote_storage_enable: bool = boolean(
        False, "Whether segments are copied to remote storage. There is none here, so true is refused."
    )
    retention_bytes: int = int64(-1, "Old segments are deleted while a partition is larger than this; -1 is no limit.")
    retention_ms: int = int64(
        604_800_000,
        "Segments whose newest record is older than this are deleted; -1 is no limit.",
        at_least(-1),
    )
    segment_bytes: int = int32(
        1_073_741_824,
        "A new segment is started before the current one would pass this size.",
        at_least(1_048_576),
    )
    segment_index_bytes: int = int32(10_485_760, "The largest size of an index file.", at_least(4))
    segment_jitter_ms: int = int64(
        0,
        "Up to this much is taken off segment.ms at random, so that not all segments roll at the same moment.",
        at_least(0),
    )
    segment_ms: int = int64(
        604_800_000,
        "A new segment is started after this time even if the current one is not full, so that retention and "
        "compaction can reach its data.",
        at_least(1),
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a replica that is not in sync may become leader as a last resort, at the price of lost data.",
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The configuration with these attributes, which are not checked."""
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
        """People write the broker's name of a setting: ``log.retention.ms`` for ``retention.ms``."""
        short = name.removeprefix("log.")
        return f" Did you mean {short}?" if short in cls.rows() else did_you_mean(name, cls.rows())

    def checked(self) -> Self:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) must not be greater than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})."
            )
        if self.remote_storage_enable:
            raise ConfigError("remote.storage.enable must be false: this broker has no remote storage.")
        return self
