"""A raw connection for tests: any API in any version, without a client library."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from ottla.protocol import codec
from ottla.records import Record, encode_batch


class Wire:
    """One connection to a broker."""

    def __init__(self, bootstrap_servers: str, timeout: float = 20, *, client_id: str = "wire") -> None:
        self.client_id = client_id
        host, port = bootstrap_servers.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._correlation_id = 0

    def send(self, api_key: int, version: int, message: dict[str, Any]) -> None:
        self._correlation_id += 1
        self.socket.sendall(codec.encode_request(api_key, version, self._correlation_id, self.client_id, message))

    def receive(self, api_key: int, version: int) -> codec.Struct:
        (size,) = struct.unpack(">i", self._exactly(4))
        return codec.decode_response(api_key, version, self._exactly(size))

    def call(self, api_key: int, version: int, message: dict[str, Any]) -> codec.Struct:
        self.send(api_key, version, message)
        return self.receive(api_key, version)

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection now."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    # ── shortcuts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> codec.Struct:
        entry = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        created = self.call(19, 7, {"topics": [entry]}).topics[0]
        assert created.error_code == 0, created.error_message
        return created

    def produce(self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> Any:
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        message = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": data}
        return self.call(0, 9, message).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, partition: int = 0, **changes: Any) -> Any:
        message = fetch_request(topic, offset, partition=partition, **changes)
        return self.call(1, 12, message).responses[0].partitions[0]


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, max_bytes: int = 1 << 20, **changes: Any
) -> dict[str, Any]:
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        **changes,
    }


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **changes: Any) -> bytes:
    """Build a batch like a producer."""
    records = [Record(number, timestamp + number, None, value) for number, value in enumerate(values)]
    return encode_batch(records, **changes)
