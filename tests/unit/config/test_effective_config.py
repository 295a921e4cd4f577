"""The configuration of a topic from its overrides and the broker's names."""

import pytest

from ottla.config import BrokerConfig, TopicConfig, check_topic_overrides, effective_topic_config
from ottla.config.effective import BROKER_NAMES
from ottla.config.table import rows
from ottla.errors import ConfigError

HOUR = 3_600_000


def effective(broker: dict[str, object], overrides: dict[str, str] | None = None) -> TopicConfig:
    return effective_topic_config(BrokerConfig.parse(broker), overrides or {})


def test_defaults_of_the_broker_are_the_defaults_of_the_topic() -> None:
    assert effective({}) == TopicConfig()


def test_every_default_of_the_broker_has_a_name_of_topics() -> None:
    of_topics = {key.name for key in rows(BrokerConfig).values() if key.doc.startswith("Default of a topic's")}
    assert of_topics == {each.name for group in BROKER_NAMES.values() for each in group}
    assert set(BROKER_NAMES) <= set(rows(TopicConfig))


def test_broker_default_and_own_setting() -> None:
    broker: dict[str, object] = {"message.max.bytes": "500", "log.cleanup.policy": "compact"}
    assert effective(broker).max_message_bytes == 500
    assert effective(broker).cleanup_policy == {"compact"}
    assert effective(broker, {"max.message.bytes": "7"}).max_message_bytes == 7


@pytest.mark.parametrize(
    ("broker", "retention"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "2", "log.retention.ms": "-1"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_names_of_the_broker(broker: dict[str, object], retention: int) -> None:
    assert effective(broker).retention_ms == retention


def test_roll_names_of_the_broker() -> None:
    assert effective({"log.roll.hours": "2"}).segment_ms == 2 * HOUR
    assert effective({"log.roll.hours": "2", "log.roll.ms": "9"}).segment_ms == 9
    assert effective({"log.roll.jitter.hours": "2"}).segment_jitter_ms == 2 * HOUR
    assert effective({"log.roll.jitter.hours": "2", "log.roll.jitter.ms": "9"}).segment_jitter_ms == 9


def test_flush_names_of_the_broker() -> None:
    assert effective({"log.flush.scheduler.interval.ms": "50"}).flush_ms == 50
    assert effective({"log.flush.scheduler.interval.ms": "50", "log.flush.interval.ms": "9"}).flush_ms == 9


def test_own_setting_must_fit_the_default_of_the_broker() -> None:
    broker = BrokerConfig.parse({"log.cleaner.min.compaction.lag.ms": "1000"})
    check_topic_overrides({"max.compaction.lag.ms": "500"})
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(1000\)"):
        check_topic_overrides({"max.compaction.lag.ms": "500"}, broker)


def test_new_default_of_the_broker_leaves_topics_usable() -> None:
    broker: dict[str, object] = {"log.cleaner.min.compaction.lag.ms": "1000"}
    assert effective(broker, {"max.compaction.lag.ms": "500"}).max_compaction_lag_ms == 500


def test_small_segments_for_tests() -> None:
    assert effective({}, {"internal.segment.bytes": "100"}).segment_bytes == 100


def test_bad_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes"):
        check_topic_overrides({"segment.bytes": "1"})
    with pytest.raises(ConfigError, match=r"segment\.byts"):
        check_topic_overrides({"segment.byts": "1"})
