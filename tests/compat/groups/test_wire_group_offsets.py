"""Hand-made requests about offsets and groups: every version and every rejection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from ..clients.base import TP
from ..conftest import MakeTopic, unique_name
from ..wire import Wire, versions_known
from .conftest import ConnectRaw
from .raw import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    OFFSET_METADATA_TOO_LARGE,
    OK,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    commit_content,
    committed,
    find,
    id_of,
    subscription,
)

NOBODY = {"member_id": "", "generation_id_or_member_epoch": -1}
BY_ID = 10  # the first version with topic ids
LIMIT = 4_096


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[Wire]:
    with Wire(bootstrap_servers) as connection:
        yield connection


def codes(answer: Any) -> list[int]:
    return [int(partition.error_code) for topic in answer.topics for partition in topic.partitions]


# ── commit and fetch ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", versions_known("offset_commit"))
def test_every_version_of_commit(wire: Wire, group: str, make_topic: MakeTopic, version: int) -> None:
    """Commit without a membership, like a consumer with manual assignment."""
    topic = make_topic(2)
    content = commit_content({TP(topic, 0): 7, TP(topic, 1): 0}, "note", id_of(wire, topic))
    answer = wire.call("offset_commit", version, {"group_id": group, **NOBODY, **content})
    assert codes(answer) == [OK, OK]
    assert committed(wire, group, [TP(topic, 0), TP(topic, 1)]) == {
        TP(topic, 0): (7, "note"),
        TP(topic, 1): (0, "note"),
    }


@pytest.mark.parametrize("version", versions_known("offset_fetch"))
def test_every_version_of_fetch(
    wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(3)
    assert connect_raw().commit({TP(topic, 0): 7, TP(topic, 2): 9}, "note") == [OK, OK]
    topics = [{"name": topic, "topic_id": id_of(wire, topic), "partition_indexes": [0, 1, 2]}]
    asked = {"group_id": group, "member_epoch": -1, "topics": topics}
    answer = wire.call("offset_fetch", version, {**asked, "groups": [asked], "require_stable": False})
    if version >= 8:
        (answer,) = answer.groups
    if version >= 2:
        assert int(answer.error_code) == OK
    (found,) = answer.topics
    assert [(p.partition_index, p.committed_offset, p.metadata) for p in found.partitions] == [
        (0, 7, "note"),
        (1, -1, ""),
        (2, 9, "note"),
    ]


@pytest.mark.parametrize("version", range(2, 11))
def test_everything_that_a_group_has_committed(
    wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic, version: int
) -> None:
    one, two = sorted([make_topic(2), make_topic(1)])
    offsets = {TP(one, 0): 1, TP(two, 0): 3}
    assert connect_raw().commit(offsets) == [OK, OK]
    asked = {"group_id": group, "member_epoch": -1, "topics": None}
    answer = wire.call("offset_fetch", version, {**asked, "groups": [asked], "require_stable": True})
    if version >= 8:
        (answer,) = answer.groups
    names = {id_of(wire, topic): topic for topic in (one, two)}
    found = {
        TP(names[topic.topic_id] if version >= BY_ID else topic.name, partition.partition_index): (
            partition.committed_offset
        )
        for topic in answer.topics
        for partition in topic.partitions
    }
    assert found == offsets


@pytest.mark.parametrize("version", range(2, 11))
def test_a_topic_is_told_once_however_its_partitions_were_committed(
    wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic, version: int
) -> None:
    """Some clients keep one entry per topic, and would lose partitions."""
    one, two = make_topic(2), make_topic(2)
    names = [group, unique_name("raw")]
    for name in names[: 2 if version >= 8 else 1]:
        somebody = connect_raw(group=name)
        for tp in (TP(one, 0), TP(two, 1), TP(one, 1), TP(two, 0)):
            assert somebody.commit({tp: 5}) == [OK]
    asked = [{"group_id": name, "member_epoch": -1, "topics": None} for name in names]
    answer = wire.call("offset_fetch", version, {**asked[0], "groups": asked, "require_stable": False})
    known = {id_of(wire, topic) if version >= BY_ID else topic for topic in (one, two)}
    for each in answer.groups if version >= 8 else [answer]:
        assert len(each.topics) == 2
        assert {topic.topic_id if version >= BY_ID else topic.name for topic in each.topics} == known
        assert [sorted(p.partition_index for p in topic.partitions) for topic in each.topics] == [[0, 1], [0, 1]]


def test_answers_have_the_shape_of_the_request(wire: Wire, group: str, make_topic: MakeTopic) -> None:
    """A topic that is named twice is returned twice."""
    one, two = make_topic(2), make_topic(1)
    wanted = [(one, [0]), (two, [0]), (one, [1, 0])]
    fields = {"committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    content = [
        {"name": name, "partitions": [{"partition_index": index, **fields} for index in indexes]}
        for name, indexes in wanted
    ]
    asked = {"group_id": group, "member_epoch": -1}
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in wanted]
    answers = [
        wire.call("offset_commit", 9, {"group_id": group, **NOBODY, "topics": content}),
        wire.call("offset_fetch", 9, {"groups": [{**asked, "topics": topics}], "require_stable": False}).groups[0],
        wire.call("offset_fetch", 7, {**asked, "topics": topics, "require_stable": False}),
        wire.call("offset_delete", 0, {"group_id": group, "topics": content}),
    ]
    for answer in answers:
        assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in answer.topics] == wanted
        assert set(codes(answer)) == {OK}


def test_offsets_of_several_groups_at_once(wire: Wire, connect_raw: ConnectRaw, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    names = [unique_name("raw") for _ in range(30)]
    for number, name in enumerate(names[:-1]):
        assert connect_raw(group=name).commit({TP(topic, 0): number}) == [OK]
    topics = [{"name": topic, "partition_indexes": [0, 1]}]
    asked = [{"group_id": name, "member_epoch": -1, "topics": topics} for name in names]
    asked.append({"group_id": names[0], "member_epoch": -1, "topics": None})
    answer = wire.call("offset_fetch", 9, {"groups": asked, "require_stable": False})
    assert [each.group_id for each in answer.groups] == [*names, names[0]]
    assert {int(each.error_code) for each in answer.groups} == {OK}
    found = [[p.committed_offset for p in each.topics[0].partitions] for each in answer.groups]
    assert found == [*([number, -1] for number in range(29)), [-1, -1], [0]]


def test_a_topic_id_that_nobody_has(wire: Wire, group: str, make_topic: MakeTopic) -> None:
    known, unknown = id_of(wire, make_topic()), UUID(int=99)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"topic_id": each, "partitions": [partition]} for each in (known, unknown)]
    answer = wire.call("offset_commit", BY_ID, {"group_id": group, **NOBODY, "topics": topics})
    assert {topic.topic_id: int(topic.partitions[0].error_code) for topic in answer.topics} == {
        known: OK,
        unknown: UNKNOWN_TOPIC_ID,
    }
    topics = [{"topic_id": each, "partition_indexes": [0]} for each in (known, unknown)]
    asked = {"group_id": group, "member_epoch": -1, "topics": topics}
    (found,) = wire.call("offset_fetch", BY_ID, {"groups": [asked], "require_stable": False}).groups
    assert {topic.topic_id: int(topic.partitions[0].error_code) for topic in found.topics} == {
        known: OK,
        unknown: UNKNOWN_TOPIC_ID,
    }


def test_partitions_that_do_not_exist(wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic) -> None:
    """Unknown partitions cannot be committed; the others of the request can."""
    topic = make_topic(1)
    offsets = {TP(topic, 0): 5, TP(topic, 1): 5, TP(topic, -1): 5, TP("no-such-topic", 0): 5}
    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(connect_raw().commit(offsets)) == [OK, unknown, unknown, unknown]
    found = committed(wire, group, list(offsets))
    assert [offset for offset, _ in found.values()] == [5, -1, -1, -1]


def test_metadata_that_is_too_large(wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    somebody = connect_raw()
    assert somebody.commit({TP(topic, 0): 5}, "m" * LIMIT) == [OK]
    assert somebody.commit({TP(topic, 0): 6}, "m" * (LIMIT + 1)) == [OFFSET_METADATA_TOO_LARGE]
    content = commit_content({TP(topic, 0): 7, TP(topic, 1): 8}, "small")
    content["topics"][0]["partitions"][0]["committed_metadata"] = "m" * (LIMIT + 1)
    answer = wire.call("offset_commit", 9, {"group_id": group, **NOBODY, **content})
    assert codes(answer) == [OFFSET_METADATA_TOO_LARGE, OK]
    found = committed(wire, group, [TP(topic, 0), TP(topic, 1)])
    assert found == {TP(topic, 0): (5, "m" * LIMIT), TP(topic, 1): (8, "small")}


def test_each_partition_is_told_what_became_of_it(wire: Wire, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    offsets = {TP(topic, 3): 5, TP(topic, 0): 5, TP("no-such-topic", 0): 5, TP(topic, 1): 5, TP(topic, 2): 5}
    content = commit_content(offsets, "small")
    for each in content["topics"][0]["partitions"]:
        if each["partition_index"] == 1:
            each["committed_metadata"] = "m" * (LIMIT + 1)
    answer = wire.call("offset_commit", 9, {"group_id": group, **NOBODY, **content})
    told = {
        TP(each.name, number.partition_index): number.error_code for each in answer.topics for number in each.partitions
    }
    assert told == {
        TP(topic, 3): UNKNOWN_TOPIC_OR_PARTITION,
        TP(topic, 0): OK,
        TP(topic, 1): OFFSET_METADATA_TOO_LARGE,
        TP(topic, 2): OK,
        TP("no-such-topic", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }
    found = committed(wire, group, list(offsets))
    assert {tp for tp, (offset, _) in found.items() if offset == 5} == {TP(topic, 0), TP(topic, 2)}


def test_metadata_that_is_null(wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert connect_raw().commit({TP(topic, 0): 5}, None) == [OK]
    assert committed(wire, group, [TP(topic, 0)]) == {TP(topic, 0): (5, "")}


# ── who may commit ────────────────────────────────────────────────────────────────────────────────────────────────


def test_commits_of_another_generation(wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    there = connect_raw()
    there.settle_alone()
    assert there.commit({TP(topic, 0): 5}) == [OK]
    for generation in (-1, 0, there.generation + 1):
        assert there.commit({TP(topic, 0): 6}, generation_id_or_member_epoch=generation) == [ILLEGAL_GENERATION]
    assert committed(wire, group, [TP(topic, 0)]) == {TP(topic, 0): (5, "")}
    assert there.heartbeat() == OK


def test_commits_of_those_who_are_no_members(
    wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    there, nobody = connect_raw(), connect_raw()
    there.settle_alone()
    assert nobody.commit({TP(topic, 0): 6}) == [UNKNOWN_MEMBER_ID]
    nobody.member_id, nobody.generation = "nobody", there.generation
    assert nobody.commit({TP(topic, 0): 6}) == [UNKNOWN_MEMBER_ID]
    assert nobody.commit({TP(topic, 0): 6}, member_id=there.member_id, group_instance_id="unknown") == [
        UNKNOWN_MEMBER_ID
    ]
    assert committed(wire, group, [TP(topic, 0)]) == {TP(topic, 0): (-1, "")}
    assert there.leave() == OK
    nobody.member_id, nobody.generation = "", -1
    assert nobody.commit({TP(topic, 0): 6}) == [OK]  # now the group is empty


def test_commits_for_a_group_that_is_not_there(connect_raw: ConnectRaw, make_topic: MakeTopic) -> None:
    nobody = connect_raw()
    nobody.member_id, nobody.generation = "nobody", 1
    topic = make_topic()
    assert nobody.commit({TP(topic, 0): 6}, version=8) == [ILLEGAL_GENERATION]
    assert nobody.commit({TP(topic, 0): 6}, version=9) == [GROUP_ID_NOT_FOUND]


@pytest.mark.parametrize("version", versions_known("offset_commit"))
def test_what_does_not_exist_is_told_so_whatever_the_group_says(
    wire: Wire, group: str, make_topic: MakeTopic, version: int
) -> None:
    """The error of the group is reported for the existing partitions."""
    topic, missing = make_topic(), "no-such-topic"
    ids = {topic: id_of(wire, topic), missing: UUID(int=99)}
    topics = commit_content({TP(missing, 0): 6, TP(topic, 0): 6, TP(topic, 1): 6})["topics"]
    topics = [{**each, "topic_id": ids[each["name"]]} for each in topics]
    nobody = {"group_id": group, "member_id": "nobody", "generation_id_or_member_epoch": 1}
    answer = wire.call("offset_commit", version, {**nobody, "topics": topics})
    told = {
        (each.topic_id if version >= BY_ID else ids[each.name], partition.partition_index): int(partition.error_code)
        for each in answer.topics
        for partition in each.partitions
    }
    unknown_topic = UNKNOWN_TOPIC_ID if version >= BY_ID else UNKNOWN_TOPIC_OR_PARTITION
    assert told == {
        (ids[missing], 0): unknown_topic,
        (ids[topic], 0): GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION,
        (ids[topic], 1): UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert codes(wire.call("offset_commit", version, {**nobody, "topics": topics[:1]})) == [unknown_topic]


def test_offsets_of_the_empty_group_id(wire: Wire, make_topic: MakeTopic) -> None:
    """It cannot have members, but it has offsets, for old clients."""
    topic = make_topic()
    find(wire, unique_name("raw"))
    (found,) = wire.call("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [""]}).coordinators
    assert int(found.error_code) == OK
    content = {"group_id": "", **NOBODY, **commit_content({TP(topic, 0): 3})}
    assert codes(wire.call("offset_commit", 9, content)) == [OK]
    assert committed(wire, "", [TP(topic, 0)]) == {TP(topic, 0): (3, "")}
    assert described(wire, "") == ("Empty", OK)
    assert deleted(wire, [""]) == {"": OK}
    assert described(wire, "") == ("Dead", GROUP_ID_NOT_FOUND)
    assert deleted(wire, [""]) == {"": GROUP_ID_NOT_FOUND}


def described(wire: Wire, group: str) -> tuple[str, int]:
    (answer,) = wire.call("describe_groups", 6, {"groups": [group]}).groups
    return answer.group_state, int(answer.error_code)


def deleted(wire: Wire, groups: list[str], version: int = 2) -> dict[str, int]:
    answer = wire.call("delete_groups", version, {"groups_names": groups})
    return {result.group_id: int(result.error_code) for result in answer.results}


# ── groups as a whole ─────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets_are_deleted(wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic) -> None:
    """Offsets of topics that members read cannot be deleted."""
    read, other = make_topic(), make_topic()
    there = connect_raw(protocols=[{"name": "range", "metadata": subscription([read])}])
    there.settle_alone()
    assert there.commit({TP(read, 0): 5, TP(other, 0): 6}) == [OK, OK]
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (read, other, "no-such-topic")]
    answer = wire.call("offset_delete", 0, {"group_id": group, "topics": topics})
    assert int(answer.error_code) == OK
    assert {topic.name: int(topic.partitions[0].error_code) for topic in answer.topics} == {
        read: GROUP_SUBSCRIBED_TO_TOPIC,
        other: OK,
        "no-such-topic": UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert committed(wire, group, [TP(read, 0), TP(other, 0)]) == {TP(read, 0): (5, ""), TP(other, 0): (-1, "")}
    assert there.leave() == OK
    answer = wire.call("offset_delete", 0, {"group_id": group, "topics": topics[:1]})
    assert codes(answer) == [OK]
    assert committed(wire, group, [TP(read, 0)]) == {TP(read, 0): (-1, "")}


def test_offsets_that_cannot_be_deleted(wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic) -> None:
    topics = [{"name": make_topic(), "partitions": [{"partition_index": 0}]}]

    def delete(group_id: str) -> int:
        return int(wire.call("offset_delete", 0, {"group_id": group_id, "topics": topics}).error_code)

    assert delete(unique_name("no-such-group")) == GROUP_ID_NOT_FOUND
    assert delete("") == INVALID_GROUP_ID
    workers = connect_raw(protocol_type="connect", protocols=[{"name": "sessioned", "metadata": b""}])
    workers.settle_alone()
    assert delete(group) == NON_EMPTY_GROUP  # only its members know their topics
    assert workers.heartbeat() == OK


@pytest.mark.parametrize("version", versions_known("delete_groups"))
def test_groups_are_deleted(
    wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    kept, unknown = unique_name("raw"), unique_name("no-such-group")
    there = connect_raw(group=kept)
    there.settle_alone()
    assert connect_raw().commit({TP(topic, 0): 5}) == [OK]
    assert deleted(wire, [group, kept, unknown], version) == {
        group: OK,
        kept: NON_EMPTY_GROUP,
        unknown: GROUP_ID_NOT_FOUND,
    }
    assert committed(wire, group, [TP(topic, 0)]) == {TP(topic, 0): (-1, "")}
    assert there.heartbeat() == OK


@pytest.mark.parametrize("version", versions_known("describe_groups"))
def test_every_version_of_describe(wire: Wire, connect_raw: ConnectRaw, group: str, version: int) -> None:
    there = connect_raw(instance_id="static" if version >= 4 else None)
    there.settle_alone()
    unknown = unique_name("no-such-group")
    asked = {"groups": [group, unknown], "include_authorized_operations": True}
    answer = {each.group_id: each for each in wire.call("describe_groups", version, asked).groups}
    found, missing = answer[group], answer[unknown]
    (member,) = found.members
    assert int(found.error_code) == OK
    assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
    assert (member.member_id, member.client_id) == (there.member_id, "wire")
    assert member.client_host == "/127.0.0.1"
    assert (member.member_metadata, member.member_assignment) == (subscription(["topic"]), b"everything")
    if version >= 3:
        assert found.authorized_operations > 0
        assert (missing.authorized_operations > 0) == (version < 6)
    if version >= 4:
        assert member.group_instance_id == "static"
    assert (missing.group_state, len(missing.members)) == ("Dead", 0)
    assert int(missing.error_code) == (GROUP_ID_NOT_FOUND if version >= 6 else OK)


@pytest.mark.parametrize("version", versions_known("list_groups"))
def test_every_version_of_list(
    wire: Wire, connect_raw: ConnectRaw, group: str, make_topic: MakeTopic, version: int
) -> None:
    connect_raw().settle_alone()
    empty = unique_name("raw")
    assert connect_raw(group=empty).commit({TP(make_topic(), 0): 5}) == [OK]
    answer = wire.call("list_groups", version, {})
    assert int(answer.error_code) == OK
    found = {each.group_id: each for each in answer.groups}
    assert found[group].protocol_type == "consumer"
    assert found[empty].protocol_type == ""
    if version >= 4:
        assert (found[group].group_state, found[empty].group_state) == ("Stable", "Empty")
        answer = wire.call("list_groups", version, {"states_filter": ["stable", "Dead"]})
        names = {each.group_id for each in answer.groups}
        assert group in names
        assert empty not in names
    if version >= 5:
        assert found[group].group_type == "classic"
        answer = wire.call("list_groups", version, {"types_filter": ["Consumer"]})
        assert not {group, empty} & {each.group_id for each in answer.groups}


@pytest.mark.parametrize("version", versions_known("find_coordinator"))
def test_every_version_of_find(wire: Wire, version: int) -> None:
    name = unique_name("raw")
    find(wire, name)
    answer = wire.call("find_coordinator", version, {"key": name, "key_type": 0, "coordinator_keys": [name, "other"]})
    if version >= 4:
        assert [each.key for each in answer.coordinators] == [name, "other"]
        answer = answer.coordinators[0]
    assert int(answer.error_code) == OK
    assert answer.host
    assert answer.port > 0
