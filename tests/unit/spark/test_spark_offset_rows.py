"""Records of `__consumer_offsets` as rows, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.assignors.base import Assignment, Subscription
from ottla.assignors.embedded import encode_assignment, encode_subscription
from ottla.coordinator import records as r
from ottla.coordinator.serde import encode
from ottla.spark.offset_history.rows import COLUMNS, rows_of

TOPIC_ID = UUID(int=7)


def rows(key: Any, value: Any) -> list[dict[str, Any]]:
    """The non-null columns of a record's rows, without its position."""
    found = list(
        rows_of(*encode(r.CoordinatorRecord(key, value)), time=5, partition=3, offset=9, names={TOPIC_ID: "orders"})
    )
    for row in found:
        assert list(row) == [name for name, _ in COLUMNS]
        assert (row["time"], row["log_partition"], row["log_offset"]) == (5, 3, 9)
    said = ("time", "log_partition", "log_offset")
    return [{name: value for name, value in row.items() if value is not None and name not in said} for row in found]


def test_a_commit_and_its_end() -> None:
    key = r.OffsetCommitKey("g", "orders", 1)
    head = {"kind": "commit", "type": "offset_commit", "group_id": "g", "topic": "orders", "partition": 1}
    value = r.OffsetCommitValue(42, leader_epoch=3, metadata="m", commit_timestamp=17)
    told = {"deleted": False, "offset": 42, "leader_epoch": 3, "metadata": "m", "committed_at": 17_000}
    assert rows(key, value) == [head | told]
    assert rows(key, None) == [head | {"deleted": True}]


def test_a_classic_group_gives_a_row_of_its_own_and_one_a_member() -> None:
    subscription = encode_subscription(Subscription(("orders",)))
    assignment = encode_assignment(Assignment({"orders": [2, 0]}))
    member = r.MemberMetadata("m-1", None, "reader", "/host", 1, 2, subscription, assignment)
    strange = r.MemberMetadata("m-2", "static", "other", "/host", 1, 2, b"\xff", b"\xff")
    group, first, second = rows(
        r.GroupMetadataKey("g"), r.GroupMetadataValue("consumer", 4, "range", "m-1", 0, (member, strange))
    )
    assert group["kind"] == "group"
    assert (group["generation"], group["protocol"], group["members"], group["state"]) == (4, "range", 2, "stable")
    assert (first["kind"], first["generation"], first["subscribed"]) == ("member", 4, ["orders"])
    assert first["assigned"] == [{"topic": "orders", "topic_id": None, "partitions": [0, 2]}]
    assert (second["instance_id"], second["subscribed"], second["assigned"]) == ("static", [], [])


def test_members_of_the_new_protocol_are_named_by_topic_ids() -> None:
    parts = (r.TopicPartitions(TOPIC_ID, (1, 0)), r.TopicPartitions(UUID(int=8), (5,)))
    key = r.ConsumerGroupCurrentMemberAssignmentKey("g", "m")
    (row,) = rows(key, r.ConsumerGroupCurrentMemberAssignmentValue(6, 5, 0, parts))
    assert (row["generation"], row["state"], row["member_id"]) == (6, "stable", "m")
    assert row["assigned"] == [
        {"topic": "orders", "topic_id": str(TOPIC_ID), "partitions": [0, 1]},
        {"topic": None, "topic_id": str(UUID(int=8)), "partitions": [5]},
    ]
    (epoch,) = rows(r.ConsumerGroupMetadataKey("g"), r.ConsumerGroupMetadataValue(6))
    assert (epoch["kind"], epoch["generation"]) == ("group", 6)


def test_a_rebalance_has_its_reasons() -> None:
    who = r.Who("m", None, "reader", "/host")
    triggers = (r.Trigger("member joined", 1, who, "asked to"), r.Trigger("partitions added", 2))
    value = r.HistoryValue(0, -1, "stable", "range", 10, 11, 12, 2, "m", triggers, 0, (), 3, 1, ())
    (row,) = rows(r.HistoryKey("g", 0), value)
    assert row["reasons"] == ["member joined: reader (asked to)", "partitions added"]
    assert (row["started_at"], row["ended_at"], row["partitions_moved"]) == (10_000, 12_000, 1)
    assert "generation" not in row
    assert rows(r.HistoryKey("g", 0), replace(value, outcome="under way")) == []


def test_what_cannot_be_read_is_a_row_and_what_is_not_known_is_none() -> None:
    (row,) = rows_of(b"\x00", None, time=5, partition=0, offset=1, names={})
    assert row["kind"] == "problem"
    assert "cannot hold its version" in row["problem"]
    assert list(rows_of(b"\x7f\x7f", b"", time=5, partition=0, offset=1, names={})) == []
