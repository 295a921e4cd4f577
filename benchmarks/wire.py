"""Measure the broker without a client library: prepared requests over plain sockets.

librdkafka needs more CPU than a good broker and hides the broker's limit on few cores. The two roles at the end run in
`benchmarks.client` processes. The API versions are the last ones before flexible versions (Produce 7, Fetch 11). Their
layouts are documented where they are packed.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from benchmarks import load
from benchmarks.memory import fill_page_cache
from benchmarks.peer import Peer
from benchmarks.report import Report
from benchmarks.values import values

SECTION = "Without a client library"
IN_FLIGHT = 5
FETCH_PARTITION_BYTES = 1 << 20
PRODUCE, FETCH = (0, 7), (1, 11)
FETCH_PARTITION = ">ihqqqiii"  # index, error code, three offsets, aborted transactions, preferred replica, size
FETCH_RECORDS = 4 + 2 + 4 + 4 + 2 + 4 + struct.calcsize(FETCH_PARTITION)  # plus the topic's name
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Case:
    label: str
    size: int  # of a record's value
    batch: int  # records in a batch
    requests: int

    @property
    def payload(self) -> int:
        return self.size * self.batch * self.requests


CASES = [
    Case("1 MB batches", 1024, 960, 1_000),
    Case("16 KB batches", 1024, 15, 30_000),
]
SINGLE = Case("one record a request", 100, 1, 40_000)


def measure(peers: list[Peer], report: Report, repetition: int, *, quick: bool) -> None:
    for case in CASES:
        for peer in peers:
            _in_and_out(peer, report, case, f"wire-{case.batch}-{repetition}", 3 if quick else 1)
    for peer in peers:
        _requests(peer, report, SINGLE, f"wire-single-{repetition}")


def _in_and_out(peer: Peer, report: Report, case: Case, topic: str, divisor: int) -> None:
    load.create_topic(peer, topic)
    payload = case.payload // divisor
    going_in = _send(peer, topic, case, case.requests // divisor)
    going_out = load.run_same(peer, {"role": "drain", "topic": topic, "records": load.records_in(peer, topic)})
    for label, totals, times in (
        (f"in, {case.label}", going_in, 1),
        (f"out, {case.label}", going_out, load.CLIENTS),
    ):
        report.measure(SECTION, label, "MB/s").add(peer.name, times * payload / totals.seconds / 1e6)
        report.measure(SECTION, f"{label}, CPU", "s/GB").add(peer.name, totals.broker_cpu / (times * payload / 1e9))
        report.other_cores.append(totals.other_cores)
    load.delete_topic(peer, topic)


def _requests(peer: Peer, report: Report, case: Case, topic: str) -> None:
    load.create_topic(peer, topic)
    totals = _send(peer, topic, case, case.requests)
    report.measure(SECTION, f"in, {case.label}", "requests/s").add(peer.name, case.requests / totals.seconds)
    label = f"in, {case.label}, CPU"
    report.measure(SECTION, label, "us each").add(peer.name, totals.broker_cpu / case.requests * 1e6)
    load.delete_topic(peer, topic)


def _send(peer: Peer, topic: str, case: Case, requests: int) -> load.Totals:
    fill_page_cache()
    job = {"role": "send", "topic": topic, "size": case.size, "batch": case.batch}
    return load.run_same(peer, {**job, "requests": requests // load.CLIENTS})


def codec_in(peer: Peer, topic: str) -> str:
    """Return the compression of the first batch in partition 0 after each producer's first record."""
    connection = Connection(peer.bootstrap_servers)
    connection.send(_fetch_request(topic, {0: load.CLIENTS}))
    answer = connection.receive()
    connection.close()
    (size,) = struct.unpack_from(">i", answer, FETCH_RECORDS - 4 + len(topic))
    if size < 61:
        raise RuntimeError(f"{peer.name} has no record in partition 0 of {topic} from offset {load.CLIENTS} on")
    (attributes,) = struct.unpack_from(">h", answer, FETCH_RECORDS + len(topic) + 21)
    return CODECS[attributes & 7]


# The roles, which run in their own processes.


