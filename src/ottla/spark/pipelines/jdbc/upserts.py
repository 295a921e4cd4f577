"""The SQL that moves the rows of a batch from the staging table to the real one. No I/O.

With keys, the staging table has one row per key, and in `ottla_deleted` whether it deletes. Databases with their own
upsert use it; the others get the `MERGE` of standard SQL. A row with an older sequence than the stored one changes
nothing. Where the upsert cannot compare sequences itself, older rows are removed from the staging table first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

DELETED = "ottla_deleted"
#: INSERT … ON CONFLICT DO UPDATE, and INSERT … ON DUPLICATE KEY UPDATE. All others: MERGE.
ON_CONFLICT = ("jdbc:postgresql:", "jdbc:sqlite:")
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

    def moves(self) -> list[str]:
        """The statements of a batch, for one transaction."""
        if not self.keys:
            return [f"INSERT INTO {self.table} ({self._names}) SELECT {self._names} FROM {self.stage}"]
        return list(self._upsert())

    def upsert(self) -> str:
        """The last one of `moves`."""
        return self.moves()[-1]

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
        newer = f" AND NOT ({_older(f'{stage}.{self.sequence}', f'{table}.{self.sequence}')})" if self.sequence else ""
        yield f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {stage} WHERE {same} AND {stage}.{DELETED} = 1{newer})"
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
