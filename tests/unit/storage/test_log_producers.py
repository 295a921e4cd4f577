"""Idempotent and transactional producers: duplicates, order, fencing, and state across restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import errors
from ottla.storage import retention
from ottla.storage.log import AppendInfo
from ottla.storage.producers import ProducerState
from ottla.storage.snapshots import DamagedSnapshot, read_snapshot, write_snapshot
from unit.storage.log_material import (
    PARTITION,
    T0,
    Store,
    marker_batch,
    offsets_of,
    read_records,
    record_batch,
    topic_config,
)

LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.crash()


def produce(store: Store, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> AppendInfo:
    return store.append(values=[b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence)


def test_a_duplicate_on_a_topic_with_log_append_time_gets_its_time(store: Store) -> None:
    store.log.config = topic_config(message_timestamp_type="LogAppendTime")
    produce(store, 0)
    store.clock.advance(1000)
    assert produce(store, 0).log_append_time == T0


def test_producers_do_not_disturb_each_other(store: Store) -> None:
    for number in range(8):
        produce(store, number, producer_id=1)
        produce(store, number, producer_id=2)
    assert produce(store, 7, producer_id=1).duplicate
    assert {producer.producer_id for producer in store.log.active_producers()} == {1, 2}


def test_a_refused_batch_changes_nothing(store: Store) -> None:
    produce(store, 0)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        produce(store, 9)
    assert produce(store, 1).base_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_duplicates_are_known_after_a_restart(store: Store, clean: bool) -> None:
    for number in range(8):
        produce(store, number)
        produce(store, number, producer_id=8)
    store.reopen(clean=clean)
    for number in range(3, 8):
        assert produce(store, number).duplicate
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        produce(store, 2)
    assert produce(store, 8).base_offset == 16
    assert offsets_of(read_records(store.log)) == list(range(17))


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_are_known_after_a_restart(store: Store, clean: bool) -> None:
    produce(store, 0, epoch=3)
    store.reopen(clean=clean)
    with pytest.raises(errors.InvalidProducerEpoch):
        produce(store, 1, epoch=2)


def test_producers_survive_the_removal_of_their_segments(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=300))
    for number in range(20):
        produce(store, number, producer_id=1)
    produce(store, 5, producer_id=2)
    store.log.remove_segments(len(store.log.segments) - 1, now=store.now)
    store.reopen(clean=True)
    assert {producer.producer_id for producer in store.log.active_producers()} == {1, 2}
    store.crash()


def test_idle_producers_expire(store: Store) -> None:
    produce(store, 4)
    assert store.log.producers.expire(now=T0 + 999, after=1000) == 0
    assert store.log.producers.expire(now=T0 + 1000, after=1000) == 1
    assert produce(store, 77).base_offset == 1


def test_an_open_transaction_keeps_its_producer_and_the_first_unstable_offset(store: Store) -> None:
    produce(store, 0, producer_id=1)
    store.append(producer_id=2, sequence=0, transactional=True)
    store.append(producer_id=3, sequence=0, transactional=True)
    log = store.log
    assert log.first_unstable_offset == 1
    assert log.last_stable_offset(3) == 1
    assert log.producers.expire(now=T0 * 2, after=1) == 1
    store.append_own(marker_batch(2, commit=True))
    assert log.first_unstable_offset == 2
    assert log.last_stable_offset(3) == 1, "the marker is not below the high watermark yet"
    assert log.last_stable_offset(4) == 2
    store.append_own(marker_batch(3, commit=False))
    assert log.first_unstable_offset is None
    assert log.last_stable_offset(5) == 5


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_are_known_after_a_restart(store: Store, clean: bool) -> None:
    store.append(producer_id=2, sequence=0, transactional=True)
    store.append(producer_id=3, sequence=0, transactional=True)
    store.append_own(marker_batch(2, commit=False, coordinator_epoch=4))
    log = store.reopen(clean=clean)
    assert log.first_unstable_offset == 1
    (aborted,) = log.aborted_transactions(0, 10)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (2, 0, 2, 1)
    assert log.aborted_transactions(3, 10) == []
    with pytest.raises(errors.TransactionCoordinatorFenced):
        store.append_own(marker_batch(2, commit=True, coordinator_epoch=3))


def test_a_write_outside_of_an_open_transaction_is_refused(store: Store) -> None:
    store.append(producer_id=2, sequence=0, transactional=True)
    with pytest.raises(errors.InvalidTxnState):
        store.append(producer_id=2, sequence=1)


def test_a_marker_of_an_old_epoch_is_refused(store: Store) -> None:
    store.append(producer_id=2, epoch=5, sequence=0, transactional=True)
    with pytest.raises(errors.InvalidProducerEpoch):
        store.append_own(marker_batch(2, epoch=4, commit=True))


def test_a_snapshot_has_what_kafka_keeps_of_a_producer(tmp_path: Path) -> None:
    state = ProducerState(PARTITION)
    from ottla.records import read_header

    state.update(read_header(record_batch([b"v"] * 3, producer_id=9, epoch=2, sequence=4)), 100, 102, T0)
    state.update(read_header(record_batch(producer_id=5, sequence=0, transactional=True)), 103, 103, T0 + 1)
    write_snapshot(str(tmp_path), 104, state)
    path = tmp_path / "00000000000000000104.snapshot"
    assert path.stat().st_size == 10 + 2 * 46
    nine, five = read_snapshot(str(path))
    assert (nine.producer_id, nine.producer_epoch, nine.last_sequence, nine.last_offset) == (9, 2, 6, 102)
    assert nine.batches[0].first_offset == 100
    assert nine.batches[0].first_sequence == 4
    assert (five.producer_id, five.current_txn_start_offset, five.last_timestamp) == (5, 103, T0 + 1)


@pytest.mark.parametrize("damage", ["cut", "flip", "version", "empty"])
def test_a_damaged_snapshot_is_noticed(tmp_path: Path, damage: str) -> None:
    state = ProducerState(PARTITION)
    write_snapshot(str(tmp_path), 1, state)
    path = tmp_path / "00000000000000000001.snapshot"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[:-1]
    elif damage == "flip":
        data[8] ^= 1
    elif damage == "version":
        data[1] = 9
    else:
        data = bytearray()
    path.write_bytes(data)
    with pytest.raises(DamagedSnapshot):
        read_snapshot(str(path))


def test_without_its_snapshot_the_producers_come_from_the_log(store: Store) -> None:
    for number in range(4):
        produce(store, number)
    store.close()
    for path in store.directory.glob("*.snapshot"):
        path.write_bytes(b"damaged")
    store.open()
    assert store.report.clean
    assert produce(store, 1).duplicate
    assert produce(store, 4).base_offset == 4


def test_a_late_marker_of_the_second_version_is_known_by_its_epoch(store: Store) -> None:
    def mark(epoch: int) -> None:
        batch = marker_batch(2, epoch=epoch, commit=True)
        store.log.append(batch, leader_epoch=0, now=store.now, from_client=False, transaction_version=2)

    store.append(producer_id=2, epoch=0, sequence=0, transactional=True)
    mark(1)
    mark(1)  # once more, while nothing is open
    store.append(producer_id=2, epoch=1, sequence=0, transactional=True)
    for late in (0, 1):
        with pytest.raises(errors.InvalidProducerEpoch):
            mark(late)
    assert store.log.first_unstable_offset == 3
    mark(2)
    assert store.log.first_unstable_offset is None


def test_what_the_broker_writes_in_a_transaction_needs_no_sequence_but_the_epoch(store: Store) -> None:
    store.append_own(record_batch(producer_id=2, epoch=1, transactional=True))
    store.append_own(record_batch(producer_id=2, epoch=1, transactional=True))
    assert store.log.first_unstable_offset == 0
    assert store.log.producers.has_ongoing(2, 1)
    assert not store.log.producers.has_ongoing(2, 0)
    with pytest.raises(errors.InvalidProducerEpoch):
        store.append_own(record_batch(producer_id=2, epoch=0, transactional=True))


def test_a_transaction_whose_end_is_cut_off_is_open_again(store: Store) -> None:
    store.append(producer_id=2, sequence=0, transactional=True)
    store.append_own(marker_batch(2, commit=False))
    store.append(producer_id=3, sequence=0, transactional=True)
    store.append_own(marker_batch(3, commit=False))
    store.log.truncate_to(3, now=T0)
    assert [each.producer_id for each in store.log.aborted_transactions(0, 10)] == [2]
    assert store.log.first_unstable_offset == 2
    store.append_own(marker_batch(3, commit=True))
    assert [each.producer_id for each in store.reopen(clean=True).aborted_transactions(0, 10)] == [2]


def test_the_last_stable_offset_is_not_below_the_log_start_offset(store: Store) -> None:
    store.append(producer_id=2, sequence=0, transactional=True)
    store.fill(3)
    assert store.log.last_stable_offset(4) == 0
    store.log.delete_records(2)
    assert store.log.last_stable_offset(4) == 2
    store.append_own(marker_batch(2, commit=True))
    assert store.log.last_stable_offset(5) == 5


def test_retention_does_not_forget_a_transaction_that_is_open(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=300, retention_bytes=300))
    store.append(producer_id=2, sequence=0, transactional=True)
    store.fill(12)
    assert retention.apply(store.log, store.log.log_end_offset, now=store.now) > 0
    assert store.log.log_start_offset > 0
    for clean in (False, True):
        log = store.reopen(clean=clean)
        assert log.last_stable_offset(log.log_end_offset) == log.log_start_offset
        assert log.producers.has_ongoing(2, 0)
    store.append_own(marker_batch(2, commit=False))
    assert store.log.last_stable_offset(store.log.log_end_offset) == store.log.log_end_offset
    store.close()


def test_after_a_marker_that_raised_the_epoch_sequences_begin_with_zero(store: Store) -> None:
    store.append(producer_id=2, epoch=0, sequence=0, transactional=True)
    store.append_own(marker_batch(2, epoch=1, commit=True))
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        store.append(producer_id=2, epoch=1, sequence=1, transactional=True)
    assert store.append(producer_id=2, epoch=1, sequence=0, transactional=True).base_offset == 2


def test_a_flush_is_about_the_aborted_transactions_too(store: Store) -> None:
    store.append(producer_id=2, sequence=0, transactional=True)
    store.append_own(marker_batch(2, commit=False))
    index = str(store.directory / "00000000000000000000.txnindex")
    assert index in store.log.begin_flush().paths
    assert index not in store.log.begin_flush().paths
