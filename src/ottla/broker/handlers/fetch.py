"""Fetch: read batches from partitions, and wait if there are too few bytes.

v4 adds isolation levels; v7 fetch sessions; v9 leader epochs; v11 consumers that read from followers; v12 diverging
epochs for followers; v13 topic ids; v15 moves the replica id; v16 tells who leads. Records are not read here: the
response refers to slices of segment files.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple

from ottla import errors
from ottla.broker.authorization import acts_for_cluster, check
from ottla.broker.fetch_room import Room, Unverified, verify
from ottla.broker.fetch_sessions import NO_SESSION, FetchPlan, Key, Wanted, grouped, is_urgent
from ottla.broker.fetch_waiter import FetchWaiter
from ottla.broker.leader_hints import leader_addresses, leader_hint
from ottla.broker.nearest import nearest_replica
from ottla.broker.node import Call, Node
from ottla.broker.partition import Partition
from ottla.config.replication import RACK_AWARE_SELECTOR
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.replication.leader import divergence
from ottla.replication.values import EpochEnd, ReplicaFetch
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need
from ottla.storage.log import Slice
from ottla.storage.verification import SegmentUnverified
from ottla.types import Millis

API = ApiKey.FETCH
READ_COMMITTED = 1
FEW_ABORTED = 8
#: The first versions in which a consumer can read from a follower, and in which errors tell the leader.
FROM_FOLLOWERS, HINTS = 11, 16
READ = need("fetch", Operation.READ, ResourceType.TOPIC)
FOLLOW = need("fetch", Operation.CLUSTER_ACTION, ResourceType.CLUSTER)


class Reader(NamedTuple):
    """Who fetches: a consumer, or the broker of a follower."""

    replica: int
    """The id of the broker, -1 for a consumer."""
    broker_epoch: int
    read_committed: bool
    only_leader: bool
    """It may not read from a follower."""
    rack: str
    """Of a consumer that would rather read in its own rack."""
    wants_watermark: bool
    """It is a follower from which consumers may read, so it must know the high watermark as soon as it rises."""
    most: int
    """The most bytes of a response. What a quota allows at once is never more."""
    least: int
    """It waits for so many bytes."""
    counted: set[Key]
    """The partitions whose fetch offset the leader has taken note of. It does so once, when the request arrives: the
    follower may be gone when its wait ends."""

    @property
    def is_replica(self) -> bool:
        return self.replica >= 0


class Reading(NamedTuple):
    """The result of one pass over the partitions."""

    responses: list[tuple[Wanted, Message, int]]
    size: int
    is_urgent: bool
    """Some partition has an answer that the client must know at once."""


def handle(node: Node, call: Call, request: Struct) -> Message | Awaitable[Message]:
    try:
        plan = node.sessions.plan(request, by_id=call.api_version >= 13, now=node.clock.now())
    except errors.KafkaError as error:
        return {"error_code": error.code, "session_id": 0, "responses": []}
    reader = _reader(node, call, request)
    try:
        reading = read(node, call, plan, reader)
    except Unverified as unverified:
        return _wait(node, call, plan, request, reader, unverified)
    if reading.size >= reader.least or request.max_wait <= 0 or reading.is_urgent or not plan.wanted:
        return _message(node, call, plan, reading, reader)
    return _wait(node, call, plan, request, reader, reading)


def _reader(node: Node, call: Call, request: Struct) -> Reader:
    state = request.replica_state
    replica, broker_epoch = (request.replica_id, -1) if state is None else (state.replica_id, state.replica_epoch)
    is_rack_aware = node.config.replica_selector_class == RACK_AWARE_SELECTOR
    most = min(request.max_bytes, node.config.fetch_max_bytes)
    if node.quotas is not None:
        if replica < 0:
            most = node.quotas.most_fetched(call, most)
        elif acts_for_cluster(node, call):
            call.connection.may_pause = False
    return Reader(
        replica,
        broker_epoch,
        request.isolation_level == READ_COMMITTED,
        replica >= 0 or call.api_version < FROM_FOLLOWERS,
        request.rack_id if is_rack_aware and replica < 0 else "",
        is_rack_aware and replica >= 0,
        most,
        min(request.min_bytes, most),
        set(),
    )


async def _wait(
    node: Node, call: Call, plan: FetchPlan, request: Struct, reader: Reader, first: Reading | Unverified
) -> Message:
    """Wait for data, or for a segment to be verified, and read again."""
    if isinstance(first, Reading):
        waiter = FetchWaiter(
            max(1, reader.least - first.size),
            read_committed=reader.read_committed,
            is_replica=reader.is_replica,
            wants_watermark=reader.wants_watermark,
        )
        await waiter.wait(_existing(node, plan), _longest_wait(node, request) / 1000)
    else:
        await first.verify()
    while True:
        try:
            return _message(node, call, plan, read(node, call, plan, reader), reader)
        except Unverified as unverified:
            await unverified.verify()


def _longest_wait(node: Node, request: Struct) -> Millis:
    """Return the client's max_wait, limited to the idle timeout: the client may be gone by then."""
    idle = node.config.connections_max_idle_ms
    return min(request.max_wait, idle) if idle >= 0 else int(request.max_wait)


