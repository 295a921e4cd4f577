"""The requests of a consumer to its group coordinator: those of the member, and commits in order.

The coordinator has its own connection, because a join may wait there for minutes and must not delay anything else.
The machines in `ottla.consuming` decide what to send and what responses mean.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.coordinators import find_coordinators
from ottla.clients.cluster.metadata import Node
from ottla.clients.cluster.pool import ConnectionPool
from ottla.consuming.commits import LAST_COMMIT_BY_NAME, Offsets, Verdict, commit_message, read_commit, verdict
from ottla.consuming.errors import CommitFailed, RebalanceUnderWay, RetriableCommitFailed, commit_failed
from ottla.consuming.membership import COORDINATOR_MOVED, Identity, Member, Request
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import (
    CoordinatorLoadInProgress,
    FencedMemberEpoch,
    KafkaError,
    NetworkException,
    StaleMemberEpoch,
    UnknownMemberId,
    error_class,
)
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis, TopicPartition

LAST_FETCH_BY_NAME = 9
FIRST_BATCHED = 8
NO_OFFSET = -1
#: How long leaving the group may wait for a connection to the coordinator if there is none and no time left.
CONNECT_TO_LEAVE_SECONDS = 0.5


def monotonic_ms() -> Millis:
    return int(time.monotonic() * 1000)


class Coordinator:
    """Finds the group's coordinator and connects to it."""

    def __init__(self, cluster: Cluster, pool: ConnectionPool, group_id: str) -> None:
        self._cluster = cluster
        self._pool = pool
        self._group_id = group_id
        self._finding = asyncio.Lock()
        self.node: Node | None = None

    async def request(
        self, api: ApiKey, message: Message, *, at_most: int | None = None, timeout_ms: Millis | None = None
    ) -> Struct:
        """Send one request. After a lost connection the coordinator is looked up again."""
        connection = await self.connection()
        try:
            return await connection.request(api, message, at_most=at_most, timeout_ms=timeout_ms)
        except NetworkException:
            self.node = None
            raise

    async def connection(self, pool: ConnectionPool | None = None) -> Connection:
        async with self._finding:
            if self.node is None:
                found = (await find_coordinators(self._cluster, [self._group_id]))[self._group_id]
                if isinstance(found, KafkaError):
                    raise found
                self.node = found
            node = self.node
        try:
            return await (pool or self._pool).get((node.host, node.port))
        except NetworkException:
            self.node = None
            raise

    def heard(self, error: KafkaError | None) -> None:
        if isinstance(error, COORDINATOR_MOVED):
            self.node = None


