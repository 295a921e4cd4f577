"""The topic of a registry: one partition, compacted, read from the start by every registry.

A registry writes in transactions of one transactional id. Whoever takes over the id fences the others, so nobody can
write on the ground of an old state: a registry that was fenced reads what the other wrote, and decides again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import ConfigResource, NewTopic
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.consuming.errors import Wakeup
from ottla.errors import OttlaError, TopicAlreadyExists, UnknownTopicOrPartition
from ottla.types import TopicPartition

logger = logging.getLogger("ottla.registry")
_REPLICAS = 3
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 0.2
_NUDGE_SECONDS = 0.02


class Fenced(OttlaError):
    """A write that did not happen for sure, because another registry wrote or a broker failed: decide again."""


class SchemaTopic:
    """Reads the topic into `replay` while it is open, and writes to it.

    `config` has the configs of clients such as ``bootstrap.servers``.
    """

    def __init__(
        self, config: Mapping[str, object], replay: Callable[[bytes | None, bytes | None], None], name: str
    ) -> None:
        self._config = dict(config)
        self._replay = replay
        self.name = name
        self._partition = TopicPartition(name, 0)
        self._admin = AsyncAdmin({**self._config, "client.id": "ottla-registry"})
        self._consumer: AsyncConsumer | None = None
        self._producer: AsyncProducer | None = None
        self._reading: asyncio.Task[None] | None = None
        self._position = 0
        self._moved = asyncio.Condition()
        self.cluster_id = ""

    async def open(self) -> None:
        """Create the topic if there is none, and read all of it."""
        await self._create()
        await self._check()
        self.cluster_id = str((await self._admin.describe_cluster()).cluster_id or "")
        self._consumer = AsyncConsumer(
            {
                **self._config,
                "client.id": "ottla-registry",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "max.poll.records": 5000,
            }
        )
        await self._consumer.start()
        await self._consumer.assign([self._partition])
        await self._consumer.seek_to_beginning(self._partition)
        self._reading = asyncio.create_task(self._read())
        await self.read_to_end()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._give_up()
        if self._consumer is not None:
            await self._consumer.close()
        await self._admin.close()

    async def _create(self) -> None:
        if self.name in await self._admin.list_topics(list_internal=True):
            return
        brokers = len((await self._admin.describe_cluster()).nodes)
        topic = NewTopic(self.name, 1, min(_REPLICAS, brokers), {"cleanup.policy": "compact"})
        with suppress(TopicAlreadyExists):
            await self._admin.create_topics(topic)

    async def _check(self) -> None:
        """Refuse a topic in which schemas would be lost or out of order."""
        for _ in range(50):
            with suppress(UnknownTopicOrPartition):
                partitions = len((await self._admin.describe_topics([self.name]))[self.name].partitions)
                break
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            raise OttlaError(f"the topic {self.name} was created but is not there; try again")
        if partitions != 1:
            raise OttlaError(f"the topic {self.name} has {partitions} partitions, but a registry needs exactly one")
        resource = ConfigResource("topic", self.name)
        policy = (await self._admin.describe_configs([resource]))[resource]["cleanup.policy"].value
        if policy != "compact":
            raise OttlaError(
                f"the topic {self.name} has cleanup.policy={policy}, which deletes schemas. Run: "
                f"ottla topics alter {self.name} --config cleanup.policy=compact"
            )

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _read(self) -> None:
        assert self._consumer is not None
        while True:
            try:
                with suppress(Wakeup):
                    for record in await self._consumer.poll(_POLL_SECONDS):
                        self._take_in(record.key, record.value)
                position = await self._consumer.position(self._partition)
            except Wakeup:
                continue
            except OttlaError as error:
                logger.warning("cannot read %s, trying again: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if position != self._position:
                async with self._moved:
                    self._position = position
                    self._moved.notify_all()

    def _take_in(self, key: bytes | None, value: bytes | None) -> None:
        try:
            self._replay(key, value)
        except Exception:
            # Reading must go on: without it, every request would wait.
            logger.exception("a record of %s is left out: %r", self.name, key)

    async def read_to_end(self) -> None:
        """Wait until everything is read that is in the topic now."""
        ends = await self._admin.list_offsets({self._partition: "latest"}, isolation_level="read_committed")
        await self._reach(ends[self._partition].offset)

    async def _reach(self, offset: int) -> None:
        while self._position < offset:
            try:
                async with asyncio.timeout(_NUDGE_SECONDS), self._moved:
                    await self._moved.wait_for(lambda: self._position >= offset)
            except TimeoutError:
                # A poll does not return for the end of a transaction, which also has an offset.
                assert self._consumer is not None
                self._consumer.wakeup()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def take_over(self) -> None:
        """Become the one that writes, and read what others wrote before. Does nothing if nobody else has since."""
        if self._producer is not None:
            return
        producer = AsyncProducer(
            {
                **self._config,
                "client.id": "ottla-registry",
                "transactional.id": f"ottla-registry-{self.name}",
                "linger.ms": 0,
                "max.request.size": 8 * 1024 * 1024,
            }
        )
        await producer.start()
        try:
            await producer.init_transactions()
            await self.read_to_end()
        except BaseException:
            await _closed(producer)
            raise
        self._producer = producer

    async def write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records, all or none, and wait until they are read. Needs `take_over` before."""
        assert self._producer is not None
        try:
            self._producer.begin_transaction()
            futures = [await self._producer.send(self.name, value, key=key, partition=0) for key, value in records]
            await self._producer.commit_transaction()
            last = max([(await one).offset for one in futures])
        except OttlaError as error:
            await self._give_up()
            raise Fenced(str(error)) from error
        except BaseException:
            await self._give_up()
            raise
        await self._reach(last + 1)

    async def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _closed(producer)


async def _closed(producer: AsyncProducer) -> None:
    with suppress(OttlaError):
        await producer.close(timeout=5)
