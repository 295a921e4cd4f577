"""The consumer's table: Kafka's defaults, checked values, rules that involve several names."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config.consumer import ConsumerConfig, parse_duration
from ottla.errors import ConfigError


def given(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.given({"bootstrap.servers": "localhost:9092"}, options)


def test_the_defaults_are_kafkas() -> None:
    config = given()
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.max_poll_interval_ms) == (
        45_000,
        3_000,
        300_000,
    )
    assert (config.max_poll_records, config.auto_offset_reset, config.isolation_level) == (
        500,
        "latest",
        "read_uncommitted",
    )
    assert (config.fetch_min_bytes, config.fetch_max_bytes, config.max_partition_fetch_bytes) == (1, 52428800, 1048576)
    assert config.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert not config.auto_commits, "there is no group to commit to"
    assert given(group_id="g").auto_commits


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auto_offset_reset": "soon"}, "earliest, latest, none, or by_duration"),
        ({"auto_offset_reset": "by_duration:1h"}, "by_duration"),
        ({"group_id": ""}, r"group\.id must not be empty"),
        ({"group_instance_id": "a"}, r"requires group\.id"),
        ({"heartbeat_interval_ms": 45_000}, "lower than session.timeout.ms"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9_000}, "session.timeout.ms cannot be set"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "sticky"}, "group.remote.assignor"),
        ({"group_remote_assignor": "uniform"}, "group.protocol=consumer"),
        ({"group_protocol": "new"}, "one of classic, consumer"),
        ({"partition_assignment_strategy": []}, "at least one assignor"),
        ({"max_poll_records": 0}, "at least 1"),
        ({"grup_id": "g"}, r"Did you mean group\.id\?"),
        ({"isolation_level": "serializable"}, "read_committed"),
        ({"isolation_level": "READ_COMMITTED"}, "read_committed"),
        ({"auto_offset_reset": "EARLIEST"}, "earliest, latest"),
        ({"enable_auto_commit": True}, r"enable\.auto\.commit=true requires group\.id"),
        ({"enable.auto.commit": "true"}, "leave enable.auto.commit out"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        given(**options)


def test_committing_by_itself_is_asked_for_or_left_out() -> None:
    assert given(enable_auto_commit=True, group_id="g").auto_commits
    assert not given(enable_auto_commit=False).auto_commits
    assert not given().auto_commits


def test_the_name_of_a_protocol_may_be_written_in_any_case() -> None:
    assert given(group_protocol="CONSUMER", group_id="g").group_protocol == "consumer"
    assert given(group_protocol="Classic", group_id="g").group_protocol == "classic"


def test_durations() -> None:
    assert given(auto_offset_reset="by_duration:P1DT2H").reset_duration_ms == 26 * 3_600_000
    assert given().reset_duration_ms is None
    assert parse_duration("PT0.5S") == 500
    assert parse_duration("P") is None
    assert parse_duration("PT") is None


def test_java_names_and_own_assignors() -> None:
    from ottla.assignors import RangeAssignor, StickyAssignor
    from ottla.runtime.assignors import client_assignors

    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    found = client_assignors(["roundrobin", java, RangeAssignor, "ottla.assignors.sticky.StickyAssignor"])
    assert [one.name for one in found] == ["roundrobin", "cooperative-sticky", "range", "sticky"]
    assert isinstance(found[3], StickyAssignor)
    for wrong, words in (("rang", "no assignor 'rang'"), (dict, "is not an assignor"), ("a.b.C", "cannot be imported")):
        with pytest.raises(ConfigError, match=words):
            client_assignors([wrong])
    with pytest.raises(ConfigError, match="several assignors have the name range"):
        client_assignors(["range", RangeAssignor()])
