"""Send inputs to a broker process one by one, and check what must stay true.

- The process runs, and its log has no unexpected errors.
- Another connection gets its responses in time.
- What a valid producer wrote before is unchanged.
- Memory, open files and connections return to their earlier values.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from tests.crash.broker_process import BrokerProcess
from tests.wire import Wire, read_log

from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.records import Compression, Record, encode_batch

from .inputs import Input
from .requests import World

BROKER = {
    "auto.create.topics.enable": "true",
    "ottla.request.receive.timeout.ms": "2000",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "ottla.log.level": "ERROR",
}
SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "index.interval.bytes": "500"}
#: One for each way that an append can go.
VICTIMS: dict[str, dict[str, str]] = {
    "fuzz-0": {},
    "fuzz-1": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500", **SMALL_SEGMENTS},
    "fuzz-2": {"compression.type": "zstd"},
    "fuzz-3": {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"},
    "fuzz-4": {"message.timestamp.before.max.ms": "3600000", "compression.type": "uncompressed"},
    "fuzz-5": {"flush.messages": "1", **SMALL_SEGMENTS},
}
KEPT = "kept"
KEPT_RECORDS = 300
PATIENCE = 0.4
"""How long to wait for the response to an input; a fetch may take longer, and is then abandoned."""
DEADLINE = 10.0
"""A healthy broker responds within this time, even on a busy machine."""
EXPECTED_ERRORS = ("will not be compacted until a restart",)
_PING_ID = 0x7E57
_PING = bytes(codec.encode_request(ApiKey.API_VERSIONS, 0, _PING_ID, None, {}))


class Broken(AssertionError):
    """A check failed; the last inputs may be the cause."""


class Live:
    """A broker, and the inputs sent to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.world = World(kept=[KEPT], victims=list(VICTIMS))
        self.broker = BrokerProcess(directory / "data", directory / "broker.log", BROKER)
        self.outcomes: Counter[str] = Counter()
        self.suspects: deque[Input] = deque(maxlen=50)
        self.health: Health
        self._connection: socket.socket | None = None
        self._half_open: deque[socket.socket] = deque()
        self._kept: list[tuple[int, int]] = []
        self._log_size = 0

    def __enter__(self) -> Self:
        try:
            self.broker.start()
            self._log_size = self.broker.log_file.stat().st_size
            self._write_kept()
            self._find_coordinator()
            self.tidy_up()
            self.health = Health(self.broker.port)
        except BaseException:
            self.broker.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._drop_connections()
        self.health.finish()
        self.broker.close()

    # ── inputs ────────────────────────────────────────────────────────────────────────────────────────────────────

    def throw(self, input_: Input, *, patience: float = PATIENCE) -> str:
        """Send an input; return the fate of its connection."""
        self.suspects.append(input_)
        sock = self._connection or self._connect()
        self._connection = None
        try:
            outcome = self._talk(sock, input_, patience)
        except OSError:
            outcome = "closed"
        if outcome == "goes on":
            self._connection = sock
        elif outcome == "half sent":
            self._leave(sock)
        else:
            sock.close()
        self.outcomes[f"{input_.kind}: {outcome}"] += 1
        self._look_at_log()
        return outcome

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.broker.port), DEADLINE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _talk(self, sock: socket.socket, input_: Input, patience: float) -> str:
        sock.settimeout(DEADLINE)
        _send(sock, input_)
        if not input_.whole:
            return "half sent"
        sock.sendall(_PING)
        sock.settimeout(patience)
        try:
            return "goes on" if _skip_to_ping(sock) else "closed"
        except TimeoutError:
            return "waits"

    def _leave(self, sock: socket.socket) -> None:
        """Leave some connections inside a request: the broker must close them."""
        self._half_open.append(sock)
        if len(self._half_open) > 20:
            self._half_open.popleft().close()

    def _drop_connections(self) -> None:
        for sock in (self._connection, *self._half_open):
            if sock is not None:
                sock.close()
        self._connection = None
        self._half_open.clear()

    # ── what must stay true ───────────────────────────────────────────────────────────────────────────────────────

    def _look_at_log(self) -> None:
        size = self.broker.log_file.stat().st_size
        if size == self._log_size:
            return
        with self.broker.log_file.open("rb") as file:
            file.seek(self._log_size)
            text = file.read().decode("utf-8", "replace")
        self._log_size = size
        lines = [line for line in text.splitlines() if not any(known in line for known in EXPECTED_ERRORS)]
        if lines:
            raise Broken("the broker was surprised:\n" + "\n".join(lines[-40:]))

    def check(self) -> None:
        """Check everything that must always hold."""
        if not self.broker.is_alive:
            raise Broken(f"the broker has ended with {self.broker.process.returncode}: {self.broker.last_words()}")
        self._look_at_log()
        if self.health.problem:
            raise Broken(self.health.problem)
        with Wire(self.broker.port, timeout=DEADLINE) as wire:
            if _fingerprint(wire) != self._kept:
                raise Broken(f"the topic {KEPT!r} is not what it was")

    def tidy_up(self) -> None:
        """Delete all topics but the kept one, and recreate the victims."""
        with Wire(self.broker.port) as wire:
            asked: dict[str, Any] = {"topics": None, "allow_auto_topic_creation": False}
            topics = wire.call(ApiKey.METADATA, 8, asked).topics
            names = [topic.name for topic in topics if topic.name != KEPT and not topic.is_internal]
            wire.call(ApiKey.DELETE_TOPICS, 4, {"topic_names": names, "timeout": 30_000})
            brokers = [{"resource_type": 4, "resource_name": name, "configs": []} for name in ("", "1")]
            wire.call(ApiKey.ALTER_CONFIGS, 1, {"resources": brokers, "validate_only": False})
            _create(wire, VICTIMS)
            topics = wire.call(ApiKey.METADATA, 12, {**asked, "include_topic_authorized_operations": False}).topics
            self.world.topic_ids = {topic.name: topic.topic_id for topic in topics if not topic.is_internal}
            self.world.broker_id = wire.call(ApiKey.METADATA, 8, asked).brokers[0].node_id

    def _find_coordinator(self) -> None:
        """Create the topics of groups and transactions, which then stay."""
        with Wire(self.broker.port) as wire:
            wire.call(ApiKey.FIND_COORDINATOR, 1, {"key": "group-0", "key_type": 0})
            wire.call(ApiKey.FIND_COORDINATOR, 1, {"key": "t", "key_type": 1})

    def _write_kept(self) -> None:
        with Wire(self.broker.port) as wire:
            _create(wire, {KEPT: {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}})
            for number in range(KEPT_RECORDS):
                produce(wire, KEPT, good_batch(number))
            self._kept = _fingerprint(wire)
        assert len(self._kept) == KEPT_RECORDS

    def resources(self) -> tuple[int, int]:
        """Resident bytes and open files, after our connections are closed."""
        self._drop_connections()
        self.tidy_up()
        pid = self.broker.process.pid
        files = _settled(lambda: len(os.listdir(f"/proc/{pid}/fd")))
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return resident, files

    def restart(self, *, kill: bool) -> None:
        """Stop and start: what hostile producers have written must not prevent it."""
        self._drop_connections()
        self.health.finish()
        if kill:
            self.broker.kill()
        elif self.broker.terminate() != 0:
            raise Broken(f"the broker did not stop well: {self.broker.last_words()}")
        self._look_at_log()
        self.broker.start()
        self._log_size = self.broker.log_file.stat().st_size
        self.health = Health(self.broker.port)
        self.check()


