"""Write a commented pipeline for what was guessed, and its first test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from ottla.spark.pipelines.inference.guessing import Guess
from ottla.spark.pipelines.inference.types import column_ddl

TEST_RECORDS = 3
_LATE = "1 hour"
#: Nouns that need quotes as the name of a table in Spark's SQL.
_SQL_WORDS = (
    "case",
    "check",
    "column",
    "end",
    "filter",
    "grant",
    "group",
    "order",
    "table",
    "time",
    "union",
    "user",
    "window",
)


def name_of(topic: str) -> str:
    """A name for SQL, and for files.

    >>> name_of("shop.orders-v1"), name_of("2026"), name_of(".."), name_of("order")
    ('shop_orders_v1', 'topic_2026', 'topic', 'topic_order')
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "_", topic).strip("_") or "topic"
    return f"topic_{name}" if name[0].isdigit() or name.lower() in _SQL_WORDS else name


def pipeline_text(topic: str, servers: str, guess: Guess, *, about: str, name: str | None = None) -> str:
    """The pipeline; `about` says what was sampled. Its checkpoint and its table have its name."""
    source = name_of(topic)
    name = name or source
    last = "unique" if guess.repeats and guess.key is not None else source
    return "\n".join(
        [
            f"# Written by `ottla pipeline init {topic}` from {about}.",
            "# Look at the schema first. docs/pipelines.md describes all keys.",
            f"name = {_quoted(name)}",
            f"checkpoint = {_quoted(f'state/{name}')}",
            f"bootstrap_servers = {_quoted(servers)}",
            "",
            "[[source]]",
            f"name = {_quoted(source)}",
            f"topics = [{_quoted(topic)}]",
            *_format(guess),
            *_nulls(guess),
            *_event_time(guess),
            "# Commit offsets to a group, for lag monitors:",
            f"# group_id = {_quoted(f'{name}-pipeline')}",
            "",
            *_dedupe(guess),
            "# Transform the rows with SQL:",
            "# [[step]]",
            '# name = "chosen"',
            f'# sql = "SELECT * FROM {last} WHERE …"',
            "",
            "[[sink]]",
            'name = "table"',
            'format = "parquet"',
            f"path = {_quoted(f'tables/{name}')}",
            "",
            "# Broken records, with the reason in a header.",
            "[dead_letters]",
            f"topic = {_quoted(f'{topic}.dead')}",
            "",
        ]
    )


def _format(guess: Guess) -> Iterator[str]:
    yield f"format = {_quoted(guess.format)}"
    if guess.others:
        yield f"# {guess.others} of {guess.samples} samples had another format: they become dead letters."
    if guess.registry_ids:
        ids = ", ".join(map(str, guess.registry_ids[:5]))
        yield f"# The values begin like those of a schema registry (schema id {ids}). For Avro, save its schema:"
        yield f'# format = "avro", schema_file = "….avsc", confluent_header = true, schema_id = {guess.registry_ids[0]}'
    yield from _schema(guess)
    if guess.format == "csv":
        options = [f"sep = {_quoted(guess.separator)}"] if guess.separator != "," else []
        options += [f"escape = {_quoted(guess.escape)}"] if guess.escape else []
        if options:
            yield f"options = {{{', '.join(options)}}}"


def _schema(guess: Guess) -> Iterator[str]:
    if not guess.fields:
        return
    for column, note in guess.notes.items():
        yield f"# {_one_line(column)}: {note}."
    if any(one.required for one in guess.fields):
        yield "# NOT NULL: every sample had a value. A record without one becomes a dead letter."
    lines = [_quoted(column_ddl(one))[1:-1] for one in guess.fields]
    yield 'schema = """'
    yield from (f"  {line}," for line in lines[:-1])
    yield f"  {lines[-1]}"
    yield '"""'


def _nulls(guess: Guess) -> Iterator[str]:
    if guess.nulls:
        yield f"# {guess.nulls} of {guess.samples} samples had no value."
        yield 'null_values = "skip"'


def _event_time(guess: Guess) -> Iterator[str]:
    if guess.event_time is not None:
        yield f"event_time = {_quoted(guess.event_time)}"
    else:
        yield "# No column looks like the time of the event. This is the record timestamp:"
        yield '# event_time = "_timestamp"'


def _dedupe(guess: Guess) -> Iterator[str]:
    """Remove repeats if there are some. Otherwise only suggest it, because it drops late records."""
    if guess.key is None:
        return
    mark = "" if guess.repeats else "# "
    if guess.repeats:
        yield f"# {guess.repeats} samples were repeats. A record that is later than `within` is dropped."
    else:
        yield f"# {_one_line(guess.key)} differs in all samples. To remove repeats, and records later than `within`:"
    yield f"{mark}[[step]]"
    yield f'{mark}name = "unique"'
    yield f"{mark}dedupe = [{_quoted(guess.key)}]"
    yield f'{mark}within = "{_LATE}"'
    yield ""


def case_text(name: str, topic: str, values: Sequence[bytes], *, file: str) -> str:
    """A test with some samples, whose expected rows `ottla pipeline test --update` writes."""
    shown = [text for one in values if (text := _readable(one)) is not None][:TEST_RECORDS]
    return "\n".join(
        [
            f"# Records of topic {topic}. Write the rows that they give, and look at them:",
            f"#   ottla pipeline test {file} --update",
            "[[batch]]",
            f"{name} = [",
            *(f"  {_literal(text)}," for text in shown),
            "]",
            "",
            "[expected]",
            "table = []",
            "",
        ]
    )


def _readable(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() and len(text) < 2000 else None


def _literal(text: str) -> str:
    return f"'{text}'" if "'" not in text else json.dumps(text, ensure_ascii=False)


def _quoted(text: str) -> str:
    """A JSON string is a TOML string; in a pipeline, `${` names a variable."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").replace("${", "$${")


def _one_line(text: str) -> str:
    return text if text.isprintable() else _quoted(text)
