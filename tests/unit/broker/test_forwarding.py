"""The client in an envelope: Kafka's bytes, and wrong ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla import errors
from ottla.broker.cluster.requests import Requests
from ottla.broker.forwarding import decode_host, decode_principal, encode_host, encode_principal
from ottla.broker.node import Call
from ottla.net.server.connection import CloseConnection
from ottla.protocol.apis import ApiKey
from ottla.security.principals import ANONYMOUS, Principal
from unit.broker.leading import leading


@pytest.mark.parametrize("principal", [Principal("User", "etl"), Principal("User", "ü" * 100), Principal("G", "a:b")])
def test_a_principal_survives(principal: Principal) -> None:
    assert decode_principal(encode_principal(principal)) == principal


def test_the_bytes_are_those_of_kafka() -> None:
    # Version, compact strings, "not authenticated by a token", no tagged fields.
    assert encode_principal(Principal("User", "alice")) == b"\0\0\x05User\x06alice\0\0"


def test_nobody_in_particular_has_no_permissions() -> None:
    assert decode_principal(None) == ANONYMOUS


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0\0", b"\0\1\x05User\x06alice\0\0", b"\0\0\x05User\x06alice", b"\0\0\x05User\x7falice\0\0",
        b"\0\0\x01\x06alice\0\0", b"\0\0\x05User\x01\0\0", b"\0\0\x00\x06alice\0\0", b"\0\0\xff\xff\xff\xff\xff\xff",
        b"\0\0\x05User\x03\xff\xfe\0\0",
    ],
)  # fmt: skip
def test_a_principal_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(errors.PrincipalDeserializationFailure):
        decode_principal(data)


async def test_a_request_that_is_too_large_in_an_envelope_is_not_forwarded(tmp_path: Path) -> None:
    """The controller would close the connection, on which the requests of other clients wait too."""
    async with leading(tmp_path, socket_request_max_bytes=100_000) as broker:
        nobody: Any = None  # No other broker is asked.
        client: Any = SimpleNamespace(client_host="127.0.0.1", channel=SimpleNamespace(principal=ANONYMOUS))
        call = Call(client, ApiKey.CREATE_TOPICS, 7, 1, "client")
        with pytest.raises(CloseConnection, match="99990 bytes is too large to be forwarded"):
            await Requests(broker.node, nobody).forward(call, bytes(99_990))


def test_addresses() -> None:
    assert decode_host(encode_host("10.0.0.1")) == "10.0.0.1"
    assert decode_host(encode_host("2001:db8::5")) == "2001:db8::5"
    assert encode_host("fe80::1%eth0") == encode_host("fe80::1")
    with pytest.raises(errors.InvalidRequest):
        decode_host(b"10.0.0.1")
