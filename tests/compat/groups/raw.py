"""Members with hand-made requests and unchanged responses."""

from __future__ import annotations

import functools
import selectors
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Self
from uuid import UUID, uuid4

import pytest

from ..clients.base import TP
from ..test_wire_versions import topic_id
from ..waiting import until
from ..wire import API_KEYS, Wire

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH = 9, 5, 4, 5, 9, 9  # the API versions used here

UNKNOWN_SERVER_ERROR = -1
OK = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNKNOWN_TOPIC_ID = 100
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
STALE_MEMBER_EPOCH = 113
INVALID_REGULAR_EXPRESSION = 128


def subscription(topics: Sequence[str]) -> bytes:
    """Return the subscription metadata of a consumer: version 0, topics, no user data."""
    named = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + named + struct.pack(">i", -1)


@functools.cache
def _advertises(bootstrap_servers: str, api_key: int) -> bool:
    with Wire(bootstrap_servers) as wire:
        return any(each.api_key == api_key for each in wire.call("api_versions", 0, {}).api_keys)


def need_consumer_protocol(bootstrap_servers: str) -> None:
    if not _advertises(bootstrap_servers, API_KEYS["consumer_group_heartbeat"]):
        pytest.skip("the broker does not advertise ConsumerGroupHeartbeat (KIP-848)")


def find(wire: Wire, group: str) -> None:
    """Wait until the group has a coordinator, which the first request creates."""

    def is_there() -> bool:
        (answer,) = wire.call("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [group]}).coordinators
        if int(answer.error_code):
            return False
        described = wire.call("describe_groups", 0, {"groups": [group]}).groups[0]
        return int(described.error_code) == OK

    until(is_there, f"{group} has a coordinator")


class RawMember:
    """One connection, one member."""

    def __init__(self, bootstrap_servers: str, group: str, **fields: Any) -> None:
        self.wire = Wire(bootstrap_servers)
        self.group, self.member_id, self.generation, self.leader = group, "", -1, ""
        self.instance_id: str | None = fields.pop("instance_id", None)
        self.members: tuple[str, ...] = ()
        self.protocol: str | None = None
        self._join = {
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(["topic"])}],
            **fields,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()

    def vanish(self) -> None:
        """Cut the connection without leaving the group."""
        self.wire.__exit__()

    def call(self, api: str, version: int, content: Mapping[str, Any]) -> Any:
        return self.wire.call(api, version, {"group_id": self.group, **content})

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "generation_id": self.generation,
            "generation_id_or_member_epoch": self.generation,
            "group_instance_id": self.instance_id,
        }

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    # ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def send_join(self, version: int = JOIN, **changes: Any) -> int:
        content = {"group_id": self.group, **self.identity, **self._join, **changes}
        return self.wire.send("join_group", version, content)

    def receive_join(self, correlation_id: int, version: int = JOIN) -> int:
        """Return the error code; the rest of the response is in the attributes."""
        answer = self.wire.receive("join_group", version, correlation_id)
        self.member_id = answer.member_id or self.member_id
        if int(answer.error_code) == OK:
            self.generation, self.leader = answer.generation_id, answer.leader
            self.protocol = answer.protocol_name
            self.members = tuple(member.member_id for member in answer.members)
        return int(answer.error_code)

    def join(self, version: int = JOIN, **changes: Any) -> int:
        """Join, again if only an id was assigned, and wait for the response."""
        code = self.receive_join(self.send_join(version, **changes), version)
        if code == MEMBER_ID_REQUIRED:
            code = self.receive_join(self.send_join(version, **changes), version)
        return code

    # ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> int:
        content = {
            **self.identity,
            "protocol_type": self._join["protocol_type"],
            "protocol_name": self.protocol or "range",
            "assignments": [{"member_id": who, "assignment": data} for who, data in (assignments or {}).items()],
            **changes,
        }
        return int(self.call("sync_group", SYNC, content).error_code)

    def heartbeat(self, **changes: Any) -> int:
        return int(self.call("heartbeat", HEARTBEAT, {**self.identity, **changes}).error_code)

    def leave(self) -> int:
        answer = self.call("leave_group", LEAVE, {"members": [self.identity]})
        return int(answer.error_code) or int(answer.members[0].error_code)

    def commit(self, offsets: Mapping[TP, int], metadata: str | None = "", **changes: Any) -> list[int]:
        """Return the error codes, one per partition."""
        version = changes.pop("version", COMMIT)
        answer = self.call("offset_commit", version, {**self.identity, **commit_content(offsets, metadata), **changes})
        return [int(partition.error_code) for topic in answer.topics for partition in topic.partitions]

    def settle_alone(self) -> None:
        """Join, and be the only member of a stable group."""
        assert self.join() == OK
        assert self.sync({self.member_id: b"everything"}) == OK


