"""The session with a real ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.zookeeper.client import CannotConnect, Observer, Watch, ZooKeeper
from ottla.zookeeper.layout import VERSION, IncompatibleZooKeeper, cluster_id, prepare
from ottla.zookeeper.values import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Rejected,
    SessionClosed,
    SessionState,
    Set,
    ZooKeeperError,
)

from .proxy import proxy_of
from .waiting import until

if TYPE_CHECKING:
    from .conftest import Connect


async def test_all_operations_or_none(connect: Connect) -> None:
    async with connect() as zookeeper:
        zxid = await zookeeper.multi(Create("/a", b"1"), Create("/a/b"), Set("/a", b"2"))
        node = await zookeeper.get("/a")
        assert (node.data, node.stat.version, node.stat.czxid, node.stat.mzxid) == (b"2", 1, zxid, zxid)
        assert await zookeeper.children("/a") == ["b"]
        for operation, reason in (
            (Create("/a"), NodeExists),
            (Check("/a", 0), BadVersion),
            (Set("/a", b"", 0), BadVersion),
            (Delete("/c"), NoNode),
        ):
            with pytest.raises(Rejected) as caught:
                await zookeeper.multi(Delete("/a/b"), operation)
            assert (caught.value.index, type(caught.value.reason)) == (1, reason)
        assert await zookeeper.exists("/a/b") is not None
        with pytest.raises(NoNode):
            await zookeeper.get("/c")
        assert await zookeeper.find("/c") is None
        assert await zookeeper.exists("/c") is None
        with pytest.raises(ZooKeeperError, match="too large"):
            await zookeeper.multi(Set("/a", b"x" * 1_000_001))


async def test_a_watch_wakes_after_a_change_and_after_a_lost_connection(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect(proxy.address) as zookeeper:
        watch = zookeeper.watch()
        assert await zookeeper.exists("/a", watch) is None
        await zookeeper.multi(Create("/a"))
        await asyncio.wait_for(watch.wait(), 30)
        assert await zookeeper.exists("/a", watch) is not None
        proxy.cut()
        await asyncio.wait_for(watch.wait(), 30)
        assert await zookeeper.exists("/a") is not None


async def test_requests_wait_while_zookeeper_is_away_and_the_event_loop_does_not(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect(proxy.address) as zookeeper:
        proxy.is_cut = True
        proxy.cut()
        await until(lambda: zookeeper.state is SessionState.SUSPENDED)
        reads = asyncio.gather(*(zookeeper.get(VERSION) for _ in range(2000)))
        done, _ = await asyncio.wait([reads], timeout=0.2)
        assert not done
        proxy.is_cut = False
        assert {node.data for node in await reads} == {b"1"}


async def test_a_malformed_answer_leads_to_a_new_session(connect: Connect, zookeeper_server: LocalZooKeeper) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect(proxy.address) as zookeeper:
        states: list[SessionState] = []
        zookeeper.on_state(states.append)
        session_id = zookeeper.session_id
        proxy.inject(b"\0\0\0\4oops")
        await until(lambda: states == [SessionState.LOST, SessionState.CONNECTED])
        assert zookeeper.session_id != session_id
        assert (await zookeeper.get(VERSION)).data == b"1"


async def test_the_end_of_a_session(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        await one.multi(Create("/a", is_ephemeral=True))
        stat = await two.exists("/a")
        assert stat is not None
        assert stat.owner == one.session_id
        await one.stop()
        assert await two.exists("/a") is None
        with pytest.raises(SessionClosed):
            await one.get("/")


async def test_a_connection_that_is_not_answered_is_followed_by_another(zookeeper_server: LocalZooKeeper) -> None:
    """A server that starts accepts connections that it never answers. A session may last longer than a start."""
    async with proxy_of(zookeeper_server.address) as proxy:
        proxy.silent = 1
        zookeeper = ZooKeeper(proxy.address, session_timeout_ms=60_000, connection_timeout_ms=1_500)
        await zookeeper.start()
        assert (await zookeeper.get("/zookeeper")).data == b""
        assert proxy.silent == 0
        await zookeeper.stop()


async def test_nobody_answers() -> None:
    zookeeper = ZooKeeper("127.0.0.1:1,nowhere.invalid/a", connection_timeout_ms=300)
    with pytest.raises(CannotConnect) as caught:
        await zookeeper.start()
    assert "within 0.3 s (zookeeper.connection.timeout.ms): 127.0.0.1:1 refuses connections, " in str(caught.value)
    assert "nowhere.invalid:2181 cannot be reached" in str(caught.value)


async def test_the_id_of_a_cluster_is_given_once(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        ids = await asyncio.gather(*(cluster_id(each, name) for each, name in ((one, "a"), (two, "b"), (one, "c"))))
        assert len(set(ids)) == 1
        assert await cluster_id(two, "d") == ids[0]


async def test_another_layout_is_refused(connect: Connect) -> None:
    async with connect() as zookeeper:
        await zookeeper.multi(Set(VERSION, b"2"))
        with pytest.raises(IncompatibleZooKeeper, match="has version '2' of the layout in ZooKeeper"):
            await prepare(zookeeper)


async def test_nodes_of_another_program_are_refused(zookeeper_server: LocalZooKeeper, chroot: str) -> None:
    zookeeper = ZooKeeper(zookeeper_server.address + chroot)
    await zookeeper.start()
    await zookeeper.multi(Create("/brokers"), Create("/brokers/ids"))
    with pytest.raises(IncompatibleZooKeeper, match=rf"has a node /brokers .*connect=\S+{chroot}/ottla$"):
        await prepare(zookeeper)
    assert await zookeeper.find(VERSION) is None
    await zookeeper.stop()


async def test_what_observes_goes_on_after_an_error(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[bytes] = []

    async def refresh(watch: Watch) -> None:
        seen.append((await zookeeper.get("/observed", watch)).data)
        if len(seen) == 1:
            raise ValueError("planted")

    async with connect() as zookeeper:
        await zookeeper.multi(Create("/observed", b"1"))
        observer = Observer(zookeeper, "the observer", refresh)
        await until(lambda: len(seen) > 1)
        await zookeeper.multi(Set("/observed", b"2"))
        await until(lambda: seen[-1] == b"2")
        await observer.stop()
    assert "the observer failed and is tried again" in caplog.text