def _existing(node: Node, plan: FetchPlan) -> list[Partition]:
    found = []
    for wanted in plan.wanted:
        try:
            found.append(_partition(node, wanted.key))
        except errors.KafkaError:
            continue
    return found


def read(node: Node, call: Call, plan: FetchPlan, reader: Reader) -> Reading:
    """Read each partition once, up to the limits of the request. The first batch may exceed them.

    Raise Unverified if there are only records that must be checked first. If there are others, those come later.
    """
    responses: list[tuple[Wanted, Message, int]] = []
    room, urgent = Room(reader.most, node.logs.most_open_files), False
    # Without a session nobody knows what the follower was told.
    wants_watermark = reader.wants_watermark and plan.is_incremental
    for wanted in plan.wanted:
        try:
            if node.authorizer is not None:
                _check(node, call, wanted.key, reader)
            response, length = _read_checked(node, wanted, room, reader)
        except errors.KafkaError as error:
            response, length = _failed(node, wanted.key, error), 0
        if length:
            room.take(response, length)
        elif is_urgent(response) or (wants_watermark and wanted.knows_less_than(response)):
            urgent = True
        responses.append((wanted, response, length))
    if room.unverified:
        if not room.size and not urgent:
            raise Unverified(room.unverified)
        node.changes.begin(verify(room.unverified))
        urgent = True
    return Reading(responses, room.size, urgent)


def _read_checked(node: Node, wanted: Wanted, room: Room, reader: Reader) -> tuple[Message, int]:
    try:
        return _read_one(node, wanted, room.left, not (room.size or room.is_closed), reader)
    except SegmentUnverified as unverified:
        room.put_off(unverified.segment, wanted.max_bytes)
        return _read_one(node, wanted, 0, False, reader)


def _check(node: Node, call: Call, key: Key, reader: Reader) -> None:
    if reader.is_replica:
        check(node, call, FOLLOW)
    elif (name := _topic(node, key)) is not None:
        check(node, call, READ, name)


def _read_one(node: Node, wanted: Wanted, room: int, first: bool, reader: Reader) -> tuple[Message, int]:
    partition = _partition(node, wanted.key)
    read_committed, log = reader.read_committed, partition.log
    if reader.only_leader and not partition.is_leader:
        raise partition.not_leader()
    diverging = None
    if reader.is_replica and wanted.key not in reader.counted:
        diverging = _replica_fetched(node, partition, wanted, reader)
    else:
        partition.check_epoch(wanted.current_leader_epoch)
        # Also for a follower that was counted: its records must not be mixed with those of another leader.
        if wanted.last_fetched_epoch >= 0:
            diverging = divergence(log, wanted.fetch_offset, wanted.last_fetched_epoch)
    end = log.log_end_offset if reader.is_replica else partition.readable_end(read_committed=read_committed)
    response: Message = {
        "partition_index": wanted.key.partition,
        "error_code": 0,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "log_start_offset": log.log_start_offset,
        "aborted_transactions": () if read_committed else None,
        "records": b"",
    }
    if diverging is not None:
        response["diverging_epoch"] = {"epoch": diverging.epoch, "end_offset": diverging.end_offset}
        return response, 0
    if reader.rack and (nearest := nearest_replica(node, partition, reader.rack, wanted.fetch_offset)) is not None:
        response["preferred_read_replica"] = nearest
        return response, 0
    limit = min(wanted.max_bytes, room)
    # Most fetches are at the end of the log: there is nothing to look up.
    if wanted.fetch_offset == log.log_end_offset or (limit <= 0 and not first):
        return response, 0
    is_throttled = reader.is_replica and node.throttles.is_leader_throttled(partition)
    if is_throttled and reader.replica not in partition.state.isr:
        limit = min(limit, node.throttles.leader.room())
        if limit <= 0:
            return response, 0
    slice_ = log.read(wanted.fetch_offset, max_bytes=max(limit, 0), end_offset=end, min_one_batch=first)
    if slice_.length == 0:
        return response, 0
    response["records"] = slice_
    if read_committed:
        response["aborted_transactions"] = _aborted(partition, wanted.fetch_offset, end, slice_)
    if is_throttled:
        node.throttles.leader.moved(slice_.length)
    if reader.is_replica:
        node.metrics.replication.sent(slice_.length)
    else:
        node.metrics.fetched(partition.topic, slice_.length)
    return response, slice_.length


