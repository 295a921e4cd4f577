"""All problems of a declaration are reported before Spark starts, with file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines import (
    DeadLetters,
    DeclarationError,
    Dedupe,
    Expect,
    FileSink,
    JdbcSink,
    Join,
    Pipeline,
    Python,
    Source,
    Sql,
    Table,
    TopicSink,
    Window,
    load,
)
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.options import read_options, write_options

HEAD = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "localhost:9092"
"""
SOURCE = """
[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, total DOUBLE, at TIMESTAMP"
"""
SINK = """
[[sink]]
name = "table"
format = "parquet"
path = "table"
"""
ICEBERG = 'format = "iceberg"\ncatalog = {type = "sql", uri = "sqlite:///c.db", warehouse = "w"}\n'
JDBC = 'format = "jdbc"\nurl = "jdbc:x:y"\ntable = "t"\n'


def found(path: Path, text: str, name: str = "orders.toml") -> list[tuple[int | None, str]]:
    (path / name).write_text(text)
    try:
        load(path / name)
    except DeclarationError as error:
        problems = error.problems
    else:
        return []
    assert {problem.file for problem in problems} == {str(path / name)}
    return [(problem.line, problem.message) for problem in problems]


def only(path: Path, text: str, name: str = "orders.toml") -> tuple[int | None, str]:
    problems = found(path, text, name)
    assert len(problems) == 1, problems
    return problems[0]


def line_of(text: str, what: str) -> int:
    """The line of a text that has `what`, the last if there are several."""
    return max(number for number, line in enumerate(text.splitlines(), 1) if what in line)


SASL = '[kafka]\nsecurity.protocol = "SASL_SSL"\nsasl.mechanism = "SCRAM-SHA-256"\n'
USER = 'sasl.username = "etl"\nsasl.password = "secret"\n'


def test_security_is_checked_as_a_whole(tmp_path: Path) -> None:
    assert found(tmp_path, HEAD + SASL + USER + SOURCE + SINK) == []
    own = SOURCE + 'kafka = {sasl.username = "etl", sasl.password = "secret"}\n'
    assert found(tmp_path, HEAD + SASL + own + SINK) == []
    text = HEAD + SASL + SOURCE + SINK
    line, message = only(tmp_path, text)
    assert message == "sasl.username is missing. security.protocol=SASL_SSL requires it."
    unset = 'sasl.username = "etl"\nsasl.password = "${env:NOT_SET_ANYWHERE}"\n'
    line, message = only(tmp_path, HEAD + SASL + unset + SOURCE + SINK)
    assert message.endswith("the environment variable NOT_SET_ANYWHERE is not set.")
    assert line == line_of(HEAD + SASL + unset, "sasl.password")


def test_a_wrong_address_is_told_once_where_it_is(tmp_path: Path) -> None:
    text = re.sub("bootstrap_servers = .*", 'bootstrap_servers = "localhost"', HEAD) + SOURCE + SINK
    line, message = only(tmp_path, text + '[dead_letters]\ntopic = "dead"\n')
    assert (line, "'localhost' is not an address" in message) == (line_of(text, "bootstrap_servers"), True)