class Group:
    """A consumer's access to its group."""

    def __init__(
        self,
        group_id: str,
        coordinator: Coordinator,
        member: Member,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        changed: Callable[[], None],
        retry_backoff_ms: Millis,
        max_poll_interval_ms: Millis,
        max_poll_records: int,
    ) -> None:
        self.group_id = group_id
        self.coordinator = coordinator
        self.member = member
        self.subscribed = False
        """Whether to commit as a member: partitions of `assign` are committed without a generation."""
        self._spawn = spawn
        self._changed = changed
        self._retry_backoff = retry_backoff_ms / 1000
        self._max_poll_interval_ms = max_poll_interval_ms
        self._max_poll_records = max_poll_records
        self._polled_at = monotonic_ms()
        self._committing = asyncio.Lock()
        self.commits = 0

    def polled(self, *, now: Millis) -> None:
        self._polled_at = now
        self.member.polled(now=now)

    # ── the member ────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self._spawn(self._send(request))

    async def _send(self, request: Request) -> None:
        try:
            response = await self.coordinator.request(request.api, request.message, timeout_ms=request.timeout_ms)
        except KafkaError as error:
            self.member.failed(request, error, now=monotonic_ms())
        else:
            self.coordinator.heard(self.member.answered(request, response, now=monotonic_ms()))
        self._changed()

    async def leave(self, request: Request, pool: ConnectionPool, seconds: float) -> None:
        """Tell the coordinator that this member leaves, on an idle connection; errors do not matter.

        The request is sent even if there is no time to wait for its response.
        """
        try:
            async with asyncio.timeout(max(seconds, CONNECT_TO_LEAVE_SECONDS)):
                connection = await self.coordinator.connection(pool)
            async with asyncio.timeout(seconds):
                await connection.request(request.api, request.message)
        except KafkaError:
            return

    # ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _who(self) -> Identity:
        return self.member.identity if self.subscribed else Identity()

    async def commit(self, offsets: Offsets) -> None:
        """Commit, and retry while that can help; in the order of the calls."""
        who = self._who
        async with self._committing:
            while True:
                error = await self._commit_once(offsets, who)
                if error is None:
                    return
                kind = verdict(error)
                if kind not in (Verdict.RETRY, Verdict.RENEW):
                    raise error
                await asyncio.sleep(self._retry_backoff)
                # A member may commit what it still owns in the next generation too; other partitions may have moved on.
                if not self.subscribed or self.member.owned.issuperset(offsets):
                    who = self._who

    async def commit_once(self, offsets: Offsets) -> KafkaError | None:
        """Commit without retries: a later commit may have succeeded already."""
        who = self._who
        async with self._committing:
            error = await self._commit_once(offsets, who)
        if error is not None and verdict(error) in (Verdict.RETRY, Verdict.RENEW):
            return RetriableCommitFailed(f"the offsets were not committed, and are not retried: {error}")
        return error

    async def _commit_once(self, offsets: Offsets, who: Identity) -> KafkaError | None:
        if not offsets:
            return None
        if self.subscribed and not self.member.is_member:
            return self._too_late("this consumer is not a member of the group now")
        if self.subscribed and not self.member.can_commit:
            return RebalanceUnderWay(RebalanceUnderWay.__doc__ or "")
        message = commit_message(self.group_id, who, offsets)
        try:
            response = await self.coordinator.request(ApiKey.OFFSET_COMMIT, message, at_most=LAST_COMMIT_BY_NAME)
        except KafkaError as error:
            return error
        self.commits += 1
        refusal = read_commit(response)
        self.coordinator.heard(refusal)
        return None if refusal is None else self._refused(refusal, who)

    def _refused(self, error: KafkaError, who: Identity) -> KafkaError:
        kind = verdict(error)
        if kind is Verdict.RETRY or (kind is Verdict.FATAL and not self.subscribed):
            return error
        if not self.subscribed:
            return CommitFailed(
                f"the commit was rejected ({error.name}): group {self.group_id} has subscribed members, but this "
                "consumer uses assign(). Give it its own group.id"
            )
        if kind is Verdict.TOO_LATE and who != self._who and self.member.is_member:
            return RebalanceUnderWay(f"{RebalanceUnderWay.__doc__} ({error.name})")
        self.member.commit_rejected(error, who)
        self._changed()
        return self._too_late(error.name) if kind is Verdict.TOO_LATE else error

    def _too_late(self, reason: str) -> KafkaError:
        return commit_failed(
            reason,
            gap=monotonic_ms() - self._polled_at,
            max_poll_interval_ms=self._max_poll_interval_ms,
            max_poll_records=self._max_poll_records,
        )

    # ── what was committed ────────────────────────────────────────────────────────────────────────────────────────

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch committed offsets once; raises the coordinator's error."""
        wanted = list(partitions)
        topics: dict[str, list[int]] = {}
        for key in wanted:
            topics.setdefault(key.topic, []).append(key.partition)
        named = [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]
        answer = await self._offset_fetch(named)
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise self._heard(error_class(one.error_code)(), self._who)
                if one.committed_offset > NO_OFFSET:
                    epoch = one.committed_leader_epoch
                    value = OffsetAndMetadata(one.committed_offset, one.metadata or "", epoch if epoch >= 0 else None)
                    found[TopicPartition(topic.name, one.partition_index)] = value
        return found

    async def _offset_fetch(self, topics: list[Message]) -> Struct:
        connection = await self.coordinator.connection()
        version = connection.version_of(ApiKey.OFFSET_FETCH, at_most=LAST_FETCH_BY_NAME)
        who = self._who
        group = {"group_id": self.group_id, "member_id": None, "member_epoch": -1, "topics": topics}
        if self.subscribed and self.member.is_member and self.member.has_epochs:
            group |= {"member_id": who.member_id, "member_epoch": who.generation}
        message: Message = {"groups": [group], "require_stable": True}
        if version < FIRST_BATCHED:
            message = {"group_id": self.group_id, "topics": topics, "require_stable": True}
        response = await self.coordinator.request(ApiKey.OFFSET_FETCH, message, at_most=LAST_FETCH_BY_NAME)
        answer = response if version < FIRST_BATCHED else response.groups[0]
        if answer.error_code:
            raise self._heard(error_class(answer.error_code)(), who)
        return answer

    def _heard(self, error: KafkaError, who: Identity) -> KafkaError:
        """The error to raise; an old epoch is renewed by a heartbeat, and the request is repeated."""
        self.coordinator.heard(error)
        if isinstance(error, StaleMemberEpoch | FencedMemberEpoch | UnknownMemberId):
            self.member.commit_rejected(error, who)
            self._changed()
            return CoordinatorLoadInProgress(f"the member's epoch is not up to date: {error}")
        return error
