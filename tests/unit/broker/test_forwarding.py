"""The client in an envelope: Kafka's bytes, and wrong ones."""

from __future__ import annotations

import pytest

from ottla import errors
from ottla.broker.forwarding import decode_host, decode_principal, encode_host, encode_principal
from ottla.security.principals import ANONYMOUS, Principal


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


def test_addresses() -> None:
    assert decode_host(encode_host("10.0.0.1")) == "10.0.0.1"
    assert decode_host(encode_host("2001:db8::5")) == "2001:db8::5"
    assert encode_host("fe80::1%eth0") == encode_host("fe80::1")
    with pytest.raises(errors.InvalidRequest):
        decode_host(b"10.0.0.1")
