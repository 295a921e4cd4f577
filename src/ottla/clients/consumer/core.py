"""The engine of a consumer: it drives the machines of `ottla.consuming` and does their I/O.

`tick` asks every machine what to send now and when to ask again; every event leads to the next tick. It runs on the
event loop, whether or not the user polls, so heartbeats and fetches continue while records are processed. No user code
runs here: listeners and callbacks are passed on as `Chore`s, which the blocking consumer runs on the user's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from uuid import uuid4

from ottla.clients.blocking import IllegalUse, same_loop
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import LAST_FETCH_BY_NAME
from ottla.clients.cluster.metadata import NO_LEADER
from ottla.clients.cluster.pool import ConnectionPool
from ottla.clients.consumer.group import Coordinator, Group, monotonic_ms
from ottla.clients.consumer.lookup import Lookup
from ottla.clients.consumer.position_requests import PositionRequests
from ottla.clients.consumer.refreshing import Refresher
from ottla.config.consumer import CONSUMER, ConsumerConfig
from ottla.consuming.buffer import Buffer, Completed
from ottla.consuming.classic import ClassicMember
from ottla.consuming.commits import AutoCommit
from ottla.consuming.consumer import ConsumerMember
from ottla.consuming.errors import GroupRequired
from ottla.consuming.fetching import Fetch, Fetcher, FetchLimits, Leader
from ottla.consuming.membership import Member, MemberSettings, earliest
from ottla.consuming.positions import Positions
from ottla.consuming.subscription import Mode, Subscription
from ottla.errors import (
    AuthenticationError,
    KafkaError,
    OttlaError,
    UnknownTopicOrPartition,
)
from ottla.protocol.apis import ApiKey
from ottla.runtime.assignors import client_assignors
from ottla.types import Millis, TopicPartition

log = logging.getLogger("ottla.consumer")

#: Compressed fetches of at least this size are decompressed on a thread of the loop's executor.
UNPACK_ASIDE_BYTES = 128 * 1024
#: The loop ticks in one turn, and sends the fetch in the next.
TURNS_TO_FETCH = 2


class Chore(NamedTuple):
    """User code to run on the user's thread."""

    call: Callable[[], Any]
    finish: Callable[[], None]
    """Runs on the event loop afterwards, whether or not the call raised."""


def nothing() -> None:
    return


