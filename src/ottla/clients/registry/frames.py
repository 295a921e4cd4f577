"""The frame of a value with a schema: a zero byte, the id in four bytes, and for Protobuf which message it is."""

from __future__ import annotations

from collections.abc import Sequence

HEADER_BYTES = 5


class NoFrame(ValueError):
    """Bytes without a frame."""


def framed(schema_id: int, data: bytes) -> bytes:
    """A value with its frame.

    >>> framed(7, b"x")
    b'\\x00\\x00\\x00\\x00\\x07x'
    """
    return b"\0" + schema_id.to_bytes(4) + data


def unframed(data: bytes) -> tuple[int, bytes]:
    """The id of the schema, and the rest."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        start = f"begins with the byte 0x{data[0]:02x}" if data and data[0] else f"has {len(data)} bytes"
        raise NoFrame(
            f"the value has no schema registry header (a zero byte and the schema id in four bytes): it {start}"
        )
    return int.from_bytes(data[1:HEADER_BYTES]), data[HEADER_BYTES:]


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Where a message is in its file: its index, and those of the messages around it. The first message is one byte.

    >>> encode_indexes([0]), encode_indexes([1, 0])
    (b'\\x00', b'\\x04\\x02\\x00')
    """
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def decode_indexes(data: bytes) -> tuple[list[int], bytes]:
    """The indexes of a message, and the rest."""
    count, at = _number(data, 0)
    if count == 0:
        return [0], data[at:]
    if not 0 < count <= 100:
        raise NoFrame("the value has no message indexes, which a Protobuf value has after the schema id")
    found = []
    for _ in range(count):
        number, at = _number(data, at)
        found.append(number)
    return found, data[at:]


def _zigzag(number: int) -> bytes:
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise NoFrame("the value ends within the message indexes")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
