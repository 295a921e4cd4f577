"""One record through each client library with SASL: what it needs to know, and what it says when it is refused."""

from __future__ import annotations

import asyncio
import gc
import ssl
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from kafka.net.sasl.oauth import AbstractTokenProvider

import ottla

TOPIC = "sasl"
SECONDS = 20.0


class Refused(Exception):
    """The broker did not accept the client; the text is what the library says."""


@dataclass(frozen=True)
class Access:
    """Where to connect to, and as whom."""

    address: str
    mechanism: str
    name: str
    secret: str
    """The password, or the token."""
    authority: Path | None = None
    """The certificate to trust if there is TLS."""

    @property
    def protocol(self) -> str:
        return "SASL_PLAINTEXT" if self.authority is None else "SASL_SSL"

    @property
    def has_token(self) -> bool:
        return self.mechanism == "OAUTHBEARER"


def with_ottla(access: Access, value: bytes) -> None:
    options: dict[str, Any] = {"sasl_username": access.name, "sasl_password": access.secret}
    if access.has_token:
        options = {"sasl_oauth_token_provider": lambda: access.secret}
    if access.authority is not None:
        options["ssl_cafile"] = str(access.authority)
    try:
        with ottla.Producer(
            bootstrap_servers=access.address,
            security_protocol=access.protocol,
            sasl_mechanism=access.mechanism,
            **options,
        ) as producer:
            producer.send(TOPIC, value).get(SECONDS)
    except ottla.OttlaError as error:
        raise Refused(str(error)) from error


def with_confluent(access: Access, value: bytes) -> None:
    problems: list[confluent_kafka.KafkaError] = []
    config: dict[str, Any] = {
        "bootstrap.servers": access.address,
        "security.protocol": access.protocol,
        "sasl.mechanism": access.mechanism,
        "error_cb": problems.append,
    }
    if access.has_token:
        config["oauth_cb"] = lambda _: (access.secret, time.time() + 600)
    else:
        config |= {"sasl.username": access.name, "sasl.password": access.secret}
    if access.authority is not None:
        config["ssl.ca.location"] = str(access.authority)
    delivered: list[Any] = []
    producer = confluent_kafka.Producer(config)
    producer.produce(TOPIC, value, on_delivery=lambda error, _: delivered.append(error))
    deadline = time.monotonic() + SECONDS
    while not delivered and time.monotonic() < deadline:
        producer.poll(0.05)
        refusals = [each for each in problems if each.code() == confluent_kafka.KafkaError._AUTHENTICATION]
        if refusals:
            producer.purge()
            producer.flush(1)
            raise Refused(str(refusals[0]))
    assert delivered == [None]


class _Tokens(AbstractTokenProvider, aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> Any:
        return self._token


class _AsyncTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _python_options(access: Access, tokens: Callable[[str], Any]) -> dict[str, Any]:
    """What kafka-python and aiokafka have in common."""
    options: dict[str, Any] = {
        "bootstrap_servers": access.address,
        "security_protocol": access.protocol,
        "sasl_mechanism": access.mechanism,
    }
    if access.has_token:
        options["sasl_oauth_token_provider"] = tokens(access.secret)
    else:
        options |= {"sasl_plain_username": access.name, "sasl_plain_password": access.secret}
    if access.authority is not None:
        options["ssl_context"] = ssl.create_default_context(cafile=access.authority)
    return options


def with_kafka_python(access: Access, value: bytes) -> None:
    options = _python_options(access, _Tokens)
    try:
        producer = kafka.KafkaProducer(**options, bootstrap_timeout_ms=1000, max_block_ms=5000)
    except kafka.errors.KafkaError as error:
        raise Refused(str(error)) from error
    try:
        producer.send(TOPIC, value).get(SECONDS)
    except kafka.errors.KafkaError as error:
        raise Refused(str(error)) from error
    finally:
        producer.close(timeout=1)


def with_aiokafka(access: Access, value: bytes) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(**_python_options(access, _AsyncTokens))
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, value)
        except aiokafka.errors.KafkaError as error:
            raise Refused(str(error)) from error
        finally:
            await producer.stop()

    with warnings.catch_warnings():
        # It leaves the connection open on which it was refused.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            asyncio.run(main())
        finally:
            gc.collect()


CLIENTS: dict[str, Callable[[Access, bytes], None]] = {
    "ottla": with_ottla,
    "confluent": with_confluent,
    "kafka_python": with_kafka_python,
    "aiokafka": with_aiokafka,
}
