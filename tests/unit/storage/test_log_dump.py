"""The output of `dump` for each kind of file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import OttlaError
from ottla.records import Compression
from ottla.storage.dump import dump
from unit.storage.log_material import T0, Store, marker_batch, topic_config


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path, config=topic_config(index_interval_bytes=0))
    store.append(values=[b"one", None], keys=[b"k", b"tomb"], producer_id=7, sequence=3, compression=Compression.GZIP)
    store.append(values=[b"\xffraw"], timestamp=T0 + 5, leader_epoch=2)
    store.append(producer_id=8, sequence=0, transactional=True)
    store.append_own(marker_batch(8, commit=False, coordinator_epoch=6))
    store.close()
    return store


def lines(store: Store, name: str, *, records: bool = False, deep: bool = False) -> list[str]:
    return list(dump(store.directory / name, records=records, deep=deep))[1:]


def test_a_log_is_shown_batch_by_batch(store: Store) -> None:
    start, first, second, *_ = lines(store, f"{0:020d}.log")
    assert start == "Log starting offset: 0"
    assert first.startswith("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 3 lastSequence: 4 producerId: 7 ")
    assert "compresscodec: gzip" in first
    assert first.endswith("isvalid: true")
    assert "baseOffset: 2 lastOffset: 2" in second
    assert f"CreateTime: {T0 + 5}" in second


def test_records_are_shown_when_asked_for(store: Store) -> None:
    text = "\n".join(lines(store, f"{0:020d}.log", records=True))
    assert "| offset: 0 " in text
    assert "keySize: 1 valueSize: 3 sequence: 3 headerKeys: [] key: k payload: one" in text
    assert "keySize: 4 valueSize: -1 sequence: 4 headerKeys: [] key: tomb\n" in text
    assert "payload: \\xffraw" in text
    assert "endTxnMarker: ABORT coordinatorEpoch: 6" in text
    assert "payload" not in "\n".join(lines(store, f"{0:020d}.log", deep=True))


def test_damage_is_shown(store: Store) -> None:
    path = store.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data + b"torn")
    text = lines(store, path.name)
    assert "isvalid: false reason: crc" in text[1]
    assert "isvalid: true" in text[2]
    assert "Found 4 invalid bytes at the end" in text[-1]


def test_indexes_are_shown_with_absolute_offsets(store: Store) -> None:
    assert lines(store, f"{0:020d}.index")[0] == "offset: 2 position: " + second_position(store)
    assert lines(store, f"{0:020d}.timeindex") == [f"timestamp: {T0 + 5} offset: 2"]


def second_position(store: Store) -> str:
    return lines(store, f"{0:020d}.log")[2].partition("position: ")[2].partition(" ")[0]


def test_snapshots_epochs_checkpoints_and_aborted_transactions_are_shown(store: Store) -> None:
    snapshot = lines(store, f"{5:020d}.snapshot")
    assert snapshot[0].startswith(
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong."
    )
    assert "firstSequence: 3 lastSequence: 4 lastOffset: 1 offsetDelta: 1" in snapshot[0]
    assert lines(store, "leader-epoch-checkpoint") == ["leaderEpoch: 0 startOffset: 0", "leaderEpoch: 2 startOffset: 2"]
    assert lines(store, f"{0:020d}.txnindex") == [
        "version: 0 producerId: 8 firstOffset: 3 lastOffset: 4 lastStableOffset: 5"
    ]
    path = store.path / "recovery-point-offset-checkpoint"
    assert list(dump(path, records=False, deep=False))[1:] == ["topic: orders partition: 0 offset: 5"]


def test_other_files_are_refused_with_a_list_of_what_can_be_dumped(store: Store) -> None:
    with pytest.raises(OttlaError, match=r"\.timeindex"):
        lines(store, "partition.metadata")
    with pytest.raises(OttlaError, match="there is no file"):
        lines(store, "none.log")


def test_damaged_small_files_say_so(store: Store) -> None:
    path = store.directory / f"{5:020d}.snapshot"
    path.write_bytes(b"x")
    assert "too short (1 bytes)" in lines(store, path.name)[0]
    (store.directory / "leader-epoch-checkpoint").write_text("9\n")
    assert "version" in lines(store, "leader-epoch-checkpoint")[0]
