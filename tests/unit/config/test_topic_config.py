"""The table of topics: complete, with Kafka's defaults, and strict about values."""

import contextlib
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import TopicConfig
from ottla.config.fields import ConfigType
from ottla.config.table import rows
from ottla.errors import ConfigError

# Names, types and defaults of Apache Kafka 4.2, as its own LogConfig reports them.
KAFKA = (Path(__file__).parent / "kafka_topic_defaults.txt").read_text().splitlines()


def test_table_is_kafkas() -> None:
    ours = [
        " ".join(filter(None, (key.name, key.type.name, key.format(key.default))))
        for key in rows(TopicConfig).values()
        if not key.internal
    ]
    assert ours == KAFKA


def test_attributes_are_typed() -> None:
    config = TopicConfig.parse(
        {
            "cleanup.policy": " compact , delete ",
            "segment.bytes": " 2097152 ",
            "retention.ms": "+5",
            "preallocate": "TRUE",
            "min.cleanable.dirty.ratio": "1e-1",
            "follower.replication.throttled.replicas": "0:1, 1:1",
        }
    )
    assert config.cleanup_policy == frozenset({"compact", "delete"})
    assert config.segment_bytes == 2_097_152
    assert config.retention_ms == 5
    assert config.preallocate is True
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.follower_replication_throttled_replicas == ("0:1", "1:1")


def test_typed_values_and_underscores_are_as_good() -> None:
    typed = TopicConfig.parse({"segment_bytes": 2_097_152, "cleanup_policy": {"compact"}, "preallocate": True})
    text = TopicConfig.parse({"segment.bytes": "2097152", "cleanup.policy": "compact", "preallocate": "true"})
    assert typed == text


# What Apache Kafka 4.2 itself accepts and refuses, found out by asking its LogConfig.
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact,compact"),
        ("retention.bytes", "-7"),
        ("compression.gzip.level", "-1"),
        ("follower.replication.throttled.replicas", "*"),
        ("segment.jitter.ms", "700000000"),
        ("local.retention.ms", "0"),
    ],
)
def test_accepted(name: str, value: str) -> None:
    TopicConfig.parse({name: value})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("cleanup.policy", "compact,,delete", "empty item"),
        ("cleanup.policy", "Delete", "compact, delete"),
        ("cleanup.policy", 7, "expected a list"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "abc", "whole number"),
        ("retention.ms", "", "whole number"),
        ("retention.ms", "1_000", "whole number"),
        ("retention.ms", "٣", "whole number"),
        ("retention.ms", 1.5, "whole number"),
        ("retention.ms", True, "whole number"),
        ("retention.ms", None, "a value is required"),
        ("segment.bytes", "100", "at least 1048576"),
        ("segment.bytes", "9999999999", "32 bits"),
        ("segment.ms", "99999999999999999999", "64 bits"),
        ("segment.ms", "9" * 5000, "64 bits"),
        ("compression.gzip.level", "0", "between 1 and 9, or -1"),
        ("compression.lz4.level", "18", "between 1 and 17"),
        ("compression.zstd.level", "23", "between -131072 and 22"),
        ("compression.type", "GZIP", "one of uncompressed"),
        ("compression.type", "none", "one of uncompressed"),
        ("compression.type", 4, "expected text"),
        ("min.cleanable.dirty.ratio", "1.5", "between 0 and 1"),
        ("min.cleanable.dirty.ratio", "NaN", "expected a number"),
        ("min.cleanable.dirty.ratio", "1e999", "expected a number"),
        ("preallocate", "yes", "true or false"),
        ("follower.replication.throttled.replicas", "0:1,*", "partition:broker"),
        ("follower.replication.throttled.replicas", "none", "partition:broker"),
        ("max.compaction.lag.ms", "0", "at least 1"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("remote.storage.enable", "true", "no remote storage"),
    ],
)
def test_refused_with_the_name_and_the_reason(name: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig.parse({name: value})
    assert name in str(caught.value)
    assert says in str(caught.value)


def test_lags_must_fit_each_other() -> None:
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(10\).*max.compaction.lag.ms \(5\)"):
        TopicConfig.parse({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("retention.msec", "retention.ms"), ("log.retention.ms", "retention.ms"), ("cleanup_polcy", "cleanup.policy")],
)
def test_unknown_name_suggests_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ConfigError, match=rf"Unknown topic configuration name: {wrong}\. Did you mean {right}\?"):
        TopicConfig.parse({wrong: "1"})


def test_a_far_off_name_suggests_nothing() -> None:
    with pytest.raises(ConfigError, match=r"name: qqqqq\.$"):
        TopicConfig.parse({"qqqqq": "1"})


def test_same_name_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        TopicConfig.parse({"segment.ms": "1", "segment_ms": "2"})


def test_tests_can_have_small_segments() -> None:
    assert TopicConfig.parse({"internal.segment.bytes": "100"}).segment_bytes == 100


def test_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TopicConfig().segment_bytes = 1  # type: ignore[misc]


@given(st.dictionaries(st.sampled_from(sorted(rows(TopicConfig))), st.text() | st.integers() | st.none()))
def test_any_input_parses_or_is_a_config_error(values: dict[str, object]) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(TopicConfig.parse(values), TopicConfig)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back_as_they_were_written(number: int) -> None:
    key = rows(TopicConfig)["retention.bytes"]
    assert key.type is ConfigType.LONG
    assert key.parse(str(number)) == number
    assert key.canonical(f" {number} ") == str(number)
