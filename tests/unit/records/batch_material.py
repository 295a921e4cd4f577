"""Material for tests of the record codec: both kernels, records, and damaged bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ottla.records import CorruptBatch, Record, _pure

try:
    from ottla.records import _speedups
except ImportError:
    TWINS: list[Any] = [_pure]
else:
    TWINS = [_pure, _speedups]

MAX_INT64 = 2**63 - 1

timestamps = st.one_of(st.integers(-1, 2**41), st.integers(-(2**62), 2**62 - 1))
parts = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=60, max_size=300))
header_keys = st.one_of(st.text(max_size=8), st.binary(max_size=4).map(lambda b: b.decode("utf-8", "surrogateescape")))
headers = st.lists(st.tuples(header_keys, parts), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, min_size: int = 0) -> list[Record]:
    """Records with ascending offsets and gaps."""
    offset = draw(st.sampled_from([0, 1, 63, 64, 2**31, 2**40]))
    records = []
    for gap, timestamp, key, value, some_headers in draw(
        st.lists(
            st.tuples(st.sampled_from([1, 1, 1, 2, 70, 9000]), timestamps, parts, parts, headers),
            min_size=min_size,
            max_size=8,
        )
    ):
        records.append(Record(offset, timestamp, key, value, some_headers))
        offset += gap
    return records


def varint(value: int) -> bytes:
    """Zigzag, for values of up to 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    output = bytearray()
    while raw > 0x7F:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)
    return bytes(output)


hostile_numbers = st.one_of(
    st.integers(-2, 12).map(varint),
    st.sampled_from([2**31 - 1, -(2**31), 2**31, 2**32, MAX_INT64, -(2**63)]).map(varint),
    st.sampled_from(
        [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 9 + b"\x02"]
    ),
    st.binary(max_size=2),
)


@st.composite
def hostile_records(draw: st.DrawFn) -> bytes:
    """Bytes like a record: fields in the right order, any of them possibly wrong."""
    near = st.integers(0, 3).map(varint)
    body = b"\x00" + b"".join(draw(st.one_of(near, near, near, hostile_numbers)) for _ in range(3))
    for _ in range(draw(st.integers(1, 4))):
        content = draw(st.binary(max_size=4))
        body += draw(st.one_of(st.just(varint(len(content))), hostile_numbers)) + content
    length = draw(st.one_of(st.just(varint(len(body))), st.just(varint(len(body))), hostile_numbers))
    return length + body


def spoil(data: bytes, spot: int, how: str, value: int) -> bytes:
    """`data` cut, with a changed bit or byte, or with bytes inserted or removed, at `spot`."""
    at = spot % (len(data) + 1)
    return {
        "cut": data[:at],
        "flip": data[:at] + bytes(b ^ (1 << value % 8) for b in data[at : at + 1]) + data[at + 1 :],
        "set": data[:at] + bytes([value]) + data[at + 1 :],
        "insert": data[:at] + bytes([value]) * 3 + data[at:],
        "drop": data[:at] + data[at + 1 + value % 4 :],
        "zero": data[:at] + bytes(len(data) - at),
    }[how]


spoilings = st.tuples(
    st.integers(0, 2**20), st.sampled_from(["cut", "flip", "set", "insert", "drop", "zero"]), st.integers(0, 255)
)


def outcome(call: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """The result of a call, or the CorruptBatch that it raised; other exceptions fail the test."""
    try:
        return "gave", call(*arguments)
    except CorruptBatch as error:
        return "corrupt", error.position, error.reason


def patched(batch: bytes, layout: str, at: int, value: int) -> bytes:
    """The batch with one header field overwritten."""
    output = bytearray(batch)
    struct.pack_into(layout, output, at, value)
    return bytes(output)
