"""The SQL that moves the rows of a batch from the staging table to the real one. No I/O.

With keys, the staging table has one row per key, and in `ottla_deleted` whether it deletes. Databases with their own
upsert use it; the others get the `MERGE` of standard SQL. A row with an older sequence than the stored one changes
nothing. Where the upsert cannot compare sequences itself, older rows are removed from the staging table first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.pipelines.changes.history import close_versions, is_history
from ottla.spark.pipelines.declaration import ORIGIN, VALID_FROM, VALID_TO
from ottla.spark.pipelines.keyed import DELETED

if TYPE_CHECKING:
    from ottla.spark.pipelines.backfill.plan import Range

#: INSERT … ON CONFLICT DO UPDATE, and INSERT … ON DUPLICATE KEY UPDATE. All others: MERGE.
ON_CONFLICT = ("jdbc:postgresql:", "jdbc:sqlite:", "postgres:", "sqlite:", "duckdb:")
ON_DUPLICATE = ("jdbc:mysql:", "jdbc:mariadb:")


@dataclass(frozen=True, slots=True)
class Target:
    """A table, its staging table and their columns; all names are quoted."""

    url: str
    table: str
    stage: str
    columns: Sequence[str]
    keys: Sequence[str] = ()
    sequence: str | None = None
    deletes: bool = True
    """Whether staged rows may delete."""
    overwrites: bool = False
    """Whether a batch replaces all rows."""

    def moves(self) -> list[str]:
        """The statements of a batch, for one transaction."""
        if not self.keys:
            insert = f"INSERT INTO {self.table} ({self._names}) SELECT {self._names} FROM {self.stage}"
            return [f"DELETE FROM {self.table}", insert] if self.overwrites else [insert]
        return [*self._upsert(), *self._closes()]

    def upsert(self) -> str:
        """The statement that inserts or replaces rows."""
        return list(self._upsert())[-1]

    def removes(self, ranges: Iterable[Range]) -> Iterator[str]:
        """The statements that remove the rows of some records, which the columns of the origin tell."""
        by_name = {name.strip('"`[]').lower(): name for name in self.columns}
        topic, partition, offset = (by_name[name] for name in ORIGIN[:3])
        if self.url.startswith(ON_DUPLICATE):
            topic = f"CAST({topic} AS BINARY)"  # by letters, also in upper and lower case
        elif not self.url.startswith(ON_CONFLICT):
            topic = f"CAST({topic} AS VARCHAR(255))"  # unlimited text cannot be compared
        for one in ranges:
            text = one.topic.replace("'", "''")
            yield (
                f"DELETE FROM {self.table} WHERE {topic} = '{text}' AND {partition} = {one.partition} "
                f"AND {offset} >= {one.start} AND {offset} < {one.end}"
            )

    def _closes(self) -> Iterator[str]:
        """Versions of a row end where the next one begins."""
        if is_history(self.columns):
            by_name = {name.strip('"`[]').lower(): name for name in self.columns}
            first, end = by_name[VALID_FROM], by_name[VALID_TO]
            yield close_versions(self.table, self.stage, [key for key in self.keys if key != first], first, end)

    def make_stage(self) -> str:
        """Create the staging table with the types of the table. The outer join makes all columns nullable."""
        flag = f", 0 AS {DELETED}" if self.keys else ""
        columns = ", ".join(f"staged.{name}" for name in self.columns) + flag
        joined = f"FROM {self.table} target LEFT JOIN {self.table} staged ON 1 = 0"
        if self.url.startswith("jdbc:sqlserver:"):
            return f"SELECT {columns} INTO {self.stage} {joined} WHERE 1 = 0"
        end = "WITH NO DATA" if self.url.startswith("jdbc:derby:") else "WHERE 1 = 0"
        return f"CREATE TABLE {self.stage} AS SELECT {columns} {joined} {end}"

    def make_index(self) -> str:
        """The statement that a table without a unique index needs; it works in all databases."""
        plain = "_".join(name.strip('"`[]') for name in self.keys)
        name = f"{self.table.rpartition('.')[2].strip(chr(34))}_{plain}_key"[:60]
        return f"CREATE UNIQUE INDEX {name} ON {self.table} ({', '.join(self.keys)})"

    def repeated(self) -> str:
        """A query for keys with more than one staged row."""
        names = ", ".join(self.keys)
        return f"SELECT {names} FROM {self.stage} GROUP BY {names} HAVING COUNT(*) > 1"

    @property
    def _names(self) -> str:
        return ", ".join(self.columns)

    @property
    def _others(self) -> list[str]:
        return [name for name in self.columns if name not in self.keys]

    def _upsert(self) -> Iterator[str]:
        table, stage = self.table, self.stage
        same = " AND ".join(f"{stage}.{key} = {table}.{key}" for key in self.keys)
        native = self.url.startswith(ON_CONFLICT)
        if self.sequence is not None and not native:
            older = _older(f"{stage}.{self.sequence}", f"{table}.{self.sequence}")
            yield f"DELETE FROM {stage} WHERE EXISTS (SELECT 1 FROM {table} WHERE {same} AND {older})"
        gone = f"{stage}.{DELETED} = 1"
        newer = f" AND NOT ({_older(f'{stage}.{self.sequence}', f'{table}.{self.sequence}')})" if self.sequence else ""
        if self.deletes:
            yield f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {stage} WHERE {same} AND {gone}{newer})"
        rows = f"({self._names}) SELECT {self._names} FROM {stage} WHERE {DELETED} = 0"
        if native:
            yield f"INSERT INTO {table} AS target {rows} ON CONFLICT ({', '.join(self.keys)}) DO {self._on_conflict()}"
        elif self.url.startswith(ON_DUPLICATE):
            sets = ", ".join(f"{name} = VALUES({name})" for name in self._others or self.keys)
            yield f"INSERT INTO {table} {rows} ON DUPLICATE KEY UPDATE {sets}"
        else:
            yield f"DELETE FROM {stage} WHERE {DELETED} = 1"
            yield self._merge()

    def _on_conflict(self) -> str:
        if not self._others:
            return "NOTHING"
        sets = ", ".join(f"{name} = excluded.{name}" for name in self._others)
        if self.sequence is None:
            return f"UPDATE SET {sets}"
        return f"UPDATE SET {sets} WHERE NOT ({_older(f'excluded.{self.sequence}', f'target.{self.sequence}')})"

    def _merge(self) -> str:
        same = " AND ".join(f"target.{key} = staged.{key}" for key in self.keys)
        sets = ", ".join(f"{name} = staged.{name}" for name in self._others)
        values = ", ".join(f"staged.{name}" for name in self.columns)
        update = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""
        end = ";" if self.url.startswith("jdbc:sqlserver:") else ""
        return (
            f"MERGE INTO {self.table} target USING {self.stage} staged ON ({same}) {update}"
            f"WHEN NOT MATCHED THEN INSERT ({self._names}) VALUES ({values}){end}"
        )


def _older(new: str, stored: str) -> str:
    """Whether a sequence is older than the stored one; NULL is older than everything else.

    The condition itself must not be NULL, so that it can be negated.
    """
    return f"{stored} IS NOT NULL AND ({new} IS NULL OR {new} < {stored})"
