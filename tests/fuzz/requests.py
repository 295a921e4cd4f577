"""Requests of every API that is served, in every version, made from the schema table.

A request is a list of pieces: fixed values, lengths, data. Joined, they are the bytes that the codec writes (a test
compares the two), and a mutation can change a length alone. Values are meaningful to a broker: existing topics and
configs, offsets at the limits.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.handlers import HANDLERS
from ottla.protocol import _schemas
from ottla.protocol.apis import ApiKey

from .batches import any_batch

FIXED = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I", "float64": "d", "bool": "?",
}  # fmt: skip
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
#: They change topics or configs: only what may be lost is named in them.
CHANGING = {
    ApiKey.PRODUCE, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.DELETE_RECORDS, ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
}  # fmt: skip
CONFIGS = [
    ("retention.ms", "1000"), ("retention.ms", "-1"), ("retention.ms", "nine"), ("segment.bytes", "1048576"),
    ("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("cleanup.policy", "compact,delete"),
    ("cleanup.policy", "none"), ("compression.type", "gzip"), ("compression.type", "brotli"), ("flush.messages", "1"),
    ("message.timestamp.type", "LogAppendTime"), ("message.timestamp.before.max.ms", "5"),
    ("max.message.bytes", "9999"), ("segment.ms", "1"), ("index.interval.bytes", "0"), ("segment.index.bytes", "12"),
    ("retention.bytes", "1" * 400), ("", ""), ("no.such.config", "x"), ("compression.zstd.level", "-99999999999"),
    ("log.cleaner.threads", "2"), ("background.threads", "3"), ("log.retention.ms", "10000"),
    ("segment.jitter.ms", "5"),
]  # fmt: skip
ODD_NAMES = ["", ".", "..", "a/b", "a\0b", "ä", "名前", "x" * 249, "x" * 250, "x" * 3000, "fuzz_0"]

GROUPS = ["group-0", "group-1", "group-2", "", "g" * 300, "ä"]


class Piece(NamedTuple):
    """A part of a message: `fixed`, `length` (of what follows it) or `data`."""

    kind: str
    data: bytes
    flexible: bool = False


@dataclass
class World:
    """The names that generated requests use."""

    kept: list[str] = field(default_factory=lambda: ["kept"])
    """Topics that are read and never changed."""
    victims: list[str] = field(default_factory=lambda: [f"fuzz-{n}" for n in range(6)])
    """Topics that may be changed in any way, except deleted."""
    passing: list[str] = field(default_factory=lambda: [f"passing-{n}" for n in range(4)])
    """Topics that are created and deleted."""
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    broker_id: int = 1


class Request(NamedTuple):
    """A request before it is encoded."""

    api_key: int
    version: int
    message: dict[str, Any]


SERVED = [
    (key, version) for key, handler in sorted(HANDLERS.items()) for version in range(handler.first, handler.last + 1)
]


class Generator:
    """Makes requests from a seed."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self.rng = rng
        self.world = world
        self._api_key = 0

    def request(self, api_key: int | None = None, version: int | None = None) -> Request:
        if api_key is None or version is None:
            key = self.rng.choice(list(HANDLERS)) if api_key is None else api_key
            api_key, version = self.rng.choice([served for served in SERVED if served[0] == key])
        self._api_key = api_key
        return Request(api_key, version, self._struct(_schemas.APIS[api_key][4], version))

    def produce(self) -> Request:
        """A valid Produce request, except for its records."""
        self._api_key = ApiKey.PRODUCE
        name = self.rng.choice(self.world.victims)
        data = [{"index": self.rng.randrange(2), "records": any_batch(self.rng)}]
        message = {
            "transactional_id": None, "acks": self.one_of(-1, -1, -1, 1), "timeout": 1000,
            "topic_data": [{"name": name, "topic_id": self.world.topic_ids.get(name), "partition_data": data}],
        }  # fmt: skip
        _, version = self.rng.choice([served for served in SERVED if served[0] == ApiKey.PRODUCE])
        return Request(ApiKey.PRODUCE, version, message)

    def _struct(self, fields: tuple[Any, ...], version: int) -> dict[str, Any]:
        return {f[0]: self._field(f, version) for f in fields if f[1] <= version <= f[2]}

    def _field(self, schema: tuple[Any, ...], version: int) -> Any:
        name, _, _, type_, array, nullable, tag, default, children = schema
        if nullable and self.rng.random() < 0.15:
            return None
        if tag is not None and default is not ... and self.rng.random() < 0.7:
            return default
        if name == "assignments" and self.rng.random() < 0.7:
            return None if nullable else []
        if array:
            return [self._value(name, type_, children, version) for _ in range(self._count())]
        return self._value(name, type_, children, version)

    def _count(self) -> int:
        return self.rng.choice([0, 1, 1, 1, 1, 2, 2, 3, 5])

    def _value(self, name: str, type_: str, children: tuple[Any, ...] | None, version: int) -> Any:
        if type_ == "struct":
            value = self._struct(children or (), version)
            return self._config(value) if {"name", "value"} <= value.keys() else value
        if name in _MEANINGFUL and self.rng.random() < 0.85:
            return _MEANINGFUL[name](self)
        return self._any_value(type_)

    def _config(self, value: dict[str, Any]) -> dict[str, Any]:
        """A config with a valid value."""
        if self.rng.random() < 0.8:
            value["name"], value["value"] = self.rng.choice(CONFIGS)
        return value

    def _any_value(self, type_: str) -> Any:
        rng = self.rng
        if type_ in BITS:
            top = 1 << (BITS[type_] - 1)
            return rng.choice([0, 1, -1, 2, top - 1, -top, rng.randrange(-top, top), rng.randrange(100)])
        if type_ == "bool":
            return rng.random() < 0.5
        if type_ == "uuid":
            return rng.choice([None, UUID(int=rng.getrandbits(128)), self.topic_id()])
        if type_ == "float64":
            return rng.choice([0.0, -1.0, 1e308, float("nan")])
        if type_ == "string":
            return self.rng.choice([*ODD_NAMES, self.topic()])
        if type_ == "records":
            return any_batch(rng)
        return rng.randbytes(rng.randrange(50))

    # ── values that mean something ────────────────────────────────────────────────────────────────────────────────

    def topic(self) -> str:
        if self.rng.random() < 0.1:
            return self.rng.choice(ODD_NAMES)
        if self._api_key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS) and self.rng.random() < 0.95:
            return self.rng.choice(self.world.passing)
        return self.rng.choice(self.world.victims + ([] if self._api_key in CHANGING else self.world.kept))

    def topic_id(self) -> UUID | None:
        known = self.world.topic_ids
        if self._api_key == ApiKey.DELETE_TOPICS and self.rng.random() < 0.95:
            return None
        names = [name for name in known if self._api_key not in CHANGING or name not in self.world.kept]
        return known[self.rng.choice(names)] if names and self.rng.random() < 0.9 else None

    def transactional_id(self) -> str | None:
        if self._api_key == ApiKey.PRODUCE and self.rng.random() < 0.7:
            return None
        return self.rng.choice(["t", "t", "u", "", "x" * 200])

    def offset(self) -> int:
        return self.rng.choice([0, 0, 0, 1, 5, 100, -1, -2, -(2**63), 2**63 - 1, self.rng.randrange(1000)])

    def one_of(self, *values: int) -> int:
        return self.rng.choice(values)

    def resource_name(self) -> str:
        return self.rng.choice([self.topic(), self.topic(), "", str(self.world.broker_id), "7"])


