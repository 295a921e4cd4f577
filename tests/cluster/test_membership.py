"""Registration of brokers against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.metadata.values import Registration
from ottla.zookeeper.membership import BrokerIdInUse, Membership, decode, path_of
from ottla.zookeeper.values import ConnectionLost, Operation, SessionState

from .members import registration, unused_port
from .proxy import proxy_of
from .waiting import until

if TYPE_CHECKING:
    from .conftest import Connect


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that does not answer: its queue of connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        yield port


async def test_all_brokers_see_who_is_alive(connect: Connect) -> None:
    seen: list[Mapping[int, Registration]] = []
    async with connect() as one:
        watching = Membership(one)
        watching.watch(seen.append)
        await until(lambda: seen == [{}])
        async with connect() as two:
            epoch = await Membership(two).register(registration(2, previous=7))
            await until(lambda: len(seen) == 2)
            assert seen[-1] == {2: registration(2, previous=7)._replace(epoch=epoch)}
            own = await watching.register(registration(1, 9093))
            assert own > epoch
            await until(lambda: len(seen) == 3)
            assert {each: member.epoch for each, member in seen[-1].items()} == {1: own, 2: epoch}
        await until(lambda: list(seen[-1]) == [1])
        await watching.stop()


async def test_two_brokers_with_one_id(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
            await Membership(one).register(registration(2, port))
            with pytest.raises(BrokerIdInUse, match=f"^broker id 2 is in use by 127.0.0.1:{port}$"):
                await Membership(two).register(registration(2, unused_port()))


async def test_the_node_of_a_dead_broker_is_replaced_at_once(connect: Connect) -> None:
    async with connect(session_timeout_ms=60_000) as dead, connect() as two:
        port = unused_port()
        before = await Membership(dead).register(registration(2, port))
        epoch = await asyncio.wait_for(Membership(two).register(registration(2, unused_port())), 20)
        assert epoch > before
        with closing(socket.create_server(("127.0.0.1", port))):  # the broker listens before it registers
            assert await asyncio.wait_for(Membership(dead).register(registration(2, port)), 20) > epoch


async def test_the_node_of_an_unreachable_broker_is_waited_for(connect: Connect) -> None:
    async with connect() as one, connect() as two:
        with silent_port() as port:
            first = await Membership(one).register(registration(2, port))
            waiting = asyncio.create_task(Membership(two).register(registration(2, unused_port())))
            done, _ = await asyncio.wait([waiting], timeout=1.2)
            assert not done
            await one.stop()
            assert await waiting > first


async def test_a_dead_broker_is_removed_only_in_its_own_life(connect: Connect) -> None:
    seen: list[Mapping[int, Registration]] = []
    async with connect() as one, connect() as two:
        controller, broker = Membership(one), Membership(two)
        controller.watch(seen.append)
        old = await broker.register(registration(2))
        new = await broker.register(registration(2))
        assert new > old
        assert not await controller.remove(2, old)
        assert not await controller.remove(3, old)
        await until(lambda: seen and list(seen[-1]) == [2])
        assert await controller.remove(2, new)
        await until(lambda: seen[-1] == {})
        assert await broker.register(registration(2)) > new
        await controller.stop()


async def test_a_broker_that_was_fenced_registers_again_once(connect: Connect) -> None:
    async with connect() as zookeeper:
        epochs: list[int] = []
        membership = Membership(zookeeper, epochs.append)
        first = await membership.register(registration(1, previous=5))
        await asyncio.gather(membership.register_again(first), membership.register_again(first))
        assert epochs == [membership.epoch]
        membership.watch(lambda members: None)
        await until(lambda: membership.members is not None)
        assert membership.members == {1: registration(1, previous=first)._replace(epoch=epochs[0])}
        await membership.stop()


@pytest.mark.parametrize(("seen", "previous"), [("before", 5), ("first", "first"), ("second", "second"), ("other", 5)])
async def test_a_broker_that_registers_again_has_the_epoch_that_the_controller_knows(
    connect: Connect, seen: str, previous: int | str
) -> None:
    """The controller may have missed registrations, or have seen another broker with the same id."""
    epochs = {"before": 5, "other": 10**9}
    known = 5

    async def known_epoch() -> int:
        return known

    async with connect() as zookeeper:
        membership = Membership(zookeeper, known_epoch=known_epoch)
        epochs["first"] = await membership.register(registration(1, previous=5))
        await membership.register_again(membership.epoch)
        epochs["second"] = membership.epoch
        known = epochs[seen]
        await membership.register_again(membership.epoch)
        node = await zookeeper.get(path_of(1))
        assert decode(1, node).previous_epoch == epochs.get(str(previous), previous)
        await membership.stop()


async def test_a_registration_whose_answer_was_lost_counts(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connect() as zookeeper:

        async def known_epoch() -> int:
            node = await zookeeper.find(path_of(1))  # The controller was fast.
            return 5 if node is None else node.stat.czxid

        multi = zookeeper.multi
        written: list[int] = []

        async def without_answer(*operations: Operation) -> int:
            written.append(await multi(*operations))
            if len(written) == 1:
                raise ConnectionLost("the answer was lost")
            return written[-1]

        monkeypatch.setattr(zookeeper, "multi", without_answer)
        membership = Membership(zookeeper, known_epoch=known_epoch)
        assert await membership.register(registration(1, previous=5)) == written[1]
        assert decode(1, await zookeeper.get(path_of(1))).previous_epoch == written[0]
        await membership.stop()


async def test_a_broker_registers_again_after_a_lost_session(
    connect: Connect, zookeeper_server: LocalZooKeeper
) -> None:
    epochs: list[int] = []
    states: list[SessionState] = []
    async with (
        proxy_of(zookeeper_server.address) as proxy,
        connect() as one,
        connect(proxy.address, session_timeout_ms=2000) as two,
    ):
        two.on_state(states.append)
        watching, broker = Membership(one), Membership(two, epochs.append)
        watching.watch(lambda members: None)
        first = await broker.register(registration(2))
        await until(lambda: watching.members)
        proxy.is_cut = True
        proxy.cut()
        await until(lambda: watching.members == {})
        proxy.is_cut = False
        await until(lambda: epochs)
        assert epochs[0] > first
        assert broker.epoch == epochs[0]
        await until(lambda: watching.members)
        assert watching.members == {2: registration(2, previous=first)._replace(epoch=epochs[0])}
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        await broker.stop()
        await watching.stop()
