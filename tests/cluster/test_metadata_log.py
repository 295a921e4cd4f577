"""The metadata log against a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.errors import NotController, OttlaError
from ottla.metadata.records import MetadataRecord, TopicConfigsSet, TopicDeleted
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.election import Election
from ottla.zookeeper.layout import LOG, SNAPSHOT
from ottla.zookeeper.metadata_log import MetadataLog

from .proxy import proxy_of
from .waiting import until

if TYPE_CHECKING:
    from .conftest import Connect


class Copy:
    """What a broker knows: all batches that it was given."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.log = MetadataLog(zookeeper)
        self.names: list[str] = []
        self.positions: list[int] = []
        self.resets = 0

    async def start(self) -> Copy:
        self._add(await self.log.load())
        self.log.follow(self._on_batch, self._on_reset)
        return self

    def _on_batch(self, position: int, records: Sequence[MetadataRecord]) -> None:
        self.positions.append(position)
        self._add(records)

    def _on_reset(self, position: int, records: Sequence[MetadataRecord]) -> None:
        self.resets += 1
        self.positions = [position]
        self.names = []
        self._add(records)

    def _add(self, records: Sequence[MetadataRecord]) -> None:
        for record in records:
            assert isinstance(record, TopicDeleted | TopicConfigsSet)
            self.names.append(record.name)


def named(*names: object) -> list[TopicDeleted]:
    return [TopicDeleted(str(name)) for name in names]


async def elected(zookeeper: ZooKeeper, broker_id: int = 1) -> tuple[Election, int]:
    epochs: list[int] = []
    election = Election(zookeeper, broker_id)
    election.campaign(epochs.append, lambda: None)
    await until(lambda: epochs)
    return election, epochs[0]


async def test_a_new_cluster_has_no_records(connect: Connect) -> None:
    async with connect() as zookeeper:
        log = MetadataLog(zookeeper)
        assert await log.load() == []
        assert log.position == 0