_MEANINGFUL: dict[str, Callable[[Generator], Any]] = {
    "name": Generator.topic,
    "topic": Generator.topic,
    "topic_name": Generator.topic,
    "topic_names": Generator.topic,
    "topic_id": Generator.topic_id,
    "resource_name": Generator.resource_name,
    "records": lambda g: any_batch(g.rng),
    "acks": lambda g: g.one_of(-1, -1, -1, -1, -1, 1, 0, 2),
    "transactional_id": Generator.transactional_id,
    "transactional_ids": Generator.transactional_id,
    "v3_and_below_transactional_id": Generator.transactional_id,
    "transaction_timeout": lambda g: g.one_of(1, 50, 60_000, 0, -1),
    "producer_id": lambda g: g.one_of(-1, 0, 1, 2, 3, 2**63 - 1),
    "v3_and_below_producer_id": lambda g: g.one_of(0, 1, 2, 3, -1),
    "producer_epoch": lambda g: g.one_of(-1, 0, 0, 1, 2, 32_767),
    "v3_and_below_producer_epoch": lambda g: g.one_of(0, 0, 1, 2, -1),
    "transactional_id_pattern": lambda g: g.rng.choice([None, "t.*", "(", "(a+)+$"]),
    "index": lambda g: g.one_of(0, 0, 0, 1, 2, -1),
    "partition": lambda g: g.one_of(0, 0, 0, 1, 2, -1),
    "partitions": lambda g: g.one_of(0, 0, 1, -1),
    "partition_index": lambda g: g.one_of(0, 0, 0, 1, 2, -1),
    "partition_indexes": lambda g: g.one_of(0, 0, 0, 1, 2, -1),
    "num_partitions": lambda g: g.one_of(1, 1, 2, 3, -1, 0, -2, 10_001, 2**31 - 1),
    "count": lambda g: g.one_of(1, 2, 3, 4, 0, -1, 2**31 - 1),
    "replication_factor": lambda g: g.one_of(1, 1, 1, -1, 0, 3),
    "broker_ids": lambda g: g.one_of(g.world.broker_id, 0, -1),
    "max_wait": lambda g: g.one_of(0, 0, 0, 1, 20, -5),
    "timeout": lambda g: g.one_of(0, 1000, 30_000),
    "min_bytes": lambda g: g.one_of(0, 1, 1, -1, 2**31 - 1),
    "max_bytes": lambda g: g.one_of(1 << 20, 1 << 20, 1, 0, -1, 2**31 - 1),
    "partition_max_bytes": lambda g: g.one_of(1 << 20, 1 << 20, 1, 0, -1, 2**31 - 1),
    "fetch_offset": Generator.offset,
    "offset": Generator.offset,
    "timestamp": lambda g: g.one_of(-1, -2, -3, -4, -5, -6, -7, 0, 1, 1_700_000_000_000, 2**63 - 1, -(2**63)),
    "current_leader_epoch": lambda g: g.one_of(-1, -1, 0, 0, 1, 5),
    "leader_epoch": lambda g: g.one_of(0, 0, 1, -1, 5),
    "session_id": lambda g: g.one_of(0, 0, 0, 1, -1),
    "session_epoch": lambda g: g.one_of(-1, 0, 0, 1, 2),
    "isolation_level": lambda g: g.one_of(0, 0, 1, 2),
    "resource_type": lambda g: g.one_of(2, 2, 2, 2, 2, 4, 4, 8, 0, 127),
    "config_operation": lambda g: g.one_of(0, 0, 1, 2, 3, 4, -1),
    "response_partition_limit": lambda g: g.one_of(0, 1, 2, 2000, -1, 2**31 - 1),
    "configuration_keys": lambda g: g.rng.choice(CONFIGS)[0],
    "client_software_name": lambda g: g.rng.choice(["fuzz", "", " ", "a" * 1000]),
    "client_software_version": lambda g: g.rng.choice(["1.0", "", "\n"]),
    "group_id": lambda g: g.rng.choice(GROUPS),
    "groups": lambda g: g.rng.choice(GROUPS),
    "group_ids": lambda g: g.rng.choice(GROUPS),
    "groups_names": lambda g: g.rng.choice(GROUPS),
    "key": lambda g: g.rng.choice(GROUPS),
    "coordinator_keys": lambda g: g.rng.choice(GROUPS),
    "key_type": lambda g: g.one_of(0, 0, 0, 1, 2, 9),
    "member_id": lambda g: g.rng.choice(["", "", "m-1", "x" * 40]),
    "group_instance_id": lambda g: g.rng.choice([None, None, "i-1"]),
    "generation_id": lambda g: g.one_of(-1, -1, 0, 1),
    "generation_id_or_member_epoch": lambda g: g.one_of(-1, -1, 0, 1),
    "member_epoch": lambda g: g.one_of(0, 0, 1, -1, -2, 7),
    "session_timeout": lambda g: g.one_of(6000, 10_000, 0, -1),
    "rebalance_timeout": lambda g: g.one_of(0, 50, 50, -1),
    "protocol_type": lambda g: g.rng.choice(["consumer", "consumer", "connect", ""]),
    "protocol_name": lambda g: g.rng.choice(["range", "range", "other"]),
    "server_assignor": lambda g: g.rng.choice([None, None, "uniform", "range", "none"]),
    "subscribed_topic_names": Generator.topic,
    "subscribed_topic_regex": lambda g: g.rng.choice(["", "fuzz-.*", "(", "(a+)+$", "x" * 500]),
    "committed_offset": Generator.offset,
    "committed_leader_epoch": lambda g: g.one_of(-1, 0, 5),
    "committed_metadata": lambda g: g.rng.choice([None, "", "m", "m" * 5000]),
}


# ── pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────


def header_pieces(api_key: int, version: int, correlation_id: int, client_id: bytes | None = b"fuzz") -> list[Piece]:
    """The header of a request."""
    pieces = [Piece("fixed", struct.pack(">h", api_key)), Piece("fixed", struct.pack(">h", version))]
    pieces.append(Piece("fixed", struct.pack(">i", correlation_id)))
    pieces.append(Piece("length", struct.pack(">h", -1 if client_id is None else len(client_id))))
    if client_id:
        pieces.append(Piece("data", client_id))
    if version >= _schemas.APIS[api_key][3]:
        pieces.append(Piece("length", b"\0", True))
    return pieces


def body_pieces(request: Request) -> list[Piece]:
    """The body of a request."""
    entry = _schemas.APIS[request.api_key]
    out: list[Piece] = []
    _struct_pieces(out, entry[4], request.version, request.version >= entry[3], request.message)
    return out


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _struct_pieces(
    out: list[Piece], fields: tuple[Any, ...], version: int, flexible: bool, message: dict[str, Any]
) -> None:
    present = [f for f in fields if f[1] <= version <= f[2]]
    for schema in present:
        if schema[6] is None:
            _field_pieces(out, schema, version, flexible, message[schema[0]])
    if flexible:
        _tag_pieces(out, [f for f in present if f[6] is not None], version, message)