def commit_content(offsets: Mapping[TP, int], metadata: str | None = "", topic: UUID | None = None) -> dict[str, Any]:
    partitions: dict[str, list[dict[str, Any]]] = {}
    for tp, offset in offsets.items():
        partitions.setdefault(tp.topic, []).append(
            {
                "partition_index": tp.partition,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": metadata,
            }
        )
    return {
        "retention_time": -1,
        "topics": [{"name": name, "topic_id": topic, "partitions": given} for name, given in partitions.items()],
    }


def committed(wire: Wire, group: str, partitions: Sequence[TP]) -> dict[TP, tuple[int, str]]:
    """Return the response to OffsetFetch, without errors."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    wanted = [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]
    content = {"groups": [{"group_id": group, "member_epoch": -1, "topics": wanted}], "require_stable": False}
    (answer,) = wire.call("offset_fetch", FETCH, content).groups
    assert int(answer.error_code) == OK
    found = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            assert int(partition.error_code) == OK
            found[TP(topic.name, partition.partition_index)] = (partition.committed_offset, partition.metadata)
    return found


class RawConsumer:
    """A member of the consumer protocol (KIP-848), with one request for everything."""

    def __init__(self, bootstrap_servers: str, group: str, topics: Sequence[str] = ("topic",), **fields: Any) -> None:
        need_consumer_protocol(bootstrap_servers)
        self.wire = Wire(bootstrap_servers)
        self.group, self.member_id, self.epoch = group, str(uuid4()), 0
        self.first = {"rebalance_timeout": 10_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
        self.fields = fields
        self.assignment: dict[UUID, list[int]] = {}

    def vanish(self) -> None:
        self.wire.__exit__()

    def heartbeat(self, **changes: Any) -> int:
        """Return the error code; the rest of the response is in the attributes."""
        known = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch, **self.fields}
        rest = self.first if self.epoch == 0 else {"rebalance_timeout": -1}
        answer = self.wire.call("consumer_group_heartbeat", 1, {**known, **rest, **changes})
        if int(answer.error_code) == OK:
            self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assignment = {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}
        return int(answer.error_code)

    def settle(self) -> None:
        """Join, and confirm the assignment."""
        assert self.heartbeat() == OK
        owned = [{"topic_id": topic, "partitions": numbers} for topic, numbers in self.assignment.items()]
        assert self.heartbeat(topic_partitions=owned) == OK

    def commit(self, offsets: Mapping[TP, int], **changes: Any) -> list[int]:
        known = {"group_id": self.group, "member_id": self.member_id, "generation_id_or_member_epoch": self.epoch}
        version = changes.pop("version", COMMIT)
        answer = self.wire.call("offset_commit", version, {**known, **commit_content(offsets), **changes})
        return [int(partition.error_code) for topic in answer.topics for partition in topic.partitions]

    def fetch(self, partition: TP, **changes: Any) -> int:
        """Return the error code of the group."""
        wanted = {"group_id": self.group, "member_id": self.member_id, "member_epoch": self.epoch}
        topics = [{"name": partition.topic, "partition_indexes": [partition.partition]}]
        content = {"groups": [{**wanted, "topics": topics, **changes}], "require_stable": False}
        (answer,) = self.wire.call("offset_fetch", FETCH, content).groups
        return int(answer.error_code)


class Crowd:
    """Many members of one group."""

    def __init__(self, bootstrap_servers: str, group: str, count: int, **fields: Any) -> None:
        self.members = [RawMember(bootstrap_servers, group, **fields) for _ in range(count)]
        self._waiting: dict[RawMember, int] = {}

    def vanish(self) -> None:
        for member in self.members:
            member.vanish()

    def ask(self) -> None:
        """Send a join of every member, with its id."""
        for member in self.members:
            if not member.member_id:
                assert member.receive_join(member.send_join()) == MEMBER_ID_REQUIRED
        for member in self.members:
            self._waiting[member] = member.send_join()

    def assemble(self) -> None:
        """Join until all members are in one generation."""
        self.ask()
        until(self._is_one, "all are in one generation", 60)

    def rally(self) -> None:
        """Join all members and let the leader distribute the assignments."""
        self.assemble()
        leader = next(member for member in self.members if member.leads)
        followers = [member for member in self.members if member is not leader]
        assert leader.sync({member: member.encode() for member in leader.members}) == OK
        assert {member.sync() for member in followers} <= {OK}

    def _is_one(self) -> bool:
        self._receive()
        for member in self.members:
            if member not in self._waiting and member.heartbeat() == REBALANCE_IN_PROGRESS:
                self._waiting[member] = member.send_join()
        together = not self._waiting and len({member.generation for member in self.members}) == 1
        return together and any(len(member.members) == len(self.members) for member in self.members if member.leads)

    def _receive(self) -> None:
        with selectors.DefaultSelector() as selector:
            for member in self._waiting:
                selector.register(member.wire._socket, selectors.EVENT_READ, member)
            for key, _ in selector.select(0.05) if self._waiting else ():
                assert key.data.receive_join(self._waiting.pop(key.data)) == OK


def id_of(wire: Wire, topic: str) -> UUID:
    found: UUID = topic_id(wire, topic)
    return found
