"""The contents of commits, what their responses mean, and when automatic ones are due."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.consuming.consuming_values import T0, T1

from ottla import errors
from ottla.consuming.commits import AutoCommit, Verdict, commit_message, read_commit, verdict
from ottla.consuming.errors import commit_failed
from ottla.consuming.membership import Identity
from ottla.consuming.values import OffsetAndMetadata


def response(*codes: int) -> Any:
    partitions = [SimpleNamespace(partition_index=number, error_code=code) for number, code in enumerate(codes)]
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=partitions)])


def test_the_message_has_offsets_epochs_and_the_member() -> None:
    offsets = {T0: OffsetAndMetadata(5, "note", 3), T1: OffsetAndMetadata(6)}
    message = commit_message("g", Identity(4, "m", "i"), offsets)
    assert (message["group_id"], message["generation_id_or_member_epoch"], message["member_id"]) == ("g", 4, "m")
    assert message["group_instance_id"] == "i"
    (topic,) = message["topics"]
    assert topic["partitions"] == [
        {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 3, "committed_metadata": "note"},
        {"partition_index": 1, "committed_offset": 6, "committed_leader_epoch": -1, "committed_metadata": ""},
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.CoordinatorLoadInProgress, Verdict.RETRY),
        (errors.NotCoordinator, Verdict.RETRY),
        (errors.RequestTimedOut, Verdict.RETRY),
        (errors.IllegalGeneration, Verdict.TOO_LATE),
        (errors.UnknownMemberId, Verdict.TOO_LATE),
        (errors.RebalanceInProgress, Verdict.TOO_LATE),
        (errors.FencedMemberEpoch, Verdict.TOO_LATE),
        (errors.StaleMemberEpoch, Verdict.RENEW),
        (errors.OffsetMetadataTooLarge, Verdict.FATAL),
        (errors.GroupAuthorizationFailed, Verdict.FATAL),
        (errors.UnknownTopicOrPartition, Verdict.FATAL),
        (errors.FencedInstanceId, Verdict.FATAL),
    ],
)
def test_what_an_error_means(error: type[errors.KafkaError], expected: Verdict) -> None:
    assert verdict(error()) is expected


def test_the_worst_partition_decides_and_is_named() -> None:
    assert read_commit(response(0, 0)) is None
    found = read_commit(response(0, errors.NotCoordinator.code, errors.IllegalGeneration.code))
    assert isinstance(found, errors.IllegalGeneration)
    assert "t-2" in str(found)


def test_automatic_commits_come_at_their_interval() -> None:
    auto = AutoCommit(5_000)
    assert not auto.due(now=1_000), "the first poll has nothing to commit"
    assert not auto.is_due(now=5_999)
    assert auto.due(now=6_000)
    assert not auto.due(now=6_001)
    auto.again_after(100, now=6_001)
    assert auto.due(now=6_101)


def test_a_commit_that_is_too_late_names_the_gap_and_the_settings() -> None:
    late = str(commit_failed("X", gap=301_000, max_poll_interval_ms=300_000, max_poll_records=500))
    assert "301 s" in late
    assert "max.poll.interval.ms (300000)" in late
    assert "max.poll.records (500)" in late
    other = str(commit_failed("X", gap=20, max_poll_interval_ms=300_000, max_poll_records=500))
    assert "the group has rebalanced" in other
    assert "on_partitions_revoked" in other
