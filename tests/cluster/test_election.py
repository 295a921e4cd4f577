"""Elections of the controller against a real ZooKeeper."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.metadata.values import Endpoint
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.election import Controller, Election
from ottla.zookeeper.membership import Membership

from .members import registration, unused_port
from .proxy import Proxy, proxy_of
from .waiting import until

if TYPE_CHECKING:
    from .conftest import Connect


class Candidate:
    def __init__(self, zookeeper: ZooKeeper, broker_id: int, listeners: tuple[Endpoint, ...] = ()) -> None:
        self.events: list[object] = []
        self.controllers: list[Controller | None] = []
        self.election = Election(zookeeper, broker_id, self.controllers.append)
        self.election.campaign(self.events.append, lambda: self.events.append("deposed"), listeners)


@asynccontextmanager
async def cut_off_controller(
    connect: Connect, server: LocalZooKeeper, session_timeout_ms: int
) -> AsyncIterator[tuple[Proxy, Candidate, Candidate]]:
    """A controller whose connection to ZooKeeper was just cut, and another candidate."""
    async with (
        proxy_of(server.address) as proxy,
        connect() as two,
        connect(proxy.address, session_timeout_ms=session_timeout_ms) as one,
    ):
        first = Candidate(one, 1)
        await until(lambda: first.events)
        second = Candidate(two, 2)
        proxy.is_cut = True
        proxy.cut()
        yield proxy, first, second


async def test_controllers_in_turn(connect: Connect) -> None:
    async with connect() as three, connect() as two:
        async with connect() as one:
            first = Candidate(one, 1)
            await until(lambda: first.events == [1])
            second, third = Candidate(two, 2), Candidate(three, 3)
            await until(lambda: second.election.controller_id == third.election.controller_id == 1)
            assert second.controllers == [first.election.controller]
        # The session of broker 1 has ended.
        await until(lambda: second.events or third.events)
        assert second.events + third.events == [2]
        winner, other = (second, third) if second.events else (third, second)
        await until(lambda: other.election.controller == winner.election.controller)
        await winner.election.stop()
        assert winner.events == [2, "deposed"]
        await until(lambda: other.events == [3])
        assert other.election.epoch == 3
        assert winner.election.epoch is None


async def test_a_controller_is_deposed_when_its_node_is_removed(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        first = Candidate(one, 1)
        await until(lambda: first.events)
        assert first.election.controller is not None
        assert await Election(two, 2).depose_dead(1, first.election.controller.czxid)
        await until(lambda: first.events == [1, "deposed", 2])
        assert first.controllers[1] is None
        assert not await Election(two, 2).depose_dead(2, first.election.controller.czxid)


async def test_a_short_cut_of_the_connection_changes_nothing(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with proxy_of(zookeeper_server.address) as proxy, connect(proxy.address) as one:
        first = Candidate(one, 1)
        await until(lambda: first.events)
        states: list[object] = []
        one.on_state(states.append)
        proxy.cut()
        await until(lambda: len(states) == 2)
        await first.election.depose_dead(9, 9)  # any read: the election has read too
        assert first.events == [1]
        assert len(first.controllers) == 1


async def test_a_controller_without_zookeeper_gives_up_before_its_session_ends(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    async with cut_off_controller(connect, zookeeper_server, 6000) as (proxy, first, second):
        await until(lambda: first.events == [1, "deposed"])
        assert second.events == []
        proxy.is_cut = False  # the session is still alive
        await until(lambda: first.events == [1, "deposed", 2])
        await until(lambda: second.election.controller == first.election.controller)
        assert second.events == []


async def test_the_controller_of_a_lost_session_is_replaced(connect: Connect, zookeeper_server: LocalZooKeeper) -> None:
    async with cut_off_controller(connect, zookeeper_server, 2000) as (proxy, first, second):
        await until(lambda: second.events == [2])
        assert first.events == [1, "deposed"]
        proxy.is_cut = False
        await until(lambda: first.election.controller_id == 2)
        assert first.events == [1, "deposed"]
        await second.election.stop()
        await until(lambda: first.events == [1, "deposed", 3])


async def test_a_restarted_controller_need_not_wait_for_the_end_of_its_old_session(connect: Connect) -> None:
    async with connect() as old, connect() as new:
        await Membership(old).register(registration(1, unused_port()))
        before = Candidate(old, 1)
        await until(lambda: before.events == [1])
        after = Candidate(new, 1)
        await until(lambda: after.events == [2])
        await until(lambda: before.events == [1, "deposed"])
        # Should the old process still run, it does not take its place back.
        assert await after.election.depose_dead(9, 9) is False
        assert (before.events, after.events) == ([1, "deposed"], [2])


async def test_a_restarted_controller_that_listens_again_is_not_taken_for_its_earlier_life(connect: Connect) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        own = registration(1, listener.getsockname()[1])
        async with connect() as old, connect() as new:
            await Membership(old).register(own)
            before = Candidate(old, 1)
            await until(lambda: before.events == [1])
            after = Candidate(new, 1, own.listeners)
            await until(lambda: after.events == [2])


async def test_a_second_broker_with_the_id_of_the_controller_does_not_replace_it(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            await Membership(one).register(registration(1, listener.getsockname()[1]))
            first = Candidate(one, 1)
            await until(lambda: first.events == [1])
            second = Candidate(two, 1)
            await until(lambda: second.election.controller == first.election.controller)
            assert await second.election.depose_dead(9, 9) is False  # any read: the election has read too
            assert (first.events, second.events) == ([1], [])
