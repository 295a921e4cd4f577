"""Access to the brokers of one cluster: bootstrap, connections, metadata, routing to leaders, retries.

Clients send requests in three ways: `request` (to any broker), `request_controller`, and `by_leader`, which splits work
by partition over the leaders and retries what failed with a retriable error, with back-off and fresh metadata, until
`api_timeout_ms`. The modules beside this one build and read the requests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ottla.clients.cluster.metadata import NO_LEADER, Metadata, Node, TopicInfo, read_metadata
from ottla.clients.cluster.pool import ConnectionPool, ConnectionSettings
from ottla.clients.cluster.retry import Attempts
from ottla.config.client import Address, ClientConfig
from ottla.errors import (
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NotController,
    OttlaError,
    RebootstrapRequired,
    RetriableError,
    UnknownTopicOrPartition,
)
from ottla.net.client.connection import DEFAULT_REQUEST_TIMEOUT_MS, CannotConnect, Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis, TopicPartition

Work = TypeVar("Work")
Result = TypeVar("Result")
Send = Callable[[Connection, Mapping[TopicPartition, Work]], Awaitable[Mapping[TopicPartition, Result | KafkaError]]]

DEFAULT_API_TIMEOUT_MS: Millis = 60_000
# A new topic may not be known to every broker yet; one that is missing for longer does not exist.
MISSING_GRACE_MS: Millis = 1_000
AUTO_CREATE_MS: Millis = 5_000


class Cluster:
    """The brokers behind a list of bootstrap servers. Use as an async context manager."""

    def __init__(
        self,
        bootstrap_servers: Sequence[Address],
        *,
        client_id: str = "ottla",
        request_timeout_ms: Millis = DEFAULT_REQUEST_TIMEOUT_MS,
        api_timeout_ms: Millis = DEFAULT_API_TIMEOUT_MS,
        retry_backoff_ms: Millis = 100,
        retry_backoff_max_ms: Millis = 1_000,
        settings: ConnectionSettings | None = None,
        rebootstrap: bool = True,
        rebootstrap_trigger_ms: Millis = 300_000,
        retries: int | None = None,
    ) -> None:
        self.bootstrap_servers = tuple(bootstrap_servers)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.api_timeout_ms = api_timeout_ms
        self.retries = retries
        self.retry_backoff_ms = retry_backoff_ms
        self.retry_backoff_max_ms = retry_backoff_max_ms
        self.rebootstrap = rebootstrap
        self.rebootstrap_trigger_ms = rebootstrap_trigger_ms
        self._without_metadata_since: float | None = None
        self.metadata = Metadata()
        self.pool = ConnectionPool(
            settings or ConnectionSettings(client_id=client_id, request_timeout_ms=request_timeout_ms)
        )

    @classmethod
    def of(
        cls, config: ClientConfig, *, api_timeout_ms: Millis = DEFAULT_API_TIMEOUT_MS, retries: int | None = None
    ) -> Cluster:
        """The cluster of a client's configuration; nothing is sent before the first call."""
        settings = ConnectionSettings.of(config)
        return cls(
            config.bootstrap_servers,
            client_id=settings.client_id,
            request_timeout_ms=config.request_timeout_ms,
            api_timeout_ms=api_timeout_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            retry_backoff_max_ms=config.retry_backoff_max_ms,
            settings=settings,
            rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
            retries=retries,
        )

    async def __aenter__(self) -> Cluster:
        try:
            await self.refresh(())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.pool.close()

    def attempts(self, timeout_ms: Millis | None = None) -> Attempts:
        timeout = self.api_timeout_ms if timeout_ms is None else timeout_ms
        return Attempts(
            timeout, self.retry_backoff_ms, self.retry_backoff_max_ms, jitter=random.uniform, retries=self.retries
        )

    # Connections.

    @property
    def never_reached(self) -> bool:
        """Whether no broker has answered yet: the address may be wrong."""
        return not self.metadata.nodes and not self.pool.reports.reached

    @property
    def trouble(self) -> Exception | None:
        """Why no broker answers, if that may be due to this client's settings."""
        return self.pool.reports.trouble

    async def connection(self, node: Node) -> Connection:
        """Return a connection to the address that a broker advertises."""
        address = (node.host, node.port)
        try:
            return await self.pool.get(address)
        except CannotConnect as error:
            if address in self.bootstrap_servers:
                raise
            raise CannotConnect(
                f"broker {node.id} advertises the address {node}, which does not work from here: {error}. "
                "Its advertised.listeners must name an address that clients can reach"
            ) from None

    async def any_connection(self) -> Connection:
        """A connection to the least loaded broker; to a bootstrap server if no known broker is reachable (KIP-899)."""
        known = [(node.host, node.port) for node in self.metadata.nodes.values()]
        if not known or self._bootstraps_again():
            return await self._first_that_answers(self.bootstrap_servers)
        try:
            return await self._first_that_answers([*known, *self.pool.ready(self.bootstrap_servers)])
        except CannotConnect:
            others = [address for address in self.bootstrap_servers if address not in known]
            if not self.rebootstrap or not others:
                raise
            return await self._first_that_answers(others)

    async def _first_that_answers(self, addresses: Iterable[Address]) -> Connection:
        given = list(dict.fromkeys(addresses))
        left, problems = list(given), dict[Address, OttlaError]()
        while left:
            address = self.pool.choose(left) or self.pool.soonest(left)
            try:
                return await self.pool.get(address)
            except OttlaError as error:
                problems[address] = error
                left.remove(address)
        raise _most_telling([problems[address] for address in given])

    # Requests.

    async def request(self, api_key: int, message: Message) -> Struct:
        """Send a request to any broker, and to another one if the connection breaks."""
        attempts = self.attempts()
        while True:
            connection = await self.any_connection()
            try:
                response = await connection.request(api_key, message)
            except NetworkException:
                if not await attempts.pause():
                    raise
            else:
                self.pool.reports.worked()
                return response

    async def request_controller(
        self,
        api_key: int,
        message: Message,
        *,
        errors: Callable[[Struct], Iterable[int]],
        retry_lost: bool = False,
    ) -> Struct:
        """Send a request to the controller; find it again while the broker says that it is not the controller.

        After a lost connection it is unknown whether the request was carried out: only `retry_lost` repeats it.
        """
        attempts = self.attempts()
        while True:
            try:
                connection = await self._controller()
                response = await connection.request(api_key, message)
                if NotController.code not in errors(response) or not await attempts.pause():
                    return response
            except NetworkException as error:
                may_repeat = retry_lost or isinstance(error, CannotConnect)
                if not may_repeat or not await attempts.pause():
                    raise
            await self.refresh(())

    async def _controller(self) -> Connection:
        node = self.metadata.nodes.get(self.metadata.controller_id)
        return await (self.any_connection() if node is None else self.connection(node))

    # Metadata.

    async def refresh(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> Metadata:
        """Fetch the metadata of these topics (None: of all) and keep it; returns the response."""
        names = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
        message = {"topics": names, "allow_auto_topic_creation": auto_create}
        answer = read_metadata(await self._request_metadata(message))
        kept = Metadata(version=self.metadata.version) if topics is None else self.metadata
        self.metadata = kept.with_topics(answer)
        return answer

    async def _request_metadata(self, message: Message) -> Struct:
        try:
            response = await self.request(ApiKey.METADATA, message)
            if response.error_code == RebootstrapRequired.code:
                self.metadata = self.metadata.without_nodes()
                response = await self.request(ApiKey.METADATA, message)
        except RetriableError:
            self._without_metadata_since = self._without_metadata_since or self._now()
            raise
        self._without_metadata_since = None
        return response

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _bootstraps_again(self) -> bool:
        """Whether the known brokers have been silent so long that the bootstrap servers may know more (KIP-1102)."""
        since = self._without_metadata_since
        return self.rebootstrap and since is not None and self._now() - since >= self.rebootstrap_trigger_ms / 1000

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """Return one topic; raises the broker's error if there is none.

        With `auto_create`, waits some seconds for a broker that creates topics automatically.
        """
        attempts = self.attempts(min(self.api_timeout_ms, AUTO_CREATE_MS) if auto_create else None)
        while True:
            info = (await self.refresh([name], auto_create=auto_create)).topics.get(name)
            if info is not None and info.error is None:
                return info
            error = info.error if info is not None else None
            if error is None or isinstance(error, UnknownTopicOrPartition):
                error = UnknownTopicOrPartition(f"topic {name} does not exist")
            patient = auto_create or not isinstance(error, UnknownTopicOrPartition)
            if not patient or not error.retriable or not await attempts.pause():
                raise error

    def leader(self, topic_partition: TopicPartition) -> Node | None:
        info = self.metadata.partition(topic_partition)
        return self.metadata.nodes.get(info.leader) if info is not None else None

    # Routing.

    async def by_leader(
        self,
        work: Mapping[TopicPartition, Work],
        send: Send[Work, Result],
        *,
        timeout_ms: Millis | None = None,
    ) -> dict[TopicPartition, Result | KafkaError]:
        """Send the work for each partition to its leader; the result has an error for each that keeps failing."""
        attempts = self.attempts(timeout_ms)
        done: dict[TopicPartition, Result | KafkaError] = {}
        pending = dict(work)
        while pending:
            outcomes = await self._one_round(pending, send)
            final = {key: outcome for key, outcome in outcomes.items() if _is_final(outcome, attempts.elapsed_ms)}
            done.update(final)
            pending = {key: value for key, value in pending.items() if key not in final}
            if pending and not await attempts.pause():
                return {**outcomes, **done}
            if pending:
                await self._refresh_quietly({key.topic for key in pending})
        return done

    async def _refresh_quietly(self, topics: set[str]) -> None:
        """Refresh metadata; on failure the old metadata stays, and the next round reports the problem."""
        try:
            await self.refresh(topics)
        except NetworkException:
            return

    async def _one_round(
        self, work: Mapping[TopicPartition, Work], send: Send[Work, Result]
    ) -> dict[TopicPartition, Result | KafkaError]:
        outcomes: dict[TopicPartition, Result | KafkaError] = {}
        shares: dict[Node, dict[TopicPartition, Work]] = {}
        for key, value in work.items():
            leader = self._leader_or_error(key)
            if isinstance(leader, KafkaError):
                outcomes[key] = leader
            else:
                shares.setdefault(leader, {})[key] = value
        answers = await asyncio.gather(*(self._one_share(node, share, send) for node, share in shares.items()))
        for answer in answers:
            outcomes.update(answer)
        return outcomes

    async def _one_share(
        self, node: Node, share: Mapping[TopicPartition, Work], send: Send[Work, Result]
    ) -> Mapping[TopicPartition, Result | KafkaError]:
        try:
            connection = await self.connection(node)
            return await send(connection, share)
        except KafkaError as error:
            return dict.fromkeys(share, error)

    def _leader_or_error(self, key: TopicPartition) -> Node | KafkaError:
        info = self.metadata.partition(key)
        if info is None:
            return self._missing(key)
        if info.leader == NO_LEADER or info.leader not in self.metadata.nodes:
            return LeaderNotAvailable(f"partition {key} has no leader now: is its broker running?")
        return self.metadata.nodes[info.leader]

    def _missing(self, key: TopicPartition) -> KafkaError:
        topic = self.metadata.topics.get(key.topic)
        if topic is not None and topic.error is None and topic.partitions:
            return UnknownTopicOrPartition(
                f"topic {key.topic} has no partition {key.partition}: it has 0 to {len(topic.partitions) - 1}"
            )
        return UnknownTopicOrPartition(f"topic {key.topic} does not exist")


def _most_telling(problems: Sequence[OttlaError]) -> OttlaError:
    """The most helpful error of several addresses: a rejection says more than an unreachable broker."""
    if len(problems) == 1:
        return problems[0]
    for error in problems:
        if not isinstance(error, CannotConnect):
            return error
    return CannotConnect(f"no broker can be reached: {'; '.join(map(str, problems))}")


def _is_final(outcome: object, elapsed_ms: Millis) -> bool:
    if not isinstance(outcome, KafkaError) or not outcome.retriable:
        return True
    return isinstance(outcome, UnknownTopicOrPartition) and elapsed_ms >= MISSING_GRACE_MS
