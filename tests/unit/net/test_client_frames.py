"""The framing of responses: correct for any split of the stream; large frames use their own memory, which is reused."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.net.test_client import answer, negotiated, read_request, serving

from ottla.net.client.connection import Connection, Records
from ottla.net.client.frames import KEPT_BYTES, LARGE_BYTES, SHARED_BYTES, FrameMemory, Frames
from ottla.protocol.apis import ApiKey
from ottla.records import Record, encode_batch
from ottla.runtime.loops import new_event_loop


class Heard:
    """Records its calls."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.bad: list[bytes] = []

    def frame_received(self, frame: bytes | memoryview) -> None:
        self.frames.append(bytes(frame))

    def bad_frame(self, start: bytes) -> None:
        self.bad.append(start)

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


def feed(frames: Frames, data: bytes, most: int) -> None:
    position = 0
    while position < len(data):
        buffer = frames.get_buffer(-1)
        part = data[position : position + min(len(buffer), most)]
        buffer[: len(part)] = part
        frames.buffer_updated(len(part))
        position += len(part)


SIZES = st.one_of(st.integers(4, 50), st.integers(LARGE_BYTES - 8, LARGE_BYTES + 8), st.integers(4, 3 * SHARED_BYTES))


@settings(max_examples=60, deadline=None)
@given(st.lists(SIZES, max_size=6), st.one_of(st.integers(1, 9), st.integers(1, 200_000)))
def test_frames_come_out_as_they_went_in(sizes: list[int], most: int) -> None:
    if sum(sizes) > 20_000 * most:
        most = SHARED_BYTES
    sent = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    heard = Heard()
    feed(Frames(heard, 1 << 30), b"".join(struct.pack(">i", len(one)) + one for one in sent), most)
    assert heard.frames == sent
    assert heard.bad == []


@pytest.mark.parametrize("size", [-1, 0, 3, 101])
def test_a_size_that_cannot_be_is_told_with_the_bytes(size: int) -> None:
    heard = Heard()
    feed(Frames(heard, 100), struct.pack(">i", size) + b"rest", 1_000)
    assert heard.bad == [struct.pack(">i", size) + b"rest"]


def test_memory_is_used_again_only_when_nobody_looks_at_it() -> None:
    memory = FrameMemory()
    frame = memory.take(100_000)
    first = id(frame.obj)
    part = frame[10:20]
    del frame
    other = memory.take(100_000)
    assert id(other.obj) != first, "a slice is still in use"
    del part
    assert id(memory.take(99_000).obj) == first


def test_no_more_memory_is_kept_than_allowed() -> None:
    memory = FrameMemory()
    for size in (KEPT_BYTES // 2, KEPT_BYTES // 2, KEPT_BYTES * 2, 1_000_000):
        assert len(memory.take(size)) == size
    assert sum(map(len, memory._kept)) <= KEPT_BYTES


def test_a_small_frame_does_not_take_a_large_buffer() -> None:
    memory = FrameMemory()
    memory.take(16 * 1024 * 1024)
    assert len(memory.take(70_000).obj) < 1_000_000  # type: ignore[arg-type]


# On a connection.


@pytest.mark.parametrize("loop_factory", [new_event_loop, asyncio.new_event_loop])
async def test_records_are_sent_from_where_they_lie_and_arrive_whole(loop_factory: Any) -> None:
    batches = [encode_batch([Record(0, 0, None, bytes([number]) * size)]) for number, size in enumerate((10, 500_000))]
    arrived: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            request = await read_request(reader)
            parts = request.body.topic_data[0].partition_data
            arrived.append(b"".join(bytes(part.records) for part in parts))
            if request.body.acks:
                writer.write(answer(request, {"responses": [], "throttle_time": 0}))
        await reader.read()

    def message(acks: int, wrap: Any) -> dict[str, Any]:
        parts = [{"index": number, "records": wrap(batch)} for number, batch in enumerate(batches)]
        data = [{"name": "t", "topic_id": None, "partition_data": parts}]
        return {"transactional_id": None, "acks": acks, "timeout": 1, "topic_data": data}

    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        await connection.request(ApiKey.PRODUCE, message(-1, bytes), at_most=12)
        await connection.send(ApiKey.PRODUCE, message(0, Records), at_most=12)
        await connection.request(ApiKey.PRODUCE, message(-1, Records), at_most=12)
        await connection.close()
    assert arrived == [b"".join(batches)] * 3


async def test_records_of_a_fetch_are_views_and_not_copies() -> None:
    records = b"r" * 300_000

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        part = {
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": 0,
            "aborted_transactions": None,
            "records": records,
        }
        response = {"topic": "t", "topic_id": None, "partitions": [part]}
        writer.write(answer(request, {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": [response]}))
        await reader.read()

    async with serving(negotiated(handle)) as port:
        connection = await Connection.open("127.0.0.1", port)
        message = {"max_wait": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
        response = await connection.request(ApiKey.FETCH, message, at_most=12)
        found = response.responses[0].partitions[0].records
        assert isinstance(found, memoryview)
        assert found == records
        await connection.close()
        assert found == records, "it outlives the connection"
