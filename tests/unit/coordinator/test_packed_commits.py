"""A packed commit writes the same records as one made of objects, in the compiled and the pure kernels."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator import records as r
from ottla.coordinator.offsets import Offsets
from ottla.coordinator.serde import encode_batch
from ottla.protocol import _commits_pure, codec
from ottla.protocol.apis import ApiKey
from ottla.records import _packed_pure, make_commits

PACKED: list[Any] = [_packed_pure]
READERS: list[Any] = [_commits_pure]
try:
    from ottla.protocol import _walker
    from ottla.records import _speedups
except ImportError:  # Only the pure kernels are installed.
    pass
else:
    PACKED.append(_speedups)
    READERS.append(_walker)

VERSION = 9
ANY_LENGTH = 2**30
INT64 = st.integers(-(2**63), 2**63 - 1)


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: int


TOPICS = {topic.name: topic for topic in (Topic("orders", UUID(int=7), 300), Topic("größe", UUID(int=2**127), 9))}
texts = st.text(st.characters(codec="utf-8"), max_size=9) | st.sampled_from(["n" * 126, "ü" * 64, "n" * 5_000])
partitions = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 8),
        "committed_offset": INT64,
        "committed_leader_epoch": st.integers(-(2**31), 2**31 - 1),
        "committed_metadata": st.none() | texts,
    }
)
commits = st.fixed_dictionaries(
    {
        "group_id": st.text(st.characters(codec="utf-8"), max_size=9) | st.sampled_from(["g" * 200]),
        "member_id": st.just(""),
        "topics": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(list(TOPICS)), "partitions": st.lists(partitions, max_size=3)}
            ),
            max_size=3,
        ),
    }
)


def read(reader: Any, message: dict[str, Any]) -> bytes:
    """Return the packed offsets of a request."""
    frame = bytes(codec.encode_request(ApiKey.OFFSET_COMMIT, VERSION, 1, "c", message))[4:]
    body = codec.decode_request_header(frame).body
    found = reader.read_commit(frame, body, VERSION, 1, TOPICS, ANY_LENGTH)
    packed: bytes = found[0][-1]
    return packed


def objects(message: dict[str, Any], now: int) -> list[r.CoordinatorRecord]:
    """Return the same records made of objects."""
    offsets = [
        (
            topic["name"],
            each["partition_index"],
            each["committed_offset"],
            each["committed_leader_epoch"],
            each["committed_metadata"],
            TOPICS[topic["name"]].topic_id,
        )
        for topic in message["topics"]
        for each in topic["partitions"]
    ]
    return make_commits(message["group_id"], offsets, now, -1, ANY_LENGTH, r.COMMIT_TYPES) or []


def pack(twin: Any, message: dict[str, Any], now: int) -> Any:
    (packed,) = {read(reader, message) for reader in READERS}
    return twin.pack_commits(packed, now, message["group_id"], r.COMMIT_TYPES)


@pytest.mark.parametrize("twin", PACKED)
@given(commits, INT64)
def test_packed_commits_are_the_records_that_would_be_made(twin: Any, message: dict[str, Any], now: int) -> None:
    packed, records = pack(twin, message, now), objects(message, now)
    assert list(packed) == records
    assert [type(part) for record in packed for part in (record, *record)] == [
        type(part) for record in records for part in (record, *record)
    ]
    assert [hash(record) for record in packed] == [hash(record) for record in records]
    assert len(packed) == len(records)
    assert bool(packed) == bool(records)
    if records:
        assert packed.group_id == message["group_id"]
        assert packed[-1] == records[-1]
        assert packed[:1] == records[:1]


@pytest.mark.parametrize("twin", PACKED)
@given(st.lists(commits, min_size=1, max_size=30), st.integers(0, 2**40), INT64)
def test_a_batch_of_them_is_the_same_byte_for_byte(
    twin: Any, messages: list[dict[str, Any]], now: int, timestamp: int
) -> None:
    packed = twin.join_commits([pack(twin, message, now + number) for number, message in enumerate(messages)])
    records = [record for number, message in enumerate(messages) for record in objects(message, now + number)]
    assert list(packed) == records
    if records:
        assert twin.encode_packed(packed, timestamp) == encode_batch(records, timestamp)


@given(st.lists(commits, max_size=2), st.data())
def test_damaged_bytes_are_rejected_alike(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(read(READERS[0], message) for message in messages))
    for _ in range(data.draw(st.integers(0, 2)) if damaged else 0):
        damaged[data.draw(st.integers(0, min(len(damaged), 200) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))]) if data.draw(st.booleans()) else bytes(damaged)
    first, *others = (outcome(twin, cut) for twin in PACKED)
    assert all(other == first for other in others)


@pytest.mark.parametrize("twin", PACKED)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_count_that_is_not_that_of_the_records_is_rejected(twin: Any, count: int) -> None:
    fine = pack(twin, commit_of([("orders", 0), ("orders", 1)], 5), 7)
    with pytest.raises(ValueError, match="packed"):
        twin.encode_packed(twin.PackedCommits(fine.data, count, "group", r.COMMIT_TYPES), 7)


def outcome(twin: Any, packed: bytes) -> Any:
    try:
        made = twin.pack_commits(packed, 5, GROUP, r.COMMIT_TYPES)
    except ValueError as error:
        return str(error)
    try:
        return made.data, twin.encode_packed(made, 7), list(made)
    except UnicodeDecodeError:
        return made.data, twin.encode_packed(made, 7)
    except ValueError as error:
        return made.data, str(error)


@pytest.mark.parametrize("twin", PACKED)
@given(commits, commits)
def test_places_are_compared_in_their_order(twin: Any, one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = pack(twin, one, 1), pack(twin, other, 2)
    keys, former = [record.key for record in first], dict(second)
    assert first.replaces(second) == (keys == [record.key for record in second])
    assert first.replaces(former) == (keys == list(former))
    assert first.replaces(pack(twin, one, 3))
    assert first.replaces(None)


# ── as the state of a group ───────────────────────────────────────────────────────────────────────────────────────

GROUP = "billing"
places = st.lists(st.tuples(st.sampled_from(list(TOPICS)), st.integers(0, 2)), min_size=1, max_size=3)
steps = st.one_of(
    st.tuples(st.just("commit"), places | st.just([("orders", 0), ("orders", 1)]), st.integers(0, 99)),
    st.tuples(st.just("plain"), places, st.integers(0, 99)),
    st.tuples(st.just("forget"), places, st.none()),
    st.tuples(st.just("open"), places, st.integers(1, 2)),
    st.tuples(st.just("end"), st.booleans(), st.integers(1, 2)),
)


def commit_of(places: list[tuple[str, int]], offset: int) -> dict[str, Any]:
    numbers = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": None}
    topics = [{"name": name, "partitions": [{"partition_index": index, **numbers}]} for name, index in places]
    return {"group_id": GROUP, "member_id": "", "topics": topics}


@pytest.mark.parametrize("twin", PACKED)
@given(st.lists(steps, max_size=12))
def test_offsets_are_the_same_however_they_came(twin: Any, steps: list[Any]) -> None:
    packed, plain = Offsets(4096), Offsets(4096)
    for now, (what, where, number) in enumerate(steps):
        for offsets in (packed, plain):
            step(twin, offsets, what, where, number, now, takes_packed=offsets is packed)
        assert list(packed.of_group(GROUP).items()) == list(plain.of_group(GROUP).items())
        assert packed.count == plain.count
        assert packed.has_any(GROUP) == plain.has_any(GROUP)
        assert packed.get(GROUP, "orders", 0) == plain.get(GROUP, "orders", 0)


def step(twin: Any, offsets: Offsets, what: str, where: Any, number: Any, now: int, *, takes_packed: bool) -> None:
    if what == "end":
        offsets.end_transaction(number, committed=where)
        return
    if what == "commit" and takes_packed:
        offsets.replay_packed(GROUP, pack(twin, commit_of(where, number), now))
        return
    producer_id = number if what == "open" else -1
    for key, value in objects(commit_of(where, number or 0), now):
        offsets.replay(key, None if what == "forget" else value, producer_id)
