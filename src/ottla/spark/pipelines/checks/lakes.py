"""Check sinks with keys, and those of Delta and Iceberg tables."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from ottla.config.secrets import resolved
from ottla.errors import ConfigError
from ottla.spark.pipelines.declaration import DatabaseSink, JdbcSink, LakeSink, Problem
from ottla.suggestions import did_you_mean

#: What pyiceberg knows.
_CATALOGS = ("sql", "rest", "hive", "glue", "dynamodb", "bigquery", "in-memory")
_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def keyed_problems(sink: JdbcSink | LakeSink | DatabaseSink) -> Iterator[Problem]:
    """Keys that other keys need or exclude."""
    for key in ("sequence", "delete_when"):
        if getattr(sink, key) and not sink.keys:
            yield sink.where.problem(f'{key} requires keys, such as keys = ["id"]', key)
    left_out = {name.lower() for name in sink.exclude}
    needed = [name for name in (*sink.keys, sink.sequence or "") if name.lower() in left_out]
    if needed:
        yield sink.where.problem(f"exclude contains {needed[0]}, which keys or sequence needs: remove it", "exclude")


def table_mode_problems(sink: LakeSink | DatabaseSink) -> Iterator[Problem]:
    """A mode that does not fit the keys."""
    if sink.mode == "upsert" and not sink.keys:
        yield sink.where.problem('mode upsert requires keys, such as keys = ["id"]', "mode")
    elif sink.mode in ("append", "overwrite") and sink.keys:
        yield sink.where.problem(f"keys are for mode upsert, not {sink.mode}: remove one of them", "keys")


def lake_problems(sink: LakeSink) -> Iterator[Problem]:
    """What is missing or left over for the format, a package that is not installed, and missing secrets."""
    package = _PACKAGES[sink.format]
    if importlib.util.find_spec(package) is None:
        yield sink.where.problem(f"{sink.format} requires {package}: pip install 'ottla[{sink.format}]'", "format")
    yield from _delta(sink) if sink.format == "delta" else _iceberg(sink)
    yield from keyed_problems(sink)
    yield from table_mode_problems(sink)
    left_out = {name.lower() for name in sink.exclude}
    gone = [name for name in sink.partition_by if name.lower() in left_out]
    if gone:
        yield sink.where.problem(f"exclude contains {gone[0]}, which partition_by needs: remove it", "exclude")
    yield from _settings(sink, "catalog", sink.catalog)
    yield from _settings(sink, "storage", sink.storage)


def _delta(sink: LakeSink) -> Iterator[Problem]:
    if not sink.path:
        yield sink.where.problem("path is missing: set the directory or URL of the Delta table")
    for key in ("table", "catalog"):
        if getattr(sink, key):
            yield sink.where.problem(f"{key} is for iceberg: a delta table has a path", key)


def _iceberg(sink: LakeSink) -> Iterator[Problem]:
    if sink.path:
        yield sink.where.problem("an iceberg table has no path: set table and catalog", "path")
    if not sink.table:
        yield sink.where.problem('table is missing: name the Iceberg table, such as table = "shop.orders"')
    elif "." not in sink.table.strip("."):
        yield sink.where.problem(f"table needs a namespace, such as shop.{sink.table}", "table")
    if not sink.catalog:
        example = '{type = "sql", uri = "sqlite:///catalog.db", warehouse = "tables"}'
        yield sink.where.problem(f"catalog is missing, such as catalog = {example}")
    kind = sink.catalog.get("type")
    if kind is not None and str(kind).lower() not in _CATALOGS:
        hint = did_you_mean(str(kind), _CATALOGS[:4]) or f" Choose from {', '.join(_CATALOGS)}"
        yield sink.where.problem(f"catalog: there is no type {kind}.{hint}", "catalog")


def _settings(sink: LakeSink, key: str, given: Mapping[str, object]) -> Iterator[Problem]:
    for name, value in given.items():
        try:
            resolved({name: value})
        except ConfigError as error:
            yield sink.where.problem(f"{key}: {error}".removesuffix("."), key)