async def test_every_broker_gets_every_batch_once_and_in_order(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        _, epoch = await elected(one)
        writer, reader = await Copy(one).start(), await Copy(two).start()
        assert [await writer.log.append(named(n), epoch=epoch) for n in range(20)] == list(range(1, 21))
        await asyncio.gather(*(writer.log.append(named(n), epoch=epoch) for n in range(20, 300)))
        await until(lambda: reader.log.position == 300)
        late = await Copy(two).start()
        for copy in (writer, reader):
            assert copy.positions == list(range(1, 301))
        assert writer.names == reader.names == late.names == [str(n) for n in range(300)]


async def test_records_that_do_not_fit_in_one_node_are_split(connect: Connect) -> None:
    records = [TopicConfigsSet(str(n), {"a": "x" * 100_000}) for n in range(25)]
    async with connect() as zookeeper:
        _, epoch = await elected(zookeeper)
        writer = await Copy(zookeeper).start()
        assert await writer.log.append(records, epoch=epoch) == 3
        assert await writer.log.append([], epoch=epoch) == 3
        assert await MetadataLog(zookeeper).load() == records
        with pytest.raises(OttlaError, match="does not fit in a node of ZooKeeper"):
            await writer.log.append([TopicConfigsSet("t", {"a": "x" * 1_000_000})], epoch=epoch)
        assert await writer.log.append(named("next"), epoch=epoch) == 4


async def test_a_deposed_controller_cannot_write(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        election, old_epoch = await elected(one, 1)
        old, new = await Copy(one).start(), await Copy(two).start()
        await old.log.append(named("a"), epoch=old_epoch)
        assert election.controller is not None
        czxid = election.controller.czxid
        await election._observer.stop()  # type: ignore[union-attr]  # it hangs, and does not learn that it is deposed
        other = Election(two, 2)
        assert await other.depose_dead(1, czxid)
        assert not await other.depose_dead(1, czxid)
        epochs: list[int] = []
        other.campaign(epochs.append, lambda: None)
        await until(lambda: epochs)
        assert epochs == [old_epoch + 1]
        assert await new.log.catch_up() == 1
        results = await asyncio.gather(
            *(old.log.append(named(name), epoch=old_epoch) for name in "xyz"), return_exceptions=True
        )
        assert [type(result) for result in results] == [NotController] * 3
        assert await new.log.append(named("b"), epoch=epochs[0]) == 2
        with pytest.raises(NotController, match="another controller was elected after epoch"):
            await old.log.write_snapshot(named("z"), 1, epoch=old_epoch)
        await until(lambda: old.log.position == 2)
        assert old.names == new.names == ["a", "b"]


async def test_an_append_whose_answer_was_lost_is_written_once(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect() as two, connect(proxy.address) as one:
        _, epoch = await elected(one)
        writer, reader = await Copy(one).start(), await Copy(two).start()
        for round_ in range(4):
            proxy.swallows_answers = True
            expected = writer.log.position
            appends = [
                asyncio.create_task(writer.log.append(named(f"{round_}-{n}"), epoch=epoch))
                for n in range(round_ * 3 + 1)
            ]
            await until(lambda expected=expected: reader.log.position > expected)
            assert not appends[0].done()
            proxy.swallows_answers = False
            proxy.cut()
            assert await asyncio.gather(*appends) == list(range(expected + 1, expected + len(appends) + 1))
        await until(lambda: reader.log.position == writer.log.position)
        assert writer.names == reader.names == [f"{r}-{n}" for r in range(4) for n in range(r * 3 + 1)]
        assert reader.positions == writer.positions == list(range(1, 23))


async def test_a_lost_answer_of_a_controller_that_was_deposed_since(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect() as two, connect(proxy.address) as one:
        election, epoch = await elected(one)
        assert election.controller is not None
        writer, reader = await Copy(one).start(), await Copy(two).start()
        proxy.swallows_answers = True
        first = asyncio.create_task(writer.log.append(named("written"), epoch=epoch))
        await until(lambda: reader.names)
        proxy.is_cut, proxy.swallows_answers = True, False
        proxy.cut()
        second = asyncio.create_task(writer.log.append(named("not written"), epoch=epoch))
        other = Election(two, 2)
        assert await other.depose_dead(1, election.controller.czxid)
        epochs: list[int] = []
        other.campaign(epochs.append, lambda: None)
        await until(lambda: epochs)
        proxy.is_cut = False
        assert await first == 1
        with pytest.raises(NotController):
            await second
        assert await reader.log.append(named("next"), epoch=epochs[0]) == 2
        await until(lambda: writer.log.position == 2)
        assert writer.names == reader.names == ["written", "next"]


async def test_connections_that_break_all_the_time_lose_and_repeat_nothing(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with (
        proxy_of(zookeeper_server.address) as proxy,
        connect(proxy.address) as two,
        connect(proxy.address) as one,
    ):
        _, epoch = await elected(one)
        writer, reader = await Copy(one).start(), await Copy(two).start()

        async def cut_often() -> None:
            while True:
                await until(lambda seen=writer.log.position: writer.log.position >= seen + 15)
                proxy.cut()

        cutting = asyncio.create_task(cut_often())
        await asyncio.gather(*(writer.log.append(named(n), epoch=epoch) for n in range(150)))
        cutting.cancel()
        await until(lambda: reader.log.position == 150)
        assert writer.names == reader.names == [str(n) for n in range(150)]
        assert reader.positions == list(range(1, 151))


@pytest.mark.long
async def test_zookeeper_killed_and_restarted_during_appends(connect: Connect, own_server: LocalZooKeeper) -> None:
    address = own_server.address
    async with connect(address, session_timeout_ms=30_000) as one, connect(address) as two:
        _, epoch = await elected(one)
        writer, reader = await Copy(one).start(), await Copy(two).start()
        appends = asyncio.gather(*(writer.log.append(named(n), epoch=epoch) for n in range(400)))
        await until(lambda: writer.log.position > 50)
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        assert await appends == list(range(1, 401))
        await until(lambda: reader.log.position == 400)
        assert writer.names == reader.names == [str(n) for n in range(400)]
        assert reader.positions == writer.positions == list(range(1, 401))


async def test_a_snapshot_replaces_the_log(connect: Connect) -> None:
    async with connect() as zookeeper:
        _, epoch = await elected(zookeeper)
        writer = await Copy(zookeeper).start()
        for n in range(5):
            await writer.log.append(named(n), epoch=epoch)
        await writer.log.write_snapshot(named("state"), 4, epoch=epoch)
        assert await zookeeper.children(LOG) == [f"{5:020d}"]
        assert (await Copy(zookeeper).start()).names == ["state", "4"]
        large = [TopicConfigsSet(str(n), {"a": "x" * 100_000}) for n in range(25)]
        await writer.log.write_snapshot(large, 5, epoch=epoch)
        assert await zookeeper.children(LOG) == []
        assert len(await zookeeper.children(SNAPSHOT)) == 3
        assert await MetadataLog(zookeeper).load() == large
        await writer.log.append(named("next"), epoch=epoch)
        with pytest.raises(OttlaError, match="is older than the one of position 5"):
            await writer.log.write_snapshot(large, 4, epoch=epoch)
        assert (await MetadataLog(zookeeper).load())[25:] == named("next")


async def test_a_reader_that_was_away_during_a_snapshot_gets_the_whole_state(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect() as one, connect(proxy.address) as two:
        _, epoch = await elected(one)
        writer, reader = await Copy(one).start(), await Copy(two).start()
        await writer.log.append(named("a"), epoch=epoch)
        await until(lambda: reader.log.position == 1)
        proxy.is_cut = True
        proxy.cut()
        for n in range(3):
            await writer.log.append(named(n), epoch=epoch)
        await writer.log.write_snapshot(named("s1", "s2"), 3, epoch=epoch)
        proxy.is_cut = False
        await until(lambda: reader.log.position == 4)
        await writer.log.append(named("b"), epoch=epoch)
        await until(lambda: reader.log.position == 5)
        assert (reader.resets, reader.names, reader.positions) == (1, ["s1", "s2", "2", "b"], [4, 5])
        assert writer.resets == 0


async def test_brokers_read_while_snapshots_are_written(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        _, epoch = await elected(one)
        writer, reader = await Copy(one).start(), await Copy(two).start()
        for n in range(1, 121):
            position = await writer.log.append(named(n), epoch=epoch)
            if n % 10 == 0:
                await writer.log.write_snapshot(named(*writer.names), position, epoch=epoch)
                late = MetadataLog(two)
                assert len(await late.load()) >= n
        await until(lambda: reader.log.position == 120)
        assert reader.names == writer.names == [str(n) for n in range(1, 121)]
