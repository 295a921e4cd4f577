"""Both kernels read OffsetCommit alike, and their response equals the codec's."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import _commits_pure, codec
from ottla.protocol._commits_pure import FIRST_WITH_IDS, LONGEST
from ottla.protocol.apis import ApiKey

_walker = pytest.importorskip("ottla.protocol._walker", reason="the compiled twin is not built")

API = ApiKey.OFFSET_COMMIT
LONGEST_METADATA = 12


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: int


KNOWN = [Topic("orders", UUID(int=7), 3), Topic("größe", UUID(int=2**127), 1), Topic("t" * 249, UUID(int=1), 1000)]
BY_NAME = {topic.name: topic for topic in KNOWN}
BY_ID = {topic.topic_id: topic for topic in KNOWN}
names = st.text(st.characters(codec="utf-8"), max_size=20)
partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 2) | st.integers(-(2**31), 2**31 - 1),
        "committed_offset": st.integers(-(2**63), 2**63 - 1),
        "committed_leader_epoch": st.integers(-(2**31), 2**31 - 1),
        "committed_metadata": st.none() | st.text(st.characters(codec="utf-8"), max_size=6),
    }
)


@st.composite
def topics(draw: st.DrawFn) -> dict[str, Any]:
    topic = draw(st.sampled_from([*KNOWN, *KNOWN, Topic("unknown", UUID(int=8), 0)]))
    asked = draw(st.lists(partitions, max_size=4))
    if draw(st.integers(0, 4)):
        for each in asked:
            each["partition_index"] %= max(1, topic.partitions)
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": asked}


requests = st.fixed_dictionaries(
    {
        "group_id": names,
        "generation_id_or_member_epoch": st.integers(-(2**31), 2**31 - 1),
        "member_id": names,
        "group_instance_id": st.none() | names,
        "topics": st.lists(topics(), max_size=4),
    }
)


def read(twin: Any, frame: bytes, version: int, correlation_id: int) -> Any:
    body = codec.decode_request_header(frame).body
    return twin.read_commit(memoryview(frame), body, version, correlation_id, known(version), LONGEST_METADATA)


def known(version: int) -> dict[Any, Topic]:
    return BY_NAME if version < FIRST_WITH_IDS else dict(BY_ID)


def frame_of(version: int, message: dict[str, Any]) -> bytes:
    return bytes(codec.encode_request(API, version, 1, "client", message))[4:]


@given(st.integers(2, 10), st.integers(-(2**31), 2**31 - 1), requests)
def test_the_twins_read_alike(version: int, correlation_id: int, message: dict[str, Any]) -> None:
    frame = frame_of(version, message)
    compiled, pure = (read(twin, frame, version, correlation_id) for twin in (_walker, _commits_pure))
    assert compiled == pure
    assert (pure is None) == (version < 8 or not all(is_known(topic) for topic in message["topics"]))
    if compiled is not None:
        assert type(compiled[1]) is codec.Buffer
        assert not compiled[1].splices


def is_known(asked: dict[str, Any]) -> bool:
    topic = BY_ID.get(asked["topic_id"])
    return topic is not None and all(is_taken(topic, each) for each in asked["partitions"])


def is_taken(topic: Topic, each: dict[str, Any]) -> bool:
    metadata = (each["committed_metadata"] or "").encode()
    return 0 <= each["partition_index"] < topic.partitions and len(metadata) <= LONGEST_METADATA


@given(st.integers(8, 10), requests, st.data())
def test_bytes_that_are_cut_or_damaged(version: int, message: dict[str, Any], data: st.DataObject) -> None:
    frame = frame_of(version, message)
    body = codec.decode_request_header(frame).body
    broken = bytearray(frame)
    for _ in range(data.draw(st.integers(0, 3))):
        broken[data.draw(st.integers(body, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(body, len(frame)))])
    results = [
        twin.read_commit(cut, body, version, 5, known(version), LONGEST_METADATA) for twin in (_walker, _commits_pure)
    ]
    assert results[0] == results[1]


def test_a_long_request_takes_the_long_way() -> None:
    offset = {"partition_index": 1, "committed_offset": 1, "committed_metadata": "m" * LONGEST}
    message = {
        "group_id": "g", "member_id": "", "topics": [{"name": "orders", "partitions": [offset]}],
    }  # fmt: skip
    assert [read(twin, frame_of(9, message), 9, 1) for twin in (_walker, _commits_pure)] == [None, None]


def test_a_group_that_no_record_can_name_takes_the_long_way() -> None:
    offset = {"partition_index": 1, "committed_offset": 1, "committed_metadata": None}
    message = {"group_id": "g" * 2**15, "member_id": "", "topics": [{"name": "orders", "partitions": [offset]}]}
    assert [read(twin, frame_of(9, message), 9, 1) for twin in (_walker, _commits_pure)] == [None, None]


def test_fields_that_nobody_knows_are_passed_over() -> None:
    message = {"group_id": "g", "member_id": "", "topics": []}
    frame = frame_of(9, message)[:-1] + b"\x01\x05\x02ab"
    assert read(_walker, frame, 9, 1) == read(_commits_pure, frame, 9, 1) != None  # noqa: E711