def test_a_good_one(tmp_path: Path) -> None:
    assert found(tmp_path, HEAD + SOURCE + SINK) == []


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("[[source", 1, "invalid TOML"),
        ('name = "x"\nname = "y"', 2, "invalid TOML: Cannot overwrite a value"),
        ("name = x", 1, 'invalid TOML: Invalid value (text needs quotes: name = "orders")'),
        (SOURCE + SINK, 1, 'name is missing, such as name = "orders"'),
        (HEAD + SINK, 1, "the pipeline has no source: add [[source]]"),
        (HEAD + SOURCE, 1, "the pipeline has no sink: add [[sink]]"),
        (HEAD + "triger = 5\n" + SOURCE + SINK, "triger", "a pipeline has no key triger. Did you mean trigger?"),
        (HEAD + "trigger = 5\n" + SOURCE + SINK, "trigger", "trigger must be a string, not 5"),
        (HEAD + 'trigger = "10 s"\n' + SOURCE + SINK, None, ""),
        (HEAD + 'trigger = "availableNow"\n' + SOURCE + SINK, "trigger", "Did you mean available-now?"),
        (HEAD + "[spark]\nsql.x = 4\n" + SOURCE + SINK, "sql.x", "start with spark.: write spark.sql.x"),
        (HEAD + "[spark]\nspark.sql.shuffle.partitions = 4\n" + SOURCE + SINK, None, ""),
        (HEAD + "[kafka]\nack = 1\n" + SOURCE + SINK, "ack", "unknown client config kafka.ack"),
        (HEAD + '[kafka]\nacks = "all"\nmax.poll.records = 5\n' + SOURCE + SINK, None, ""),
        (HEAD + "[kafka]\ngroup.protocol = 5\n" + SOURCE + SINK, "group", "kafka.group.protocol: "),
        (HEAD + SOURCE.replace("[[source]]", "[source]") + SINK, "[source]", "write [[source]] instead of [source]"),
        (HEAD.replace("bootstrap_servers", "#") + SOURCE + SINK, "[[source]]", "bootstrap_servers is missing"),
        (HEAD + "dead_letters = 5\n" + SOURCE + SINK, "dead", "dead_letters is a table"),
        (HEAD + "sink = 5\n" + SOURCE, "sink", "sink is an array of tables: write [[sink]]"),
    ],
)
def test_the_whole(tmp_path: Path, text: str, at: str | int | None, message: str) -> None:
    check_one(tmp_path, text, at, message)


def check_one(tmp_path: Path, text: str, at: str | int | None, message: str) -> None:
    problems = found(tmp_path, text)
    if at is None:
        assert problems == []
        return
    line = line_of(text, at) if isinstance(at, str) else at
    assert [one for one in problems if one[0] == line and message in one[1]], problems


@pytest.mark.parametrize(
    ("more", "at", "message"),
    [
        ('pattern = "o.*"', "pattern", "set exactly one of topics, pattern and assign: topics and pattern"),
        ("topicz = 1", "topicz", "[[source]] has no key topicz. Did you mean topics?"),
        ('format = "jsn"', "jsn", "not 'jsn'. Did you mean json?"),
        ('format = "text"', "schema", "text has the fixed column value: remove schema"),
        ('format = "avro"', "schema", "avro requires a schema file"),
        ('schema_file = "none.ddl"', "schema_file", "none.ddl not found"),
        ("max_offsets_per_trigger = 0", "max", "max_offsets_per_trigger must be at least 1, not 0"),
        ('max_offsets_per_trigger = "many"', "max", "must be a whole number, not 'many'"),
        ("fail_on_data_loss = 1", "fail", "fail_on_data_loss must be true or false, not 1"),
        ('starting_offsets = "earlier"', "starting", "starting_offsets is not valid JSON: 'earlier'"),
        ('starting_offsets = "committed"', "starting", "starting_offsets=committed requires group_id"),
        ("starting_offsets = {orders = {0 = 5}}", None, ""),
        ("starting_offsets = {orders = {0 = -7}}", "starting", "invalid value"),
        ('event_time = "att"', "event_time", "event_time att is not a column of the schema. Did you mean at?"),
        ('event_time = "total"', "event_time", "event_time must be a TIMESTAMP, but total is DOUBLE"),
        ('event_time = "_timestamp"', None, ""),
        ('watermark = "5 minutes"', "watermark", "watermark requires event_time"),
        ('event_time = "at"\nwatermark = "soon"', "watermark", "watermark must be a duration such as"),
        ('on_error = "dead-letters"', "on_error", "requires [dead_letters] with a topic"),
        ("confluent_header = true", "confluent", "confluent_header requires format avro, not json"),
        ('format = "protobuf"', 'format = "prot', "protobuf requires a schema registry"),
        ('subject = "orders-value"', "subject", "subject requires registry, the URL of a schema registry"),
        (
            'format = "csv"\nregistry = "http://r:1"',
            "registry",
            "registry requires format avro, json or protobuf, not csv",
        ),
        ('registry = "r:8081"', "registry", "registry must be a URL such as http://127.0.0.1:8081"),
        ('registry = "http://r:1"\nmessage = "Order"', "message", "message requires format protobuf, not json"),
        ('registry = "http://r:1"\nschema_id = 7', "schema_id", "schema_id is not for a source with registry"),
        ('registry = "http://r:1"', None, ""),
        ('null_values = "keep"', "null_values", "null_values = keep requires format text or bytes"),
        ('kafka = {"acks" = "all"}', "kafka", "unknown client config kafka.acks"),
        ("kafka = {fetch.min.bytes = 5}", None, ""),
        ('group_id = ""', "group_id", "group_id is empty"),
        ('group_id = "${OTTLA_NOT_THERE}"', "group_id", "environment variable OTTLA_NOT_THERE is not set"),
        ('group_id = "${OTTLA_NOT_THERE:-g}"', None, ""),
    ],
)
def test_sources(tmp_path: Path, more: str, at: str | None, message: str) -> None:
    check_one(tmp_path, HEAD + SOURCE + more + "\n" + SINK, at, message)


