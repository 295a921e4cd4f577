"""Offset commits as bytes, from the request to the batch: the pure version of `_packed.pxi`.

Each commit is:

    size of the key     int32
    size of the value   int32
    key                 type 1 (int16); group, topic (int16 and UTF-8); partition (int32)
    value               version 4 (int16); offset (int64); leader epoch (int32); metadata (length + 1 as a varint,
                        UTF-8); commit timestamp (int64); one tagged field, number 0 of 16 bytes, the id of the topic

This is their form in a batch, without the record's number there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ottla.records import codec
from ottla.records._problems import NOT_PACKED
from ottla.records._pure import _Bad, _unsigned
from ottla.records.values import topic_id_of

Types: TypeAlias = tuple[type[Any], type[Any], type[Any]]
"""The tuple classes of keys, values and records."""
_SIZES, _NAME_SIZE, _PARTITION, _TIME = (
    struct.Struct(">ii"),
    struct.Struct(">h"),
    struct.Struct(">i"),
    struct.Struct(">q"),
)
_NUMBERS = struct.Struct(">hqi")
_SMALLEST_KEY, _SMALLEST_VALUE = 10, 42
_TIME_AT, _TAGS_AT = -27, -19


class PackedCommits(Sequence[Any]):
    """A sequence of records that are created on access."""

    __slots__ = ("_count", "_types", "data", "group_id")

    def __init__(self, data: bytes, count: int, group_id: str, types: Types) -> None:
        self.data = data
        self.group_id = group_id
        """The group of the first commit."""
        self._count = count
        self._types = types

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Any]:
        key_type, value_type, record_type = self._types
        for key, value in _pairs(self.data):
            group, at = _name(key, 2)
            topic, at = _name(key, at)
            (partition,) = _PARTITION.unpack_from(key, at)
            yield record_type(key_type(group, topic, partition), value_type(*_parts(value)))

    def replaces(self, former: PackedCommits | Mapping[Any, Any] | None) -> bool:
        """Whether these commits have the same keys, in order, as the former ones (packed, or a dict by key)."""
        if isinstance(former, PackedCommits):
            return [key for key, _ in _pairs(self.data)] == [key for key, _ in _pairs(former.data)]
        return former is None or (len(former) == len(self) and list(former) == [key for key, _ in self])


def pack_commits(data: bytes, timestamp: int, group_id: str, types: Types) -> PackedCommits:
    """The records of a request, with their commit timestamp filled in."""
    time = _TIME.pack(timestamp)
    parts: list[bytes] = []
    for key, value in _pairs(data):
        parts += (_SIZES.pack(len(key), len(value)), key, value[:_TIME_AT], time, value[_TAGS_AT:])
    return PackedCommits(b"".join(parts), len(parts) // 5, group_id, types)


def join_commits(commits: Sequence[PackedCommits]) -> PackedCommits:
    """Join one or more commits into one."""
    first, data = commits[0], b"".join([each.data for each in commits])
    return PackedCommits(data, sum(map(len, commits)), first.group_id, first._types)


def encode_packed(commits: PackedCommits, timestamp: int) -> bytearray:
    """A batch of the commits, all with the same timestamp."""
    pairs = list(_pairs(commits.data))
    if len(pairs) != len(commits):
        raise ValueError(NOT_PACKED)
    return codec.encode_pairs(pairs, timestamp)


def _pairs(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(data):
        key_size, value_size = _SIZES.unpack_from(data, at) if len(data) - at >= 8 else (0, 0)
        middle = at + 8 + key_size
        end = middle + value_size
        if key_size < _SMALLEST_KEY or value_size < _SMALLEST_VALUE or end > len(data):
            raise ValueError(NOT_PACKED)
        key = data[at + 8 : middle]
        _check_names(key)
        yield key, data[middle:end]
        at = end


def _check_names(key: bytes) -> None:
    (group_size,) = _NAME_SIZE.unpack_from(key, 2)
    if 0 <= group_size <= len(key) - _SMALLEST_KEY:
        (topic_size,) = _NAME_SIZE.unpack_from(key, 4 + group_size)
        if topic_size >= 0 and _SMALLEST_KEY + group_size + topic_size == len(key):
            return
    raise ValueError(NOT_PACKED)


def _name(key: bytes, at: int) -> tuple[str, int]:
    (size,) = _NAME_SIZE.unpack_from(key, at)
    end = at + 2 + size
    return key[at + 2 : end].decode(), end


def _parts(value: bytes) -> tuple[Any, ...]:
    _, offset, leader_epoch = _NUMBERS.unpack_from(value)
    end = len(value) + _TIME_AT
    try:
        length, at = _unsigned(value, _NUMBERS.size, end, 32)
    except _Bad as error:
        raise ValueError(NOT_PACKED) from error
    if length - 1 != end - at:
        raise ValueError(NOT_PACKED)
    (timestamp,) = _TIME.unpack_from(value, end)
    return offset, leader_epoch, value[at:end].decode(), timestamp, -1, topic_id_of(value[-16:])
