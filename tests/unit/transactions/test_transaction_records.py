"""The records of ``__transaction_state``, compared with bytes that Kafka 4.2 wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.transactions.records import CorruptRecord, TransactionRecord, decode, encode, encode_key
from ottla.transactions.transaction import Transaction
from ottla.transactions.transitions import State
from ottla.types import TopicPartition

TOPIC = "topic1794786150"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
KEYS = {"t1794786150": "0000000b7431373934373836313530", "u1794786150": "0000000b7531373934373836313530"}


def known(name: str, state: State, producer: tuple[int, int], times: tuple[int, int], *partitions: TopicPartition,
          version: int = 0) -> Transaction:  # fmt: skip
    return Transaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        timeout=60_000,
        state=state,
        partitions=frozenset(partitions),
        started_at=times[0],
        updated_at=times[1],
        version=version,
    )


GOLDEN = [
    (
        known("t1794786150", State.EMPTY, (0, 0), (-1, 1794786151621)),
        "0001000000000000000000000000ea600000000001a1e1974cc5ffffffffffffffff00",
    ),
    (
        known("t1794786150", State.ONGOING, (0, 0), (1794786152189, 1794786152189), FIRST),
        "0001000000000000000000000000ea60010210746f70696331373934373836313530020000000000000001a1e1974efd"
        "000001a1e1974efd00",
    ),
    (
        known("t1794786150", State.COMPLETE_COMMIT, (0, 0), (1794786152189, 1794786152485)),
        "0001000000000000000000000000ea600401000001a1e1975025000001a1e1974efd00",
    ),
    (
        known("t1794786150", State.PREPARE_ABORT, (0, 1), (1794786153032, 1794786153053), FIRST, SECOND, version=2),
        "0001000000000000000000010000ea60030210746f7069633137393437383631353003000000000000000100000001a1e197525d"
        "000001a1e19752480102020002",
    ),
    (
        known("u1794786150", State.PREPARE_COMMIT, (1, 1), (1794786153267, 1794786153324), FIRST, version=2),
        "0001000000000000000100010000ea60020210746f70696331373934373836313530020000000000000001a1e197536c"
        "000001a1e19753330102020002",
    ),
]


@pytest.mark.parametrize(("value", "written"), GOLDEN, ids=[value.state for value, _ in GOLDEN])
def test_bytes_of_kafka(value: Transaction, written: str) -> None:
    key = bytes.fromhex(KEYS[value.transactional_id])
    record = TransactionRecord(value.transactional_id, value)
    assert decode(key, bytes.fromhex(written)) == record
    assert encode(record) == (key, bytes.fromhex(written))


def test_version_0_of_older_brokers_is_read() -> None:
    written = "0000000000000000000700030000ea6001000000010001740000000100000002" + ("00000000000000640000000000000032")
    record = decode(encode_key("id"), bytes.fromhex(written))
    assert record is not None
    assert record.value == Transaction(
        transactional_id="id",
        producer_id=7,
        producer_epoch=3,
        timeout=60_000,
        state=State.ONGOING,
        partitions=frozenset({TopicPartition("t", 2)}),
        started_at=50,
        updated_at=100,
    )


def test_what_nobody_knows_is_passed_over() -> None:
    assert decode(b"\0\5", b"\0\1") is None
    assert decode(encode_key("id"), b"\0\7") is None


def test_a_tombstone() -> None:
    assert decode(encode_key("id"), None) == TransactionRecord("id", None)
    assert encode(TransactionRecord("id", None)) == (encode_key("id"), None)


@pytest.mark.parametrize("value", ["", "00", "0001", "00010000", GOLDEN[1][1][:-8]])
def test_broken_bytes_are_called_broken(value: str) -> None:
    with pytest.raises(CorruptRecord):
        decode(encode_key("id"), bytes.fromhex(value))
    with pytest.raises(CorruptRecord, match="not a state"):
        decode(encode_key("id"), bytes.fromhex(GOLDEN[0][1].replace("ea6000", "ea6063", 1)))


PARTITIONS = st.builds(TopicPartition, st.text("abc", min_size=1, max_size=3), st.integers(0, 2**31 - 1))


@given(
    st.builds(
        Transaction,
        transactional_id=st.text(min_size=1, max_size=20),
        producer_id=st.integers(0, 2**62),
        producer_epoch=st.integers(0, 2**15 - 1),
        previous_producer_id=st.integers(-1, 2**62),
        next_producer_id=st.integers(-1, 2**62),
        timeout=st.integers(1, 2**31 - 1),
        state=st.sampled_from(sorted(set(State) - {State.EMPTY})),
        partitions=st.frozensets(PARTITIONS, max_size=6),
        started_at=st.integers(-1, 2**62),
        updated_at=st.integers(0, 2**62),
        version=st.sampled_from([0, 2]),
    )
)
def test_what_is_written_is_read(value: Transaction) -> None:
    record = TransactionRecord(value.transactional_id, value)
    assert decode(*encode(record)) == record
