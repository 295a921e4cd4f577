"""The SQL of a database sink besides the upserts: tables, their columns, and who writes them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.spark.pipelines.databases.connections import DatabaseError
from ottla.spark.pipelines.databases.loading import ATTEMPT
from ottla.spark.pipelines.databases.names import Name, literal, quote
from ottla.spark.pipelines.databases.types import NoSuchType, fits, is_json, kind_of, staged_type, type_of
from ottla.spark.pipelines.declaration import DatabaseFormat
from ottla.spark.pipelines.jdbc.upserts import Target
from ottla.spark.pipelines.keyed import DELETED

#: Postgres cuts off longer names.
_LONGEST_NAME = 63
BATCHES, WRITERS = "ottla_batches", "ottla_writers"


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for one table of one query."""

    form: DatabaseFormat
    table: Name
    query: str
    columns: Mapping[str, str]
    """The columns that the pipeline writes, with Spark's types."""
    keys: Sequence[str] = ()
    sequence: str | None = None
    deletes: bool = False
    overwrites: bool = False

    # ── Tables ────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def batches(self) -> Name:
        return self.table.beside(BATCHES)

    @property
    def writers(self) -> Name:
        return self.table.beside(WRITERS)

    @property
    def stage(self) -> Name:
        """In Postgres, one for each query. Files have a temporary one, which is never seen by others."""
        if self.form == "postgres":
            return self.table.beside(f"ottla_stage_{self.query.replace('-', '')[:12]}")
        return Name("", "ottla_stage")

    def create(self) -> str:
        """Create the table, with the keys as its primary key."""
        columns = [
            f"{quote(name)} {type_of(self.form, kind)}{' NOT NULL' if name in self.keys else ''}"
            for name, kind in self.columns.items()
        ]
        primary = [f"PRIMARY KEY ({', '.join(map(quote, self.keys))})"] if self.keys else []
        return f"CREATE TABLE {self.table} ({', '.join([*columns, *primary])})"

    def create_notes(self) -> list[str]:
        """Create the tables with the batch of each query, and with the query of each sink."""
        query = "query VARCHAR(64) NOT NULL PRIMARY KEY"
        return [
            f"CREATE TABLE IF NOT EXISTS {self.batches} ({query}, batch BIGINT NOT NULL)",
            f"CREATE TABLE IF NOT EXISTS {self.writers} ({query}, pipeline TEXT NOT NULL, sink TEXT NOT NULL, "
            "name TEXT NOT NULL)",
        ]

    def create_stage(self) -> str:
        columns = [f"{quote(name)} {staged_type(self.form, kind)}" for name, kind in self.columns.items()]
        if self.keys:
            columns.append(f"{DELETED} integer")
        if self.form == "postgres":
            return f"CREATE UNLOGGED TABLE {self.stage} ({', '.join([*columns, f'{ATTEMPT} bigint'])})"
        return f"CREATE TEMP TABLE {self.stage} ({', '.join(columns)})"

    # ── Batches ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def last(self) -> str:
        """The last written batch. In Postgres this locks the row, so that nobody else writes a batch meanwhile."""
        end = " FOR UPDATE" if self.form == "postgres" else ""
        return f"SELECT batch FROM {self.batches} WHERE query = {literal(self.query)}{end}"

    def note_first(self) -> str:
        return f"INSERT INTO {self.batches} (query, batch) VALUES ({literal(self.query)}, -1) ON CONFLICT DO NOTHING"

    def lock(self) -> str:
        """Begin to write: from now on, SQLite lets nobody else write."""
        return f"UPDATE {self.batches} SET batch = batch WHERE query = {literal(self.query)}"

    def turn(self) -> str:
        """In Postgres: wait for other writers of the table, because what a merge has compared must not change."""
        # The number of the table: others may name it with its schema.
        return f"SELECT pg_advisory_xact_lock(CAST(CAST(to_regclass({literal(str(self.table))}) AS oid) AS bigint))"

    def note(self, batch: int) -> str:
        return f"UPDATE {self.batches} SET batch = {int(batch)} WHERE query = {literal(self.query)}"

    def moves(self, attempts: Sequence[int], types: Mapping[str, str]) -> list[str]:
        """Move the staged rows to the table. `types` are those of its columns."""
        return [self._with_rows(sql, attempts, types) for sql in self.target(types).moves()]

    def upsert(self, types: Mapping[str, str]) -> str:
        """The upsert alone, without staged rows."""
        return self._with_rows(self.target(types).upsert(), (), types)

    def target(self, types: Mapping[str, str]) -> Target:
        """The moves. Names are as the table has them: SQLite and DuckDB ignore the case."""
        known = {name.lower(): name for name in types}

        def named(name: str) -> str:
            return quote(name if name in types or self.form == "postgres" else known.get(name.lower(), name))

        return Target(
            f"{self.form}:",
            str(self.table),
            "staged" if self.form == "postgres" else str(self.stage),
            [named(name) for name in self.columns],
            [named(name) for name in self.keys],
            f"{named(self.sequence)}{self._collation(types)}" if self.sequence else None,
            deletes=self.deletes,
            overwrites=self.overwrites,
        )

    def _collation(self, types: Mapping[str, str]) -> str:
        """Postgres orders text by the language of the database: the newest row of a batch would be another one."""
        is_text = types.get(self.sequence or "", "").startswith(("text", "character"))
        return ' COLLATE "C"' if self.form == "postgres" and is_text else ""

    def _with_rows(self, sql: str, attempts: Sequence[int], types: Mapping[str, str]) -> str:
        """In Postgres: only rows of tasks that succeeded, as the types of the table."""
        if self.form != "postgres":
            return sql
        columns = [_cast(name, kind, types[name]) for name, kind in self.columns.items()]
        columns += [DELETED] if self.keys else []
        return f"WITH staged AS (SELECT {', '.join(columns)} FROM {self.stage} {self._tried(attempts)}) {sql}"

    def staged(self, attempts: Sequence[int]) -> str:
        """How many rows were staged by tasks that succeeded."""
        return f"SELECT count(*) FROM {self.stage} {self._tried(attempts)}".rstrip()

    def _tried(self, attempts: Sequence[int]) -> str:
        if self.form != "postgres":
            return ""
        return f"WHERE {ATTEMPT} IN ({', '.join(map(str, attempts)) or 'NULL'})"

    def repeated(self, attempts: Sequence[int]) -> str:
        """Keys with more than one staged row."""
        names = ", ".join(map(quote, self.keys))
        return f"SELECT 1 FROM {self.stage} {self._tried(attempts)} GROUP BY {names} HAVING count(*) > 1 LIMIT 1"

    def others(self, pipeline: str, sink: str) -> str:
        """Queries of another checkpoint of the same sink that have written the table."""
        return (
            f"SELECT query FROM {self.writers} WHERE pipeline = {literal(pipeline)} AND sink = {literal(sink)} "
            f"AND name = {literal(self.table.plain)} AND query <> {literal(self.query)}"
        )

    def claim(self, pipeline: str, sink: str) -> list[str]:
        known = ", ".join(map(literal, (self.query, pipeline, sink, self.table.plain)))
        return [
            f"DELETE FROM {self.writers} WHERE query = {literal(self.query)} OR (pipeline = {literal(pipeline)} "
            f"AND sink = {literal(sink)} AND name = {literal(self.table.plain)})",
            f"INSERT INTO {self.writers} (query, pipeline, sink, name) VALUES ({known})",
        ]

    # ── Problems ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_types(self) -> None:
        """Raise DatabaseError if a column has no type or no name in this database."""
        for name, kind in self.columns.items():
            if self.form == "postgres" and len(name.encode()) > _LONGEST_NAME:
                raise DatabaseError(
                    f"table {self.table.plain}: the name of column {name} has more than {_LONGEST_NAME} bytes, and "
                    "Postgres would cut it off: give it another name in a step"
                )
            try:
                type_of(self.form, kind)
            except NoSuchType as error:
                raise DatabaseError(f"table {self.table.plain}: column {name}: {error}") from None

    def check_fits(self, found: Mapping[str, str]) -> None:
        """Raise DatabaseError if a table with these columns cannot keep the rows."""
        by_name = found if self.form == "postgres" else {name.lower(): kind for name, kind in found.items()}
        for name, kind in self.columns.items():
            stored = by_name.get(name if self.form == "postgres" else name.lower())
            out = f'exclude = ["{name}"] in the sink'
            if stored is None:
                add = f"ALTER TABLE {self.table} ADD COLUMN {quote(name)} {type_of(self.form, kind)}"
                raise DatabaseError(
                    f"table {self.table.plain} has no column {name}: run {add}, or leave it out with {out}"
                )
            if not fits(self.form, kind, stored):
                raise DatabaseError(
                    f"table {self.table.plain}: column {name} is {stored}, which does not keep every {kind} of the "
                    f"pipeline: cast it in a step, {self._change(name, kind)}or leave it out with {out}"
                )

    def check_required(self, required: Sequence[str]) -> None:
        """Refuse a table with a column that needs a value and gets none."""
        given = {name.lower() for name in self.columns}
        absent = [name for name in required if name.lower() not in given]
        if absent:
            raise DatabaseError(
                f"table {self.table.plain} needs a value for {', '.join(absent)}, which the input does not have: add "
                f"{'it' if len(absent) == 1 else 'them'} in a step, or give the column a default in the database"
            )

    def _change(self, name: str, kind: str) -> str:
        if self.form == "sqlite":
            return ""
        new = type_of(self.form, kind)
        return (
            f"run ALTER TABLE {self.table} ALTER COLUMN {quote(name)} TYPE {new} USING CAST({quote(name)} AS {new}), "
        )

    def no_index(self) -> str:
        """What to do about a table without a unique index on the keys."""
        index = quote(f"{self.table.table}_{'_'.join(self.keys)}_key"[:60])
        create = f"CREATE UNIQUE INDEX {index} ON {self.table} ({', '.join(map(quote, self.keys))})"
        return (
            f"table {self.table.plain} has no unique index on its keys, which an upsert needs. Remove rows with the "
            f"same keys, if there are any, and then run {create}"
        )


def _cast(name: str, kind: str, stored: str) -> str:
    """Text for a type that Postgres does not convert by itself. Other casts would cut off what is too long."""
    target = stored.removeprefix("enum ")
    if kind_of(kind) not in ("string", "json") or (target not in ("uuid", "json", "jsonb") and target == stored):
        return quote(name)
    return f"CAST({quote(name)} AS {target}) AS {quote(name)}"


def has_json(columns: Mapping[str, str]) -> list[str]:
    """The columns that are stored as JSON text."""
    return [name for name, kind in columns.items() if is_json(kind)]
