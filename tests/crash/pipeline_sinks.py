"""More sinks for `tests.crash.pipelines --sink NAME`: a table that appends, and one that replaces rows by key.

Both belong to the same pipeline as the sinks of DECLARATION there. `lake` must have every number once, and `newest` the
highest number of each key, which is what a computation over all records finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEYS = 40
_TABLES = """
[[step]]
name = "keyed"
sql = "SELECT n % {keys} AS k, n, _topic, _partition, _offset FROM numbers"

[[sink]]
name = "lake"
input = "numbers"
{lake}

[[sink]]
name = "newest"
input = "keyed"
{newest}
keys = ["k"]
sequence = "n"
"""
_CATALOG = 'catalog = {type = "sql", uri = "sqlite:///catalog.db", warehouse = "warehouse"}'


@dataclass(frozen=True, slots=True)
class Extra:
    """A kind of sink."""

    declaration: str
    read: Callable[[Path, str], list[int]]
    """The numbers in a table, `lake` or `newest`; empty if it does not exist yet."""
    server: Callable[[], Any] | None = None
    """Makes the server that the sink needs."""


def newest(numbers: Iterable[int]) -> list[int]:
    """The highest number of each key."""
    found: dict[int, int] = {}
    for number in numbers:
        found[number % KEYS] = max(number, found.get(number % KEYS, number))
    return list(found.values())


def _read_delta(directory: Path, name: str) -> list[int]:
    from deltalake import DeltaTable

    where = str(directory / name)
    if not DeltaTable.is_deltatable(where):
        return []
    found: list[int] = DeltaTable(where).to_pyarrow_table(columns=["n"])["n"].to_pylist()
    return found


def _read_iceberg(directory: Path, name: str) -> list[int]:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    if not (directory / "catalog.db").exists():
        return []
    catalog = load_catalog(
        type="sql", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse"
    )
    try:
        found: list[int] = catalog.load_table(f"kills.{name}").scan(selected_fields=("n",)).to_arrow()["n"].to_pylist()
    except NoSuchTableError:
        return []
    return found


def _read_database(form: str, where: str) -> Callable[[Path, str], list[int]]:
    def read(directory: Path, name: str) -> list[int]:
        from ottla.spark.pipelines.databases.connections import Place, opened
        from ottla.spark.pipelines.databases.names import Name
        from ottla.spark.pipelines.databases.tables import columns_of_table

        url = (directory / "database").read_text() if form == "postgres" else str(directory / where)
        place = Place(form, url, "ottla" if form == "postgres" else None)  # type: ignore[arg-type]
        with opened(place) as connection, connection.transaction():
            if columns_of_table(connection, Name.of(name)) is None:
                return []
            return [int(row[0]) for row in connection.rows(f"SELECT n FROM {name}")]

    return read


def _postgres() -> Any:
    from tests.databases.servers import Postgres

    return Postgres()


def _tables(form: str) -> str:
    return _TABLES.format(keys=KEYS, **{name: form.replace("NAME", name) for name in ("lake", "newest")})


EXTRA = {
    "delta": Extra(_tables('format = "delta"\npath = "NAME"'), _read_delta),
    "postgres": Extra(
        _tables('format = "postgres"\nurl = "URL"\nuser = "ottla"\ntable = "NAME"'),
        _read_database("postgres", ""),
        _postgres,
    ),
    "sqlite": Extra(
        _tables('format = "sqlite"\npath = "kills.db"\ntable = "NAME"'), _read_database("sqlite", "kills.db")
    ),
    "duckdb": Extra(
        _tables('format = "duckdb"\npath = "kills.duckdb"\ntable = "NAME"'),
        _read_database("duckdb", "kills.duckdb"),
    ),
    "iceberg": Extra(_tables(f'format = "iceberg"\ntable = "kills.NAME"\n{_CATALOG}'), _read_iceberg),
}
