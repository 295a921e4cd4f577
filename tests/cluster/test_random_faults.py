"""Brokers that compete to be the controller, while connections break at random and ZooKeeper is killed.

`ROUNDS=100 pytest tests/cluster/test_random_faults.py` runs longer. The seed of a failure is in its message; timing is
real, so a seed does not repeat a run exactly.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.errors import NotController
from ottla.metadata.records import MetadataRecord, TopicDeleted
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.election import Election
from ottla.zookeeper.metadata_log import MetadataLog

from .proxy import Proxy, proxy_of
from .waiting import until

if TYPE_CHECKING:
    from .conftest import Connect

ROUNDS = int(os.environ.get("ROUNDS", "8"))


class Broker:
    """Appends names as fast as it can while it is the controller, and a snapshot now and then."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int, proxy: Proxy) -> None:
        self.broker_id = broker_id
        self.proxy = proxy
        self.names: list[str] = []
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.terms = 0
        self.resets = 0
        self.is_finished = False
        self.log = MetadataLog(zookeeper)
        self.election = Election(zookeeper, broker_id)
        self._leading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._add(0, await self.log.load())
        self.log.follow(self._add, self._reset)
        self.election.campaign(self._elected, lambda: None)

    async def stop(self) -> None:
        self.is_finished = True
        if self._leading is not None:
            await self._leading

    def _add(self, _position: int, records: Sequence[MetadataRecord]) -> None:
        self.names += [record.name for record in records if isinstance(record, TopicDeleted)]

    def _reset(self, position: int, records: Sequence[MetadataRecord]) -> None:
        self.resets += 1
        self.names = []
        self._add(position, records)

    def _elected(self, epoch: int) -> None:
        self.terms += 1
        self._leading = asyncio.create_task(self._lead(epoch, self._leading))

    async def _lead(self, epoch: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        await self.log.catch_up()
        count = 0
        while not self.is_finished:
            names = [f"{self.broker_id}-{epoch}-{count + n}" for n in range(random.choice((1, 1, 5)))]
            count += len(names)
            results = await asyncio.gather(*(self._append(name, epoch) for name in names))
            if not all(results):
                return
            try:
                if random.random() < 0.02:
                    await self.log.write_snapshot(list(map(TopicDeleted, self.names)), self.log.position, epoch=epoch)
            except NotController:
                return

    async def _append(self, name: str, epoch: int) -> bool:
        try:
            await self.log.append([TopicDeleted(name)], epoch=epoch)
        except NotController:
            self.refused.append(name)
            return False
        self.acknowledged.append(name)
        return True


async def disturb(brokers: Sequence[Broker], server: LocalZooKeeper) -> None:
    broker = random.choice(brokers)
    match random.choice(("cut", "cut", "swallow", "away", "depose", "depose", "kill")):
        case "cut":
            broker.proxy.cut()
        case "swallow":
            broker.proxy.swallows_answers = True
            await asyncio.sleep(random.random() * 0.05)
            broker.proxy.swallows_answers = False
            broker.proxy.cut()
        case "away":
            broker.proxy.is_cut = True
            broker.proxy.cut()
            await asyncio.sleep(random.random())
            broker.proxy.is_cut = False
        case "depose":
            if broker.election.controller is not None:
                await broker.election.depose_dead(*broker.election.controller)
        case "kill":
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)


async def test_nothing_acknowledged_is_lost_and_all_brokers_agree(connect: Connect, own_server: LocalZooKeeper) -> None:
    seed = random.randrange(10**6)
    random.seed(seed)
    async with AsyncExitStack() as stack:
        brokers = []
        for broker_id in (1, 2, 3):
            proxy = await stack.enter_async_context(proxy_of(own_server.address))
            zookeeper = await stack.enter_async_context(connect(proxy.address, session_timeout_ms=1500))
            brokers.append(Broker(zookeeper, broker_id, proxy))
            await brokers[-1].start()
        for _ in range(ROUNDS):
            seen = brokers[0].log.position
            await until(lambda seen=seen: brokers[0].log.position >= seen + 20)
            await disturb(brokers, own_server)
        await asyncio.gather(*(broker.stop() for broker in brokers))
        head = max([await broker.log.catch_up() for broker in brokers])
        await until(lambda: all(broker.log.position == head for broker in brokers))
        check(brokers, seed)


def check(brokers: Sequence[Broker], seed: int) -> None:
    names = brokers[0].names
    assert len(set(names)) == len(names), f"something was written twice, seed {seed}"
    for broker in brokers:
        assert broker.names == names, f"the brokers disagree, seed {seed}"
        assert set(broker.acknowledged) <= set(names), f"something was lost, seed {seed}"
        assert not set(broker.refused) & set(names), f"something was refused but written, seed {seed}"
        own = [name for name in names if name.startswith(f"{broker.broker_id}-")]
        assert own == broker.acknowledged, f"the order is wrong, seed {seed}"