class Health(threading.Thread):
    """Sends requests on its own connection all the time, and records the slowest response."""

    def __init__(self, port: int) -> None:
        super().__init__(name="health", daemon=True)
        self.problem = ""
        self.slowest = 0.0
        self.waits: list[float] = []
        """The seconds that each response took."""
        self.asked = 0
        self._wire = Wire(port, timeout=DEADLINE)
        self._halt = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._halt.wait(0.02):
            begin = time.monotonic()
            try:
                self._wire.call(ApiKey.API_VERSIONS, 0, {})
            except (OSError, codec.DecodeError, AssertionError) as error:
                self.problem = f"a healthy connection got no answer within {DEADLINE:g} s: {error!r}"
                return
            self.waits.append(time.monotonic() - begin)
            self.slowest = max(self.slowest, self.waits[-1])
            self.asked += 1

    def finish(self) -> None:
        self._halt.set()
        self.join(DEADLINE + 1)
        self._wire.close()


def _send(sock: socket.socket, input_: Input) -> None:
    step = input_.chunk or max(1, len(input_.data))
    for start in range(0, len(input_.data), step):
        sock.sendall(input_.data[start : start + step])


def _skip_to_ping(sock: socket.socket) -> bool:
    """Read responses up to that of the ping; False if the broker closed the connection."""
    data = bytearray()
    while True:
        while len(data) >= 8 and len(data) >= 4 + (size := struct.unpack_from(">i", data)[0]):
            if struct.unpack_from(">i", data, 4)[0] == _PING_ID:
                return True
            del data[: 4 + size]
        part = sock.recv(1 << 20)
        if not part:
            return False
        data += part


def _settled(measure: Callable[[], int], seconds: float = 10.0) -> int:
    """The value after it has been stable for half a second."""
    end = time.monotonic() + seconds
    value, since = measure(), time.monotonic()
    while time.monotonic() < end and time.monotonic() - since < 0.5:
        time.sleep(0.05)
        if (now := measure()) != value:
            value, since = now, time.monotonic()
    return value


def good_batch(number: int) -> bytes:
    records = [Record(0, time.time_ns() // 1_000_000, b"%d" % number, random.Random(number).randbytes(2000))]
    return encode_batch(records, compression=list(Compression)[number % 5])


def produce(wire: Wire, topic: str, batch: bytes) -> codec.Struct:
    """Produce one batch to partition 0; return its response."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    request = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
    return wire.call(ApiKey.PRODUCE, 8, request).responses[0].partition_responses[0]


def _fingerprint(wire: Wire) -> list[tuple[int, int]]:
    return [(batch.header.base_offset, batch.header.crc) for batch in read_log(wire, KEPT, 0, 0)]


def _create(wire: Wire, topics: dict[str, dict[str, str]]) -> None:
    wishes: Iterable[dict[str, Any]] = (
        {
            "name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        for name, configs in topics.items()
    )  # fmt: skip
    answer = wire.call(ApiKey.CREATE_TOPICS, 4, {"topics": list(wishes), "timeout": 30_000, "validate_only": False})
    for topic in answer.topics:
        assert topic.error_code == 0, f"{topic.name}: {topic.error_message}"
