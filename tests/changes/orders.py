"""The same changes in random orders must leave the same table: make changes ORDERS=1000.

The statements of the sinks run in a real database: SQLite or DuckDB. Each order has its own batches, and batches and
single changes are repeated. The expected tables are computed without SQL.

    python -m tests.changes.orders --orders 1000 --engine duckdb
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.spark.pipelines.jdbc.upserts import Target

KEYS, TIMES, CHANGES = 6, 12, 60


@dataclass(frozen=True, order=True, slots=True)
class Change:
    """A change of a row. The first fields decide which one wins, like `_version`."""

    key: int
    ts: int
    deleted: bool
    content: str

    @property
    def version(self) -> str:
        """A twin of what the step computes with Spark; tests/spark compares both."""
        return f"{self.ts:016X}{int(self.deleted)}{zlib.crc32(self.content.encode()):016X}"

    @property
    def name(self) -> str | None:
        return None if self.deleted else self.content


def random_changes(rng: random.Random) -> list[Change]:
    """Changes of a few keys with few times: many have the same time, and some are deletes."""
    return [
        Change(rng.randrange(KEYS), rng.randrange(TIMES), rng.random() < 0.25, f"v{number % 40}")
        for number in range(CHANGES)
    ]


def random_batches(changes: Sequence[Change], rng: random.Random) -> Iterator[list[Change]]:
    """All changes in any order, in batches of any size, some of them twice or more."""
    left = [*changes, *rng.sample(changes, rng.randrange(len(changes) // 2))]
    rng.shuffle(left)
    while left:
        size = rng.choice((1, 2, 5, 20, len(left)))
        batch, left = left[:size], left[size:]
        yield from [batch] * rng.choice((1, 1, 1, 2))
        if rng.random() < 0.2:  # an earlier batch comes again, after others
            left += batch[:3]


def newest(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """The table with one row per key."""
    rows = {one.key: one for one in sorted(changes, key=lambda one: one.version)}
    return sorted((one.key, one.ts, one.name, one.deleted, one.version) for one in rows.values())


def versions(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    """The table with all versions: one per key and time, until the next one."""
    kept = {(one.key, one.ts): one for one in sorted(changes, key=lambda one: one.version)}
    times = {key: sorted(ts for other, ts in kept if other == key) for key, _ in kept}
    return sorted(
        (key, ts, one.name, ts, next((later for later in times[key] if later > ts), None), one.deleted, one.version)
        for (key, ts), one in kept.items()
    )


class Table:
    """A table of a database and its staging table, written with the statements of the sinks."""

    def __init__(self, connection: Any, *, history: bool) -> None:
        self._connection = connection
        self._history = history
        valid = ['"valid_from"', '"valid_to"'] if history else []
        columns = ['"id"', '"ts"', '"name"', *valid, '"_deleted"', '"_version"']
        keys = ['"id"', *valid[:1]]
        self._target = Target("jdbc:postgresql:", "main.rows", "main.stage", columns, keys, '"_version"')
        types = {'"name"': "TEXT", '"_version"': "TEXT", '"_deleted"': "BOOLEAN"}
        declared = ", ".join(f"{name} {types.get(name, 'BIGINT')}" for name in columns)
        connection.execute(f"CREATE TABLE main.rows ({declared}, PRIMARY KEY ({', '.join(keys)}))")
        connection.execute(self._target.make_stage())

    def write(self, batch: Sequence[Change]) -> None:
        """One transaction, as for a micro-batch: the highest version of each key first, as Spark picks it."""
        rows = {self._key(one): self._row(one) for one in sorted(batch, key=lambda one: one.version)}
        self._connection.execute("BEGIN")
        self._connection.execute("DELETE FROM main.stage")
        marks = ", ".join("?" * (len(self._target.columns) + 1))
        self._connection.executemany(f"INSERT INTO main.stage VALUES ({marks})", list(rows.values()))
        for sql in self._target.moves():
            self._connection.execute(sql)
        self._connection.execute("COMMIT")

    def _key(self, one: Change) -> tuple[int, ...]:
        return (one.key, one.ts) if self._history else (one.key,)

    def _row(self, one: Change) -> tuple[Any, ...]:
        valid = (one.ts, None) if self._history else ()
        return (one.key, one.ts, one.name, *valid, one.deleted, one.version, 0)

    def rows(self) -> list[tuple[Any, ...]]:
        names = ", ".join(self._target.columns)
        found = self._connection.execute(f"SELECT {names} FROM main.rows").fetchall()
        return sorted((*row[:-2], bool(row[-2]), row[-1]) for row in found)


def connect(engine: str) -> Any:
    if engine == "sqlite":
        return sqlite3.connect(":memory:", isolation_level=None)
    import duckdb

    return duckdb.connect(":memory:")


def check(orders: int, seed: int = 0, engine: str = "sqlite") -> None:
    """Write the same changes in many orders; raises AssertionError with the seed of an order that differs."""
    changes = random_changes(random.Random(seed))
    expected = {False: newest(changes), True: versions(changes)}
    for order in range(orders):
        for history in (False, True):
            connection = connect(engine)
            table = Table(connection, history=history)
            for batch in random_batches(changes, random.Random(f"{seed}-{order}")):
                table.write(batch)
            found = table.rows()
            connection.close()
            assert found == expected[history], f"seed {seed}, order {order}, history {history}: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("sqlite", "duckdb"), default="sqlite")
    args = parser.parse_args()
    check(args.orders, args.seed, args.engine)
    print(f"{args.orders:,} orders of {CHANGES} changes in {args.engine}: one table, one history")


if __name__ == "__main__":
    sys.exit(main())