@pytest.mark.parametrize(
    ("more", "at", "message"),
    [
        ("confluent_header = true", "confluent", "confluent_header = true requires schema_id, the id of schema_file"),
        ("confluent_header = true", "confluent", "ottla consume orders --from-beginning -n 1"),
        ("confluent_header = true\nschema_id = 7", None, ""),
        ("schema_id = 7", "schema_id", "schema_id requires confluent_header = true"),
        ("confluent_header = true\nschema_id = -1", "schema_id", "schema_id must be at least 0, not -1"),
        ("confluent_header = true\nschema_id = 4294967296", "schema_id", "schema_id must be at most 2147483647"),
        ('confluent_header = true\nschema_id = 7\nwriter_schemas = {6 = "old.avsc"}', None, ""),
        ('confluent_header = true\nschema_id = 7\nwriter_schemas = {v1 = "old.avsc"}', "writer", "'v1' is not an id"),
        (
            'confluent_header = true\nschema_id = 7\nwriter_schemas = {7 = "old.avsc"}',
            "writer",
            "7 is the id of schema",
        ),
        ('confluent_header = true\nschema_id = 7\nwriter_schemas = {6 = "no.avsc"}', "writer", "no.avsc not found"),
        ('confluent_header = true\nschema_id = 7\nwriter_schemas = {6 = "bad.avsc"}', "writer", "unknown type lng"),
        ('confluent_header = true\nschema_id = 7\nwriter_schemas = {6 = "x.avsc"}', "writer", "is not an Avro schema"),
    ],
)
def test_schema_ids(tmp_path: Path, more: str, at: str | None, message: str) -> None:
    for name, kind in (("order", "long"), ("old", "int"), ("bad", "lng")):
        (tmp_path / f"{name}.avsc").write_text(
            f'{{"type": "record", "name": "r", "fields": [{{"name": "id", "type": "{kind}"}}]}}'
        )
    (tmp_path / "x.avsc").write_text("{")
    source = re.sub(r"schema = .*", 'format = "avro"\nschema_file = "order.avsc"', SOURCE)
    check_one(tmp_path, HEAD + source + more + "\n" + SINK, at, message)
    table = source.replace("[[source]]", "[[table]]").replace(
        'topics = ["orders"]', 'format = "topic"\ntopic = "orders"'
    )
    table = table.replace('format = "avro"', 'value_format = "avro"').replace('name = "orders"', 'name = "known"')
    check_one(tmp_path, HEAD + SOURCE + table + more + "\n" + SINK, at, message)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "id BIGINT, total DUOBLE",
            "the unknown type duoble. Did you mean double?",
        ),
        ("id", "column id has no type"),
        ("id BIGINT total DOUBLE", "unexpected 'total'"),
        ("id BIGINT,, x INT", "expected a column name"),
        ("id ARRAY<INT", "array requires '>'"),
        ("id MAP<INT>", "map requires ','"),
        ("id BIGINT, ID INT", "column ID appears twice"),
        ("id BIGINT NOT", "the schema ends too early"),
        ("_offset BIGINT", "column _offset is reserved for the origin of records"),
        ("   ", "the schema has no columns"),
    ],
)
def test_schemas(tmp_path: Path, schema: str, message: str) -> None:
    text = HEAD + re.sub(r'schema = ".*"', f'schema = "{schema}"', SOURCE) + SINK
    line, told = only(tmp_path, text)
    assert line == line_of(text, "schema =")
    assert message in told


