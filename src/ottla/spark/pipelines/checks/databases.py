"""Check sinks of Postgres, SQLite and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from ottla.spark.pipelines.checks.lakes import keyed_problems, table_mode_problems
from ottla.spark.pipelines.databases.connections import PACKAGES, missing_package
from ottla.spark.pipelines.declaration import DatabaseSink, Pipeline, Problem

_EXAMPLE = "postgresql://localhost/shop"


def database_problems(pipeline: Pipeline, sink: DatabaseSink) -> Iterator[Problem]:
    """All problems of a postgres, sqlite or duckdb sink that can be found without the database."""
    yield from keyed_problems(sink)
    yield from table_mode_problems(sink)
    if any(find_spec(name.partition(".")[0]) is None for name in PACKAGES[sink.format]):
        yield sink.where.problem(missing_package(sink.format), "format")
    parts = sink.table.split(".")
    if not all(parts) or len(parts) > (1 if sink.format == "sqlite" else 2):
        form = "a name such as orders" if sink.format == "sqlite" else "a name such as orders or shop.orders"
        yield sink.where.problem(f"table must be {form}, not {sink.table!r}", "table")
    yield from _server(sink) if sink.format == "postgres" else _file(pipeline, sink)


def _server(sink: DatabaseSink) -> Iterator[Problem]:
    if sink.path is not None:
        yield sink.where.problem(f'path is for sqlite and duckdb: set url, such as url = "{_EXAMPLE}"', "path")
    if sink.url is None:
        if sink.path is None:
            yield sink.where.problem(f'url is missing, such as url = "{_EXAMPLE}"')
        return
    try:
        found = urlsplit(sink.url)
        _ = found.port
    except ValueError as error:
        # The text of the error may have parts of a password.
        yield sink.where.problem(f"url is not valid ({type(error).__name__}): write it as {_EXAMPLE}", "url")
        return
    if found.scheme not in ("postgresql", "postgres"):
        yield sink.where.problem(f"url must start with postgresql://, such as {_EXAMPLE}", "url")
    elif found.password is not None or "password=" in found.query:
        yield sink.where.problem('url has a password, which others could see: use password = "${env:NAME}"', "url")
    elif "password" in sink.options:
        yield sink.where.problem('options has a password: use password = "${env:NAME}"', "options")


def _file(pipeline: Pipeline, sink: DatabaseSink) -> Iterator[Problem]:
    for key in ("url", "user", "password"):
        if getattr(sink, key) is not None:
            yield sink.where.problem(f"{key} is for postgres: {sink.format} needs only path", key)
    if sink.format == "sqlite" and sink.options:
        yield sink.where.problem("options are for postgres and duckdb: remove them", "options")
    if sink.path is None:
        yield sink.where.problem(f'path is missing, such as path = "shop.{sink.format}"')
        return
    path = pipeline.path(sink.path)
    if "://" in path or path.startswith(("file:", "hdfs:", "s3:", "dbfs:")):
        yield sink.where.problem(f"path must be a local file, not {sink.path}: {sink.format} has no other", "path")
    elif Path(path).is_dir():
        yield sink.where.problem(f"path {path} is a directory: name a file in it", "path")