def _tag_pieces(out: list[Piece], tagged: list[tuple[Any, ...]], version: int, message: dict[str, Any]) -> None:
    given = []
    for schema in sorted(tagged, key=lambda f: f[6]):
        is_empty_array = schema[4] and not message[schema[0]]
        if message[schema[0]] != _absent(schema) and not is_empty_array:
            value: list[Piece] = []
            _field_pieces(value, schema, version, True, message[schema[0]])
            given.append((schema[6], value))
    out.append(Piece("length", uvarint(len(given)), True))
    for tag, value in given:
        out.append(Piece("length", uvarint(tag), True))
        out.append(Piece("length", uvarint(len(joined(value))), True))
        out += value


def _absent(schema: tuple[Any, ...]) -> Any:
    default = schema[7]
    return default if default is not ... else None


def _field_pieces(out: list[Piece], schema: tuple[Any, ...], version: int, flexible: bool, value: Any) -> None:
    _, _, _, type_, array, _, _, _, children = schema
    if not array:
        if type_ == "struct" and schema[5]:
            out.append(Piece("fixed", b"\xff" if value is None else b"\1"))
            if value is None:
                return
        _value_pieces(out, type_, children, version, flexible, value)
        return
    _length_piece(out, None if value is None else len(value), flexible, ">i")
    for item in value or ():
        _value_pieces(out, type_, children, version, flexible, item)


def _length_piece(out: list[Piece], length: int | None, flexible: bool, layout: str) -> None:
    known = -1 if length is None else length
    out.append(Piece("length", uvarint(known + 1) if flexible else struct.pack(layout, known), flexible))


def _value_pieces(out: list[Piece], type_: str, children: Any, version: int, flexible: bool, value: Any) -> None:
    if type_ == "struct":
        _struct_pieces(out, children or (), version, flexible, value)
    elif type_ in FIXED:
        out.append(Piece("fixed", struct.pack(">" + FIXED[type_], value)))
    elif type_ == "uuid":
        out.append(Piece("fixed", bytes(16) if value is None else value.bytes))
    else:
        data = value.encode() if isinstance(value, str) else value
        _length_piece(out, None if data is None else len(data), flexible, ">h" if type_ == "string" else ">i")
        if data:
            out.append(Piece("data", bytes(data)))
