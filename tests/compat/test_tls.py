"""TLS with each client library: what works, and which mistakes are noticed, by the client and in the broker's log."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

import ottla
from authorities import EXPIRED, Authority

from .waiting import until

# kafka-python and aiokafka forget sockets whose handshake has failed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
VALUE = b"x" * 300_000
RECORDS = 5
SECONDS = 4


@dataclass(frozen=True)
class Access:
    """How a client connects."""

    address: str
    trusts: Path | None
    certificate: Path | None = None


# ── the libraries: produce and consume, or raise the client's error ───────────────────────────────────────────────


def by_ottla(access: Access, topic: str) -> int:
    security: dict[str, Any] = {"bootstrap_servers": access.address}
    if access.trusts is not None:
        certificate = None if access.certificate is None else str(access.certificate)
        security |= {"security_protocol": "SSL", "ssl_cafile": str(access.trusts), "ssl_certfile": certificate}
    with ottla.Producer(
        **security, delivery_timeout_ms=1_500, request_timeout_ms=1_000, max_block_ms=1_000, linger_ms=0
    ) as out:
        for _ in range(RECORDS):
            out.send(topic, VALUE).get(SECONDS)
    with ottla.Consumer(**security, auto_offset_reset="earliest", group_id=topic) as consumer:
        consumer.subscribe([topic])
        return _count(lambda: list(consumer.poll(0.1)))


def by_confluent(access: Access, topic: str) -> int:
    problems: list[KafkaError] = []
    security: dict[str, Any] = {"bootstrap.servers": access.address, "error_cb": problems.append}
    if access.trusts is not None:
        security |= {"security.protocol": "SSL", "ssl.ca.location": str(access.trusts)}
    if access.certificate is not None:
        security |= {"ssl.certificate.location": str(access.certificate), "ssl.key.location": str(access.certificate)}
    producer = Producer({**security, "message.timeout.ms": SECONDS * 1000, "linger.ms": 0})
    for _ in range(RECORDS):
        producer.produce(topic, VALUE)
    end = time.monotonic() + SECONDS
    while producer.flush(0.1):
        if problems or time.monotonic() > end:
            producer.purge()
            raise KafkaException(problems[0] if problems else KafkaError(KafkaError._TIMED_OUT))
    consumer = Consumer({**security, "auto.offset.reset": "earliest", "group.id": topic})
    consumer.subscribe([topic])
    try:
        return _count(lambda: [each for each in consumer.consume(10, 0.1) if each.error() is None])
    finally:
        consumer.close()


def by_kafka_python(access: Access, topic: str) -> int:
    security: dict[str, Any] = {"bootstrap_servers": access.address, "bootstrap_timeout_ms": 500}
    if access.trusts is not None:
        security |= {"security_protocol": "SSL", "ssl_cafile": str(access.trusts)}
    if access.certificate is not None:
        security |= {"ssl_certfile": str(access.certificate), "ssl_keyfile": str(access.certificate)}
    producer = KafkaProducer(**security, max_block_ms=SECONDS * 1000)
    try:
        for _ in range(RECORDS):
            producer.send(topic, VALUE).get(SECONDS)
    finally:
        producer.close(0)
    consumer = KafkaConsumer(**security, auto_offset_reset="earliest", group_id=topic)
    try:
        # A leader without the metadata of the topic would assign nothing to itself.
        until(lambda: consumer.partitions_for_topic(topic), "the consumer knows the topic")
        consumer.subscribe([topic])
        return _count(lambda: [each for batch in consumer.poll(100).values() for each in batch])
    finally:
        consumer.close()


def by_aiokafka(access: Access, topic: str) -> int:
    security: dict[str, Any] = {"bootstrap_servers": access.address, "request_timeout_ms": SECONDS * 1000}
    if access.trusts is not None:
        context = ssl.create_default_context(cafile=access.trusts)
        if access.certificate is not None:
            context.load_cert_chain(access.certificate)
        security |= {"security_protocol": "SSL", "ssl_context": context}

    async def main() -> int:
        producer = AIOKafkaProducer(**security)
        try:
            async with asyncio.timeout(SECONDS):
                await producer.start()
                for _ in range(RECORDS):
                    await producer.send_and_wait(topic, VALUE)
        finally:
            await producer.stop()
        async with AIOKafkaConsumer(topic, **security, auto_offset_reset="earliest", group_id=topic) as consumer:
            found = 0
            async with asyncio.timeout(30):
                async for _ in consumer:
                    found += 1
                    if found == RECORDS:
                        break
            return found

    return asyncio.run(main())


def _count(poll: Callable[[], list[Any]]) -> int:
    found: list[Any] = []
    until(lambda: found.extend(poll()) or len(found) >= RECORDS, "all records")
    return len(found)


Library = Callable[[Access, str], int]
LIBRARIES = [by_ottla, by_confluent, by_kafka_python, by_aiokafka]


# ── the broker ────────────────────────────────────────────────────────────────────────────────────────────────────


class World:
    """A broker with a listener for each case, and the certificates of clients."""

    def __init__(self, directory: Path) -> None:
        self.authority, self.stranger = Authority(directory / "authority"), Authority(directory / "stranger")
        self.client, self.unknown = self.authority.sign("client"), self.stranger.sign("unknown")
        self.late = self.authority.sign("late", days=EXPIRED)
        keystores = {
            "tls": self.authority.sign("broker"),
            "mutual": self.authority.sign("broker-2"),
            "expired": self.authority.sign("broker-3", days=EXPIRED),
            "elsewhere": self.authority.sign("broker-4", "elsewhere.example"),
        }
        names = [*keystores, "plain"]
        config = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
            "listener.security.protocol.map": ",".join(f"{name}:SSL" for name in keystores) + ",plain:PLAINTEXT",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            **{f"listener.name.{name}.ssl.keystore.location": str(path) for name, path in keystores.items()},
        }
        self.broker = ottla.Broker(config=config)

    def address(self, listener: str) -> str:
        (port,) = (each.port for each in self.broker._running().servers if each.name == listener.upper())
        return f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("tls"))
    with made.broker:
        yield made


@pytest.mark.parametrize("use", LIBRARIES)
@pytest.mark.parametrize("listener", ["tls", "mutual"])
def test_records_go_through_tls(world: World, listener: str, use: Library) -> None:
    certificate = world.client if listener == "mutual" else None
    access = Access(world.address(listener), world.authority.certificate, certificate)
    assert use(access, f"{listener}-{use.__name__}") == RECORDS


UNTRUSTED = "does not trust"
CASES = {
    "the client has no certificate": ("mutual", "authority", None, "the client has no certificate"),
    "the client's certificate is of a stranger": ("mutual", "authority", "unknown", "certificate is not accepted"),
    "the client's certificate has expired": ("mutual", "authority", "late", "certificate has expired"),
    "the client does not trust the broker": ("tls", "stranger", None, UNTRUSTED),
    "the broker's certificate has expired": ("expired", "authority", None, "certificate"),
    "the broker's certificate is for another host": ("elsewhere", "authority", None, "certificate"),
    "plain text on a TLS port": ("tls", None, None, "requires TLS, but the client sends plain text"),
    "TLS on a plain port": ("plain", "authority", None, "the client speaks TLS, but this listener does not"),
}


@pytest.mark.parametrize("use", LIBRARIES)
@pytest.mark.parametrize("case", CASES)
def test_mistakes_are_noticed_on_both_sides(
    world: World, case: str, use: Library, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="ottla.net")
    listener, trusts, certificate, says = CASES[case]
    trusted = None if trusts is None else getattr(world, trusts).certificate
    mine = None if certificate is None else getattr(world, certificate)
    with pytest.raises(Exception):  # noqa: B017 - each library has its own
        use(Access(world.address(listener), trusted, mine), "nothing-arrives-here")
    until(lambda: any(record.name == "ottla.net" for record in caplog.records), "the broker has logged it")
    seen = [record for record in caplog.records if record.name == "ottla.net"]
    assert any(says in record.getMessage() for record in seen)
    assert not any(record.exc_info for record in seen)
