"""Requests about groups in a cluster whose coordinators move and load, in any version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.clients.fake_cluster import HANG_UP
from tests.unit.clients.group_cluster import FakeGroup, GroupCluster

from ottla.assignors.base import Assignment, Subscription
from ottla.assignors.embedded import encode_assignment, encode_subscription
from ottla.clients.admin.group_offsets import commit_offsets, committed_offsets
from ottla.clients.admin.groups import GroupDescription, delete_groups, describe_groups, list_groups
from ottla.clients.cluster.cluster import Cluster
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    NotCoordinator,
    UnknownMemberId,
    UnsupportedVersion,
)
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)
PASSING = [CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code]


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[tuple[GroupCluster, Cluster]]:
    quick = {"api_timeout_ms": 3_000, "retry_backoff_ms": 5, "retry_backoff_max_ms": 5}
    async with GroupCluster(**options).running() as brokers, Cluster(brokers.bootstrap, **quick) as cluster:
        yield brokers, cluster


def member(topic: str = "t") -> dict[str, Any]:
    return {
        "member_id": "m-1",
        "client_id": "c",
        "client_host": "/h",
        "member_metadata": encode_subscription(Subscription([topic])),
        "member_assignment": encode_assignment(Assignment({topic: [1, 0]})),
    }


def described(group: object) -> GroupDescription:
    assert isinstance(group, GroupDescription)
    return group


async def test_groups_of_all_brokers_are_listed() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"b": FakeGroup(1, "Stable"), "a": FakeGroup(0)}
        assert [(one.group_id, one.state, one.type) for one in await list_groups(cluster)] == [
            ("a", "Empty", "Classic"),
            ("b", "Stable", "Classic"),
        ]
        assert [one.group_id for one in await list_groups(cluster, states=["Stable"])] == ["b"]
        assert [brokers.count(ApiKey.LIST_GROUPS, broker) for broker in (0, 1)] == [2, 2]


async def test_old_brokers_list_without_states_and_reject_filters() -> None:
    async with running(versions={ApiKey.LIST_GROUPS: 3}) as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0)}
        (one,) = await list_groups(cluster)
        assert (one.group_id, one.state, one.type) == ("a", None, None)
        with pytest.raises(UnsupportedVersion, match=r"cannot filter groups by state: that needs Kafka 2\.6"):
            await list_groups(cluster, states=["Empty"])
        with pytest.raises(UnsupportedVersion, match=r"cannot filter groups by type: that needs Kafka 3\.8"):
            await list_groups(cluster, types=["classic"])


async def test_each_group_is_described_by_its_coordinator() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0, "Stable", members=[member()]), "b": FakeGroup(1)}
        found = await describe_groups(cluster, ["a", "b"])
        one = described(found["a"])
        assert (one.state, one.assignor, one.coordinator.id) == ("Stable", "range", 0)
        assert one.members[0].assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
        assert one.members[0].topics == ("t",)
        assert described(found["b"]).coordinator.id == 1


async def test_groups_of_the_consumer_protocol_are_described_with_their_epochs() -> None:
    async with running() as (brokers, cluster):
        partitions = {"topic_partitions": [{"topic_id": None, "topic_name": "t", "partitions": [2, 0]}]}
        one = {
            "member_id": "m-1",
            "member_epoch": 4,
            "client_id": "c",
            "client_host": "/h",
            "subscribed_topic_names": ["t"],
            "assignment": partitions,
            "target_assignment": {"topic_partitions": []},
            "member_type": 0,
        }
        brokers.groups = {"new": FakeGroup(1, "Stable", "Consumer", members=[one]), "old": FakeGroup(0)}
        found = await describe_groups(cluster, ["new", "old"])
        new = described(found["new"])
        assert (new.type, new.epoch, new.assignment_epoch, new.assignor) == ("Consumer", 5, 4, "uniform")
        assert new.members[0].assignment == (TopicPartition("t", 0), TopicPartition("t", 2))
        assert (new.members[0].target, new.members[0].epoch, new.members[0].protocol) == ((), 4, "Classic")
        assert described(found["old"]).type == "Classic"


async def test_a_broker_without_the_consumer_protocol_is_asked_about_classic_groups() -> None:
    async with running(
        versions={ApiKey.CONSUMER_GROUP_DESCRIBE: None, ApiKey.FIND_COORDINATOR: 3, ApiKey.DESCRIBE_GROUPS: 2}
    ) as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(1)}
        found = await describe_groups(cluster, ["a", "missing"])
        assert described(found["a"]).type == "Classic"
        assert isinstance(found["missing"], GroupIdNotFound)


async def test_assignments_of_other_protocols_are_left_alone() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {
            "connect": FakeGroup(0, "Stable", protocol_type="connect", members=[member()]),
            "odd": FakeGroup(0, "Stable", members=[{**member(), "member_assignment": b"\0\0\xff"}]),
        }
        found = await describe_groups(cluster, ["connect", "odd"])
        assert [described(found[name]).members[0].assignment for name in ("connect", "odd")] == [(), ()]


@pytest.mark.parametrize("code", PASSING)
async def test_what_passes_is_tried_again_for_the_groups_that_it_concerns(code: int) -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0, offsets={KEY: 7}), "b": FakeGroup(0, offsets={KEY: 8})}
        brokers.fail(ApiKey.FIND_COORDINATOR, TopicPartition("a", 0), CoordinatorNotAvailable.code)
        brokers.fail(ApiKey.OFFSET_FETCH, TopicPartition("a", 0), code, code)
        found = await committed_offsets(cluster, ["a", "b"])
        assert found == {"a": {KEY: OffsetAndMetadata(7, "m")}, "b": {KEY: OffsetAndMetadata(8, "m")}}
        asked = [[one.group_id for one in body.groups] for body in brokers.bodies[ApiKey.OFFSET_FETCH]]
        assert asked == [["b"], ["a"], ["a"], ["a"]]


async def test_a_coordinator_that_moved_is_found_again() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0)}
        await describe_groups(cluster, ["a"])
        brokers.groups["a"].coordinator = 1
        assert described((await describe_groups(cluster, ["a"]))["a"]).coordinator.id == 1


async def test_a_broken_connection_is_made_again() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(1)}
        brokers.fail(ApiKey.DELETE_GROUPS, None, HANG_UP)
        assert await delete_groups(cluster, ["a"]) == {"a": None}
        assert brokers.groups == {}


async def test_what_does_not_pass_is_the_result_of_its_group() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0), "b": FakeGroup(0)}
        brokers.fail(ApiKey.FIND_COORDINATOR, TopicPartition("a", 0), GroupAuthorizationFailed.code)
        outcomes = await delete_groups(cluster, ["a", "b"])
        assert isinstance(outcomes["a"], GroupAuthorizationFailed)
        assert outcomes["b"] is None


async def test_what_never_passes_is_the_result_after_the_timeout() -> None:
    async with running() as (brokers, cluster):
        cluster.api_timeout_ms = 50
        brokers.groups = {"a": FakeGroup(0)}
        brokers.fail(ApiKey.OFFSET_FETCH, TopicPartition("a", 0), *[CoordinatorLoadInProgress.code] * 100)
        assert isinstance((await committed_offsets(cluster, ["a"]))["a"], CoordinatorLoadInProgress)


@pytest.mark.parametrize("version", [2, 7, 8, 10])
async def test_offsets_are_fetched_in_old_and_new_versions(version: int) -> None:
    async with running(versions={ApiKey.OFFSET_FETCH: version}) as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0, offsets={KEY: 7, TopicPartition("t", 1): -1}), "b": FakeGroup(1)}
        assert await committed_offsets(cluster, ["a", "b"]) == {"a": {KEY: OffsetAndMetadata(7, "m")}, "b": {}}


@pytest.mark.parametrize("code", PASSING)
async def test_a_commit_is_tried_again_when_its_partitions_say_so(code: int) -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(1)}
        brokers.fail(ApiKey.OFFSET_COMMIT, TopicPartition("a", 0), code)
        assert await commit_offsets(cluster, "a", {KEY: 3}) == {KEY: None}
        assert brokers.groups["a"].offsets == {KEY: 3}


async def test_a_commit_to_a_group_with_members_is_rejected() -> None:
    async with running() as (brokers, cluster):
        brokers.groups = {"a": FakeGroup(0, "Stable", members=[member()])}
        errors = await commit_offsets(cluster, "a", {KEY: 3})
        assert isinstance(errors[KEY], UnknownMemberId)