class Engine:
    """The part of a consumer that runs on the event loop."""

    def __init__(self, config: ConsumerConfig, *, unpacks_aside: bool) -> None:
        self.config = config
        self.cluster = Cluster.of(config, api_timeout_ms=config.default_api_timeout_ms)
        self.lookup = Lookup(self.cluster, read_committed=config.read_committed)
        self.subscription = Subscription()
        self.positions = Positions(_policy(config), in_group=config.group_id is not None)
        self.buffer = Buffer(self.positions, self._fetch_started)
        self.fetcher = Fetcher(self.positions, self.buffer, _limits(config))
        self.auto_commit = AutoCommit(config.auto_commit_interval_ms) if config.auto_commits else None
        shared = self.cluster.pool
        self._fetch_pool = ConnectionPool(shared.settings, shared.reports)
        self._group_pool = ConnectionPool(shared.settings, shared.reports)
        self.group = self._make_group()
        self.refresher = Refresher(self)
        self._position_requests = PositionRequests(self, self.lookup)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.attention = True
        """Something happened that poll must handle before it hands out records."""
        self.turns_owed = 0
        """How many turns of the loop are needed until the next fetch is sent."""
        self.closed = False
        self._process = os.getpid()
        self.errors: deque[OttlaError] = deque()
        self.chores: deque[Chore] = deque()
        self.unreachable: OttlaError | None = None
        """Why no broker was ever reached; None as soon as one was."""
        self.trouble: KafkaError | None = None
        """The last error of a request."""
        self.fetches = self.fetched_bytes = self.rebalances = 0
        self._unpacks_aside = unpacks_aside
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._news: asyncio.Future[None] | None = None
        self._adding = asyncio.Lock()
        self._version = -1

    def _make_group(self) -> Group | None:
        config = self.config
        if config.group_id is None:
            return None
        settings = MemberSettings(
            group_id=config.group_id,
            group_instance_id=config.group_instance_id,
            rack_id=config.client_rack or None,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            server_assignor=config.group_remote_assignor,
        )
        member: Member
        if config.group_protocol == CONSUMER:
            member = ConsumerMember(settings, urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode())
        else:
            member = ClassicMember(settings, client_assignors(config.partition_assignment_strategy))
        return Group(
            config.group_id,
            Coordinator(self.cluster, self._group_pool, config.group_id),
            member,
            spawn=self.spawn,
            changed=self.attend,
            retry_backoff_ms=config.retry_backoff_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            max_poll_records=config.max_poll_records,
        )

    # ── the tick ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Bind to the running loop at the first call; IllegalUse on another loop."""
        self.loop = same_loop(self.loop, "consumer")
        if self.is_forked:
            raise IllegalUse(
                "this consumer was created before the process forked, and its connections belong to the parent: create "
                "a new one in the child"
            )

    @property
    def is_forked(self) -> bool:
        """Whether this is the copy in a child process, which has no connections to close."""
        return os.getpid() != self._process

    def tick(self) -> None:
        if self.closed or self.loop is None:
            return
        now = monotonic_ms()
        wakes: list[Millis | None] = []
        self.tell_group()
        if self.group is not None and self.group.subscribed:
            step = self.group.member.poll(now=now)
            self.group.send(step.requests)
            # A member that has just left because the user was stuck must lose its partitions before it hands out more.
            self.attention = self.attention or bool(step.requests) or step.rejected
            if step.rejected:
                self.notify()
            wakes.append(step.wake_at)
            if step.metadata is not None:
                self.refresher.refresh()
        self.buffer.settle()
        self._position_requests.send(now=now)
        fetches, leaderless, wake = self.fetcher.poll(self._leader, now=now)
        for fetch in fetches:
            self.spawn(self._fetch(fetch))
        wakes.append(wake)
        if leaderless:
            self.refresher.refresh(later=True)
        if self.subscription.mode is not Mode.NONE:
            if now >= self.refresher.due_at:
                self.refresher.refresh()
            wakes.append(self.refresher.due_at)
        self._wake_at(earliest(*wakes), now)

    def _wake_at(self, at: Millis | None, now: Millis) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and self.loop is not None:
            self._timer = self.loop.call_later(max(1, at - now) / 1000, self.tick)

    def tell_group(self) -> None:
        """Pass a new subscription to the member."""
        subscription = self.subscription
        if self.group is None or subscription.version == self._version or not subscription.by_group:
            return
        self._version = subscription.version
        self.group.subscribed = True
        if (
            subscription.mode is Mode.PATTERN
            and subscription.pattern is not None
            and not self.refresher.knows_all_topics
        ):
            self._version = -1  # the topics that match are not known yet
            self.refresher.refresh()
            return
        self.group.member.subscribe(subscription.topics, subscription.server_pattern)
        self.attention = True

    def required_group(self) -> Group:
        if self.group is None:
            raise GroupRequired('group.id is missing: name the group, such as Consumer(group_id="my-group")')
        return self.group

    def take_chores(self) -> list[Chore]:
        chores = list(self.chores)
        self.chores.clear()
        return chores

    def look_again(self) -> None:
        """The subscription or the assignment changed: fetch metadata and tick."""
        self.attention = True
        self.refresher.due_at = 0
        self.tick()

    def attend(self) -> None:
        """Something happened to the group: poll must handle it, and there may be something to send."""
        self.attention = True
        self.notify()
        self.tick()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self.fail(error if isinstance(error, OttlaError) else OttlaError(f"the consumer failed: {error!r}"))
        if not isinstance(error, OttlaError):
            log.error("a consumer failed in the background", exc_info=error)

    def fail(self, error: OttlaError) -> None:
        """Let poll raise an error; several requests may fail for the same reason before it does."""
        if str(error) not in map(str, self.errors):
            self.errors.append(error)
        self.attention = True
        self.notify()

    # ── waiting for news ──────────────────────────────────────────────────────────────────────────────────────────

    def notify(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def news(self, seconds: float) -> None:
        """Wait for the next event, at most so long."""
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        timer = loop.call_later(seconds, self.notify)
        try:
            await self._news
        finally:
            timer.cancel()
            self._news = None

    def _fetch_started(self) -> None:
        """A partition can be fetched again; called on the user's thread in the blocking consumer."""
        self.turns_owed = TURNS_TO_FETCH
        if self.loop is not None:
            try:
                self.loop.call_soon_threadsafe(self.tick)
            except RuntimeError:  # the loop has been closed
                return

    # ── fetching ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _leader(self, key: TopicPartition) -> Leader | None:
        topic = self.cluster.metadata.topics.get(key.topic)
        info = topic.partitions.get(key.partition) if topic is not None else None
        if topic is None or info is None or info.leader == NO_LEADER:
            return None
        return Leader(info.leader, info.leader_epoch, topic.topic_id)

    async def _fetch(self, fetch: Fetch) -> None:
        try:
            node = self.cluster.metadata.nodes.get(fetch.node)
            if node is None:
                raise UnknownTopicOrPartition(f"broker {fetch.node} is not known")
            connection = await self._fetch_pool.get((node.host, node.port))
            at_most = LAST_FETCH_BY_NAME if None in fetch.names else None
            patience = self.config.request_timeout_ms + self.config.fetch_max_wait_ms
            response = await connection.request(ApiKey.FETCH, fetch.message, at_most=at_most, timeout_ms=patience)
        except KafkaError as error:
            log.debug("a fetch from broker %s failed: %s", fetch.node, error)
            self.fetcher.failed(fetch, now=monotonic_ms())
            if isinstance(error, AuthenticationError):
                self.fail(error)
            self.refresher.refresh(later=True)
        except BaseException:
            self.fetcher.failed(fetch, now=monotonic_ms())
            raise
        else:
            self.fetches += 1
            outcome = self.fetcher.answered(fetch, response, now=monotonic_ms())
            async with self._adding:  # in the order of the responses, even if some are decompressed on a thread
                for completed in outcome.completed:
                    await self._add(completed)
            if outcome.stale:
                self.refresher.refresh(later=True)
        self.tick()

    async def _add(self, completed: Completed) -> None:
        self.fetched_bytes += len(completed.data)
        if self._unpacks_aside and completed.compressed_bytes >= UNPACK_ASIDE_BYTES:
            await asyncio.get_running_loop().run_in_executor(None, completed.unpack)
        self.buffer.add(completed)
        self.notify()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def leave(self, reason: str, seconds: float) -> None:
        """Leave the group at once, and wait so long for the response."""
        if self.group is None or not self.group.subscribed:
            return
        request = self.group.member.leave(reason)
        self.group.subscribed = False
        self._version = -1
        if request is not None:
            try:
                seconds = min(seconds, self.config.request_timeout_ms / 1000)
                await self.group.leave(request, self.cluster.pool, seconds)
            except TimeoutError:
                log.info("the coordinator did not confirm in time that this consumer left")

    async def close(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.buffer.clear()
        await asyncio.gather(self._fetch_pool.close(), self._group_pool.close(), self.cluster.close())


def _policy(config: ConsumerConfig) -> str:
    return "duration" if config.reset_duration_ms is not None else config.auto_offset_reset


def _limits(config: ConsumerConfig) -> FetchLimits:
    return FetchLimits(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        partition_max_bytes=config.max_partition_fetch_bytes,
        read_committed=config.read_committed,
        check_crcs=config.check_crcs,
        rack=config.client_rack,
        backoff_ms=config.retry_backoff_ms,
        preferred_replica_ms=config.metadata_max_age_ms,
    )
