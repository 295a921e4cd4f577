"""Connections to Postgres, SQLite and DuckDB with the same few methods, and their errors in words.

    with opened(place) as connection, connection.transaction():
        connection.run("DELETE FROM orders")

A connection is opened for each micro-batch: a database that restarted in between is no problem, and others can read
the file of DuckDB between batches.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ottla.errors import OttlaError
from ottla.spark.pipelines.databases.names import Name
from ottla.spark.pipelines.declaration import DatabaseFormat

if TYPE_CHECKING:
    import pyarrow as pa

#: Wait so long for another program that uses the file.
LOCK_SECONDS = 30
CONNECT_SECONDS = 10
PACKAGES: Mapping[DatabaseFormat, tuple[str, ...]] = {
    "postgres": ("adbc_driver_postgresql.dbapi", "pyarrow"),
    "sqlite": ("adbc_driver_sqlite.dbapi", "pyarrow"),
    "duckdb": ("duckdb", "pyarrow"),
}
_LOCKED = "Could not set lock"
_file_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class DatabaseError(OttlaError):
    """A database rejected something; the message says what to do. `state` is its SQLSTATE, if known."""

    def __init__(self, message: str, state: str = "") -> None:
        super().__init__(message)
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.state)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a database is: a URL of Postgres, or a file."""

    form: DatabaseFormat
    where: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        """For messages: without a user and password.

        >>> Place("postgres", "postgresql://me:secret@db:5433/shop?sslmode=require").shown
        'postgresql://db:5433/shop'
        """
        if self.form != "postgres":
            return self.where
        found = urlsplit(self.where)
        return f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}"

    @property
    def uri(self) -> str:
        """The URL for libpq, with everything.

        >>> Place("postgres", "postgresql://db/shop", "me", "a b&", {"sslmode": "require"}).uri
        'postgresql://db/shop?connect_timeout=10&fallback_application_name=ottla&sslmode=require&user=me&password=a%20b%26'
        """
        given = {"user": self.user, "password": self.password}
        known = {"connect_timeout": str(CONNECT_SECONDS), "fallback_application_name": "ottla"}
        in_url = urlsplit(self.where).query
        values = {name: value for name, value in known.items() if f"{name}=" not in in_url} | dict(self.options)
        values |= {name: value for name, value in given.items() if value is not None}
        text = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
        return f"{self.where}{'&' if '?' in self.where else '?'}{text}"

    def hidden(self, text: str) -> str:
        """A text without the password."""
        for secret in (self.password, quote(self.password or "", safe="")):
            text = text.replace(secret, "***") if secret else text
        return text


class Connection:
    """A connection; use `run`, `rows` and `ingest` in a `transaction`."""

    def __init__(self, place: Place, raw: Any) -> None:
        self.place = place
        self._raw = raw

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What happens inside is committed at the end, and rolled back after an error."""
        with self._telling():
            if self.place.form == "duckdb":
                self._raw.begin()
            try:
                yield
                self._raw.commit()
            except BaseException:
                with suppress(Exception):
                    self._raw.rollback()
                raise

    def run(self, sql: str) -> None:
        """Execute a statement."""
        with self._telling(), self._cursor() as cursor:
            cursor.execute(sql)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The result of a query."""
        with self._telling(), self._cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def table(self, sql: str) -> pa.Table:
        """The result of a query as Arrow data."""
        with self._telling(), self._cursor() as cursor:
            if self.place.form == "duckdb":
                return cursor.sql(sql).to_arrow_table()
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def ingest(self, table: Name, data: pa.Table | pa.RecordBatchReader, *, temporary: bool = False) -> None:
        """Append Arrow data to a table whose columns have the same order and types."""
        with self._telling():
            if self.place.form == "duckdb":
                self._raw.register("ottla_given", data)
                self._raw.execute(f"INSERT INTO {table} SELECT * FROM ottla_given")
                self._raw.unregister("ottla_given")
                return
            with self._raw.cursor() as cursor:
                more = {"db_schema_name": table.schema} if table.schema else {}
                cursor.adbc_ingest(table.table, data, mode="append", temporary=temporary, **more)

    def close(self) -> None:
        with suppress(Exception):
            self._raw.close()

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        if self.place.form == "duckdb":
            yield self._raw  # its cursors are other connections
        else:
            with self._raw.cursor() as cursor:
                yield cursor

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in ("adbc_driver_manager", "duckdb", "_duckdb"):
                raise
            raise told(self.place, error) from None


@contextmanager
def opened(place: Place) -> Iterator[Connection]:
    """Connect. Two sinks of this process take turns with a file."""
    check_packages(place.form)
    with _file_locks[place.where] if place.form != "postgres" else nullcontext():
        connection = Connection(place, _open(place))
        try:
            yield connection
        finally:
            connection.close()


def check_packages(form: DatabaseFormat) -> None:
    """Raise DatabaseError if a package is missing."""
    for name in PACKAGES[form]:
        try:
            import_module(name)
        except ImportError:
            raise DatabaseError(missing_package(form)) from None


