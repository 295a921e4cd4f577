"""The engine of a consumer: it drives the machines of `ottla.consuming` and does their I/O.

`tick` asks every machine what to send now and when to ask again; every event leads to the next tick. It runs on the
event loop, whether or not the user polls, so heartbeats and fetches continue while records are processed. No user code
runs here: listeners and callbacks are passed on as `Chore`s, which the blocking consumer runs on the user's thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from ottla.clients.blocking import IllegalUse, same_loop
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import LAST_FETCH_BY_NAME, FoundOffset, with_partition
from ottla.clients.cluster.metadata import NO_LEADER, Metadata, TopicInfo
from ottla.clients.cluster.pool import ConnectionPool
from ottla.clients.consumer.group import Coordinator, Group, monotonic_ms
from ottla.clients.consumer.lookup import Lookup, timestamp_of
from ottla.config.consumer import CONSUMER, ConsumerConfig
from ottla.consuming.buffer import Buffer, Completed
from ottla.consuming.classic import ClassicMember
from ottla.consuming.commits import AutoCommit
from ottla.consuming.consumer import ConsumerMember
from ottla.consuming.errors import GroupRequired
from ottla.consuming.fetching import Fetch, Fetcher, FetchLimits, Leader
from ottla.consuming.membership import Member, MemberSettings, Topics, earliest
from ottla.consuming.positions import Need, Positions
from ottla.consuming.subscription import Mode, Subscription
from ottla.errors import (
    InvalidTopicException,
    KafkaError,
    OttlaError,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.protocol.apis import ApiKey
from ottla.runtime.assignors import client_assignors
from ottla.types import Millis, TopicPartition

log = logging.getLogger("ottla.consumer")

#: How soon the metadata of a missing topic is requested again.
MISSING_TOPIC_MS: Millis = 2_000
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
        self.buffer = Buffer(self.positions, self._begun)
        self.fetcher = Fetcher(self.positions, self.buffer, _limits(config))
        self.auto_commit = AutoCommit(config.auto_commit_interval_ms) if config.auto_commits else None
        shared = self.cluster.pool
        self._fetch_pool = ConnectionPool(shared.settings, shared.reached)
        self._group_pool = ConnectionPool(shared.settings, shared.reached)
        self.group = self._make_group()
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
        self._refreshing = False
        self._refresh_again = False
        self._refresh_at: Millis = 0
        self._missing: set[str] = set()
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
        self._tell_group()
        if self.group is not None and self.group.subscribed:
            step = self.group.member.poll(now=now)
            self.group.send(step.requests)
            # A member that has just left because the user was stuck must lose its partitions before it hands out more.
            self.attention = self.attention or bool(step.requests) or step.refused
            if step.refused:
                self.notify()
            wakes.append(step.wake_at)
            if step.metadata is not None:
                self.refresh()
        self.buffer.settle()
        self._ask(now)
        fetches, leaderless, wake = self.fetcher.poll(self._leader, now=now)
        for fetch in fetches:
            self.spawn(self._fetch(fetch))
        wakes.append(wake)
        if leaderless:
            self.refresh(later=True)
        if self.subscription.mode is not Mode.NONE:
            if now >= self._refresh_at:
                self.refresh()
            wakes.append(self._refresh_at)
        self._wake_at(earliest(*wakes), now)

    def _wake_at(self, at: Millis | None, now: Millis) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None and self.loop is not None:
            self._timer = self.loop.call_later(max(1, at - now) / 1000, self.tick)

    def _tell_group(self) -> None:
        """Pass a new subscription to the member."""
        subscription = self.subscription
        if self.group is None or subscription.version == self._version or not subscription.by_group:
            return
        self._version = subscription.version
        self.group.subscribed = True
        if subscription.mode is Mode.PATTERN and subscription.pattern is not None and not self._knows_all_topics:
            self._version = -1  # the topics that match are not known yet
            self.refresh()
            return
        self.group.member.subscribe(subscription.topics, subscription.server_pattern)
        self.attention = True

    _knows_all_topics = False

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
        self._refresh_at = 0
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
        """Let poll raise an error."""
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

    def _begun(self) -> None:
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
            self.refresh(later=True)
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
                self.refresh(later=True)
        self.tick()

    async def _add(self, completed: Completed) -> None:
        self.fetched_bytes += len(completed.data)
        if self._unpacks_aside and completed.compressed_bytes >= UNPACK_ASIDE_BYTES:
            await asyncio.get_running_loop().run_in_executor(None, completed.unpack)
        self.buffer.add(completed)
        self.notify()

    # ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, now: Millis) -> None:
        if self.group is not None and (tokens := self.positions.to_ask(Need.COMMITTED, now=now)):
            self.spawn(self._ask_committed(tokens))
        if tokens := self.positions.to_ask(Need.RESET, now=now):
            self.spawn(self._ask_reset(tokens))
        if tokens := self.positions.to_ask(Need.VALIDATE, now=now):
            self.spawn(self._ask_epochs(tokens))

    async def _ask_committed(self, tokens: dict[TopicPartition, int]) -> None:
        assert self.group is not None
        try:
            found = await self.group.committed(tokens)
        except KafkaError as error:
            self._not_answered(tokens, error)
            return
        for key, token in tokens.items():
            self.positions.committed(key, token, found[key])
        self.attend()

    async def _ask_reset(self, tokens: dict[TopicPartition, int]) -> None:
        wall = int(time.time() * 1000)
        resets = {}
        for key in tokens:
            state = self.positions.get(key)
            if state is not None and state.reset is not None:
                resets[key] = timestamp_of(state.reset, wall_ms=wall, duration_ms=self.config.reset_duration_ms)
        try:
            found = await self.lookup.positions(resets)
        except KafkaError as error:
            self._not_answered(tokens, error)
            return
        for key, one in found.items():
            if isinstance(one, FoundOffset):
                epoch = one.leader_epoch if one.leader_epoch >= 0 else None
                self.positions.found(key, tokens[key], one.offset, epoch)
            else:
                self._not_answered({key: tokens[key]}, with_partition(one, key))
        self.attend()

    async def _ask_epochs(self, tokens: dict[TopicPartition, int]) -> None:
        epochs = {}
        for key, token in tokens.items():
            state = self.positions.current(key, token)
            if state is not None and state.epoch is not None:
                epochs[key] = (state.epoch, state.leader_epoch)
        try:
            found = await self.lookup.ends_of_epochs(epochs)
        except KafkaError as error:
            self._not_answered(tokens, error)
            return
        for key, one in found.items():
            if isinstance(one, KafkaError):
                self._not_answered({key: tokens[key]}, with_partition(one, key))
            elif (cut := self.positions.validated(key, tokens[key], one[1], one[0])) is not None:
                self.fail(cut)
        self.attend()

    def _not_answered(self, tokens: dict[TopicPartition, int], error: KafkaError) -> None:
        self.trouble = error
        now = monotonic_ms()
        self.positions.try_again(tokens, now + self.config.retry_backoff_ms)
        if not error.retriable:
            self.positions.try_again(tokens, now + self.config.retry_backoff_max_ms)
            self.fail(error)
        self.refresh(later=True)
        if self.loop is not None:
            self.loop.call_later(self.config.retry_backoff_ms / 1000 + 0.001, self.tick)

    # ── metadata ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _wanted_topics(self) -> frozenset[str] | None:
        """The topics whose metadata is needed; None for all, since a pattern may match any."""
        if self.subscription.mode is Mode.PATTERN:
            return None
        topics = self.subscription.topics | {key.topic for key in self.positions.assigned}
        member = self.group.member if self.group is not None and self.group.subscribed else None
        return topics | member.watched if isinstance(member, ClassicMember) else topics

    def refresh(self, *, later: bool = False) -> None:
        """Fetch metadata now, or after a back-off; at most one at a time."""
        if self.closed or self.loop is None:
            return
        if later:
            self._refresh_at = min(self._refresh_at, monotonic_ms() + self.config.retry_backoff_ms)
            return
        if self._refreshing:
            self._refresh_again = True
            return
        self._refreshing = True
        self._refresh_at = monotonic_ms() + self.config.metadata_max_age_ms
        self.spawn(self._refresh())

    async def _refresh(self) -> None:
        wanted = self._wanted_topics()
        try:
            answer = await self.cluster.refresh(wanted, auto_create=self.config.allow_auto_create_topics)
        except OttlaError as error:
            if not self.cluster.metadata.nodes:
                self.unreachable = error
            if not (isinstance(error, KafkaError) and error.retriable):
                self.fail(error)
            self._refresh_at = monotonic_ms() + self.config.retry_backoff_ms
        else:
            self.unreachable = None
            self._knows_all_topics = wanted is None
            self._learned(answer, wanted)
        finally:
            self._refreshing = False
        if self._refresh_again:
            self._refresh_again = False
            self.refresh()
        self.attend()

    def _learned(self, answer: Metadata, wanted: frozenset[str] | None) -> None:
        self._look_for_missing(answer)
        internal = self.config.exclude_internal_topics
        there = {name: topic for name, topic in answer.topics.items() if topic.error is None}
        self.subscription.match(name for name, topic in there.items() if not (internal and topic.internal))
        self._look_for_made_anew(there)
        for key in self.positions.assigned:
            info = answer.partition(key)
            if info is not None:
                self.positions.new_leader(key, info.leader_epoch)
        if self.group is not None:
            self._tell_group()
            counts = {name: len(topic.partitions) for name, topic in there.items()}
            ids = {name: topic.topic_id for name, topic in there.items() if topic.topic_id is not None}
            self.group.member.learned(Topics(counts, ids, wanted))

    def _look_for_made_anew(self, there: Mapping[str, TopicInfo]) -> None:
        anew = set()
        for key in self.positions.assigned:
            topic = there.get(key.topic)
            if topic is not None and topic.topic_id is not None and self.positions.topic_is(key, topic.topic_id):
                anew.add(key.topic)
        for name in sorted(anew):
            log.warning("topic %s was deleted and created again: reading it from where auto.offset.reset says", name)
        self.attention = self.attention or bool(anew)

    def _look_for_missing(self, answer: Metadata) -> None:
        missing = set()
        for name, topic in answer.topics.items():
            if isinstance(topic.error, TopicAuthorizationFailed | InvalidTopicException):
                self.fail(type(topic.error)(f"topic {name}: {topic.error}"))
            elif topic.error is not None:
                missing.add(name)
        for name in sorted(missing - self._missing):
            if isinstance(answer.topics[name].error, UnknownTopicOrPartition):
                log.warning("topic %s does not exist: waiting for it (is the name right? `ottla topics list`)", name)
        self._missing = missing
        if missing:
            self._refresh_at = min(self._refresh_at, monotonic_ms() + MISSING_TOPIC_MS)

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
