"""The coordinators of a broker after its start: their responses while they load, and their timers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from compat.waiting import until
from ottla import errors
from ottla.coordinator.coordinator import partition_for
from ottla.coordinator.records import CoordinatorRecord, OffsetCommitKey
from ottla.coordinator.serde import decode
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import DecodeError
from ottla.testing import ManualClock
from unit.broker.wire import Wire

OLD_ENOUGH = 2 * 60_000
LOADING = errors.CoordinatorLoadInProgress.code
GROUP, OTHER = "group", "other"  # in two different partitions


def open_broker(**configs: Any) -> ottla.Broker:
    return ottla.Broker(offsets_topic_num_partitions=4, group_initial_rebalance_delay_ms=0, **configs)


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A broker that is still loading the coordinator of the group."""
    with open_broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("topic")
        find(wire)
        groups = broker._running().node.groups
        groups.shards.all[partition_for(GROUP, 4)].is_loaded = False
        yield wire


def find(wire: Wire) -> None:
    answer = wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": GROUP, "key_type": 0})
    assert answer.error_code == 0


def commit(
    wire: Wire,
    group: str = GROUP,
    *,
    version: int = 9,
    offset: int = 5,
    metadata: str = "",
    generation: int = -1,
    partition: int = 0,
) -> int:
    place = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1}
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": "",
        "topics": [{"name": "topic", "partitions": [{**place, "committed_metadata": metadata}]}],
    }
    return int(wire.call(ApiKey.OFFSET_COMMIT, version, request).topics[0].partitions[0].error_code)


def committed(wire: Wire, group: str = GROUP) -> tuple[int, int]:
    """Return the error code and the offset."""
    topics = [{"name": "topic", "partition_indexes": [0]}]
    asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
    answer = wire.call(ApiKey.OFFSET_FETCH, 9, {"groups": [asked], "require_stable": False}).groups[0]
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


def test_a_heartbeat_while_the_group_is_loaded_is_fine(wire: Wire) -> None:
    """Some clients give up on any other response. The membership is checked after the load."""
    member = {"group_id": GROUP, "generation_id": 1, "member_id": "member", "group_instance_id": None}
    assert wire.call(ApiKey.HEARTBEAT, 4, member).error_code == 0


def test_everything_else_has_to_wait_until_the_group_is_loaded(wire: Wire) -> None:
    member = {"group_id": GROUP, "generation_id": 1, "member_id": "member", "group_instance_id": None}
    sync = {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    assert wire.call(ApiKey.SYNC_GROUP, 5, sync).error_code == LOADING
    leaving = {"member_id": "member", "group_instance_id": None, "reason": None}
    assert wire.call(ApiKey.LEAVE_GROUP, 5, {"group_id": GROUP, "members": [leaving]}).error_code == LOADING
    assert commit(wire) == LOADING
    assert committed(wire) == (LOADING, -1)
    assert wire.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []}).error_code == LOADING
    assert wire.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]}).results[0].error_code == LOADING


def test_groups_that_cannot_be_read_have_no_coordinator_and_all_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("topic")
        find(wire)
        assert commit(wire) == 0
        assert commit(wire, OTHER) == 0

    def unreadable(key: bytes, value: bytes | None) -> CoordinatorRecord:
        record = decode(key, value)
        if isinstance(record.key, OffsetCommitKey) and record.key.group_id == GROUP:
            raise DecodeError("this record is broken")
        return record

    monkeypatch.setattr("ottla.broker.groups.decode", unreadable)
    with open_broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        until(lambda: committed(wire)[0] != LOADING, "the partition of the group has been read")
        assert committed(wire) == (errors.NotCoordinator.code, -1)
        assert commit(wire) == errors.NotCoordinator.code
        until(lambda: committed(wire, OTHER) == (0, 5), "the other group has been loaded")
        listed = wire.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
        assert (listed.error_code, [group.group_id for group in listed.groups]) == (0, [OTHER])


def test_offsets_expire_on_a_broker_that_was_never_restarted() -> None:
    clock = ManualClock()
    configs = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 50}
    with open_broker(clock=clock, **configs) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("topic")
        find(wire)
        assert commit(wire) == 0
        assert committed(wire) == (0, 5)
        clock.advance(OLD_ENOUGH)
        until(lambda: committed(wire) == (0, -1), "the offset has expired")


@pytest.mark.parametrize("version", [7, 9])
def test_a_commit_that_cannot_be_written_is_refused_and_forgotten(version: int) -> None:
    with open_broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("topic")
        find(wire)
        assert commit(wire, version=version) == 0
        log = broker._running().node.groups.shards.all[partition_for(GROUP, 4)].partition.log
        log.closed = True
        assert commit(wire, version=version, offset=6) == errors.CoordinatorNotAvailable.code
        log.closed = False
        assert committed(wire) == (0, 5)
        assert commit(wire, version=version, offset=7) == 0
        assert committed(wire) == (0, 7)


def beat(wire: Wire, member: str, epoch: int, **said: Any) -> tuple[int, int]:
    message = {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "topic_partitions": None, **said}
    answer = wire.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message)
    return answer.error_code, answer.member_epoch


def test_a_step_of_a_consumer_that_cannot_be_written_is_refused_and_taken_again() -> None:
    joins = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["topic"], "topic_partitions": []}
    with open_broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("topic")
        find(wire)
        members = [f"member-{number}" for number in range(6)]
        for epoch, member in enumerate(members, 1):
            assert beat(wire, member, 0, **joins) == (0, epoch)
        for epoch, member in enumerate(members, 1):
            assert beat(wire, member, epoch) == (0, 6)
        assert beat(wire, members[-1], -1) == (0, -1)
        assert beat(wire, members[0], 6) == (0, 7)
        log = broker._running().node.groups.shards.all[partition_for(GROUP, 4)].partition.log
        log.closed = True
        assert beat(wire, members[1], 6) == (errors.CoordinatorNotAvailable.code, 0)
        log.closed = False
        end = log.log_end_offset
        assert [beat(wire, member, 6) for member in members[1:5]] == [(0, 7)] * 4
        assert [beat(wire, member, 7) for member in members[:5]] == [(0, 7)] * 5
        assert log.log_end_offset == end + 5  # Includes the record of the history.


@pytest.mark.parametrize("version", [7, 9])
def test_each_way_of_a_commit_tells_the_same_errors(version: int) -> None:
    with open_broker(offset_metadata_max_bytes=4) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("topic")
        find(wire)
        assert commit(wire, version=version, metadata="12345") == errors.OffsetMetadataTooLarge.code
        assert commit(wire, version=version, metadata="\N{GRINNING FACE}" * 3) == errors.OffsetMetadataTooLarge.code
        assert committed(wire) == (0, -1)
        assert commit(wire, version=version, metadata="1234") == 0
        assert commit(wire, version=version, generation=3) == errors.UnknownMemberId.code
        assert commit(wire, version=version, partition=1) == errors.UnknownTopicOrPartition.code
        assert committed(wire) == (0, 5)