def sending(job: dict[str, Any]) -> Any:
    """Send produce requests with one prepared batch each, to each partition in turn, `IN_FLIGHT` at once."""
    connection = Connection(job["config"]["bootstrap.servers"])
    batch = _batch(job["size"], job["batch"])
    frames = [_produce_request(job["topic"], partition, batch) for partition in range(load.PARTITIONS)]
    count = job["requests"]

    def run() -> dict[str, Any]:
        for number in range(count):
            if number >= IN_FLIGHT:
                _check_produced(connection.receive(), job["topic"])
            connection.send(frames[number % len(frames)])
        for _ in range(min(count, IN_FLIGHT)):
            _check_produced(connection.receive(), job["topic"])
        return {"records": count * job["batch"]}

    return run


def draining(job: dict[str, Any]) -> Any:
    """Fetch the whole topic, all partitions in each request, until `records` were read."""
    connection = Connection(job["config"]["bootstrap.servers"])
    topic, expected = job["topic"], job["records"]

    def run() -> dict[str, Any]:
        offsets = dict.fromkeys(range(load.PARTITIONS), 0)
        deadline = time.monotonic() + 120
        while sum(offsets.values()) < expected:
            connection.send(_fetch_request(topic, offsets))
            offsets |= _next_offsets(connection.receive(), topic, offsets)
            if time.monotonic() > deadline:
                raise SystemExit(f"read {sum(offsets.values())} of {expected} records of {topic} in 120 s")
        return {"records": sum(offsets.values())}

    return run


class Connection:
    """A blocking connection with one receive buffer for all responses."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(8 << 20))
        self.send = self._socket.sendall
        self.close = self._socket.close

    def receive(self) -> memoryview:
        """Return one response without its size and correlation id. Valid until the next call."""
        self._fill(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        self._fill(size)
        return self._buffer[4:size]

    def _fill(self, size: int) -> None:
        done = 0
        while done < size:
            got = self._socket.recv_into(self._buffer[done:size])
            if not got:
                raise SystemExit("the broker closed the connection")
            done += got


def _batch(size: int, count: int) -> bytes:
    from ottla.records import (
        Record,
        encode_batch,
    )  # here, so that Kafka can be measured without an installed ottla

    payloads = values(size)
    now = int(time.time() * 1000)
    return encode_batch([Record(n, now, None, payloads[n % len(payloads)]) for n in range(count)])


def _request(api: tuple[int, int], body: bytes) -> bytes:
    header = struct.pack(">hhih", *api, 1, -1)  # correlation id 1, no client id
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _produce_request(topic: str, partition: int, batch: bytes) -> bytes:
    """transactional id, acks, timeout, topics [name, partitions [index, records]]"""
    head = struct.pack(">hhii", -1, -1, 30_000, 1) + _string(topic)
    return _request(PRODUCE, head + struct.pack(">iii", 1, partition, len(batch)) + batch)


def _check_produced(answer: memoryview, topic: str) -> None:
    """topics [name, partitions [index, error code, ...]]"""
    (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
    if error:
        raise SystemExit(f"a produce request failed with error code {error}")


def _fetch_request(topic: str, offsets: dict[int, int]) -> bytes:
    """replica, max wait, min bytes, max bytes, isolation, session id and epoch, topics [name, partitions
    [index, leader epoch, offset, log start offset, max bytes]], forgotten topics, rack"""
    head = struct.pack(">iiiibiii", -1, 500, 1, 50 << 20, 0, 0, -1, 1) + _string(topic)
    wanted = [struct.pack(">iiqqi", p, -1, offset, -1, FETCH_PARTITION_BYTES) for p, offset in offsets.items()]
    return _request(FETCH, head + struct.pack(">i", len(wanted)) + b"".join(wanted) + struct.pack(">ih", 0, 0))


def _next_offsets(answer: memoryview, topic: str, offsets: dict[int, int]) -> dict[int, int]:
    """throttle, error code, session id, topics [name, partitions [index, error code, high watermark, last
    stable offset, log start offset, aborted transactions, preferred replica, records]]"""
    found = {}
    position = 4 + 2 + 4 + 4 + 2 + len(topic)
    (count,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(count):
        index, error, _, _, _, aborted, _, size = struct.unpack_from(FETCH_PARTITION, answer, position)
        if error or aborted > 0:
            raise SystemExit(f"a fetch of partition {index} failed with error code {error}")
        position += struct.calcsize(FETCH_PARTITION)
        found[index] = _offset_after(answer[position : position + max(size, 0)], offsets[index])
        position += max(size, 0)
    return found


def _offset_after(records: memoryview, offset: int) -> int:
    """Return the offset after the last complete batch, from the batch headers."""
    position = 0
    while position + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        offset = base_offset + struct.unpack_from(">i", records, position + 23)[0] + 1
        position += 12 + length
    return offset
