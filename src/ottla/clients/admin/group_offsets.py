"""The committed offsets of groups: fetch them, set them for a group without members, delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.coordinators import COORDINATOR_ERRORS, Coordinator, Send, by_coordinator
from ottla.clients.cluster.leaders import by_topic, read_error
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import TopicPartition

NO_OFFSET = -1
NO_EPOCH = -1
NO_GENERATION = -1
NO_MEMBER = ""
#: Later versions identify topics by id, which is impossible for the offsets of a deleted topic.
LAST_BY_NAME = 9
FIRST_BATCHED = 8

Errors = dict[TopicPartition, KafkaError | None]


# ── fetch ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def committed_offsets(
    cluster: Cluster, groups: Iterable[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """All committed offsets of these groups; none for a group that does not exist."""
    return await by_coordinator(cluster, groups, _fetch)


async def stable_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of a group, once no transaction that commits to it is open."""
    found = (await by_coordinator(cluster, [group], partial(_fetch, stable=True)))[group]
    if isinstance(found, KafkaError):
        raise found
    return found


async def _fetch(
    coordinator: Coordinator, groups: Sequence[str], *, stable: bool = False
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    version = coordinator.connection.version_of(ApiKey.OFFSET_FETCH, at_most=LAST_BY_NAME)
    if version < FIRST_BATCHED:
        return {group: _read_offsets(await _fetch_one(coordinator, group, stable)) for group in groups}
    message = {"groups": [{"group_id": group, "topics": None} for group in groups], "require_stable": stable}
    response = await coordinator.connection.request(ApiKey.OFFSET_FETCH, message, at_most=LAST_BY_NAME)
    return {answer.group_id: _read_offsets(answer) for answer in response.groups}


async def _fetch_one(coordinator: Coordinator, group: str, stable: bool) -> Struct:
    message = {"group_id": group, "topics": None, "require_stable": stable}
    return await coordinator.connection.request(ApiKey.OFFSET_FETCH, message, at_most=LAST_BY_NAME)


def _read_offsets(answer: Struct) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    if answer.error_code:
        return read_error(answer.error_code)
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code:
                return read_error(one.error_code)
            if one.committed_offset > NO_OFFSET:
                found[TopicPartition(topic.name, one.partition_index)] = _read_committed(one)
    return dict(sorted(found.items()))


def _read_committed(one: Struct) -> OffsetAndMetadata:
    epoch = one.committed_leader_epoch
    return OffsetAndMetadata(one.committed_offset, one.metadata or "", None if epoch == NO_EPOCH else epoch)


# ── commit ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def commit_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
) -> Errors:
    """Set offsets without being a member, which only works for a group without members (else `UnknownMemberId`).

    Returns the error of each partition, None for success; raises errors of the whole group.
    """
    message = {
        "group_id": group,
        "generation_id_or_member_epoch": NO_GENERATION,
        "member_id": NO_MEMBER,
        "topics": [
            {"name": topic, "partitions": [_to_commit(key, offsets[key]) for key in keys]}
            for topic, keys in by_topic(offsets).items()
        ],
    }
    return await _for_group(cluster, group, partial(_commit, message))


def _to_commit(key: TopicPartition, given: int | OffsetAndMetadata) -> dict[str, object]:
    offset, metadata, epoch = OffsetAndMetadata(given) if isinstance(given, int) else given
    return {
        "partition_index": key.partition,
        "committed_offset": offset,
        "committed_leader_epoch": NO_EPOCH if epoch is None else epoch,
        "committed_metadata": metadata,
    }


async def _commit(
    message: dict[str, object], coordinator: Coordinator, groups: Sequence[str]
) -> dict[str, Errors | KafkaError]:
    response = await coordinator.connection.request(ApiKey.OFFSET_COMMIT, message, at_most=LAST_BY_NAME)
    return {groups[0]: _read_errors(response)}


def _read_errors(response: Struct) -> Errors | KafkaError:
    errors: Errors = {}
    for topic in response.topics:
        for one in topic.partitions:
            if one.error_code in COORDINATOR_ERRORS:
                return read_error(one.error_code)
            error = read_error(one.error_code) if one.error_code else None
            errors[TopicPartition(topic.name, one.partition_index)] = error
    return errors


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> Errors:
    """Delete committed offsets of partitions that the group does not subscribe to."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": key.partition} for key in keys]}
        for topic, keys in by_topic(partitions).items()
    ]
    return await _for_group(cluster, group, partial(_delete, {"group_id": group, "topics": topics}))


async def _delete(
    message: dict[str, object], coordinator: Coordinator, groups: Sequence[str]
) -> dict[str, Errors | KafkaError]:
    response = await coordinator.connection.request(ApiKey.OFFSET_DELETE, message)
    return {groups[0]: read_error(response.error_code) if response.error_code else _read_errors(response)}


async def _for_group(cluster: Cluster, group: str, send: Send[Errors]) -> Errors:
    outcome = (await by_coordinator(cluster, [group], send))[group]
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
