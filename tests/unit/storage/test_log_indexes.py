"""Sparse indexes, leader epochs and file names, compared with plain lists."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.storage.epochs import LeaderEpochCache
from ottla.storage.files import (
    DELETE_DIRECTORY,
    file_name,
    parse_directory_name,
    parse_file_name,
    retired_directory_name,
)
from ottla.storage.index import DamagedIndex, OffsetIndex, TimeIndex
from ottla.types import TopicPartition

BASE = 1000

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def growing(largest: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(1, largest), min_size=0, max_size=1200)


@quick
@given(steps=growing(50), written=st.integers(0, 1200), probes=st.lists(st.integers(0, 70_000), max_size=20))
def test_the_offset_index_finds_the_last_entry_at_or_before(
    tmp_path: Path, steps: list[int], written: int, probes: list[int]
) -> None:
    index = OffsetIndex(str(tmp_path), BASE)
    entries: list[tuple[int, int]] = []
    for number, step in enumerate(steps):
        last = entries[-1] if entries else (BASE, 0)
        entries.append((last[0] + step, last[1] + step * 100))
        index.append(*entries[-1])
        if number == written:
            index.write_out()
    for probe in probes:
        wanted = max((p for o, p in entries if o <= BASE + probe), default=0)
        assert index.lookup(BASE + probe) == wanted
        assert index.last_position_up_to(probe * 100) == max((p for _, p in entries if p <= probe * 100), default=0)
    index.write_out()
    assert Path(index.path).stat().st_size == 8 * len(entries)
    again = OffsetIndex(str(tmp_path), BASE)
    again.set_file_size(8 * len(entries))
    assert again.last_position == (entries[-1][1] if entries else 0)
    again.truncate_to_position(5000)
    kept = [entry for entry in entries if entry[1] < 5000]
    assert again.count == len(kept)
    assert again.lookup(10**9) == (kept[-1][1] if kept else 0)


@quick
@given(times=st.lists(st.integers(0, 2000), max_size=800), probes=st.lists(st.integers(0, 2100), max_size=20))
def test_the_time_index_never_skips_a_newer_record(tmp_path: Path, times: list[int], probes: list[int]) -> None:
    index = TimeIndex(str(tmp_path), BASE)
    newest, offset_of_newest = -1, BASE
    for number, time in enumerate(times):
        if time > newest:
            newest, offset_of_newest = time, BASE + number
        index.maybe_append(newest, offset_of_newest)
    for probe in probes:
        first = next((BASE + n for n, time in enumerate(times) if time >= probe), None)
        found = index.lookup(probe)
        assert first is None or found <= first
    assert index.load()[0] == newest


def test_an_index_that_is_impossible_is_noticed(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path), BASE)
    index.append(BASE + 5, 100)
    index.check(101)
    with pytest.raises(DamagedIndex, match="last entry"):
        index.check(100)
    index.write_out()
    Path(index.path).write_bytes(b"")
    with pytest.raises(DamagedIndex, match="shorter"):
        index.lookup(BASE + 5)


def test_the_bytes_of_the_indexes_are_kafkas(tmp_path: Path) -> None:
    offsets, times = OffsetIndex(str(tmp_path), BASE), TimeIndex(str(tmp_path), BASE)
    offsets.append(BASE + 7, 4242)
    times.maybe_append(1_700_000_000_000, BASE + 7)
    times.maybe_append(1_700_000_000_000, BASE + 8)
    offsets.write_out()
    times.write_out()
    assert Path(offsets.path).read_bytes() == (7).to_bytes(4, "big") + (4242).to_bytes(4, "big")
    assert Path(times.path).read_bytes() == (1_700_000_000_000).to_bytes(8, "big") + (7).to_bytes(4, "big")


@quick
@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10)), max_size=30),
    cut=st.tuples(st.integers(0, 150), st.integers(0, 150)),
)
def test_leader_epochs_against_a_list_of_all_offsets(
    tmp_path: Path, steps: list[tuple[int, int]], cut: tuple[int, int]
) -> None:
    cache = LeaderEpochCache(str(tmp_path))
    written: list[int] = []
    epoch = 0
    for bump, count in steps:
        epoch += bump
        if count:
            cache.assign(epoch, len(written))
            written += [epoch] * count
    start, end = sorted(cut)
    cache.truncate_from_end(end)
    cache.truncate_from_start(start)
    del written[end:]
    kept = written[start:]
    for offset, wrote in enumerate(kept, start):
        assert cache.epoch_of(offset) == wrote
    for asked in range(epoch + 2):
        found, end_offset = cache.end_offset_for_epoch(asked, len(written))
        older = [offset for offset, wrote in enumerate(kept, start) if wrote <= asked]
        if kept and asked <= max(kept) and older:
            assert (found, end_offset) == (kept[older[-1] - start], older[-1] + 1)
    if kept:
        assert cache.latest == kept[-1]
        assert cache.end_offset_for_epoch(max(kept) + 1, len(written)) == (-1, -1)


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".snapshot"]), st.sampled_from(["", ".swap"]))
def test_file_names_are_read_as_they_are_written(offset: int, suffix: str, state: str) -> None:
    assert parse_file_name(file_name(offset, suffix) + state) == (offset, suffix, state)


@pytest.mark.parametrize(
    "name", ["5.log", "leader-epoch-checkpoint", "0" * 20, "0" * 20 + ".log.old", "a" * 20 + ".log"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert parse_file_name(name) is None


def test_directories_of_partitions() -> None:
    assert parse_directory_name("a-b-12") == TopicPartition("a-b", 12)
    assert parse_directory_name("no-partition") is None
    assert parse_directory_name(retired_directory_name(TopicPartition("t", 0), DELETE_DIRECTORY)) is None
    assert len(retired_directory_name(TopicPartition("t" * 249, 123456), DELETE_DIRECTORY)) <= 255
