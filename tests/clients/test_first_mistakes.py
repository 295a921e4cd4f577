"""Typical mistakes of new users: the errors say what happened and what to do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from compat.waiting import until
from ottla import Admin, Broker, Consumer, IllegalUse, OttlaError, Producer, aio
from ottla.errors import ConfigError

WRONG = [
    ("127.0.0.1:1", r"nothing listens at 127\.0\.0\.1:1: check the address and that the broker is running"),
    ("no-such-host.invalid:9092", r"cannot resolve the host name 'no-such-host\.invalid': check its spelling"),
]


@pytest.mark.parametrize(("address", "message"), WRONG)
def test_a_wrong_address(address: str, message: str) -> None:
    with Producer(bootstrap_servers=address, max_block_ms=1_500) as producer, pytest.raises(OttlaError, match=message):
        producer.send("orders", b"x").get(30)
    with Consumer(bootstrap_servers=address, group_id="g") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(OttlaError, match=message):
            consumer.poll(1.5)
    with Admin(bootstrap_servers=address) as admin, pytest.raises(OttlaError, match=message):
        admin.list_topics()


def test_a_missing_topic(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(auto_create_topics_enable=False, group_initial_rebalance_delay_ms=0) as broker:
        address = broker.bootstrap_servers
        message = r"'ordres'.* does not exist.*`ottla topics create ordres`"
        with (
            Producer(bootstrap_servers=address, max_block_ms=1_500) as producer,
            pytest.raises(OttlaError, match=message),
        ):
            producer.send("ordres", b"x").get(30)
        with Admin(bootstrap_servers=address) as admin, pytest.raises(OttlaError, match="topic ordres does not exist"):
            admin.describe_topics("ordres")
        with Consumer(bootstrap_servers=address, group_id="g") as consumer:
            consumer.subscribe(["ordres"])
            # It may be created later: a consumer waits for it, and logs that.
            until(lambda: not consumer.poll(0.1) and "topic ordres does not exist" in caplog.text, "it is said")


def test_two_threads_on_one_consumer(bootstrap_servers: str) -> None:
    told: list[str] = []
    polling = threading.Event()

    def intrude(consumer: Consumer) -> None:
        polling.wait(20)
        while not told:
            try:
                consumer.poll(0)
            except IllegalUse as error:
                told.append(str(error))

    with Consumer(bootstrap_servers=bootstrap_servers, group_id="two-threads") as consumer:
        consumer.subscribe(["two-threads"])
        other = threading.Thread(target=intrude, args=(consumer,))
        other.start()
        polling.set()
        while not told:
            try:
                consumer.poll(1)
            except IllegalUse as error:
                told.append(str(error))
        other.join(20)
    assert "in use by another thread" in told[0]
    assert "Give each thread its own consumer" in told[0]


@pytest.mark.parametrize("client", ["producer", "consumer", "admin client"])
def test_a_client_of_asyncio_in_another_loop(bootstrap_servers: str, client: str) -> None:
    """As with pytest-asyncio, which has a loop for each test."""

    async def first() -> Any:
        if client == "producer":
            producer = aio.Producer(bootstrap_servers=bootstrap_servers)
            await producer.send_and_wait("two-loops", b"x")
            return producer, lambda: producer.send_and_wait("two-loops", b"y")
        if client == "consumer":
            consumer = aio.Consumer(bootstrap_servers=bootstrap_servers, group_id="two-loops")
            await consumer.subscribe(["two-loops"])
            return consumer, lambda: consumer.poll(0.1)
        admin = aio.Admin(bootstrap_servers=bootstrap_servers)
        await admin.list_topics()
        return admin, admin.list_topics

    async def second(call: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(
            IllegalUse, match=f"this {client} belongs to another event loop: create a new one in this one"
        ):
            await asyncio.wait_for(call(), 30)

    loop = asyncio.new_event_loop()
    used, use = loop.run_until_complete(first())
    asyncio.run(second(use))
    asyncio.run(second(used.close))
    loop.run_until_complete(used.close())
    loop.close()


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        (Producer, {"bootstrap_server": "a:1"}, r"Did you mean bootstrap\.servers\?"),
        (Consumer, {"bootstrap_servers": "a:1", "gruop_id": "g"}, r"Did you mean group\.id\?"),
        (Admin, {"bootstrap_servers": "a"}, "is not an address such as"),
        (Producer, {}, r"bootstrap\.servers is missing"),
    ],
)
def test_a_misspelt_config(client: type, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client(**options)


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, aio.Producer, aio.Consumer, aio.Admin])
def test_a_text_where_the_configuration_belongs(client: type) -> None:
    with pytest.raises(TypeError, match=r"a dict or keywords, not 'orders'.*bootstrap_servers=.*subscribe\("):
        client("orders")