def _aborted(partition: Partition, start: int, end: int, slice_: Slice) -> list[Message]:
    found = partition.log.aborted_transactions(start, end)
    if len(found) > FEW_ABORTED and (following := slice_.following_offset()) is not None:
        # The client only needs the transactions of the records it gets.
        found = partition.log.aborted_transactions(start, following)
    return [{"producer_id": aborted.producer_id, "first_offset": aborted.first_offset} for aborted in found]


def _replica_fetched(node: Node, partition: Partition, wanted: Wanted, reader: Reader) -> EpochEnd | None:
    """Take note of what a follower has; return where its log differs."""
    fetch = ReplicaFetch(
        reader.replica,
        reader.broker_epoch,
        wanted.current_leader_epoch,
        wanted.fetch_offset,
        wanted.last_fetched_epoch,
        wanted.replica_log_start_offset,
    )
    diverging = partition.fetched_by(fetch, now=node.clock.now()).diverging
    reader.counted.add(wanted.key)
    return diverging


def _partition(node: Node, key: Key) -> Partition:
    name = _topic(node, key)
    if name is None:
        raise errors.UnknownTopicId(f"There is no topic with the id {key.topic_id}.")
    partition = node.partition(name, key.partition)
    if not partition.is_leader and partition.follower is None:
        raise partition.not_leader()
    return partition


def _failed(node: Node, key: Key, error: errors.KafkaError) -> Message:
    start = -1
    if isinstance(error, errors.OffsetOutOfRange):
        start = _partition(node, key).log.log_start_offset  # A follower starts again from there.
    return leader_hint(node, _topic(node, key), key.partition, error) | {
        "partition_index": key.partition,
        "error_code": error.code,
        "high_watermark": -1,
        "log_start_offset": start,
        "aborted_transactions": None,
        "records": b"",
    }


def _topic(node: Node, key: Key) -> str | None:
    if key.topic is not None:
        return key.topic
    topic = None if key.topic_id is None else node.metadata.topics_by_id.get(key.topic_id)
    return None if topic is None else topic.name


def _message(node: Node, call: Call, plan: FetchPlan, reading: Reading, reader: Reader) -> Message:
    pause = 0
    if node.quotas is not None and not reader.is_replica:
        filled = sum(size > 0 for _, _, size in reading.responses)
        pause, is_empty = node.quotas.fetched(call, reading.size, filled)
        if is_empty:
            return _throttled(node, plan, reading, pause)
    included = []
    for wanted, response, size in reading.responses:
        is_news = wanted.is_news(response, size)
        if is_news or not plan.is_incremental:
            included.append((wanted.key, response))
    if plan.session is not None:
        plan.session.move_to_end([wanted.key for wanted, _, size in reading.responses if size])
    message: Message = {"session_id": plan.session_id, "responses": grouped(included), "throttle_time": pause}
    if reading.is_urgent and call.api_version >= HINTS:
        message["node_endpoints"] = leader_addresses(node, call, (response for _, response in included))
    return message


def _throttled(node: Node, plan: FetchPlan, reading: Reading, pause: Millis) -> Message:
    """Return the empty response for a consumer that has fetched too much. It asks again after a pause."""
    for wanted, _, size in reading.responses:
        if size and (name := _topic(node, wanted.key)) is not None:
            node.metrics.fetched(name, -size)
    if plan.session is not None and not plan.is_incremental:
        # Clients do not accept a new session without all its partitions.
        node.sessions.close(plan.session.id)
    return {
        "session_id": plan.session_id if plan.is_incremental else NO_SESSION,
        "responses": [],
        "throttle_time": pause,
    }
