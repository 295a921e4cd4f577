"""A log of a follower: it gets the leader's batches as they are, and is truncated where they differ."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import errors
from ottla.records import Record, encode_batch
from ottla.storage.log import Log
from unit.storage.log_material import (
    T0,
    Store,
    find_timestamp,
    marker_batch,
    offsets_of,
    read_records,
    read_slice,
    segment_bases,
    topic_config,
)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "leader") as store:
        yield store


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "follower") as store:
        yield store


@contextmanager
def opened(path: Path, **config: object) -> Iterator[Store]:
    store = Store(path, config=topic_config(**config))
    yield store
    store.crash()


def written(log: Log, offset: int = 0, max_bytes: int = 2**20) -> memoryview:
    """The bytes that a follower gets from `offset` on."""
    return memoryview(read_slice(log, offset, max_bytes).read())


def copy_all(leader: Store, follower: Store, max_bytes: int = 2**20) -> None:
    """Fetch until the follower has everything."""
    while follower.log.log_end_offset < leader.log.log_end_offset:
        records = written(leader.log, follower.log.log_end_offset, max_bytes)
        follower.log.append_as_follower(records, now=follower.now)


def batch_at(offset: int, values: Sequence[bytes] = (b"v",), *, epoch: int = 0, timestamp: int = T0) -> bytes:
    """A batch as the leader has it in its log."""
    records = [Record(offset + n, timestamp, None, value) for n, value in enumerate(values)]
    data = bytearray(encode_batch(records, base_offset=offset))
    data[12:16] = epoch.to_bytes(4, "big")
    return bytes(data)


def append(store: Store, *batches: bytes) -> None:
    store.log.append_as_follower(memoryview(b"".join(batches)), now=store.now)


# ── append ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_bytes_of_the_leader_are_kept(leader: Store, follower: Store) -> None:
    for epoch, count in ((0, 3), (2, 1), (7, 4)):
        for _ in range(count):
            leader.append(values=[b"a", b"b"], leader_epoch=epoch)
    info = follower.log.append_as_follower(written(leader.log), now=T0 + 5)
    assert (info.base_offset, info.last_offset) == (0, 15)
    assert written(follower.log).tobytes() == written(leader.log).tobytes()
    assert follower.log.epochs.entries == leader.log.epochs.entries == ((0, 0), (2, 6), (7, 8))
    assert follower.log.latest_epoch == 7


@pytest.mark.parametrize("clean", [True, False])
def test_a_follower_knows_everything_after_a_restart(leader: Store, follower: Store, clean: bool) -> None:
    for epoch in range(5):
        leader.append(values=[b"a", b"b"], leader_epoch=epoch, timestamp=T0 + epoch)
    leader.append(producer_id=4, sequence=0, leader_epoch=5)
    copy_all(leader, follower)
    follower.reopen(clean=clean)
    assert follower.log.log_end_offset == 11
    assert follower.log.epochs.entries == leader.log.epochs.entries
    assert follower.log.producers.entries[4].last_sequence == 0
    assert find_timestamp(follower.log, T0 + 3) == find_timestamp(leader.log, T0 + 3)


def test_segments_roll_as_for_the_leader_and_each_is_written_once(
    tmp_path: Path, leader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.fill(50)
    records = written(leader.log)
    size = len(records) // 50
    writes: list[int] = []
    pwrite, here = os.pwrite, threading.get_ident()

    def counted(fd: int, data: Any, at: int) -> int:
        if threading.get_ident() == here:  # Brokers of other tests may run in this process.
            writes.append(len(data))
        return pwrite(fd, data, at)

    with opened(tmp_path / "small", segment_bytes=10 * size) as store:
        monkeypatch.setattr(os, "pwrite", counted)
        store.log.append_as_follower(records, now=store.now)
        monkeypatch.undo()
        assert segment_bases(store.log) == [0, 10, 20, 30, 40]
        assert [count for count in writes if count >= size] == [10 * size] * 5
        assert offsets_of(read_records(store.log)) == list(range(50))


def test_a_segment_is_filled_up_before_the_next_one_starts(tmp_path: Path, leader: Store) -> None:
    leader.fill(25)
    size = len(written(leader.log)) // 25
    with opened(tmp_path / "small", segment_bytes=10 * size) as store:
        copy_all(leader, store, max_bytes=7 * size)
        assert segment_bases(store.log) == [0, 10, 20]


def test_a_batch_that_is_larger_than_a_segment_gets_its_own(tmp_path: Path) -> None:
    with opened(tmp_path / "small", segment_bytes=300) as store:
        append(store, batch_at(0), batch_at(1, [b"x" * 1000]), batch_at(2))
        assert segment_bases(store.log) == [0, 1, 2]


def test_old_batches_do_not_share_a_segment_with_new_ones(tmp_path: Path) -> None:
    with opened(tmp_path / "aged", segment_ms=1000) as store:
        batches = [batch_at(n, timestamp=T0 + 400 * n) for n in range(8)]
        append(store, *batches)
        assert segment_bases(store.log) == [0, 3, 6]


def test_full_indexes_start_a_new_segment(tmp_path: Path) -> None:
    with opened(tmp_path / "small", index_interval_bytes=100, segment_index_bytes=36) as store:
        append(store, *(batch_at(n, [b"x" * 100], timestamp=T0 + n) for n in range(20)))
        assert len(store.log.segments) > 3
        assert all(segment.time_index.size <= 36 for segment in store.log.segments)
        assert offsets_of(read_records(store.log)) == list(range(20))


def test_gaps_of_compaction_are_kept(follower: Store) -> None:
    append(follower, batch_at(3), batch_at(10), batch_at(12))
    append(follower, batch_at(20))
    assert offsets_of(read_records(follower.log)) == [3, 10, 12, 20]
    assert follower.log.log_end_offset == 21
    follower.reopen(clean=False)
    assert offsets_of(read_records(follower.log)) == [3, 10, 12, 20]


def test_a_gap_may_be_larger_than_a_segment_can_number(follower: Store) -> None:
    far = 2**33
    append(follower, batch_at(0), batch_at(far), batch_at(far + 1))
    assert offsets_of(read_records(follower.log)) == [0, far, far + 1]
    assert segment_bases(follower.log) == [0, far]
    follower.reopen(clean=False)
    assert offsets_of(read_records(follower.log)) == [0, far, far + 1]


def test_offsets_must_go_on_where_the_log_ends(follower: Store) -> None:
    append(follower, batch_at(0), batch_at(1))
    for wrong in ([batch_at(1)], [batch_at(2), batch_at(2)], [batch_at(5), batch_at(3)]):
        with pytest.raises(errors.CorruptMessage, match="must follow"):
            append(follower, *wrong)
    assert follower.log.log_end_offset == 2


def test_a_damaged_batch_is_refused_and_nothing_is_written(follower: Store) -> None:
    damaged = bytearray(batch_at(1))
    damaged[-1] ^= 1
    with pytest.raises(errors.CorruptMessage, match="crc"):
        append(follower, batch_at(0), bytes(damaged))
    with pytest.raises(errors.CorruptMessage, match="no complete batch"):
        append(follower, batch_at(0)[:65])
    assert follower.log.log_end_offset == follower.log.size == 0


def test_a_batch_that_is_cut_off_at_the_end_is_left_out(follower: Store) -> None:
    append(follower, batch_at(0), batch_at(1)[:-1])
    assert follower.log.log_end_offset == 1


def test_a_closed_log_takes_nothing(follower: Store) -> None:
    follower.manager.delete(follower.log.topic_partition)
    with pytest.raises(errors.KafkaStorageError, match="closed"):
        append(follower, batch_at(0))


def test_the_time_index_finds_the_leaders_timestamps(leader: Store, follower: Store) -> None:
    for number in range(200):
        leader.append(values=[b"x" * 100], timestamp=T0 + number)
    copy_all(leader, follower, max_bytes=5000)
    for number in (0, 57, 199):
        found = find_timestamp(follower.log, T0 + number)
        assert found is not None
        assert found.offset == number


# ── producers and transactions ──────────────────────────────────────────────────────────────────────────────


def test_a_follower_that_becomes_the_leader_knows_its_producers(leader: Store, follower: Store) -> None:
    for sequence in range(7):
        leader.append(producer_id=9, sequence=sequence)
    copy_all(leader, follower)
    assert follower.append(producer_id=9, sequence=6).duplicate
    assert follower.append(producer_id=9, sequence=2).base_offset == 2
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        follower.append(producer_id=9, sequence=8)
    assert not follower.append(producer_id=9, sequence=7).duplicate


def test_a_follower_knows_open_and_aborted_transactions(leader: Store, follower: Store) -> None:
    for producer in (1, 2, 3):
        leader.append(producer_id=producer, sequence=0, transactional=True)
    leader.append_own(marker_batch(1, commit=False))
    leader.append_own(marker_batch(2, commit=True))
    copy_all(leader, follower)
    assert follower.log.first_unstable_offset == leader.log.first_unstable_offset == 2
    assert follower.log.aborted_transactions(0, 5) == leader.log.aborted_transactions(0, 5)
    assert len(follower.log.aborted_transactions(0, 5)) == 1
    assert follower.log.last_stable_offset(5) == 2


def test_ended_transactions_do_not_pile_up_in_a_follower(leader: Store, follower: Store) -> None:
    for sequence in range(20):
        leader.append(producer_id=1, sequence=sequence, transactional=True)
        leader.append_own(marker_batch(1, commit=True))
    copy_all(leader, follower)
    follower.log.advance(start_offset=0, high_watermark=40)
    assert follower.log.producers.uncommitted_count == 0


# ── leader epochs ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_that_begins_is_known_before_its_first_record(leader: Store) -> None:
    leader.append(leader_epoch=3)
    leader.log.begin_epoch(5)
    leader.log.begin_epoch(4)
    assert leader.log.latest_epoch == 5
    assert leader.log.end_offset_for_epoch(4) == (3, 1)
    leader.append(leader_epoch=5)
    assert leader.log.epochs.entries == ((3, 0), (5, 1))


def test_kafka_10706_truncation_to_the_end_forgets_an_epoch_without_records(leader: Store) -> None:
    leader.append(leader_epoch=3)
    leader.log.begin_epoch(5)
    leader.log.truncate_to(1, now=T0)
    assert leader.log.latest_epoch == 3
    assert leader.log.log_end_offset == 1