@pytest.mark.parametrize(
    ("step", "at", "message"),
    [
        ('squl = "SELECT 1"', "[[step]]", "the step has no action: add one of sql, sql_file, python"),
        ('sql = "SELECT 1"\ndedupe = ["id"]', "[[step]]", "a step can have only one of"),
        ('sql = "SELECT 1"\ninput = "orders"', "input", "names its inputs in FROM"),
        ('sql_file = "no.sql"', "sql_file", "no.sql not found"),
        ('dedupe = ["id"]', "[[step]]", 'within is missing, such as within = "1 hour"'),
        ('dedupe = "id"\nwithin = "1 hour"', "dedupe", "a list of strings, not 'id'. Write [\"id\"]"),
        ('dedupe = []\nwithin = "1 hour"', "dedupe", "dedupe is empty: name the key columns"),
        (
            'dedupe = ["id", "totl"]\nwithin = "1 hour"',
            "dedupe",
            "dedupe: column totl does not exist. Did you mean total? orders has id, total, at",
        ),
        ('dedupe = ["ID", "_key"]\nwithin = "1 hour"', None, ""),
        ('dedupe = ["id"]\nwithin = "1 hour"\nslide = "5 m"', "slide", "It is a key of [[step]] with window."),
        (
            'dedupe = ["id"]\nwithin = "1 hour"\ninput = "odrers"',
            "input",
            "step odrers does not exist. Did you mean orders?",
        ),
        ('dedupe = ["id"]\nwithin = "1 hour"\ninput = "s"', "input", "input s is declared later"),
        ('join = "people"\non = ["id"]', "join", "people does not exist: name a table, a source or an earlier step"),
        ('python = "no_such_module:x"', "python", "module no_such_module not found"),
        ('python = "clean"', "python", "python must have the form module:function, not 'clean'"),
        ('python = "cleaning:claen"', "python", "does not define claen. Did you mean clean?"),
        ('python = "cleaning:clean"', None, ""),
        ('python = "json:loads"', None, ""),
        ('window = "1 minute"\naggregate = {n = "count(*)"}', "window", "windows without a watermark never end"),
        ('window = "1 minute"\naggregate = {n = "count(*)"}\nwatermark = "1 minute"', None, ""),
        ('window = "1 minute"\naggregate = {}\nwatermark = "1 m"', "aggregate", "aggregate is empty"),
    ],
)
def test_steps(tmp_path: Path, step: str, at: str | None, message: str) -> None:
    (tmp_path / "cleaning.py").write_text("def clean(frame):\n    return frame\n")
    check_one(tmp_path, f'{HEAD}{SOURCE}\n[[step]]\nname = "s"\n{step}\n{SINK}', at, message)


