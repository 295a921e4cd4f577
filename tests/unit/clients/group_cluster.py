"""Brokers with groups under the control of a test: coordinators move and load, in any version."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.clients.fake_cluster import HANG_UP, FakeCluster

from ottla.errors import GroupIdNotFound, NotCoordinator, UnknownMemberId
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey, api
from ottla.types import TopicPartition


@dataclass
class FakeGroup:
    coordinator: int
    state: str = "Empty"
    type: str = "Classic"
    protocol_type: str = "consumer"
    members: list[dict[str, Any]] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class GroupCluster(FakeCluster):
    """`groups` may be changed at any time; `versions` limits the brokers' group requests."""

    def __init__(self, brokers: int = 2, *, versions: dict[int, int | None] | None = None) -> None:
        super().__init__(brokers)
        self.groups: dict[str, FakeGroup] = {}
        self.bodies: dict[int, list[Any]] = defaultdict(list)
        self._handlers: dict[int, Callable[[int, Any], dict[str, Any]]] = {
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.LIST_GROUPS: self._list,
            ApiKey.DESCRIBE_GROUPS: self._describe,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self._describe_consumer,
            ApiKey.OFFSET_FETCH: self._offsets,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.DELETE_GROUPS: self._delete,
        }
        newest = {key: api(key).last for key in self._handlers} | (versions or {})
        self._group_apis = {key: last for key, last in newest.items() if last is not None}

    async def _api_versions(self, broker: int, body: Any) -> dict[str, Any]:
        message = await super()._api_versions(broker, body)
        message["api_keys"] += [
            {"api_key": key, "min_version": api(key).first, "max_version": last}
            for key, last in self._group_apis.items()
        ]
        return message

    async def _handle(self, broker: int, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = codec.decode_request_header(frame)
        handler = self._handlers.get(header.api_key)
        if handler is None:
            await super()._handle(broker, frame, writer)
            return
        body = codec.decode_request_body(header.api_key, header.api_version, frame, header.body)
        self.requests.append((header.api_key, broker))
        self.bodies[header.api_key].append(body)
        if self._next_failure(header.api_key, None) == HANG_UP:
            raise ConnectionError
        message = handler(broker, body)
        writer.write(codec.encode_response(header.api_key, header.api_version, header.correlation_id, message))

    def _code(self, api_key: int, group: str, broker: int) -> int:
        failure = self._next_failure(api_key, TopicPartition(group, 0))
        if isinstance(failure, int):
            return failure
        return 0 if group not in self.groups or self.groups[group].coordinator == broker else NotCoordinator.code

    def _find(self, broker: int, body: Any) -> dict[str, Any]:
        if not body.coordinator_keys:
            return self._where(body.key)
        return {"coordinators": [{"key": key, **self._where(key)} for key in body.coordinator_keys]}

    def _where(self, key: str) -> dict[str, Any]:
        failure = self._next_failure(ApiKey.FIND_COORDINATOR, TopicPartition(key, 0))
        if isinstance(failure, int):
            return {"error_code": failure, "error_message": None, "node_id": -1, "host": "", "port": -1}
        node = self.groups[key].coordinator if key in self.groups else 0
        where = {"node_id": node, "host": "127.0.0.1", "port": self._ports[node]}
        return {"error_code": 0, "error_message": None, **where}

    def _list(self, broker: int, body: Any) -> dict[str, Any]:
        failure = self._next_failure(ApiKey.LIST_GROUPS, None)
        mine = [
            {"group_id": name, "protocol_type": one.protocol_type, "group_state": one.state, "group_type": one.type}
            for name, one in self.groups.items()
            if one.coordinator == broker and one.state in (body.states_filter or [one.state])
        ]
        return {"error_code": failure or 0, "groups": [] if failure else mine}

    def _describe(self, broker: int, body: Any) -> dict[str, Any]:
        return {"groups": [self._described(broker, name) for name in body.groups]}

    def _described(self, broker: int, name: str) -> dict[str, Any]:
        code = self._code(ApiKey.DESCRIBE_GROUPS, name, broker)
        group = self.groups.get(name, FakeGroup(0, state="Dead"))
        return {
            "error_code": code,
            "group_id": name,
            "group_state": group.state,
            "protocol_type": group.protocol_type,
            "protocol_data": "range",
            "members": group.members,
        }

    def _describe_consumer(self, broker: int, body: Any) -> dict[str, Any]:
        return {"groups": [self._described_consumer(broker, name) for name in body.group_ids]}

    def _described_consumer(self, broker: int, name: str) -> dict[str, Any]:
        code = self._code(ApiKey.CONSUMER_GROUP_DESCRIBE, name, broker)
        group = self.groups.get(name)
        if not code and (group is None or group.type != "Consumer"):
            code = GroupIdNotFound.code
        return {
            "error_code": code,
            "group_id": name,
            "group_state": group.state if group else "",
            "group_epoch": 5,
            "assignment_epoch": 4,
            "assignor_name": "uniform",
            "members": group.members if group and not code else [],
        }

    def _offsets(self, broker: int, body: Any) -> dict[str, Any]:
        if body.groups:
            return {
                "groups": [{"group_id": one.group_id, **self._offsets_of(broker, one.group_id)} for one in body.groups]
            }
        return self._offsets_of(broker, body.group_id)

    def _offsets_of(self, broker: int, name: str) -> dict[str, Any]:
        code = self._code(ApiKey.OFFSET_FETCH, name, broker)
        offsets = {} if code else self.groups[name].offsets if name in self.groups else {}
        topics = [
            {
                "name": key.topic,
                "partitions": [{"partition_index": key.partition, "committed_offset": offset, "metadata": "m"}],
            }
            for key, offset in offsets.items()
        ]
        return {"error_code": code, "topics": topics}

    def _commit(self, broker: int, body: Any) -> dict[str, Any]:
        group = self.groups.setdefault(body.group_id, FakeGroup(broker))
        code = self._code(ApiKey.OFFSET_COMMIT, body.group_id, broker)
        code = code or (UnknownMemberId.code if group.members else 0)
        topics = []
        for topic in body.topics:
            for one in topic.partitions:
                if not code:
                    group.offsets[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
            answers = [{"partition_index": one.partition_index, "error_code": code} for one in topic.partitions]
            topics.append({"name": topic.name, "partitions": answers})
        return {"topics": topics}

    def _delete(self, broker: int, body: Any) -> dict[str, Any]:
        results = []
        for name in body.groups_names:
            code = self._code(ApiKey.DELETE_GROUPS, name, broker)
            code = code or (0 if self.groups.pop(name, None) else GroupIdNotFound.code)
            results.append({"group_id": name, "error_code": code})
        return {"results": results}
