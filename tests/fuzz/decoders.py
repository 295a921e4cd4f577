"""Call the functions that read untrusted bytes directly: hundreds of times faster than through a socket.

Each takes bytes and may raise its documented error, and no other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.config import TopicConfig
from ottla.coordinator.records import COMMIT_TYPES
from ottla.errors import KafkaError
from ottla.protocol import _schemas, codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.commits import FIRST_WITH_IDS, read_commit
from ottla.records import (
    CorruptBatch,
    DecompressionError,
    decode_batch,
    decode_keys,
    encode_packed,
    find_timestamp,
    pack_commits,
    scan,
    summarize,
)
from ottla.records.compression import Compression, decompress
from ottla.storage.validation import AppendRules, checked_batch
from ottla.types import TopicPartition

from .batches import any_batch, valid_batch
from .mutations import mangled, mutated
from .requests import SERVED, Generator, World, body_pieces, header_pieces, joined

NOW = 1_800_000_000_000
MAX_UNPACKED = 1 << 20
WHERE = TopicPartition("fuzz", 0)
RULES = [
    AppendRules(TopicConfig.parse(overrides))
    for overrides in (
        {},
        {"cleanup.policy": "compact"},
        {"compression.type": "gzip"},
        {"compression.type": "uncompressed"},
        {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
        {"message.timestamp.before.max.ms": "1000"},
    )
]


def a_request(rng: random.Random, world: World) -> None:
    """Decode a mutated request."""
    generator = Generator(rng, world)
    request = generator.request(*rng.choice(SERVED))
    pieces = header_pieces(request.api_key, request.version, 7) + body_pieces(request)
    payload = mutated(rng, pieces) if rng.random() < 0.7 else mangled(rng, joined(pieces))
    frame = memoryview(bytearray(payload))
    try:
        header = codec.decode_request_header(frame)
        entry = _schemas.APIS.get(header.api_key)
        if entry is not None and entry[1] <= header.api_version <= entry[2]:
            codec.decode_request_body(header.api_key, header.api_version, frame, header.body)
    except codec.DecodeError:
        return


def a_response(rng: random.Random, world: World) -> None:
    """Decode mutated bytes as a response, as the client of a hostile broker."""
    api_key, version = rng.choice(SERVED)
    payload = rng.randbytes(rng.choice([4, 20, 100]))
    if rng.random() < 0.8:
        pieces = body_pieces(Generator(rng, world).request(api_key, version))
        payload = bytes(4) + mutated(rng, pieces)
    try:
        codec.decode_response(api_key, version, payload)
    except codec.DecodeError:
        return


class Topic(NamedTuple):
    """The attributes of a topic that a commit needs."""

    name: str
    topic_id: UUID
    partitions: int = 3


def a_commit(rng: random.Random, world: World) -> None:
    """Read a mutated commit with the fast path, and make records from it."""
    _, version = rng.choice([served for served in SERVED if served[0] == ApiKey.OFFSET_COMMIT])
    request = Generator(rng, world).request(ApiKey.OFFSET_COMMIT, version)
    topics: dict[str | UUID, Topic] = {}
    for asked in request.message["topics"]:
        topic = Topic(asked.get("name") or "known-by-its-id", asked.get("topic_id") or UUID(int=7))
        topics[topic.name if version < FIRST_WITH_IDS else topic.topic_id] = topic
    pieces = body_pieces(request)
    body = rng.choice([joined(pieces), mutated(rng, pieces), mangled(rng, joined(pieces))])
    commit = read_commit(memoryview(body), 0, version, 7, topics, rng.choice([0, 10, 4096]))
    if commit is not None:
        wish, _ = commit
        packed = pack_commits(wish[-1], NOW, wish[0], COMMIT_TYPES)
        if len(list(packed)):
            encode_packed(packed, NOW)


def a_batch(rng: random.Random, world: World) -> None:
    """Validate a batch like a topic, and then read it in every way."""
    batch = bytearray(any_batch(rng))
    try:
        checked_batch(memoryview(bytearray(batch)), rng.choice(RULES), WHERE, now=NOW)
    except KafkaError:
        pass
    scan(batch, 0, len(batch))
    readers: list[Callable[[], object]] = [
        lambda: decode_batch(batch, max_size=MAX_UNPACKED),
        lambda: decode_keys(batch, max_size=MAX_UNPACKED),
        lambda: summarize(batch, max_size=MAX_UNPACKED),
        lambda: find_timestamp(batch, 0, rng.choice([0, NOW, 2**62]), max_size=MAX_UNPACKED),
    ]
    for read in readers:
        try:
            read()
        except CorruptBatch:
            continue


def a_compressed_payload(rng: random.Random, world: World) -> None:
    """Decompress damaged bytes."""
    codec_ = rng.choice(list(Compression)[1:])
    data = mangled(rng, valid_batch(rng, codec_)[61:])
    try:
        decompress(codec_, data, MAX_UNPACKED)
    except DecompressionError:
        return


Target = Callable[[random.Random, World], None]
TARGETS: list[Target] = [a_request, a_response, a_commit, a_batch, a_compressed_payload]


def run(seed: int, count: int) -> None:
    """Call the targets in turn. An unexpected error names the seed that reproduces it."""
    world = World()
    for number in range(count):
        target = TARGETS[number % len(TARGETS)]
        try:
            target(random.Random(f"{seed}/{number}"), world)
        except Exception as error:
            raise AssertionError(f"{target.__name__}, seed {seed}, number {number}: {error!r}") from error
