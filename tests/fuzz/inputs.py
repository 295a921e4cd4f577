"""The inputs for a broker: input `n` of a seed is always the same."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from ottla.protocol.apis import ApiKey

from .mutations import mangled, mutated
from .requests import Generator, Request, World, body_pieces, header_pieces, joined

_SIZE = struct.Struct(">i")
SIZE_LIES = [-1, -(2**31), 0, 1, 7, 8, 9, 2**31 - 1, 104_857_600, 104_857_601, 65536]
OTHER_PROTOCOLS = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\0" * 64,
    b"\xff" * 64,
]
MAX_WRONG_VERSION = 40


class Input(NamedTuple):
    """Bytes for a connection."""

    kind: str
    data: bytes
    whole: bool = True
    """The data is one or more whole frames: the broker closes the connection or reads the next request."""
    chunk: int = 0
    """Send in pieces of this size; 0: all at once."""

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "data": base64.b64encode(self.data).decode()})

    @classmethod
    def from_json(cls, line: str) -> Self:
        fields: dict[str, Any] = json.loads(line)
        return cls(**{**fields, "data": base64.b64decode(fields["data"])})


class Inputs:
    """All inputs of a seed."""

    def __init__(self, seed: int, world: World) -> None:
        self._seed = seed
        self._world = world

    def __getitem__(self, number: int) -> Input:
        rng = random.Random(f"{self._seed}/{number}")
        (make,) = rng.choices(list(_KINDS), _KINDS.values())
        return make(Generator(rng, self._world))


def frame(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload


def _payload(generator: Generator, api_key: int | None = None) -> bytes:
    request = generator.request(api_key)
    return joined(header_pieces(request.api_key, request.version, 7)) + joined(body_pieces(request))


def _valid(generator: Generator) -> Input:
    return Input("valid request", frame(_payload(generator)))


def _produce(generator: Generator) -> Input:
    request = generator.produce()
    return Input("produce", frame(joined(header_pieces(*request[:2], 7)) + joined(body_pieces(request))))


def _reading(generator: Generator) -> Input:
    """Read what Produce has written: fetch, and search by timestamp."""
    api_key = generator.rng.choice([ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_PRODUCERS])
    return Input("reading", frame(_payload(generator, api_key)))


def _mutated(generator: Generator) -> Input:
    request = generator.request()
    header = header_pieces(request.api_key, request.version, 7)
    if generator.rng.random() < 0.2:
        return Input("mutated request", frame(mutated(generator.rng, header + body_pieces(request))))
    return Input("mutated request", frame(joined(header) + mutated(generator.rng, body_pieces(request))))


def _mangled(generator: Generator) -> Input:
    return Input("mangled request", frame(mangled(generator.rng, _payload(generator))))


def _wrong_version(generator: Generator) -> Input:
    rng = generator.rng
    api_key = rng.choice([generator.request().api_key, rng.randrange(-5, 120), rng.randrange(-(2**15), 2**15)])
    version = rng.choice([-1, rng.randrange(MAX_WRONG_VERSION), 2**15 - 1, -(2**15)])
    start = struct.pack(">hhih", api_key, version, 7, -1)
    return Input("wrong version", frame(start + rng.choice([b"", b"\0", _payload(generator)[8:], rng.randbytes(20)])))


def _random(generator: Generator) -> Input:
    return Input("random bytes", frame(generator.rng.randbytes(generator.rng.choice([8, 9, 20, 200, 5000]))))


def _wrong_size(generator: Generator) -> Input:
    payload = _payload(generator)
    size = generator.rng.choice([*SIZE_LIES, len(payload) - 1, len(payload) + 1])
    return Input("wrong size", _SIZE.pack(size) + payload, whole=False)


def _cut(generator: Generator) -> Input:
    data = frame(_payload(generator))
    return Input("cut frame", data[: generator.rng.randrange(len(data))], whole=False)


def _other_protocol(generator: Generator) -> Input:
    return Input("other protocol", generator.rng.choice(OTHER_PROTOCOLS), whole=False)


def _dribble(generator: Generator) -> Input:
    return Input("dribble", frame(_payload(generator)), chunk=generator.rng.choice([1, 3, 50]))


def _flood(generator: Generator) -> Input:
    """Many requests at once, some possibly invalid."""
    parts = [frame(_payload(generator)) for _ in range(generator.rng.choice([2, 10, 50]))]
    if generator.rng.random() < 0.3:
        parts.insert(generator.rng.randrange(len(parts)), frame(mangled(generator.rng, _payload(generator))))
    return Input("flood", b"".join(parts))


def _deaf(generator: Generator) -> Input:
    """Request everything again and again, and never read a response."""
    topic = generator.rng.choice(generator.world.kept)
    partition = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 30,
    }  # fmt: skip
    message = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 30, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "topics": [{"topic": topic, "partitions": [partition]}], "forgotten_topics_data": [],
        "rack_id": "",
    }  # fmt: skip
    request = Request(ApiKey.FETCH, 11, message)
    payload = joined(header_pieces(ApiKey.FETCH, 11, 7)) + joined(body_pieces(request))
    return Input("deaf", frame(payload) * 40, whole=False)


_KINDS: dict[Callable[[Generator], Input], int] = {
    _valid: 16, _produce: 18, _reading: 6, _mutated: 27, _mangled: 14, _wrong_version: 4, _random: 4, _wrong_size: 3,
    _cut: 3, _other_protocol: 1, _dribble: 1, _flood: 2, _deaf: 1,
}  # fmt: skip
