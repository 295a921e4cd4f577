"""A few inputs that are large, or that a careless broker would expand to something large."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

from ottla.broker.handlers import HANDLERS
from ottla.protocol import _schemas
from ottla.protocol.apis import ApiKey
from ottla.records import Compression

from .batches import bomb, swarm
from .inputs import Input, frame
from .requests import Piece, Request, World, body_pieces, header_pieces, joined, uvarint

MANY = 100_000
SWARM = 600_000
LARGEST = 104_857_600
#: Topics whose appends are unpacked, of live.VICTIMS.
UNPACKED = {"compacted": "fuzz-1", "compressed anew": "fuzz-2"}


Made = Iterator[tuple[str, Callable[[], bytes]]]


def heavy_inputs(world: World, names: Sequence[str] = ("",)) -> Iterator[Input]:
    """All inputs, or those whose names start with one of these; each is created on demand."""
    for name, make in chain(_bombs(), _many_items(world), _wide(), _tiny_items(), _large_frames()):
        if name.startswith(tuple(names)):
            yield Input(name, make())


def _bombs() -> Made:
    for what, topic in UNPACKED.items():
        for codec in list(Compression)[1:]:
            yield f"{codec.name.lower()} bomb, {what}", partial(_produce, topic, partial(bomb, codec))
        yield f"{SWARM:,} records in a batch, {what}", partial(_produce, topic, partial(swarm, Compression.GZIP, SWARM))


def _large_frames() -> Made:
    yield "a frame of 100 MB, all zero", lambda: struct.pack(">i", LARGEST) + bytes(LARGEST)
    yield "60 MB of tags in the header", lambda: frame(_header(ApiKey.METADATA, 12)[:-1] + _many_tags(30_000_000))


def _produce(topic: str, batch: Callable[[], bytes]) -> bytes:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch()}]}]
    message = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}
    return _request(Request(ApiKey.PRODUCE, 8, message))


def _request(request: Request) -> bytes:
    return frame(joined(header_pieces(request.api_key, request.version, 7)) + joined(body_pieces(request)))


def _many_items(world: World) -> Made:
    """Valid requests with very many items, none of which exists."""
    for name, (api_key, version, message) in _MANY.items():
        yield f"{name} of {MANY:,}", partial(_valid, api_key, version, message, world)


def _valid(api_key: int, version: int, message: Callable[[World], dict[str, Any]], world: World) -> bytes:
    return _request(Request(api_key, version, message(world)))


def _each(make: Callable[[int], Any]) -> list[Any]:
    return [make(number) for number in range(MANY)]


def _name(number: int) -> str:
    return f"no-{number}"


_MANY: dict[str, tuple[int, int, Callable[[World], dict[str, Any]]]] = {
    "Metadata": (
        ApiKey.METADATA, 8,
        lambda w: {
            "topics": _each(lambda n: {"name": _name(n)}), "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False, "include_topic_authorized_operations": True,
        },
    ),
    "CreateTopics, to be refused": (
        ApiKey.CREATE_TOPICS, 4,
        lambda w: {
            "topics": _each(
                lambda n: {
                    "name": _name(n), "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": [],
                }
            ),
            "timeout": 1, "validate_only": True,
        },
    ),
    "CreatePartitions": (
        ApiKey.CREATE_PARTITIONS, 1,
        lambda w: {
            "topics": _each(lambda n: {"name": _name(n), "count": 3, "assignments": None}),
            "timeout": 1, "validate_only": True,
        },
    ),
    "DeleteTopics": (ApiKey.DELETE_TOPICS, 3, lambda w: {"topic_names": _each(_name), "timeout": 1}),
    "IncrementalAlterConfigs": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 0,
        lambda w: {
            "resources": _each(lambda n: {"resource_type": 2, "resource_name": _name(n), "configs": []}),
            "validate_only": True,
        },
    ),
    "AlterConfigs of one topic": (
        ApiKey.ALTER_CONFIGS, 0,
        lambda w: {
            "resources": [
                {
                    "resource_type": 2, "resource_name": "fuzz-0",
                    "configs": _each(lambda n: {"name": _name(n), "value": "1"}),
                }
            ],
            "validate_only": True,
        },
    ),
    "DescribeConfigs": (
        ApiKey.DESCRIBE_CONFIGS, 1,
        lambda w: {
            "resources": _each(
                lambda n: {"resource_type": 2, "resource_name": _name(n), "configuration_keys": None}
            ),
            "include_synonyms": True,
        },
    ),
    "DescribeConfigs, a thousand times the same": (
        ApiKey.DESCRIBE_CONFIGS, 1,
        lambda w: {
            "resources": [{"resource_type": 2, "resource_name": "fuzz-0", "configuration_keys": None}] * 1000,
            "include_synonyms": True,
        },
    ),
    "ListOffsets": (
        ApiKey.LIST_OFFSETS, 5,
        lambda w: {
            "replica_id": -1, "isolation_level": 0,
            "topics": [
                {
                    "name": "fuzz-0",
                    "partitions": _each(lambda n: {"partition_index": n, "current_leader_epoch": -1, "timestamp": 0}),
                }
            ],
        },
    ),
    "Fetch": (
        ApiKey.FETCH, 11,
        lambda w: {
            "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "session_id": 0,
            "session_epoch": 0, "forgotten_topics_data": [], "rack_id": "",
            "topics": [
                {
                    "topic": "fuzz-0",
                    "partitions": _each(
                        lambda n: {
                            "partition": n, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
                            "log_start_offset": -1, "partition_max_bytes": 1,
                        }
                    ),
                }
            ],
        },
    ),
    "DescribeProducers": (
        ApiKey.DESCRIBE_PRODUCERS, 0,
        lambda w: {"topics": [{"name": "fuzz-0", "partition_indexes": list(range(MANY))}]},
    ),
    "DescribeLogDirs": (
        ApiKey.DESCRIBE_LOG_DIRS, 1,
        lambda w: {"topics": _each(lambda n: {"topic": _name(n), "partitions": [0]})},
    ),
    "DescribeTopicPartitions": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
        lambda w: {"topics": _each(lambda n: {"name": _name(n)}), "response_partition_limit": 10, "cursor": None},
    ),
    "DeleteRecords": (
        ApiKey.DELETE_RECORDS, 1,
        lambda w: {
            "topics": [
                {"name": "fuzz-0", "partitions": _each(lambda n: {"partition_index": n + 5, "offset": 0})}
            ],
            "timeout": 1,
        },
    ),
    "Produce": (
        ApiKey.PRODUCE, 8,
        lambda w: {
            "transactional_id": None, "acks": -1, "timeout": 1,
            "topic_data": [
                {"name": "fuzz-0", "partition_data": _each(lambda n: {"index": n + 5, "records": b""})}
            ],
        },
    ),
}  # fmt: skip


def _wide() -> Made:
    """Each array of each other API with very many items, as the schema has them: names that nobody knows."""
    known = {api_key for api_key, _, _ in _MANY.values()}
    for api_key in sorted(HANDLERS.keys() - known):
        version, schema = HANDLERS[api_key].last, _schemas.APIS[api_key][4]
        for path in _arrays(schema, version):
            name = f"{ApiKey(api_key).name}, {'.'.join(path)}"
            yield f"{name} of {MANY:,}", partial(_wide_request, api_key, version, path)


def _wide_request(api_key: int, version: int, path: tuple[str, ...]) -> bytes:
    return _request(Request(api_key, version, _filled(_schemas.APIS[api_key][4], version, path, 0)))


def _arrays(schema: tuple[Any, ...], version: int) -> Iterator[tuple[str, ...]]:
    for name, first, last, _, array, _, _, _, children in schema:
        if first <= version <= last and (array or children):
            if array:
                yield (name,)
            yield from ((name, *inner) for inner in _arrays(children or (), version))


def _filled(schema: tuple[Any, ...], version: int, path: tuple[str, ...], number: int) -> dict[str, Any]:
    """A message whose array at `path` has very many items, and one in those above it."""
    message: dict[str, Any] = {}
    for name, first, last, type_, array, nullable, _, _, children in schema:
        if not first <= version <= last:
            continue
        inner = path[1:] if path[:1] == (name,) else ()
        make = partial(_filled, children, version, inner) if type_ == "struct" else partial(_plain, type_)
        if not array:
            message[name] = make(number)
        elif path[:1] == (name,):
            message[name] = [make(item) for item in range(1 if inner else MANY)]
        else:
            message[name] = None if nullable else []
    return message


def _plain(type_: str, number: int) -> Any:
    if type_ == "string":
        return _name(number)
    if type_ == "uuid":
        return UUID(int=number + 1)
    if type_ in ("bytes", "records"):
        return b""
    return type_ == "bool" or min(number, 100 if type_ == "int8" else 30_000 if type_ == "int16" else number)


def _tiny_items() -> Made:
    """As many items of a few bytes as fit into a request: larger in memory than on the wire."""
    for name, api_key, version, before, item, after in (
        ("Metadata", ApiKey.METADATA, 9, b"", b"\1\0", b"\0\0\0\0"),
        ("Produce", ApiKey.PRODUCE, 9, b"\0\xff\xff\0\0\0\0", b"\1\1\0", b"\0"),
        ("DescribeConfigs", ApiKey.DESCRIBE_CONFIGS, 4, b"", b"\2\1\0\0", b"\0\0\0"),
        ("DeleteTopics", ApiKey.DELETE_TOPICS, 4, b"", b"\1", b"\0\0\0\0\0"),
    ):
        for size in (4_000_000, LARGEST):
            count = (size - 100) // len(item)
            yield f"{name}, {count:,} items", partial(_items, _header(api_key, version) + before, item, count, after)


def _items(before: bytes, item: bytes, count: int, after: bytes) -> bytes:
    return frame(before + uvarint(count + 1) + item * count + after)


def _header(api_key: int, version: int) -> bytes:
    pieces: list[Piece] = header_pieces(api_key, version, 7)
    return joined(pieces)


def _many_tags(count: int) -> bytes:
    return uvarint(count) + b"\x63\0" * count