def missing_package(form: DatabaseFormat) -> str:
    """
    >>> missing_package("duckdb")
    "format duckdb requires a package: run pip install 'ottla[duckdb]'"
    """
    where = " on all machines of the Spark cluster" if form == "postgres" else ""
    return f"format {form} requires a package: run pip install 'ottla[{form}]'{where}"


def _open(place: Place) -> Any:
    try:
        if place.form == "postgres":
            return import_module("adbc_driver_postgresql.dbapi").connect(place.uri)
        Path(place.where).parent.mkdir(parents=True, exist_ok=True)
        if place.form == "sqlite":
            raw = import_module("adbc_driver_sqlite.dbapi").connect(place.where)
            with raw.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {int(LOCK_SECONDS * 1000)}")
                cursor.fetchall()
            raw.commit()
            return raw
        return _open_duckdb(place)
    except OSError as error:
        raise DatabaseError(f"{place.shown}: {error.strerror}: check the path of the sink") from None
    except Exception as error:
        if isinstance(error, DatabaseError):
            raise
        raise told(place, error) from None


def _open_duckdb(place: Place) -> Any:
    duckdb = import_module("duckdb")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return duckdb.connect(place.where, config=dict(place.options))
        except duckdb.IOException as error:
            if _LOCKED not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# ── Errors in words ──────────────────────────────────────────────────────────────────────────────────────────────────

_REMOVE = "Remove such rows with a step, or set require in the source to make them dead letters"
_REPEATED = "Set keys in the sink to replace rows, or remove repeats with a step"
_ADVICE: Mapping[DatabaseFormat, tuple[tuple[str, str], ...]] = {
    "postgres": (
        (
            "permission denied",
            "Grant the user CREATE and USAGE on the schema, for the staging table and ottla_batches, and SELECT, "
            "INSERT, UPDATE and DELETE on the table",
        ),
        ("password authentication failed", "Check user and password of the sink"),
        ("no password supplied", 'Set password = "${env:NAME}" in the sink'),
        ("invalid URI query parameter", "Use parameters of libpq in url and options of the sink"),
        ("certificate verify failed", "Set sslrootcert in options of the sink to the file of the authority"),
        ("Failed to connect", "Check that the server runs and that url is right, then run the pipeline again"),
        ("server closed the connection", "Nothing of this batch was written: run the pipeline again"),
        (
            "invalid byte sequence for encoding",
            "Text of Postgres cannot have the character NUL: remove it in a step, such as REPLACE(name, CHAR(0), '')",
        ),
        ("violates not-null constraint", _REMOVE),
        ("violates check constraint", _REMOVE),
        ("violates unique constraint", _REPEATED),
        ("canceling statement due to lock timeout", "Another session locks the table: end it, and run again"),
    ),
    "sqlite": (
        ("database is locked", "Another program writes to it: end its transaction, then run the pipeline again"),
        ("readonly database", "Make the file and its directory writable for this user"),
        ("unable to open database", "Check that the path is a file in a directory that this user can write"),
        ("file is not a database", "Set another path in the sink, or move this file away"),
        ("disk is full", "Make room, then run the pipeline again"),
        ("NOT NULL constraint failed", _REMOVE),
        ("CHECK constraint failed", _REMOVE),
        ("UNIQUE constraint failed", _REPEATED),
    ),
    "duckdb": (
        (_LOCKED, "Close the file in the other program, then run the pipeline again"),
        ("Permission denied", "Make the file and its directory writable for this user"),
        ("Cannot open file", "Make the file and its directory writable for this user"),
        ("not a valid DuckDB", "Set another path in the sink, or move this file away"),
        ("NOT NULL constraint failed", _REMOVE),
        ("CHECK constraint failed", _REMOVE),
        ("uplicate key", _REPEATED),
        ("options were not recognized", "Use settings of DuckDB in options of the sink"),
        ("Out of Memory", 'Set a larger memory_limit in options of the sink, such as options = {memory_limit = "4GB"}'),
    ),
}


def told(place: Place, error: Exception) -> DatabaseError:
    """What a driver reported, in one line with advice, and without the password."""
    text = place.hidden(_plain(str(error)))
    advice = next((advice for sign, advice in _ADVICE[place.form] if sign in str(error)), "")
    end = f"{'' if text.endswith(('?', '!')) else '.'} {advice}" if advice else ""
    return DatabaseError(f"{place.shown}: {text}{end}", getattr(error, "sqlstate", "") or "")


def _plain(text: str) -> str:
    """A message of a driver without what only its authors need.

    >>> _plain('NOT_FOUND: Failed to prepare query: ERROR:  relation "x" does not exist\\nLINE 1: select')
    'relation "x" does not exist'
    """
    for sign in ("\nLINE ", "\n\nLINE ", "\nQuery was:", "\nCONTEXT:", " SQLSTATE:", "\nquery: "):
        text = text.partition(sign)[0]
    for sign in ("ERROR:  ", "FATAL:  "):
        text = text.rpartition(sign)[2]
    for sign in (
        "IO: [libpq] Failed to connect: ",
        "IO Error: ",
        "INTEGRITY: ",
        "Constraint Error: ",
        "[SQLite] ",
        "Failed to execute query: ",
        "Failed to prepare query: ",
    ):
        text = text.rpartition(sign)[2]
    return " ".join(text.split()).rstrip(". ")
