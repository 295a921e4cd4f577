"""Statements, types and connections of database sinks, in SQLite and DuckDB, without Spark."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import adbc_driver_sqlite.dbapi
import duckdb
import pyarrow as pa
import pytest

from ottla.errors import ConfigError
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.databases import connections
from ottla.spark.pipelines.databases.connections import DatabaseError, Place, opened, told
from ottla.spark.pipelines.databases.names import Name
from ottla.spark.pipelines.databases.sink import place_of
from ottla.spark.pipelines.databases.statements import Statements
from ottla.spark.pipelines.databases.tables import columns_of_table, read_columns, required_columns
from ottla.spark.pipelines.databases.types import NoSuchType, fits, type_of
from ottla.spark.pipelines.declaration import DatabaseFormat, DatabaseSink, Pipeline, Source
from ottla.spark.pipelines.keyed import columns_of
from ottla.spark.pipelines.lineage.datasets import of_sink
from ottla.spark.pipelines.loading import load

Row = tuple[str, int | None, str, int]
"""The id, the sequence, the name, and whether it deletes."""
COLUMNS = {"id": "string", "seq": "bigint", "name": "string"}
QUERY = "5c1cf2a0-6a0e-4a2f-9d6e-1f2d3c4b5a69"


@pytest.fixture(params=["sqlite", "duckdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, str(tmp_path / "new" / "shop.db"))


def upserts(form: DatabaseFormat, sequence: str | None = "seq") -> Statements:
    return Statements(form, Name.of("orders"), QUERY, COLUMNS, ["id"], sequence, deletes=True)


def made(place: Place, sql: Statements) -> dict[str, str]:
    with opened(place) as connection, connection.transaction():
        for statement in (sql.create(), *sql.create_notes(), sql.note_first()):
            connection.run(statement)
        return columns_of_table(connection, sql.table) or {}


def apply(place: Place, rows: Iterable[Row], sql: Statements, types: dict[str, str], batch: int = 0) -> None:
    data = pa.table(
        dict(zip(("id", "seq", "name", "ottla_deleted"), map(list, zip(*rows, strict=True)), strict=True)),
        schema=pa.schema([("id", "string"), ("seq", "int64"), ("name", "string"), ("ottla_deleted", "int32")]),
    )
    with opened(place) as connection:
        with connection.transaction():
            connection.run(sql.create_stage())
            connection.ingest(sql.stage, data, temporary=True)
        with connection.transaction():
            connection.run(sql.lock())
            assert connection.rows(sql.staged(())) == [(data.num_rows,)]
            for statement in (*sql.moves((), types), sql.note(batch)):
                connection.run(statement)


def stored(place: Place) -> list[tuple[object, ...]]:
    with opened(place) as connection, connection.transaction():
        return connection.rows("SELECT id, seq, name FROM orders ORDER BY id")


def test_rows_are_inserted_replaced_and_deleted(place: Place) -> None:
    sql = upserts(place.form)
    types = made(place, sql)
    apply(place, [("1", 5, "a", 0), ("2", 5, "b", 0), ("3", 1, "c", 0), ("4", 1, "d", 1)], sql, types)
    apply(place, [("1", 4, "old", 0), ("2", 4, "old", 1), ("3", 2, "", 1), ("5", None, "e", 0)], sql, types, 7)
    assert stored(place) == [("1", 5, "a"), ("2", 5, "b"), ("5", None, "e")]
    with opened(place) as connection, connection.transaction():
        assert connection.rows(sql.last()) == [(7,)]
    # Names in another case are the same column here.
    with opened(place) as connection, connection.transaction():
        connection.run("ALTER TABLE orders RENAME COLUMN name TO NAME")
        types = columns_of_table(connection, sql.table) or {}
    apply(place, [("1", 6, "new", 0)], sql, types)
    assert stored(place)[0] == ("1", 6, "new")


@pytest.mark.parametrize("seed", range(3))
def test_any_changes_leave_the_newest_rows(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    sql = upserts(place.form)
    types, newest = made(place, sql), dict[str, tuple[int, str]]()
    for batch in range(6):
        rows: dict[str, Row] = {}
        for number in range(chance.randrange(1, 9)):
            key, seq, gone = f"k{chance.randrange(5)}", chance.randrange(50), int(chance.random() < 0.2)
            if key not in rows:
                rows[key] = (key, seq, f"{batch}.{number}", gone)
        apply(place, rows.values(), sql, types, batch)
        for key, seq, name, gone in rows.values():
            assert seq is not None
            if key not in newest or seq >= newest[key][0]:
                newest.pop(key, None)
                newest |= {} if gone else {key: (seq, name)}
    assert stored(place) == sorted((key, *one) for key, one in newest.items())


def test_a_failed_batch_leaves_nothing(place: Place) -> None:
    sql = Statements(place.form, Name.of("orders"), QUERY, COLUMNS)
    types = made(place, sql)
    with opened(place) as connection:
        with connection.transaction():
            connection.run(sql.create_stage())
            connection.ingest(sql.stage, pa.table({"id": ["1"], "seq": [1], "name": ["a"]}), temporary=True)
        statements = [*sql.moves((), types), sql.note(3), "DELETE FROM nowhere"]
        with pytest.raises(DatabaseError, match="nowhere"), connection.transaction():
            list(map(connection.run, statements))
    assert stored(place) == []
    with opened(place) as connection, connection.transaction():
        assert connection.rows(sql.last()) == [(-1,)]
        assert columns_of_table(connection, sql.stage) is None
    known, _ = read_columns(place, Name.of("orders"), ("nope",))
    assert known == ["id", "seq", "name"]


def test_a_table_without_an_index_is_told(place: Place) -> None:
    sql = upserts(place.form)
    types = made(place, Statements(place.form, Name.of("orders"), QUERY, COLUMNS))
    with pytest.raises(DatabaseError, match=r"ON CONFLICT clause does not match|not referenced by a UNIQUE"):
        apply(place, [("1", 1, "a", 0)], sql, types)
    advice = sql.no_index().partition("then run ")[2]
    with opened(place) as connection, connection.transaction():
        connection.run(advice)
    apply(place, [("1", 1, "a", 0)], sql, types)
    assert stored(place) == [("1", 1, "a")]


def test_columns_that_do_not_fit_are_told(place: Place) -> None:
    sql = Statements(place.form, Name.of("orders"), QUERY, {**COLUMNS, "total": "double"})
    made(place, Statements(place.form, Name.of("orders"), QUERY, COLUMNS))

    def told() -> str:
        with opened(place) as connection, connection.transaction():
            found = columns_of_table(connection, Name.of("orders")) or {}
        with pytest.raises(DatabaseError) as caught:
            sql.check_fits(found)
        return str(caught.value)

    text = told()
    assert text.startswith("table orders has no column total: run ALTER TABLE")
    assert 'or leave it out with exclude = ["total"] in the sink' in text
    with opened(place) as connection, connection.transaction():
        connection.run(text.partition(": run ")[2].partition(", or leave")[0])
        sql.check_fits(columns_of_table(connection, Name.of("orders")) or {})
        connection.run("ALTER TABLE orders DROP COLUMN total")
        connection.run("ALTER TABLE orders ADD COLUMN total INTEGER")
    text = told()
    assert "column total is INTEGER, which does not keep every double of the pipeline" in text
    if place.form == "duckdb":
        with opened(place) as connection, connection.transaction():
            connection.run(text.partition("run ")[2].partition(", or leave")[0])
            sql.check_fits(columns_of_table(connection, Name.of("orders")) or {})


def test_a_column_that_needs_a_value_is_told(place: Place) -> None:
    sql = upserts(place.form)
    with opened(place) as connection, connection.transaction():
        more = "note TEXT DEFAULT 'none' NOT NULL, must TEXT NOT NULL"
        connection.run(f"CREATE TABLE orders (ID TEXT NOT NULL PRIMARY KEY, seq BIGINT, name TEXT, {more})")
        required = required_columns(connection, sql.table)
        with pytest.raises(DatabaseError, match="table orders needs a value for must, which the input does not have"):
            sql.check_required(required)
        sql.check_required([name for name in required if name != "must"])
        connection.run("CREATE TABLE limited (id TEXT NOT NULL UNIQUE, name TEXT CHECK (length(name) < 3))")
    for values, message in (
        ("NULL, 'x'", "NOT NULL constraint failed.* Remove such rows with a step, or set require"),
        ("'1', 'long'", "CHECK constraint failed.* Remove such rows with a step, or set require"),
        ("'1', 'a'), ('1', 'b'", "Set keys in the sink to replace rows"),
    ):
        with (
            opened(place) as connection,
            pytest.raises(DatabaseError, match=message) as caught,
            connection.transaction(),
        ):
            connection.run(f"INSERT INTO limited VALUES ({values})")
        assert "INTEGRITY" not in str(caught.value)


def test_another_checkpoint_of_the_same_sink_is_known(place: Place) -> None:
    one = Statements(place.form, Name.of("orders"), QUERY, COLUMNS)
    two = Statements(place.form, Name.of("orders"), QUERY.replace("5", "6"), COLUMNS)
    made(place, one)
    with opened(place) as connection, connection.transaction():
        for statement in [*one.claim("it's", "table"), *one.claim("it's", "table")]:
            connection.run(statement)
        assert connection.rows(one.others("it's", "table")) == []
        assert connection.rows(two.others("it's", "table")) == [(QUERY,)]
        assert connection.rows(two.others("it's", "other")) == []


def test_types() -> None:
    assert [type_of("postgres", kind) for kind in ("tinyint", "array<int>", "timestamp_ntz", "decimal(38,18)")] == [
        "smallint",
        "jsonb",
        "timestamp without time zone",
        "numeric(38,18)",
    ]
    for form, kind, column, fitting in (
        ("postgres", "string", "character varying(20)", True),
        ("postgres", "string", "enum mood", True),
        ("postgres", "string", "integer", False),
        ("postgres", "double", "integer", False),
        ("postgres", "decimal(10,2)", "numeric(10,1)", False),
        ("postgres", "decimal(10,2)", "numeric(12,2)", True),
        ("postgres", "struct<a:int>", "text", True),
        ("postgres", "timestamp", "timestamp(3) with time zone", False),
        ("postgres", "timestamp", "timestamp(6) with time zone", True),
        ("duckdb", "string", "ENUM('a', 'b')", True),
        ("duckdb", "timestamp", "TIMESTAMP", False),
        ("sqlite", "timestamp", "DATETIME", True),
        ("sqlite", "double", "", True),
        ("sqlite", "bigint", "TEXT", False),
    ):
        assert fits(form, kind, column) is fitting, (form, kind, column)  # type: ignore[arg-type]
    with pytest.raises(NoSuchType, match="postgres has no type for interval day to second: cast it in a step"):
        type_of("postgres", "interval day to second")
    with pytest.raises(NoSuchType, match="sqlite keeps only 15 digits"):
        type_of("sqlite", "decimal(20,2)")
    with pytest.raises(DatabaseError, match=r"the name of column x+ has more than 63 bytes.*another name in a step"):
        Statements("postgres", Name.of("t"), QUERY, {"x" * 64: "int"}).check_types()


def test_repeated_keys_are_found_for_every_type(place: Place) -> None:
    """DuckDB gives timestamps to Python only with another package."""
    sql = Statements(place.form, Name.of("hours"), QUERY, {"at": "timestamp"}, ["at"])
    at = pa.array([1, 1], pa.timestamp("us", "UTC"))
    with opened(place) as connection, connection.transaction():
        connection.run(sql.create_stage())
        connection.ingest(sql.stage, pa.table({"at": at, "ottla_deleted": pa.array([0, 0])}), temporary=True)
        assert connection.rows(sql.repeated(()))


def test_postgres_orders_text_as_spark_does() -> None:
    sql = Statements("postgres", Name.of("orders"), QUERY, COLUMNS, ["id"], "name", deletes=True)
    delete, upsert = sql.moves((1,), {"id": "text", "seq": "bigint", "name": "character varying(9)"})
    assert 'staged."name" COLLATE "C" < "orders"."name" COLLATE "C"' in delete
    assert 'excluded."name" COLLATE "C" < target."name" COLLATE "C"' in upsert
    assert "COLLATE" not in str(upserts("postgres").moves((1,), {"id": "text", "seq": "bigint", "name": "text"}))


def test_columns_are_excluded_in_upper_and_lower_case() -> None:
    given: dict[str, Any] = {"format": "sqlite", "path": "shop.db", "table": "orders", "name": "orders"}
    frame: Any = SimpleNamespace(columns=["id", "note", "_offset"])
    assert columns_of(DatabaseSink(**given, keys=["id"], exclude=["Note"]), frame) == ["id"]
    assert problems(**given, keys=["id"], exclude=["ID"]) == [
        "exclude contains id, which keys or sequence needs: remove it"
    ]


# ── Connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_locked_file_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sinks of a process take turns."""
    place = Place("duckdb", str(tmp_path / "shop.duckdb"))
    order: list[str] = []

    def second() -> None:
        with opened(place):
            order.append("second")

    with opened(place):
        thread = threading.Thread(target=second)
        thread.start()
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]

    lite = Place("sqlite", str(tmp_path / "shop.db"))
    with opened(lite) as connection, connection.transaction():
        connection.run("CREATE TABLE t (x INTEGER)")
    monkeypatch.setattr(connections, "LOCK_SECONDS", 0.1)
    # Locks of another library in the same process would not be seen.
    with adbc_driver_sqlite.dbapi.connect(lite.where) as other, other.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        with (
            pytest.raises(DatabaseError, match=r"database is locked\. Another program writes to it: end its trans"),
            opened(lite) as connection,
            connection.transaction(),
        ):
            connection.run("INSERT INTO t VALUES (2)")


