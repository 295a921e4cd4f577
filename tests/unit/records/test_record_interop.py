"""Batches of other writers decode here, and ours decode with their readers."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.records import Compression, Record, check_batch, decode_batch, encode_batch, read_header

CLIENTS = {
    "aiokafka": (AiokafkaBuilder, AiokafkaBatch, list(Compression)),
    # It needs further packages for the other codecs.
    "kafka-python": (KafkaPythonBuilder, KafkaPythonBatch, [Compression.NONE, Compression.GZIP]),
}
COMBINATIONS = [(name, codec) for name, (_, _, codecs) in CLIENTS.items() for codec in codecs]

parts = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=100, max_size=400))
contents = st.lists(
    st.tuples(
        st.integers(0, 2**42),
        parts,
        parts,
        st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
modest = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
every_combination = pytest.mark.parametrize(("client", "compression"), COMBINATIONS)


def as_records(rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]]) -> list[Record]:
    return [Record(offset, *row) for offset, row in enumerate(rows)]


def built(client: str, compression: Compression, records: list[Record]) -> bytes:
    builder = CLIENTS[client][0](
        magic=2,
        compression_type=int(compression),
        is_transactional=0,
        producer_id=123,
        producer_epoch=4,
        base_sequence=5,
        batch_size=10**6,
    )
    for record in records:
        builder.append(
            record.offset, timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers)
        )
    return bytes(builder.build())


def read(client: str, batch: bytes) -> list[Record]:
    reader: Any = CLIENTS[client][1](batch)
    assert reader.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]


@every_combination
@modest
@given(rows=contents)
def test_their_batches_decode_here(client: str, compression: Compression, rows: list[Any]) -> None:
    records = as_records(rows)
    batch = built(client, compression, records)
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert decode_batch(batch) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (123, 4, 5)
    assert header.max_timestamp == max(record.timestamp for record in records)


@every_combination
@modest
@given(rows=contents)
def test_our_batches_decode_there(client: str, compression: Compression, rows: list[Any]) -> None:
    records = as_records(rows)
    assert read(client, encode_batch(records, compression=compression)) == records


@every_combination
def test_large_batches_go_both_ways(client: str, compression: Compression) -> None:
    records = [Record(i, 10**12 + i, b"%d" % i, b"value %d " % i * 30) for i in range(1000)]
    assert decode_batch(built(client, compression, records)) == records
    assert read(client, encode_batch(records, compression=compression)) == records


@modest
@given(rows=contents)
def test_uncompressed_batches_are_the_same_bytes(rows: list[Any]) -> None:
    records = as_records(rows)
    ours = encode_batch(records, producer_id=123, producer_epoch=4, base_sequence=5, leader_epoch=0)
    theirs = bytearray(built("kafka-python", Compression.NONE, records))
    theirs[12:16] = bytes(4)  # the leader epoch, which writers fill as they like
    assert ours == theirs


# The same three records in each codec, as kafka-clients 4.2.0 writes them.
JAVA = {
    "NONE": (
        "000000000000002a0000008e00000005025ef7a3790000000000020000018bcfe568000000018bcfe5687b0000000000"
        "001b5800030000000b000000033c000000066b65790a76616c7565040a74726163650478310a656d707479015a00f601"
        "02014c6e6f206b65792c206e6f206b65792c206e6f206b65792c206e6f206b65792c206e6f206b6579001e0001041274"
        "6f6d6273746f6e650100"
    ),
    "GZIP": (
        "000000000000002a000000850000000502d80b291c0001000000020000018bcfe568000000018bcfe5687b0000000000"
        "001b5800030000000b000000031f8b08000000000000ffb361606060cb4eade42a4bcc294d65e12a294a4c4e65a930e4"
        "4acd2d28a9648c62f8c6c8c4e89397af0054a3a3809f6690636064112ac9cf4d2a2ec9cf4b65640000edfedca85d0000"
        "00"
    ),
    "SNAPPY": (
        "000000000000002a0000008b0000000502d79d46790002000000020000018bcfe568000000018bcfe5687b0000000000"
        "001b5800030000000b0000000382534e41505059000000000100000001000000465db83c000000066b65790a76616c75"
        "65040a74726163650478310a656d707479015a00f60102014c6e6f206b65792c206e72080040001e00010412746f6d62"
        "73746f6e650100"
    ),
    "LZ4": (
        "000000000000002a000000860000000502ffe172d40003000000020000018bcfe568000000018bcfe5687b0000000000"
        "001b5800030000000b0000000304224d1860408246000000ff1f3c000000066b65790a76616c7565040a747261636504"
        "78310a656d707479015a00f60102014c6e6f206b65792c2008000bf002001e00010412746f6d6273746f6e6501000000"
        "0000"
    ),
    "ZSTD": (
        "000000000000002a00000083000000050217d90abe0004000000020000018bcfe568000000018bcfe5687b0000000000"
        "001b5800030000000b0000000328b52ffd0058340200f4033c000000066b65790a76616c7565040a7472616365047831"
        "0a656d707479015a00f60102014c6e6f206b65792c20001e00010412746f6d6273746f6e65010001009e58ca010000"
    ),
}
JAVA_RECORDS = [
    Record(42, 1_700_000_000_000, b"key", b"value", (("trace", b"x1"), ("empty", None))),
    Record(43, 1_700_000_000_123, None, b"no key, no key, no key, no key, no key"),
    Record(44, 1_699_999_999_999, b"tombstone", None),
]


@pytest.mark.parametrize("compression", Compression)
def test_batches_of_the_java_client_decode_here(compression: Compression) -> None:
    batch = bytes.fromhex(JAVA[compression.name])
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert header.compression is compression
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7000, 3, 11)
    assert decode_batch(batch) == JAVA_RECORDS


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.SNAPPY, Compression.LZ4])
def test_our_bytes_are_those_of_the_java_client(compression: Compression) -> None:
    batch = encode_batch(
        JAVA_RECORDS, compression=compression, producer_id=7000, producer_epoch=3, base_sequence=11, leader_epoch=5
    )
    assert batch.hex() == JAVA[compression.name].replace(" ", "")