@pytest.mark.parametrize(
    ("sink", "at", "message"),
    [
        ('path = "x"', "[[sink]]", "format is missing: use one of parquet, csv"),
        ('format = "parkuet"\npath = "x"', "format", "Did you mean parquet?"),
        ('format = "parquet"', "[[sink]]", "path is missing: set the output directory"),
        (
            'format = "parquet"\npath = "x"\ndeliver = "exactly-once"',
            "deliver",
            "[[sink]] with format topic",
        ),
        ('format = "parquet"\npath = "x"\nmode = "update"', "mode", "a parquet sink supports mode append, not update"),
        ('format = "delta"\npath = "x"', None, ""),
        ('format = "delta"\npath = "x"\ntable = "a.b"', "table", "table is for iceberg: a delta table has a path"),
        ('format = "delta"', "[[sink]]", "path is missing: set the directory or URL of the Delta table"),
        ('format = "delta"\npath = "x"\nmode = "upsert"', "mode", 'mode upsert requires keys, such as keys = ["id"]'),
        (
            'format = "delta"\npath = "x"\nmode = "append"\nkeys = ["id"]',
            "keys",
            "keys are for mode upsert, not",
        ),
        ('format = "delta"\npath = "x"\nmode = "overwrite"', "mode", "mode overwrite requires an aggregation"),
        ('format = "delta"\npath = "x"\nmode = "update"', "mode", "a delta sink supports mode append or upsert or"),
        ('format = "delta"\npath = "x"\nstorage = {k = "${env:NO_SUCH}"}', "storage", "NO_SUCH is not set"),
        (ICEBERG + 'table = "a.b"', None, ""),
        (ICEBERG, "[[sink]]", 'table is missing: name the Iceberg table, such as table = "shop.orders"'),
        (
            'format = "iceberg"\ntable = "a.b"\ncatalog = {type = "sqll"}',
            "catalog",
            "catalog: there is no type sqll. Did you mean sql?",
        ),
        (ICEBERG + 'table = "orders"', "table", "table needs a namespace, such as shop.orders"),
        (ICEBERG + 'table = "a.b"\npath = "x"', "path", "an iceberg table has no path: set table and catalog"),
        ('format = "iceberg"\ntable = "a.b"', "[[sink]]", 'catalog is missing, such as catalog = {type = "sql"'),
        (
            'format = "topic"\ntopic = "x"\ndeliver = "once"',
            "deliver",
            "at-least-once, not 'once'",
        ),
        ('format = "topic"', "[[sink]]", 'topic is missing, such as topic = "large-orders"'),
        ('format = "topic"\ntopic = "{topic}.x"', "topic", "{topic} works only for dead letters"),
        ('format = "topic"\ntopic = "x"\nmode = "complete"', "mode", "a topic sink supports mode append or update"),
        ('format = "topic"\ntopic = "x"\nkafka = {linger.ms = -1}', "kafka", "kafka.linger.ms"),
        ('format = "console"\nmode = "complete"', "mode", "mode complete requires an aggregation"),
        ('format = "console"\nrows = 0', "rows", "rows must be at least 1"),
        (JDBC + 'mode = "update"', "mode", "mode update requires keys"),
        (JDBC + 'sequence = "at"', "sequence", 'sequence requires keys, such as keys = ["id"]'),
        (JDBC + "delete_when = \"op = 'd'\"", "delete_when", "delete_when requires keys"),
        (JDBC + 'keys = ["id"]\nexclude = ["id"]', "exclude", "exclude contains id, which keys or sequence needs"),
        ('format = "jdbc"\nurl = "postgresql://h/db"\ntable = "t"', "url", "url must start with jdbc:, such as"),
        ('format = "console"\ninput = "people"', "input", "input people is a table"),
        ('format = "console"\nname = "table"', "name", "there"),
    ],
)
def test_sinks(tmp_path: Path, sink: str, at: str | None, message: str) -> None:
    (tmp_path / "people.csv").write_text("")
    table = '[[table]]\nname = "people"\nformat = "csv"\npath = "people.csv"\n'
    if "\nname" in sink:
        text = f"{HEAD}{SOURCE}{SINK}\n[[sink]]\n{sink}\n"
        line, told = only(tmp_path, text)
        assert (line, told) == (line_of(text, "name ="), "the name table is already used (line 10): choose another")
        return
    check_one(tmp_path, f'{HEAD}{SOURCE}\n{table}\n[[sink]]\nname = "s"\n{sink}\n', at, message)


def test_two_sinks_of_one_table_are_refused(tmp_path: Path) -> None:
    other = SINK.replace('"table"\nformat', '"other"\nformat').replace('path = "table"', 'path = "./table/"')
    text = f"{HEAD}{SOURCE}{SINK}{other}"
    line, message = only(tmp_path, text)
    assert line == line_of(text, 'path = "./table/"')
    assert message.startswith("sink table writes to the same path: each would skip batches of the other and lose rows.")
    assert found(tmp_path, text.replace("./table/", "other")) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('keys = ["user", "window_start"]', None),
        ('keys = ["user", "window_end"]\nmode = "update"', None),
        ('keys = ["user"]\nsequence = "window_start"', None),
        ('keys = ["user"]', "keys match several windows of w: add window_start to keys, or set sequence = "),
        ('keys = ["window_start"]', "rows of w with the same keys can differ in user: add it to keys"),
    ],
)
def test_keys_of_windows_need_an_order(tmp_path: Path, more: str, message: str | None) -> None:
    step = """
[[step]]
name = "w"
window = "1 minute"
group_by = ["user"]
event_time = "at"
watermark = "5 minutes"
aggregate = {n = "count(*)"}
"""
    source = SOURCE.replace("total DOUBLE", "user STRING")
    text = f'{HEAD}{source}{step}\n[[sink]]\nname = "s"\n{JDBC}{more}\n'
    if message is None:
        assert found(tmp_path, text) == []
    else:
        check_one(tmp_path, text, "keys", message)


