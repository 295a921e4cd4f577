"""Compact the small files of a table, and delete what no version of it needs.

    optimize(open_lake(pipeline, sink), vacuum_hours=168)

Both are safe while pipelines write: compaction is a commit like any other, and the writer that comes second tries
again. Vacuum keeps files that are younger than its retention, so that it leaves a batch in progress alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.lakes.contract import Conflict, LakeError
from ottla.spark.pipelines.lakes.delta import DeltaLake
from ottla.spark.pipelines.lakes.iceberg import DATA_PATH, IcebergLake

if TYPE_CHECKING:
    import pyarrow as pa

#: Files become about this large. They are read into memory one group at a time.
TARGET_BYTES = 128 << 20
#: Vacuum with less would delete files of a batch that is being written.
LEAST_HOURS = 1
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Optimized:
    """What was done."""

    table: str
    files_before: int
    files_after: int
    deleted: int | None
    """Files that vacuum has deleted; None without vacuum."""


def optimize(
    lake: DeltaLake | IcebergLake, *, target_bytes: int = TARGET_BYTES, vacuum_hours: int | None = None
) -> Optimized:
    """Compact a table, and with `vacuum_hours` delete files that it has not needed for so long."""
    if lake.columns() is None:
        raise LakeError(f"{lake.what} does not exist")
    if vacuum_hours is not None and vacuum_hours < LEAST_HOURS:
        raise LakeError(
            f"vacuum needs a retention of at least {LEAST_HOURS} hour: with less, it could delete files of a batch "
            "that is being written"
        )
    before = len(lake.candidates({}))
    if isinstance(lake, DeltaLake):
        deleted = _optimize_delta(lake, target_bytes, vacuum_hours)
    else:
        _compact_iceberg(lake, target_bytes)
        deleted = None if vacuum_hours is None else _vacuum_iceberg(lake, vacuum_hours)
    lake.refresh()
    return Optimized(lake.what, before, len(lake.candidates({})), deleted)


def _repeated(lake: DeltaLake | IcebergLake, compact: Callable[[], None]) -> None:
    """Compact what the table has. If somebody else has changed it in the meantime, take the files that it has now."""
    for _ in range(_ATTEMPTS):
        try:
            return compact()
        except Conflict:
            lake.refresh()
    raise LakeError(f"{lake.what}: other writers were faster {_ATTEMPTS} times. Try again when less is written")


def _optimize_delta(lake: DeltaLake, target_bytes: int, vacuum_hours: int | None) -> int | None:
    from deltalake.exceptions import CommitFailedError

    def compact() -> None:
        with lake.secrets.told(f"cannot compact {lake.what}", Conflict, CommitFailedError):
            lake.table.optimize.compact(target_size=target_bytes)

    _repeated(lake, compact)
    if vacuum_hours is None:
        return None
    lake.refresh()
    with lake.secrets.told(f"cannot vacuum {lake.what}"):
        found = lake.table.vacuum(vacuum_hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(found)


# ── Iceberg: pyiceberg has no compaction ─────────────────────────────────────────────────────────────────────────────


def _compact_iceberg(lake: IcebergLake, target_bytes: int) -> None:
    def compact() -> None:
        for group in groups(lake.candidates({}), target_bytes):
            _rewrite_group(lake, group)

    _repeated(lake, compact)


def groups(tasks: Sequence[Any], target_bytes: int) -> Iterator[list[Any]]:
    """Files to write as one: small ones of the same partition, and those with deleted rows."""
    by_partition: dict[str, list[Any]] = {}
    for one in tasks:
        if one.file.file_size_in_bytes < target_bytes // 2 or one.delete_files:
            by_partition.setdefault(f"{one.file.spec_id} {one.file.partition}", []).append(one)
    for found in by_partition.values():
        group: list[Any] = []
        size = 0
        for one in sorted(found, key=lambda one: one.file.file_size_in_bytes):
            if group and size + one.file.file_size_in_bytes > target_bytes:
                yield group
                group, size = [], 0
            group.append(one)
            size += one.file.file_size_in_bytes
        if len(group) > 1 or any(one.delete_files for one in group):
            yield group


def _rewrite_group(lake: IcebergLake, group: Sequence[Any]) -> None:
    import pyarrow as pa

    files = lake.files()
    batches: list[pa.RecordBatch] = [batch for one in group for batch in files.read(one)]
    added = files.write(pa.Table.from_batches(batches, files.schema)) if batches else []
    try:
        lake.rewrite([one.file for one in group], added)
    except Conflict:  # after other errors, the files may be part of the table: the answer of the catalog was lost
        files.discard(added)
        raise


def _vacuum_iceberg(lake: IcebergLake, hours: int) -> int:
    """Forget old snapshots, and delete the files that only they had, and data files that no snapshot has."""
    until = datetime.now(UTC) - timedelta(hours=hours)
    with lake.secrets.told(f"cannot vacuum {lake.what}"):
        before = {*_referenced(lake)}
        lake.table.maintenance.expire_snapshots().older_than(until).commit()
        lake.refresh()
        io, now = lake.table.io, {*_referenced(lake)}
        expired = before - now
        for location in expired:
            io.delete(location)
        return len(expired) + _delete_orphans(lake, now, until)


def _delete_orphans(lake: IcebergLake, known: Collection[str], until: datetime) -> int:
    """Delete old files in the data directory of a table that are not part of it."""
    from pyarrow.fs import FileSelector, FileType

    io, table = lake.table.io, lake.table
    where = table.properties.get(DATA_PATH, f"{table.location()}/data")
    if not where.startswith(f"{table.location().rstrip('/')}/"):
        return 0  # other tables may have their files there, too
    scheme, netloc, root = io.parse_location(where, io.properties)
    system = io.fs_by_scheme(scheme, netloc)
    kept = {io.parse_location(one, io.properties)[2] for one in known}
    found = system.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
    gone = [one.path for one in found if one.type == FileType.File and one.path not in kept and one.mtime < until]
    for path in gone:
        system.delete_file(path)
    return len(gone)


def _referenced(lake: IcebergLake) -> Iterator[str]:
    """The files of all snapshots."""
    table = lake.table
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file.file_path
