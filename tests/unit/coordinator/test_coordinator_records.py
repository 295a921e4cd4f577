"""The records of the offsets topic, compared with bytes that Kafka 4.2 wrote (see golden/GoldenRecords.java)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator import records as r
from ottla.coordinator.effects import Effects
from ottla.coordinator.history import KEPT, Histories
from ottla.coordinator.serde import (
    CorruptRecord,
    content,
    decode,
    encode,
    encode_batch,
    encode_key,
    encode_quickly,
    encode_value,
)
from ottla.records import decode_batch, encode_pairs

ORDERS = UUID("01234567-89ab-cdef-8899-aabbccddeeff")
OFFSET = r.OffsetCommitKey("billing", "orders", 7)
COMMITTED = r.OffsetCommitValue(42, -1, "note", 1_700_000_000_000)
MEMBERS = (
    r.MemberMetadata("m-1", "i-1", "c", "/127.0.0.1", 300_000, 45_000, b"\1\2", b"\3"),
    r.MemberMetadata("m-2", None, "c", "/127.0.0.1", 300_000, 45_000, b"", b""),
)
STABLE = r.GroupMetadataValue("consumer", 5, "range", "m-1", 1_700_000_000_000, MEMBERS)
CONSUMER_MEMBER = r.ConsumerGroupMemberMetadataValue(
    "i-1", None, "c", "/127.0.0.1", ("orders", "payments"), "pay.*", 300_000, "uniform"
)


def group_of_version(version: int) -> r.GroupMetadataValue:
    """Return the stable group with the fields that a version has."""
    members = MEMBERS
    if version < 3:
        members = tuple(member._replace(group_instance_id=None) for member in members)
    if version < 1:
        members = tuple(member._replace(rebalance_timeout=-1) for member in members)
    timestamp = STABLE.current_state_timestamp if version >= 2 else -1
    return STABLE._replace(members=members, current_state_timestamp=timestamp)


GOLDEN: dict[str, r.CoordinatorRecord] = {
    name: r.CoordinatorRecord(key, value)
    for name, key, value in (
        (
            "legacy_offset",
            r.LegacyOffsetCommitKey("g", "orders", 7),
            r.LegacyOffsetCommitValue(42, "note", 1_700_000_000_000),
        ),
        ("offset_v0", OFFSET, COMMITTED),
        ("offset_v1", OFFSET, COMMITTED._replace(expire_timestamp=1_700_000_099_999)),
        ("offset_v2", OFFSET, COMMITTED),
        ("offset_v3", OFFSET, COMMITTED._replace(leader_epoch=3)),
        ("offset_v4", OFFSET, COMMITTED._replace(leader_epoch=3)),
        ("offset_v4_topic_id", OFFSET, COMMITTED._replace(leader_epoch=3, topic_id=ORDERS)),
        ("offset_tombstone", OFFSET, None),
        *((f"group_v{version}", r.GroupMetadataKey("billing"), group_of_version(version)) for version in range(5)),
        ("group_empty", r.GroupMetadataKey("billing"), r.GroupMetadataValue("", 0, None, None, -1, ())),
        ("consumer_group", r.ConsumerGroupMetadataKey("billing"), r.ConsumerGroupMetadataValue(10, -123456789012345)),
        ("consumer_group_no_hash", r.ConsumerGroupMetadataKey("billing"), r.ConsumerGroupMetadataValue(10)),
        (
            "partition_metadata",
            r.ConsumerGroupPartitionMetadataKey("billing"),
            r.ConsumerGroupPartitionMetadataValue(
                (r.TopicMetadata(ORDERS, "orders", 6, (r.PartitionRacks(0, ("a", "b")),)),)
            ),
        ),
        ("consumer_member", r.ConsumerGroupMemberMetadataKey("billing", "m-1"), CONSUMER_MEMBER),
        (
            "consumer_member_classic",
            r.ConsumerGroupMemberMetadataKey("billing", "m-1"),
            CONSUMER_MEMBER._replace(
                classic_member_metadata=r.ClassicMemberMetadata(45_000, (r.ClassicProtocol("range", b"\1\2\3"),))
            ),
        ),
        (
            "target_metadata",
            r.ConsumerGroupTargetAssignmentMetadataKey("billing"),
            r.ConsumerGroupTargetAssignmentMetadataValue(10),
        ),
        (
            "target_member",
            r.ConsumerGroupTargetAssignmentMemberKey("billing", "m-1"),
            r.ConsumerGroupTargetAssignmentMemberValue((r.TopicPartitions(ORDERS, (0, 2, 5)),)),
        ),
        (
            "current_assignment",
            r.ConsumerGroupCurrentMemberAssignmentKey("billing", "m-1"),
            r.ConsumerGroupCurrentMemberAssignmentValue(
                10, 9, 1, (r.TopicPartitions(ORDERS, (0, 2)),), (r.TopicPartitions(ORDERS, (5,)),)
            ),
        ),
        (
            "regular_expression",
            r.ConsumerGroupRegularExpressionKey("billing", "pay.*"),
            r.ConsumerGroupRegularExpressionValue(("payments", "payouts"), 17, 1_700_000_000_000),
        ),
    )
}
#: Versions that Kafka reads but no longer writes.
OLD = {"offset_v0", "offset_v2", "offset_v3", "group_v0", "group_v1", "group_v2", "group_v4"}


def golden_bytes() -> dict[str, tuple[bytes, bytes | None]]:
    lines = (Path(__file__).parent / "golden" / "records.txt").read_text().splitlines()
    return {
        name: (bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
        for name, key, value in (line.split() for line in lines)
    }


def test_every_record_that_kafka_wrote_is_in_the_table() -> None:
    assert golden_bytes().keys() == GOLDEN.keys()


@pytest.mark.parametrize("name", GOLDEN)
def test_what_kafka_wrote_is_read(name: str) -> None:
    assert decode(*golden_bytes()[name]) == GOLDEN[name]


@pytest.mark.parametrize("name", [name for name in GOLDEN if name not in OLD])
def test_what_is_written_is_what_kafka_writes(name: str) -> None:
    assert encode(GOLDEN[name]) == golden_bytes()[name]


def test_a_record_type_that_nobody_knows_is_kept_as_it_is() -> None:
    key, value = b"\x00\x63 whatever", b"\x00\x00 else"
    record = decode(key, value)
    assert isinstance(record.key, r.UnknownKey)
    assert (record.key.type, record.key.why) == (99, "record type 99 is not known")
    assert encode(record) == (key, value)


def test_a_value_of_a_newer_version_is_kept_as_it_is() -> None:
    key = encode_key(r.GroupMetadataKey("billing"))
    record = decode(key, b"\x00\x05 from the future")
    assert isinstance(record.key, r.UnknownKey)
    assert record.key.why == "version 5 of GroupMetadataValue is not known"


REBALANCE = r.HistoryValue(3, 1, "stable", "range", 1, 2, 3, 1, "m", (), 0, (), 2, 0, ())


def test_a_rebalance_is_the_tombstone_of_an_offset_for_other_tools() -> None:
    records = [
        r.CoordinatorRecord(r.GroupMetadataKey("g"), None),
        r.CoordinatorRecord(r.HistoryKey("g", 3), REBALANCE),
        r.CoordinatorRecord(r.HistoryKey("g", 4), None),
    ]
    group, written, removed = decode_batch(encode_batch(records, 5))
    assert written.key == encode_key(r.OffsetCommitKey("g", "ottla:rebalance-history", 3))
    assert written.value is None
    assert [name for name, _ in written.headers] == ["ottla.rebalance"]
    assert (removed.value, removed.headers) == (None, ())
    stored = [(each.key or b"", content(each.value, each.headers)) for each in (group, written, removed)]
    assert [decode(*each) for each in stored] == records


def test_the_type_of_older_versions_is_still_read() -> None:
    record = r.CoordinatorRecord(r.OldHistoryKey("g", 3), REBALANCE)
    assert encode(record)[0][:2] == r.OLD_HISTORY_TYPE.to_bytes(2) == b"ot"
    assert decode(*encode(record)) == record


def test_rebalances_of_older_versions_are_replaced_one_by_one() -> None:
    histories = Histories()
    for number in range(3):
        histories.replay_old(r.OldHistoryKey("g", number), replace(REBALANCE, number=number))
    assert histories.next_number("g") == 3

    def written(fx: Effects) -> list[tuple[r.Key, bool]]:
        for key, value in fx.records:
            assert value is None or isinstance(value, r.HistoryValue)
            if isinstance(key, r.OldHistoryKey):
                histories.replay_old(key, value)
            elif isinstance(key, r.HistoryKey):
                histories.replay(key, value)
        return [(key, value is not None) for key, value in fx.records]

    fx = Effects(now=1)
    histories.write("g", replace(REBALANCE, number=KEPT), fx)
    assert written(fx) == [(r.HistoryKey("g", 0), True), (r.OldHistoryKey("g", 0), False)]
    fx = Effects(now=2)
    histories.write("g", replace(REBALANCE, number=2 * KEPT), fx)
    assert written(fx) == [(r.HistoryKey("g", 0), True)]
    fx = Effects(now=3)
    histories.delete_group("g", fx)
    old = [key for key, _ in written(fx) if isinstance(key, r.OldHistoryKey)]
    assert old == [r.OldHistoryKey("g", 1), r.OldHistoryKey("g", 2)]
    assert histories.next_number("g") == 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"", None, "the key has 0 bytes and cannot hold its version"),
        (b"\0\2", None, "the key is not a GroupMetadataKey"),
        (b"\0\2\0\x09short", None, "the key is not a GroupMetadataKey"),
        (b"\0\2\0\1g", b"\0", "the value has 1 bytes and cannot hold its version"),
        (b"\0\2\0\1g", b"\0\3\x7f\xff", "the value is not a GroupMetadataValue"),
    ],
)
def test_broken_bytes_are_refused_with_a_reason(key: bytes, value: bytes | None, message: str) -> None:
    with pytest.raises(CorruptRecord, match=message):
        decode(key, value)


names = st.text(max_size=20)
times = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(-(2**31), 2**31 - 1)
who = st.builds(r.Who, names, st.none() | names, names, names)
histories = st.builds(
    r.HistoryValue,
    number=times,
    generation=counts,
    outcome=names,
    protocol=names,
    started_at=times,
    joined_at=times,
    ended_at=times,
    members=counts,
    leader=names,
    triggers=st.lists(st.builds(r.Trigger, names, times, st.none() | who, names), max_size=3).map(tuple),
    triggers_left_out=counts,
    late=st.lists(st.builds(r.Latecomer, who, times, st.booleans(), names), max_size=3).map(tuple),
    partitions_kept=counts,
    partitions_moved=counts,
    moves=st.lists(st.builds(r.PartitionMove, names, counts, st.none() | names, st.none() | names), max_size=3).map(
        tuple
    ),
    revoked_at=times,
    waiting_for=st.lists(who, max_size=3).map(tuple),
)


@given(histories)
def test_history_survives_the_log(value: r.HistoryValue) -> None:
    record = r.CoordinatorRecord(r.HistoryKey("g", 3), value)
    assert decode(*encode(record)) == record


@given(st.builds(r.OffsetCommitValue, times, counts, names, times, st.just(-1), st.none() | st.uuids(version=4)))
def test_offsets_survive_the_log(value: r.OffsetCommitValue) -> None:
    assert decode(encode_key(OFFSET), encode_value(value)).value == value


commits = st.builds(
    r.CoordinatorRecord,
    st.builds(r.OffsetCommitKey, st.sampled_from(["g", "gr\u00fc\u00df"]), st.sampled_from(["t", "u"]), counts),
    st.none()
    | st.builds(
        r.OffsetCommitValue,
        times,
        counts,
        st.text(max_size=200),
        times,
        st.sampled_from([-1, 5]),
        st.none() | st.uuids(),
    ),
)


@given(st.lists(commits | st.just(r.CoordinatorRecord(r.GroupMetadataKey("g"), None)), min_size=1, max_size=5), times)
def test_many_commits_are_written_as_one_by_one(records: list[r.CoordinatorRecord], timestamp: int) -> None:
    pairs = [encode(record) for record in records]
    assert encode_batch(records, timestamp) == encode_pairs(pairs, timestamp)
    assert encode_batch(r.TransactionalRecords(records, 7, 3), timestamp) == encode_pairs(pairs, timestamp, 7, 3)


texts = st.text(max_size=3) | st.text(min_size=120, max_size=140)
some_text = st.none() | texts
assignments = st.lists(
    st.builds(
        r.TopicPartitions,
        st.none() | st.uuids(),
        st.lists(counts, max_size=3).map(tuple) | st.integers(120, 300).map(lambda count: tuple(range(count))),
    ),
    max_size=3,
).map(tuple)
classic = st.builds(
    r.ClassicMemberMetadata, counts, st.lists(st.builds(r.ClassicProtocol, texts, st.binary()), max_size=2).map(tuple)
)
group_records = st.one_of(
    st.builds(
        r.CoordinatorRecord,
        st.builds(r.ConsumerGroupMetadataKey, texts),
        st.none() | st.builds(r.ConsumerGroupMetadataValue, counts, times),
    ),
    st.builds(
        r.CoordinatorRecord,
        st.builds(r.ConsumerGroupMemberMetadataKey, texts, texts),
        st.none()
        | st.builds(
            r.ConsumerGroupMemberMetadataValue,
            some_text, some_text, texts, texts, st.lists(texts, max_size=3).map(tuple), some_text, counts, some_text,
            st.none() | classic,
        ),
    ),
    st.builds(
        r.CoordinatorRecord,
        st.builds(r.ConsumerGroupTargetAssignmentMetadataKey, texts),
        st.none() | st.builds(r.ConsumerGroupTargetAssignmentMetadataValue, counts),
    ),
    st.builds(
        r.CoordinatorRecord,
        st.builds(r.ConsumerGroupTargetAssignmentMemberKey, texts, texts),
        st.none() | st.builds(r.ConsumerGroupTargetAssignmentMemberValue, assignments),
    ),
    st.builds(
        r.CoordinatorRecord,
        st.builds(r.ConsumerGroupCurrentMemberAssignmentKey, texts, texts),
        st.none()
        | st.builds(
            r.ConsumerGroupCurrentMemberAssignmentValue,
            counts, counts, st.integers(-128, 127), assignments, assignments,
        ),
    ),
)  # fmt: skip


@given(st.lists(group_records, max_size=3))
def test_what_a_rebalance_writes_is_written_by_hand_as_by_the_schemas(records: list[r.CoordinatorRecord]) -> None:
    assert [encode_quickly(record) for record in records] == [encode(record) for record in records]


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_no_bytes_can_do_worse_than_a_clear_error(key: bytes, value: bytes | None) -> None:
    try:
        decode(key, value)
    except CorruptRecord:
        pass


def test_records_of_different_kinds_are_never_the_same() -> None:
    one, other = r.GroupMetadataKey("orders"), r.ConsumerGroupMetadataKey("orders")
    assert (one == other, one != other) == (False, True)
    assert (one == r.GroupMetadataKey("orders"), one != r.GroupMetadataKey("orders")) == (True, False)
    assert len({one, other, r.GroupMetadataKey("orders")}) == 2
    assert one != ("orders",)
    assert r.OffsetCommitKey("g", "t", 0) != r.LegacyOffsetCommitKey("g", "t", 0)