def test_one_watermark_in_a_stream(tmp_path: Path) -> None:
    source = SOURCE + 'event_time = "at"\nwatermark = "10 minutes"\n'
    steps = """
[[step]]
name = "a"
dedupe = ["id"]
within = "600 s"
[[step]]
name = "b"
dedupe = ["id"]
within = "1 hour"
[[step]]
name = "w"
input = "a"
window = "1 minute"
aggregate = {n = "count(*)"}
[[step]]
name = "v"
input = "a"
window = "1 minute"
aggregate = {n = "count(*)"}
watermark = "10 m"
event_time = "_timestamp"
"""
    told = found(tmp_path, HEAD + source + steps + SINK)
    assert [message.split(":")[0] for _, message in told] == [
        "within 1 hour differs from 10 minutes of orders",
        "within 1 hour differs from 600 s of a",
        "event_time _timestamp differs from at of source orders, which has a watermark",
    ]
    # A dedupe is a watermark for the windows behind it.
    assert found(tmp_path, HEAD + SOURCE + steps[: steps.index('[[step]]\nname = "b"')] + WINDOW + SINK) == []


WINDOW = '[[step]]\nname = "w"\nwindow = "1 minute"\naggregate = {n = "count(*)"}\n'


def test_names_and_tables_and_dead_letters(tmp_path: Path) -> None:
    text = f"""{HEAD}{SOURCE}{SINK}
[[source]]
name = "a-b"
topics = ["orders"]
format = "text"
[[table]]
name = "Orders"
path = "nowhere"
[[table]]
name = "topic"
format = "topic"
[[sink]]
name = "dead-letters"
format = "console"
[dead_letters]
topic = "{{topic}}"
"""
    assert [message for _, message in found(tmp_path, text)] == [
        "input is missing: choose one of orders, a-b",
        "name must consist of letters, digits and _, not 'a-b'",
        "the name Orders is already used (line 5): sources, tables and steps need distinct names",
        f"file or directory {tmp_path / 'nowhere'} not found",
        'json requires a schema, such as schema = "id BIGINT, name STRING"',
        "a table with format topic requires topic",
        "input is missing: choose one of orders, a-b",
        "the name dead-letters is reserved: rename the sink",
        "source a-b reads {topic}, so dead letters would loop: use another topic",
        "source orders reads {topic}, so dead letters would loop: use another topic",
    ]


