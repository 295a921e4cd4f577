"""The pipeline of pipelines.py. Each `--sink KIND` adds a table that appends, and one that replaces rows by key.

`all_KIND` must have every number once, and `newest_KIND` the highest number of each key, which is what a computation
over all records finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

KEYS = 40
_DECLARATION = """\
name = "kills"
checkpoint = "state"
bootstrap_servers = "{servers}"
trigger = "100 milliseconds"
read = "{read}"

[[source]]
name = "numbers"
topics = ["{numbers}"]
schema = "n BIGINT NOT NULL"
group_id = "{numbers}-readers"
max_offsets_per_trigger = {batch}

[[sink]]
name = "table"
input = "numbers"
format = "parquet"
path = "table"
origin = true

[[sink]]
name = "copies"
input = "numbers"
format = "topic"
topic = "{copies}"
deliver = "exactly-once"
value = "cast(n AS STRING)"

[dead_letters]
topic = "{dead}"
deliver = "exactly-once"
"""
#: A shared read has a sink that does not hold the others up, too.
_LATE = """
[[sink]]
name = "late"
input = "numbers"
format = "parquet"
path = "late"
origin = true
max_delay = "50 milliseconds"
"""
_STEP = f"""
[[step]]
name = "keyed"
sql = "SELECT n % {KEYS} AS k, n, _topic, _partition, _offset FROM numbers"
"""
_TABLES = """
[[sink]]
name = "{all}"
input = "numbers"
{form_of_all}

[[sink]]
name = "{newest}"
input = "keyed"
{form_of_newest}
keys = ["k"]
sequence = "n"
"""
_CATALOG = 'catalog = {type = "sql", uri = "sqlite:///catalog.db", warehouse = "warehouse"}'


@dataclass(frozen=True, slots=True)
class Extra:
    """A kind of sink."""

    form: str
    """The lines of its declaration; NAME is the table, and URL the database."""
    read: Callable[[Path, str], list[int]]
    """The numbers in a table; empty if it does not exist yet."""
    needs_postgres: bool = False


def tables_of(kind: str) -> tuple[str, str]:
    """The names of the sinks and tables of a kind: the one that appends, and the one that replaces rows by key."""
    return f"all_{kind}", f"newest_{kind}"


def declared(given: Mapping[str, str], kinds: Sequence[str], url: str) -> str:
    """The declaration, with tables of these kinds; `url` is that of Postgres."""
    found = [_DECLARATION.format(**given), _LATE if given["read"] == "shared" else "", _STEP if kinds else ""]
    for kind in kinds:
        every, newest = tables_of(kind)
        forms = [EXTRA[kind].form.replace("NAME", name).replace("URL", url) for name in (every, newest)]
        found.append(_TABLES.format(all=every, newest=newest, form_of_all=forms[0], form_of_newest=forms[1]))
    return "".join(found)


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
    finally:
        catalog.close()
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


EXTRA = {
    "delta": Extra('format = "delta"\npath = "NAME"', _read_delta),
    "iceberg": Extra(f'format = "iceberg"\ntable = "kills.NAME"\n{_CATALOG}', _read_iceberg),
    "postgres": Extra(
        'format = "postgres"\nurl = "URL"\nuser = "ottla"\ntable = "NAME"',
        _read_database("postgres", ""),
        needs_postgres=True,
    ),
    "sqlite": Extra('format = "sqlite"\npath = "kills.db"\ntable = "NAME"', _read_database("sqlite", "kills.db")),
    "duckdb": Extra(
        'format = "duckdb"\npath = "kills.duckdb"\ntable = "NAME"', _read_database("duckdb", "kills.duckdb")
    ),
}
