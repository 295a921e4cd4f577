"""Name what a pipeline reads and writes, by OpenLineage's rules for names.

A topic is `kafka://host:port` and its name, a directory `file` and its path, a table in Postgres `postgres://host:port`
and `database.schema.table`. Other tools that follow the rules give the same thing the same name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.config.listeners import parse_address
from ottla.spark.pipelines.declaration import (
    ConsoleSink,
    DatabaseSink,
    DeadLetters,
    FileSink,
    JdbcSink,
    LakeSink,
    Pipeline,
    Sink,
    Source,
    Table,
    TopicSink,
)

_KAFKA_PORT = 9092
#: The ports and the parts of a name that a URL may leave out.
_POSTGRES, _MYSQL = ("postgres", 5432, "public."), ("mysql", 3306, "")
_DATABASES = {"postgresql": _POSTGRES, "postgres": _POSTGRES, "mysql": _MYSQL, "mariadb": _MYSQL}
_JDBC = re.compile(r"jdbc:(?P<kind>\w+):(?P<rest>.*)", re.DOTALL)


class Dataset(NamedTuple):
    namespace: str
    name: str


def topic(servers: str | None, name: str) -> Dataset:
    """
    >>> topic("kafka1:9092,kafka2:9092", "orders")
    Dataset(namespace='kafka://kafka1:9092', name='orders')
    """
    first = (servers or "localhost").split(",")[0].strip()
    try:
        host, port = parse_address(first)
    except ValueError:
        host, port = first, _KAFKA_PORT
    return Dataset(f"kafka://{host}:{port}", name)


def directory(path: str) -> Dataset:
    """
    >>> directory("s3a://lake/tables/orders"), directory("/data/orders")
    (Dataset(namespace='s3://lake', name='tables/orders'), Dataset(namespace='file', name='/data/orders'))
    """
    if not re.match(r"\w+:/", path):
        return Dataset("file", path.rstrip("/") or "/")
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Dataset("file", parts.path.rstrip("/") or "/")
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    name = parts.path if scheme in ("hdfs", "abfss", "dbfs") else parts.path.lstrip("/")
    # abfss has a container before the @, but others may have a key and a secret.
    user, _, host = parts.netloc.rpartition("@")
    return Dataset(f"{scheme}://{host if ':' in user else parts.netloc}", name.rstrip("/") or "/")


def jdbc(url: str, table: str) -> Dataset:
    """Without user and password, which a URL may have.

    >>> jdbc("jdbc:postgresql://db/shop?user=me", "orders")
    Dataset(namespace='postgres://db:5432', name='shop.public.orders')
    """
    found = _JDBC.match(url)
    if found is None or found["kind"] not in _DATABASES:
        kind = found["kind"] if found else "jdbc"
        rest = re.split(r"[?;]", found["rest"] if found else url)[0]
        return Dataset(f"{kind}:{rest.rpartition('@')[2]}", table)
    scheme, port, schema = _DATABASES[found["kind"]]
    parts = urlsplit(found["rest"])
    schema = "" if "." in table else schema
    # The first of several hosts names the database, as with brokers.
    first = urlsplit(f"//{parts.netloc.rpartition('@')[2].split(',')[0]}")
    host = first.hostname or "localhost"
    return Dataset(f"{scheme}://{host}:{first.port or port}", f"{parts.path.strip('/')}.{schema}{table}")


def of_source(pipeline: Pipeline, source: Source, topics: Sequence[str] = ()) -> list[Dataset]:
    """A dataset for each topic; `topics` are those that match the pattern of the source."""
    servers = source.bootstrap_servers or pipeline.bootstrap_servers
    names = [*source.topics, *(source.assign or {}), *(topics or ([source.pattern] if source.pattern else []))]
    return [topic(servers, name) for name in dict.fromkeys(names)]


def of_table(pipeline: Pipeline, table: Table) -> Dataset:
    if table.format == "topic":
        return topic(pipeline.bootstrap_servers, table.topic or "")
    return directory(pipeline.path(table.path or ""))


def of_sink(pipeline: Pipeline, sink: Sink) -> Dataset | None:
    """None if nothing is kept."""
    if isinstance(sink, ConsoleSink):
        return None
    if isinstance(sink, TopicSink):
        return topic(sink.bootstrap_servers or pipeline.bootstrap_servers, sink.topic)
    if isinstance(sink, JdbcSink):
        return jdbc(sink.url, sink.table)
    if isinstance(sink, DatabaseSink):
        rest = (sink.url or "").partition("://")[2]
        where = (
            f"postgresql://{rest}" if sink.format == "postgres" else f"{sink.format}:{pipeline.path(sink.path or '')}"
        )
        return jdbc(f"jdbc:{where}", sink.table)
    if isinstance(sink, FileSink | LakeSink) and sink.path:
        return directory(pipeline.path(sink.path))
    if isinstance(sink, LakeSink):
        # The address of a catalog may have a password in it.
        place = (sink.catalog.get("uri") or sink.catalog.get("name") or "iceberg").rpartition("@")[2]
        return Dataset(place.partition("?")[0], sink.table or sink.name)
    return Dataset("ottla", f"{pipeline.name}.{sink.name}")


def of_letters(pipeline: Pipeline, letters: DeadLetters, read: Sequence[Dataset]) -> list[Dataset]:
    """The topics of dead letters for the topics that are read."""
    servers = letters.bootstrap_servers or pipeline.bootstrap_servers
    names = [letters.topic.replace("{topic}", one.name) for one in read]
    return [topic(servers, name) for name in dict.fromkeys(names)]
