"""Convert declared sources and sinks to options of `format("ottla")`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ottla.config.admin import AdminConfig
from ottla.config.consumer import ConsumerConfig
from ottla.config.producer import ProducerConfig
from ottla.config.secrets import resolved
from ottla.config.table import ConfigTable, rows
from ottla.errors import ConfigError
from ottla.spark.options import OptionError, ReadOptions, WriteOptions
from ottla.spark.pipelines.declaration import DeadLetters, Pipeline, Source, Table, TopicSink

READING = (ConsumerConfig, AdminConfig)
WRITING = (ProducerConfig,)
_KAFKA = "kafka."
#: With these every other config can be checked alone. Some security protocols need a user.
_COMPANIONS = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.sasl.username": "x",
    "kafka.sasl.password": "x",
}


def as_settings(given: Mapping[str, object]) -> dict[str, str]:
    """Convert settings to text, with true instead of True."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def read_options(
    pipeline: Pipeline, source: Source, group_id: str | None, *, headers: bool = False, secrets: bool = True
) -> dict[str, str]:
    """The options of `readStream`. `secrets`: with the contents of what ${env:…} and ${file:…} refer to."""
    offsets = source.starting_offsets
    given = {
        "subscribe": ",".join(source.topics) or None,
        "subscribePattern": source.pattern,
        "assign": json.dumps(dict(source.assign)) if source.assign else None,
        "startingOffsets": offsets if isinstance(offsets, str) else json.dumps(offsets),
        "startingTimestamp": source.starting_timestamp,
        "group.id": group_id,
        "maxOffsetsPerTrigger": source.max_offsets_per_trigger,
        "minPartitions": source.min_partitions,
        "failOnDataLoss": source.fail_on_data_loss,
        "includeHeaders": source.include_headers or headers,
        "kafka.isolation.level": source.isolation,
    }
    return {
        **_kafka(pipeline, source.bootstrap_servers, source.kafka, *READING, secrets=secrets),
        **as_settings({name: value for name, value in given.items() if value is not None}),
    }


def table_options(pipeline: Pipeline, table: Table) -> dict[str, str]:
    """The options of `read` for a table with format topic."""
    fixed = {"subscribe": table.topic or "", "kafka.isolation.level": "read_committed"}
    return {**_kafka(pipeline, None, {}, *READING), **as_settings(table.options), **fixed}


def cluster_options(pipeline: Pipeline, part: Source | TopicSink | DeadLetters) -> dict[str, str]:
    """The options to read from the cluster of a source or sink; configs that only producers know are left out."""
    known = {name: value for name, value in part.kafka.items() if any(name in rows(table) for table in READING)}
    return _kafka(pipeline, part.bootstrap_servers, known, *READING)


def write_options(
    pipeline: Pipeline, sink: TopicSink | DeadLetters, topic: str | None, *, secrets: bool = True
) -> dict[str, str]:
    """The options of `writeStream`; without a topic, the rows have a topic column."""
    where = {} if topic is None else {"topic": topic}
    kafka = _kafka(pipeline, sink.bootstrap_servers, sink.kafka, *WRITING, secrets=secrets)
    return {**kafka, **where, "deliver": sink.deliver}


def _kafka(
    pipeline: Pipeline,
    servers: str | None,
    more: Mapping[str, object],
    *tables: type[ConfigTable],
    secrets: bool = True,
) -> dict[str, str]:
    """Client configs; of the pipeline's configs, each client gets those it knows."""
    common = {name: value for name, value in pipeline.kafka.items() if any(name in rows(table) for table in tables)}
    settings = as_settings({**common, **more})
    if secrets:
        settings = resolved(settings)
    settings = {f"kafka.{name}": value for name, value in settings.items()}
    found = servers or pipeline.bootstrap_servers
    return {**settings, **({"kafka.bootstrap.servers": found} if found else {})}


def kafka_problems(
    given: Mapping[str, object], *, reading: bool = True, writing: bool = True
) -> Iterator[tuple[str, str]]:
    """Names and errors of configs that no client accepts. Whether they fit together is another question."""
    for name, value in as_settings(given).items():
        errors = []
        options = {**_COMPANIONS, f"kafka.{name}": value}
        if reading:
            errors += _rejected(partial(ReadOptions.of, {**options, "subscribe": "x"}, streaming=True))
        if writing:
            errors += _rejected(partial(WriteOptions.of, {**options, "topic": "x"}))
        if len(errors) == reading + writing:
            yield name, next((one for one in errors if "unknown" not in one), errors[0])


def _rejected(make: Callable[[], object]) -> list[str]:
    try:
        make()
    except (OptionError, ConfigError) as error:
        return [str(error).replace(f"option {_KAFKA}", _KAFKA)]
    return []
