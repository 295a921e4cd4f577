"""How much of many partitions goes into one response."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.fetch_room import COPIED_BYTES, Room
from ottla.protocol.codec import Message
from ottla.storage.segment import Segment


def segment(size: int) -> Segment:
    return cast("Segment", SimpleNamespace(size=size))


def response() -> Message:
    return {"records": cast("Any", SimpleNamespace(read=lambda: b"copied"))}


def test_after_some_files_records_are_copied_up_to_a_limit() -> None:
    room = Room(50 << 20, open_files=512)
    for _ in range(31):
        room.take(response(), 100)
    assert room.left == (50 << 20) - 3_100
    last, copied = response(), response()
    room.take(last, 100)
    assert last["records"] != b"copied"
    assert room.left == COPIED_BYTES
    room.take(copied, 100)
    assert copied["records"] == b"copied"
    assert (room.size, room.left) == (3_300, COPIED_BYTES - 100)


def test_more_descriptors_mean_more_files() -> None:
    room = Room(50 << 20, open_files=65_536)
    for _ in range(999):
        room.take(response(), 1)
    assert room.left > COPIED_BYTES


def test_no_more_segments_are_checked_together_than_the_response_can_hold() -> None:
    room = Room(1_000, open_files=512)
    room.put_off(segment(10_000), 600)
    assert not room.is_closed
    room.put_off(segment(400), 600)
    assert (room.is_closed, room.left, len(room.unverified)) == (True, 0, 2)


def test_no_more_segments_are_checked_together_than_can_be_open() -> None:
    room = Room(1 << 30, open_files=512)
    for _ in range(127):
        room.put_off(segment(1), 1)
    assert not room.is_closed
    room.put_off(segment(1), 1)
    assert room.is_closed
