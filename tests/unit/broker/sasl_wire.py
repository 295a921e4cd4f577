"""SASL by hand: a broker with a listener that requires it, and the steps of a login on a raw connection."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.unit.broker.wire import Wire

import ottla
from ottla.net.client.sasl import Conversation, plain, scram
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.security.principals import Principal
from ottla.security.scram import ScramMechanism, salted_password

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" user_bob="b";'
SALT = b"0123456789abcdef0123456789abcdef"


class SaslBroker:
    """A broker with a SASL listener, and a plain one to prepare things."""

    def __init__(self, broker: ottla.Broker) -> None:
        self.broker = broker
        self.sasl, self.plain = (f"127.0.0.1:{server.port}" for server in broker._running().servers)

    def add_user(self, name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256) -> int:
        """Return the error code."""
        with Wire(self.plain) as wire:
            message = {"deletions": [], "upsertions": [upsertion(name, password, mechanism)]}
            return int(wire.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, message).results[0].error_code)

    def principals(self) -> set[Principal]:
        """Return who is connected to the SASL listener."""
        return {connection.channel.principal for connection in self.broker._running().servers[0].connections}


def upsertion(name: str, password: str, mechanism: ScramMechanism, iterations: int = 4096) -> dict[str, Any]:
    salted = salted_password(mechanism, password, SALT, iterations)
    return {
        "name": name, "mechanism": int(mechanism), "iterations": iterations, "salt": SALT, "salted_password": salted,
    }  # fmt: skip


@contextmanager
def sasl_broker(mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", **configs: Any) -> Iterator[SaslBroker]:
    """Start a broker. Configs have underscores; those of the SASL listener start with ``listener.name.sasl.``."""
    data_dir = configs.pop("data_dir", None)
    config = {
        "listeners": "SASL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": mechanisms,
        "listener.name.sasl.plain.sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in configs.items()},
    }
    with ottla.Broker(data_dir, config=config) as broker:
        yield SaslBroker(broker)


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def handshake(wire: Wire, mechanism: str, version: int = 1) -> Struct:
    return wire.call(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


def say(wire: Wire, message: bytes, version: int = 2) -> Struct:
    return wire.call(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": message})


def say_raw(wire: Wire, message: bytes) -> bytes:
    """Say something in a frame of its own, as after SaslHandshake v0."""
    wire.socket.sendall(struct.pack(">i", len(message)) + message)
    (size,) = struct.unpack(">i", wire._exactly(4))
    return wire._exactly(size)


def conversation(mechanism: str, name: str, password: str) -> Conversation:
    if mechanism == "PLAIN":
        return plain(name, password)
    return scram(ScramMechanism.named(mechanism).hash_name, name, password, nonce="client")


def log_in(wire: Wire, mechanism: str, name: str, password: str, *, version: int = 2) -> Struct:
    """Log in; return the last response."""
    assert handshake(wire, mechanism).error_code == 0
    return prove(wire, mechanism, name, password, version=version)


def log_in_again(wire: Wire, mechanism: str, name: str, password: str) -> Struct:
    """Authenticate again as soon as the broker allows it: once a second. Return the last response."""
    until(lambda: handshake(wire, mechanism).error_code == 0, "the client may authenticate again")
    return prove(wire, mechanism, name, password)


def prove(wire: Wire, mechanism: str, name: str, password: str, *, version: int = 2) -> Struct:
    """Say what follows the handshake; return the last response."""
    talk = conversation(mechanism, name, password)
    message = next(talk)
    while True:
        answer = say(wire, message, version)
        if answer.error_code:
            return answer
        try:
            message = talk.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer


def works(wire: Wire) -> bool:
    """Whether requests are served."""
    try:
        return bool(wire.call(ApiKey.METADATA, 9, {"topics": []}).cluster_id)
    except ConnectionError:
        return False
