"""The journal file: it returns what was appended, cuts off torn lines and reports other damage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.runtime.journal import FileJournal, JournalDamaged


def journal(path: Path) -> FileJournal[Any]:
    return FileJournal(path, lambda record: record, lambda value: value)


def write(path: Path, *records: Any) -> None:
    file = journal(path)
    file.open()
    asyncio.run(_write(file, records))
    file.close()


async def _write(file: FileJournal[Any], records: tuple[Any, ...]) -> None:
    pending = file.committed(file.append(records))
    assert pending is not None
    await pending


def test_records_come_back_in_order(tmp_path: Path) -> None:
    write(tmp_path / "j", 1, "two")
    write(tmp_path / "j", {"three": 3})
    assert journal(tmp_path / "j").open() == [1, "two", {"three": 3}]


def test_a_rewrite_replaces_everything_and_can_be_appended_to(tmp_path: Path) -> None:
    write(tmp_path / "j", 1, 2, 3)
    file = journal(tmp_path / "j")
    file.open()
    file.rewrite([6])
    file.append([7])
    file.close()
    assert journal(tmp_path / "j").open() == [6, 7]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(cut=st.integers(1, 200))
def test_a_torn_tail_loses_only_the_record_that_was_being_written(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    path.unlink(missing_ok=True)
    records = [f"record {i}" for i in range(5)]
    write(path, *records)
    data = path.read_bytes()
    kept = data[: max(0, len(data) - cut)]
    path.write_bytes(kept)
    whole = kept.count(b"\n")
    file = journal(path)
    assert file.open() == records[:whole]
    file.append(["next"])
    file.close()
    assert journal(path).open() == [*records[:whole], "next"]


def test_damage_in_the_middle_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, "one", "two", "three")
    path.write_bytes(path.read_bytes().replace(b"two", b"tw0"))
    with pytest.raises(JournalDamaged, match="line 2"):
        journal(path).open()