def test_what_is_no_database_is_told(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("no database " * 1000)
    for form in ("sqlite", "duckdb"):
        with pytest.raises(DatabaseError, match="Set another path in the sink, or move this file away"):  # noqa: SIM117
            with opened(Place(form, str(file))) as connection, connection.transaction():  # type: ignore[arg-type]
                connection.rows("SELECT * FROM t")
    with (
        pytest.raises(DatabaseError, match=r"nope\. Use settings of DuckDB in options of the sink"),
        opened(Place("duckdb", str(tmp_path / "x"), options={"nope": "1"})),
    ):
        pass
    with pytest.raises(DatabaseError, match=r"text/x/y: Not a directory: check the path of the sink"):  # noqa: SIM117
        with opened(Place("sqlite", str(file / "x" / "y"))):
            pass


def test_passwords_are_not_told() -> None:
    place = Place("postgres", "postgresql://127.0.0.1:1/shop", "me", "s3 cret/", {"connect_timeout": "1"})
    assert "s3" not in repr(place)
    with (
        pytest.raises(DatabaseError, match=r"postgresql://127.0.0.1:1/shop: .*Check that the server runs") as caught,
        opened(place),
    ):
        pass
    assert "cret" not in str(caught.value)
    text = str(told(place, duckdb.Error("invalid s3 cret/ or s3%20cret%2F")))
    assert text == "postgresql://127.0.0.1:1/shop: invalid *** or ***"
    state = DatabaseError("x", "42P10").__reduce__()
    assert state == (DatabaseError, ("x", "42P10"))


# ── Declarations ─────────────────────────────────────────────────────────────────────────────────────────────────────


def problems(**sink: Any) -> list[str]:
    declared = Pipeline(
        name="shop",
        checkpoint="state",
        bootstrap_servers="localhost:9092",
        sources=[Source(name="orders", topics=["orders"], schema="id BIGINT, ts BIGINT")],
        sinks=[DatabaseSink(**{"name": "base", "table": "orders", **sink})],
    )
    return [one.message for one in check(declared)]


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"format": "postgres"}, 'url is missing, such as url = "postgresql://localhost/shop"'),
        ({"format": "postgres", "path": "x"}, 'path is for sqlite and duckdb: set url, such as url = "postgresql:'),
        ({"format": "postgres", "url": "jdbc:postgresql://h/db"}, "url must start with postgresql://, such as"),
        ({"format": "postgres", "url": "postgresql://h:port/db"}, "url is not valid (ValueError): write it as"),
        ({"format": "postgres", "url": "postgresql://me:x@h/db"}, "url has a password, which others could see"),
        ({"format": "postgres", "url": "postgresql://h/db?password=x"}, "url has a password, which others could see"),
        ({"format": "postgres", "url": "postgresql://h/db", "options": {"password": "x"}}, "options has a password"),
        (
            {"format": "postgres", "url": "postgresql://h/db", "table": "a.b.c"},
            "table must be a name such as orders or",
        ),
        ({"format": "sqlite"}, 'path is missing, such as path = "shop.sqlite"'),
        ({"format": "sqlite", "path": "x", "table": "a.b"}, "table must be a name such as orders, not 'a.b'"),
        ({"format": "sqlite", "path": "x", "options": {"a": "b"}}, "options are for postgres and duckdb: remove them"),
        ({"format": "duckdb", "path": "x", "user": "me"}, "user is for postgres: duckdb needs only path"),
        ({"format": "duckdb", "path": "s3://x/y"}, "path must be a local file, not s3://x/y"),
        ({"format": "duckdb", "path": "/tmp"}, "path /tmp is a directory: name a file in it"),
        ({"format": "duckdb", "path": "x", "mode": "upsert"}, 'mode upsert requires keys, such as keys = ["id"]'),
        ({"format": "duckdb", "path": "x", "mode": "append", "keys": ["id"]}, "keys are for mode upsert, not append"),
        ({"format": "duckdb", "path": "x", "mode": "overwrite"}, "mode overwrite requires an aggregation before this"),
        (
            {"format": "duckdb", "path": "x", "mode": "update"},
            "a duckdb sink supports mode append or upsert or overwrite",
        ),
        ({"format": "duckdb", "path": "x", "sequence": "ts"}, "sequence requires keys"),
        ({"format": "mysql", "path": "x"}, "format must be one of postgres, sqlite, duckdb, not 'mysql'"),
    ],
)
def test_problems_of_a_declaration(sink: dict[str, Any], message: str) -> None:
    found = problems(**sink)
    assert len(found) == 1
    assert found[0].startswith(message), found


