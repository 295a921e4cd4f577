"""Batches and snapshots of metadata records as the data of nodes: JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.metadata.records import MetadataRecord, from_json, to_json
from ottla.zookeeper.client import LARGEST_REQUEST

LARGEST_NODE = LARGEST_REQUEST - 10_000
"""Leaves room for the other operations of an append."""


class Batch(NamedTuple):
    epoch: int
    """The epoch of the controller that wrote the batch."""
    records: list[MetadataRecord]


class Piece(NamedTuple):
    """Records that fit in one node, and their lines."""

    records: list[MetadataRecord]
    lines: bytes


def pieces(records: Iterable[MetadataRecord], limit: int = LARGEST_NODE) -> Iterator[Piece]:
    """Split records into pieces whose lines have at most `limit` bytes."""
    chosen: list[MetadataRecord] = []
    lines: list[bytes] = []
    size = 0
    for record in records:
        line = json.dumps(to_json(record), separators=(",", ":")).encode() + b"\n"
        if len(line) > limit:
            raise OttlaError(f"a {type(record).__name__} of {len(line)} bytes does not fit in a node of ZooKeeper")
        if size + len(line) > limit:
            yield Piece(chosen, b"".join(lines))
            chosen, lines, size = [], [], 0
        chosen.append(record)
        lines.append(line)
        size += len(line)
    if chosen:
        yield Piece(chosen, b"".join(lines))


def parse_records(lines: bytes) -> list[MetadataRecord]:
    return [from_json(json.loads(line)) for line in lines.splitlines()]


def encode_batch(epoch: int, lines: bytes) -> bytes:
    """Return the data of a node: a line with the epoch, and the lines of the records."""
    return b'{"epoch":%d}\n' % epoch + lines


def epoch_of(data: bytes) -> int:
    epoch: int = json.loads(data[: data.index(b"\n")])["epoch"]
    return epoch


def parse_batch(data: bytes) -> Batch:
    return Batch(epoch_of(data), parse_records(data[data.index(b"\n") + 1 :]))


class SnapshotPointer(NamedTuple):
    """Which snapshot is valid: the state after the batch at `position`, in so many pieces."""

    position: int
    pieces: int

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def parse(cls, data: bytes) -> SnapshotPointer:
        return cls(**json.loads(data)) if data else cls(0, 0)

    def names(self) -> Sequence[str]:
        """The names of its nodes.

        >>> SnapshotPointer(7, 1).names()
        ['00000000000000000007-00000']
        """
        return [f"{self.position:020d}-{piece:05d}" for piece in range(self.pieces)]