def test_python_has_the_lines_of_its_calls(tmp_path: Path) -> None:
    text = """\
from ottla.spark.pipelines import FileSink, Pipeline, Source

source = Source(
    name="orders",
    topics=["orders"],
    format="jsn",
)
pipeline = Pipeline(name="x", checkpoint="c", bootstrap_servers="x:1", sources=[source],
    sinks=[
        FileSink(name="t"),
    ])
"""
    assert found(tmp_path, text, "orders.py") == [
        (3, "format must be one of json, avro, protobuf, csv, text, bytes, debezium, not 'jsn'. Did you mean json?"),
        (10, "path is missing: set the output directory"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = (", 1, "invalid Python: '(' was never closed"),
        ("x = 5", None, "the file must define pipeline = Pipeline(…): it is missing"),
        ("pipeline = 5", None, "the file must define pipeline = Pipeline(…): it is a int"),
        ("\nx = 1 / 0", 2, "ZeroDivisionError: division by zero"),
        ("\nfrom ottla.spark.pipelines import *\nSql(name='x', squl='')", 3, "Sql has no squl. Did you mean sql?"),
        ("\nfrom ottla.spark.pipelines import *\nDedupe(name='x')", 3, "Dedupe requires keys and within"),
    ],
)
def test_python_that_fails(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    assert found(tmp_path, text, "orders.py") == [(line, message)]


def test_python_of_other_types(tmp_path: Path) -> None:
    wrong: Any = Pipeline(name="x", checkpoint="c", sources=[5], sinks="none")  # type: ignore[list-item, arg-type]
    assert [problem.message for problem in check(wrong)] == [
        "sinks must be a list of Sink, not 'none'",
        "sources must be a list of Source, not [5]",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.toml", "file not found"),
        ("orders.yaml", r"not a pipeline: use a \.toml or \.py file"),
        (".", "this is a directory: give the file of a pipeline"),
    ],
)
def test_no_such_file(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "orders.yaml").write_text("")
    with pytest.raises(DeclarationError, match=message):
        load(tmp_path / name)


def test_toml_and_python_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("")
    (tmp_path / "f.py").write_text("def g(x): return x")
    (tmp_path / "orders.toml").write_text(
        HEAD
        + SOURCE
        + """
[[table]]
name = "people"
format = "csv"
path = "people.csv"
options = {header = true}
[[step]]
name = "a"
dedupe = ["id"]
within = "1 hour"
[[step]]
name = "b"
join = "people"
on = ["id"]
[[step]]
name = "c"
python = "f:g"
[[step]]
name = "d"
window = "1 minute"
aggregate = {n = "count(*)"}
watermark = "1 hour"
input = "b"
[[step]]
name = "e"
sql = "SELECT * FROM a"
[[expect]]
name = "f"
that = "n > 0"
otherwise = "drop"
[[sink]]
name = "s"
format = "topic"
topic = "out"
[[sink]]
name = "t"
format = "jdbc"
url = "jdbc:x"
table = "y"
"""
        + SINK
        + """
[dead_letters]
topic = "dead"
"""
    )
    assert load(tmp_path / "orders.toml") == Pipeline(
        name="orders",
        checkpoint="state",
        bootstrap_servers="localhost:9092",
        sources=[
            Source(name="orders", topics=["orders"], schema="id BIGINT NOT NULL, total DOUBLE, at TIMESTAMP"),
        ],
        tables=[Table(name="people", format="csv", path="people.csv", options={"header": True})],  # type: ignore[dict-item]
        steps=[
            Dedupe(name="a", keys=["id"], within="1 hour"),
            Join(name="b", join="people", on=["id"]),
            Python(name="c", python="f:g"),
            Window(name="d", window="1 minute", aggregate={"n": "count(*)"}, watermark="1 hour", input="b"),
            Sql(name="e", sql="SELECT * FROM a"),
        ],
        expects=[Expect(name="f", that="n > 0", otherwise="drop")],
        sinks=[
            TopicSink(name="s", topic="out"),
            JdbcSink(name="t", url="jdbc:x", table="y"),
            FileSink(name="table", format="parquet", path="table"),
        ],
        dead_letters=DeadLetters(topic="dead"),
    )
    assert load(tmp_path / "orders.toml").checkpoint_of("table") == f"{tmp_path}/state/table"


def test_clients_get_the_settings_that_they_have() -> None:
    source = Source(
        name="o", assign={"o": [0]}, starting_offsets={"o": {"0": 5}}, kafka={"fetch.min.bytes": 5}, group_id="g"
    )  # type: ignore[dict-item]
    sink = TopicSink(name="s", topic="t", bootstrap_servers="other:1")
    pipeline = Pipeline(
        name="x",
        checkpoint="c",
        bootstrap_servers="one:1",
        kafka={"acks": "all", "max.poll.records": "5", "security.protocol": "SSL"},
        sources=[source],
        sinks=[sink],
    )
    assert read_options(pipeline, source, "g") == {
        "kafka.bootstrap.servers": "one:1",
        "kafka.max.poll.records": "5",
        "kafka.security.protocol": "SSL",
        "kafka.fetch.min.bytes": "5",
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({"o": [0]}),
        "startingOffsets": json.dumps({"o": {"0": 5}}),
        "group.id": "g",
        "failOnDataLoss": "true",
        "includeHeaders": "false",
    }
    assert write_options(pipeline, sink, "t") == {
        "kafka.bootstrap.servers": "other:1",
        "kafka.acks": "all",
        "kafka.security.protocol": "SSL",
        "topic": "t",
        "deliver": "exactly-once",
    }