def test_a_file_declares_databases(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        """
name = "shop"
checkpoint = "state"
bootstrap_servers = "localhost:9092"
source = [{name = "orders", topics = ["orders"], schema = "id BIGINT, ts BIGINT"}]

[[sink]]
name = "far"
format = "postgres"
url = "postgresql://db.example/shop"
password = "${env:SHOP_PASSWORD}"
table = "sales.orders"
keys = ["id"]

[[sink]]
name = "near"
format = "duckdb"
path = "shop.duckdb"
table = "orders"
"""
    )
    declared = load(file)
    assert check(declared) == []
    far, near = declared.sinks
    assert "password" not in repr(far)
    assert of_sink(declared, far) == ("postgres://db.example:5432", "shop.sales.orders")
    assert of_sink(declared, near) == (f"duckdb:{tmp_path}/shop.duckdb", "orders")
    assert isinstance(far, DatabaseSink)
    with pytest.raises(ConfigError, match="the environment variable SHOP_PASSWORD is not set"):
        place_of(far, declared)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"format": "duckdb", "path": "x", "keys": ["id"], "sequence": "ts"}
    assert problems(**good) == []
    monkeypatch.setattr("ottla.spark.pipelines.checks.databases.find_spec", lambda name: None)
    assert problems(**good) == ["format duckdb requires a package: run pip install 'ottla[duckdb]'"]
    monkeypatch.setattr(connections, "PACKAGES", {"postgres": ("no_such_package",)})
    with pytest.raises(
        DatabaseError, match=r"run pip install 'ottla\[postgres\]' on all machines of the Spark cluster"
    ):
        connections.check_packages("postgres")
