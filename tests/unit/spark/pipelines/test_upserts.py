"""The SQL of upserts, run in SQLite, whose upsert is also that of Postgres. `make compat-postgres` runs the others."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator

import pytest

from ottla.spark.pipelines.backfill.plan import Range
from ottla.spark.pipelines.jdbc.drivers import missing
from ottla.spark.pipelines.jdbc.upserts import Target

Row = tuple[int, int | None, str, int]
"""The id, the sequence, the name, and whether it deletes."""
SQLITE = "jdbc:sqlite:shop.db"


def target(url: str = SQLITE, sequence: str | None = '"seq"') -> Target:
    return Target(url, "main.orders", "main.stage", ['"id"', '"seq"', '"name"'], ['"id"'], sequence)


@pytest.fixture
def base() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE orders ("id" INT PRIMARY KEY, "seq" INT, "name" TEXT, more TEXT)')
    connection.execute(target().make_stage())
    yield connection
    connection.close()


def apply(base: sqlite3.Connection, rows: Iterable[Row], one: Target) -> None:
    base.execute("DELETE FROM stage")
    base.executemany("INSERT INTO stage VALUES (?, ?, ?, ?)", rows)
    for sql in one.moves():
        base.execute(sql)


def stored(base: sqlite3.Connection) -> list[tuple[object, ...]]:
    return base.execute("SELECT id, seq, name, more FROM orders ORDER BY id").fetchall()


def test_rows_are_inserted_replaced_and_deleted(base: sqlite3.Connection) -> None:
    apply(base, [(1, 1, "a", 0), (2, 1, "b", 0), (3, 1, "c", 1)], target())
    base.execute("UPDATE orders SET more = 'kept'")
    apply(base, [(1, 2, "A", 0), (2, 2, "", 1), (4, 1, "d", 0)], target())
    assert stored(base) == [(1, 2, "A", "kept"), (4, 1, "d", None)]


def test_an_older_row_changes_nothing(base: sqlite3.Connection) -> None:
    apply(base, [(1, 5, "new", 0), (2, 5, "new", 0), (3, None, "no sequence", 0)], target())
    apply(base, [(1, 4, "old", 0), (2, 4, "old", 1), (3, 1, "newer", 0)], target())
    assert [row[:3] for row in stored(base)] == [(1, 5, "new"), (2, 5, "new"), (3, 1, "newer")]
    apply(base, [(1, None, "unknown", 0), (2, 5, "same", 0), (3, None, "unknown", 1)], target())
    assert [row[:3] for row in stored(base)] == [(1, 5, "new"), (2, 5, "same"), (3, 1, "newer")]
    apply(base, [(1, 4, "old", 0)], target(sequence=None))
    assert stored(base)[0][:3] == (1, 4, "old"), "without a sequence, the later row counts"


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_batches_leaves_the_newest_rows(base: sqlite3.Connection, seed: int) -> None:
    rng = random.Random(seed)
    newest: dict[int, tuple[int, str]] = {}
    for number in range(30):
        batch = [(key, rng.randrange(50), f"{number}", 0) for key in rng.sample(range(8), rng.randrange(1, 8))]
        for key, sequence, name, _ in batch:
            if key not in newest or sequence >= newest[key][0]:
                newest[key] = (sequence, name)
        for _ in range(rng.choice((1, 1, 2))):  # a repeated batch changes nothing
            apply(base, batch, target())
        assert {row[0]: row[1:3] for row in stored(base)} == newest


def test_a_table_of_keys_only_ignores_known_rows(base: sqlite3.Connection) -> None:
    base.execute("CREATE TABLE seen (id INT PRIMARY KEY)")
    one = Target(SQLITE, "seen", "stage", ["id"], ["id"])
    for _ in range(2):
        apply(base, [(1, 1, "", 0), (2, 1, "", 1)], one)
    assert base.execute("SELECT id FROM seen").fetchall() == [(1,)]


def test_the_advised_index_allows_upserts(base: sqlite3.Connection) -> None:
    base.execute('CREATE TABLE plain ("id" INT, "seq" INT, "name" TEXT)')
    one = Target(SQLITE, "plain", "stage", ['"id"', '"seq"', '"name"'], ['"id"', '"seq"'])
    with pytest.raises(sqlite3.OperationalError, match="ON CONFLICT clause does not match"):
        base.execute(one.upsert())
    assert one.make_index() == 'CREATE UNIQUE INDEX plain_id_seq_key ON plain ("id", "seq")'
    base.execute(one.make_index())
    base.execute(one.upsert())


def test_rows_of_some_records_are_removed(base: sqlite3.Connection) -> None:
    base.execute("CREATE TABLE log (_topic TEXT, _partition INT, _offset INT)")
    places = [("a", 0, one) for one in range(5)] + [("A", 0, 2), ("b", 0, 2), ("a", 1, 2), (None, None, None)]
    base.executemany("INSERT INTO log VALUES (?, ?, ?)", places)
    one = Target(SQLITE, "log", "stage", ["_topic", "_partition", "_offset"])
    for sql in one.removes([Range("a", 0, 1, 4), Range("b", 0, 0, 9), Range("it's", 0, 0, 9)]):
        base.execute(sql)
    left = base.execute("SELECT * FROM log").fetchall()
    assert left == [("a", 0, 0), ("a", 0, 4), ("A", 0, 2), ("a", 1, 2), (None, None, None)]


@pytest.mark.parametrize(
    ("url", "start"),
    [
        ("jdbc:postgresql://h/db", "INSERT INTO main.orders AS target"),
        ("jdbc:mariadb://h/db", "INSERT INTO main.orders ("),
        ("jdbc:derby:memory:x", 'MERGE INTO main.orders target USING main.stage staged ON (target."id" = staged'),
        ("jdbc:oracle:thin:@h", "MERGE INTO main.orders target"),
    ],
)
def test_databases_use_their_own_upsert(url: str, start: str) -> None:
    assert target(url).upsert().startswith(start)


def test_a_missing_driver_is_told_with_its_package() -> None:
    told = missing("jdbc:postgresql://host/db", "org.postgresql.Driver")
    assert told.startswith(
        "the JDBC driver org.postgresql.Driver for jdbc:postgresql is missing: set spark.jars.packages"
    )
    assert '"org.postgresql:postgresql:42.7.14" under [spark]' in told
