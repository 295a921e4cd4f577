"""A blocking client of the protocol for tests: one socket, requests as dicts, and raw bytes where a test wants them.

It hides nothing: no retries, no versions chosen, no errors turned into exceptions. The log of a partition is read
here by checking every batch by hand, so that what the broker serves is judged by other code than its own.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from crc32c import crc32c

from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.records import BatchHeader, Record, decode_batch, read_header

FETCH_VERSION = 11
FETCH_BYTES = 8 * 1024 * 1024
BATCH_HEAD = 61
CRC_FROM = 21
_SIZE = struct.Struct(">i")


class Wire:
    """A connection to a broker."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout: float = 30.0) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, api_key: int, version: int, message: dict[str, Any]) -> codec.Struct:
        """Send a request and return its response; ConnectionError when the broker is gone."""
        self._next_id += 1
        self.socket.sendall(codec.encode_request(api_key, version, self._next_id, "test", message))
        payload = self.receive()
        if _SIZE.unpack_from(payload)[0] != self._next_id:
            raise AssertionError(f"a response has another correlation id than {self._next_id}")
        return codec.decode_response(api_key, version, payload)

    def receive(self) -> bytes:
        """The next frame, without its size."""
        return self._exactly(_SIZE.unpack(self._exactly(4))[0])

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self.socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionError(f"the broker closed the connection after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)


class Batch(NamedTuple):
    """A batch as it was served."""

    header: BatchHeader
    records: list[Record]


class ServedWrongly(AssertionError):
    """The broker served something that a log must not contain."""


def fetch(wire: Wire, topic: str, partition: int, offset: int, *, max_wait_ms: int = 0) -> codec.Struct:
    """One fetch of one partition; its answer for that partition."""
    wanted = {
        "partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": FETCH_BYTES,
    }  # fmt: skip
    request = {
        "replica_id": -1, "max_wait": max_wait_ms, "min_bytes": 1, "max_bytes": FETCH_BYTES, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    answer = wire.call(ApiKey.FETCH, FETCH_VERSION, request)
    if answer.error_code:
        raise ServedWrongly(f"fetching {topic}-{partition} at {offset} failed with error {answer.error_code}")
    return answer.responses[0].partitions[0]


def read_log(wire: Wire, topic: str, partition: int, start: int) -> Iterator[Batch]:
    """Every batch from an offset to the end of the log, checked: whole, with its CRC, offsets growing."""
    offset = start
    while True:
        answer = fetch(wire, topic, partition, offset)
        if answer.error_code:
            raise ServedWrongly(f"{topic}-{partition} at {offset}: error {answer.error_code}")
        following = offset
        for batch in batches(answer.records or b"", f"{topic}-{partition}"):
            if batch.header.last_offset < offset:
                continue
            following = batch.header.next_offset
            yield batch
        if following == offset:
            if offset < answer.high_watermark:
                raise ServedWrongly(f"{topic}-{partition}: nothing at {offset}, which is below the high watermark")
            return
        offset = following


def batches(data: bytes | memoryview, where: str) -> Iterator[Batch]:
    """The whole batches at the start of fetched bytes; the last one may be cut, as the protocol allows."""
    position = 0
    while len(data) - position >= BATCH_HEAD:
        header = read_header(data, position)
        end = position + header.size
        if header.magic != 2 or header.size < BATCH_HEAD:
            raise ServedWrongly(f"{where}: no batch at byte {position} of a fetch: {header}")
        if end > len(data):
            return
        if crc32c(bytes(data[position + CRC_FROM : end])) != header.crc:
            raise ServedWrongly(f"{where}: the batch at offset {header.base_offset} was served with a wrong CRC")
        yield Batch(header, decode_batch(data, position))
        position = end


def list_offset(wire: Wire, topic: str, partition: int, timestamp: int) -> int:
    """The earliest (-2) or latest (-1) offset."""
    wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = [{"name": topic, "partitions": [wanted]}]
    answer = wire.call(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "isolation_level": 0, "topics": topics})
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise ServedWrongly(f"ListOffsets of {topic}-{partition} failed with error {found.error_code}")
    return int(found.offset)
