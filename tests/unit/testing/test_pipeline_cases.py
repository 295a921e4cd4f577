"""Stored test cases of pipelines: reading them, and their problems."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.spark.pipelines.declaration import DeclarationError, Pipeline
from ottla.testing.pipelines.cases import NoCases, case_files, directory_of_tests, read_case
from ottla.testing.pipelines.records import encoded
from ottla.testing.pipelines.registered import Registered
from ottla.testing.pipelines.suites import load_case, load_for_test

PIPELINE = """
name = "orders"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, total DOUBLE"

[[table]]
name = "customers"
path = "customers.parquet"

[[sink]]
name = "table"
format = "parquet"
path = "out"

[dead_letters]
topic = "orders.dead"

[[expect]]
name = "positive"
that = "total >= 0"
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "orders.toml").write_text(PIPELINE)
    return load_for_test(tmp_path / "orders.toml", ["customers"])


def written(tmp_path: Path, text: str, name: str = "one") -> Path:
    directory = directory_of_tests(tmp_path / "orders.toml")
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.toml").write_text(text)
    return directory / f"{name}.toml"


def test_a_case_has_batches_rows_and_dead_letters(tmp_path: Path, pipeline: Pipeline) -> None:
    file = written(
        tmp_path,
        """
        ordered = true
        broken_rules = {positive = 2}

        [[batch]]
        orders = [{id = 1, total = 2.5, _key = "a"}, 'not JSON']

        [[batch]]
        orders = '''
        {"id": 2}

        {"id": 3}
        '''

        [tables]
        customers = [{id = 7}]

        [expected]
        table = [{id = 1, at = 2026-01-01T00:00:00Z}, '{"id": 2, "tags": [null]}']
        dead_letters = [{value = "not JSON", reason = "malformed"}]
        """,
    )
    case = read_case(file, pipeline)
    assert case.name == "one"
    assert case.ordered
    assert case.broken_rules == {"positive": 2}
    first, second = case.batches
    assert first == {"orders": [{"id": 1, "total": 2.5, "_key": "a"}, "not JSON"]}
    assert [line.strip() for line in second["orders"]] == ['{"id": 2}', '{"id": 3}']
    assert case.tables == {"customers": [{"id": 7}]}
    assert case.expected["table"] == [
        {"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"id": 2, "tags": [None]},
    ]
    assert case.expected["dead_letters"] == [{"value": "not JSON", "reason": "malformed"}]


def test_records_and_rows_can_be_in_files(tmp_path: Path, pipeline: Pipeline) -> None:
    file = written(
        tmp_path,
        """
        [[batch]]
        orders = {file = "sample.jsonl"}
        [expected]
        table = {file = "rows.csv"}
        dead_letters = {file = "dead.jsonl"}
        """,
    )
    (file.parent / "sample.jsonl").write_text('{"id": 1}\nnot JSON\n')
    (file.parent / "rows.csv").write_text("id,total,name,ok\n1,2.5,seven,true\n2,,7x,\n")
    (file.parent / "dead.jsonl").write_text('{"reason": "malformed"}\n')
    case = read_case(file, pipeline)
    assert case.batches == ({"orders": ['{"id": 1}', "not JSON"]},)
    assert case.expected["table"] == [
        {"id": 1, "total": 2.5, "name": "seven", "ok": True},
        {"id": 2, "total": None, "name": "7x", "ok": None},
    ]
    assert case.expected["dead_letters"] == [{"reason": "malformed"}]
    assert {name: path.name for name, path in case.files.items()} == {"table": "rows.csv", "dead_letters": "dead.jsonl"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[batch]]\norder = []\n[expected]\ntable = []", "one.toml:2: orders.toml has no source order. Did you mean"),
        ("[[batch]]\norders = []\n[expected]\ntabel = []", "one.toml:4: orders.toml has no sink tabel. Did you mean"),
        ("[[batch]]\norders = []\n[tables]\nx = []\n[expected]\ntable = []", "one.toml:4: orders.toml has no table x"),
        ("[[batch]]\norders = []\n[expect]\ntable = []", "one.toml:3: a test case has no key expect. Did you mean exp"),
        ("[expected]\ntable = []", "the case has no input: add [[batch]]"),
        ("[batch]\norders = []\n[expected]\ntable = []", "one.toml:1: the case has no input: add [[batch]]"),
        ("[[batch]]\norders = []", "the case expects nothing"),
        ("fails = 'x'\n[[batch]]\norders = []\n[expected]\ntable = []", "remove either fails or [expected]"),
        ("fails = 3\n[[batch]]\norders = []", "one.toml:1: fails must be a part of the error message"),
        ("ordered = 1\n[[batch]]\norders = []\n[expected]\ntable = []", "one.toml:1: ordered must be true or false"),
        (
            "[[batch]]\norders = 3\n[expected]\ntable = []",
            "one.toml:2: orders must be a list, a text with lines, or {fi",
        ),
        ("[[batch]]\norders = {file = 'x'}\n[expected]\ntable = []", "x not found"),
        (
            "[[batch]]\norders = [\n{_kye = 'a'},\n]\n[expected]\ntable = []",
            "one.toml:3: record 1 of orders: _kye is u",
        ),
        ("[[batch]]\norders = []\n[expected]\ntable = [3]", "one.toml:4: a row is a table such as {id = 1}"),
        (
            "[[batch]]\norders = []\n[expected]\ndead_letters = [{resaon = 'x'}]",
            "has no key resaon. Did you mean reason",
        ),
        ("broken_rules = 1\n[[batch]]\norders = []", "one.toml:1: broken_rules is a table"),
        (
            "broken_rules = {x = 1}\n[[batch]]\norders = []",
            "one.toml:1: orders.toml has no rule x. The rules are",
        ),
        ("broken_rules = {positive = '1'}\n[[batch]]\norders = []", "one.toml:1: positive must be a number of rows"),
        ("[[batch]]\norders = [", "invalid TOML"),
    ],
)
def test_problems_have_their_lines(tmp_path: Path, pipeline: Pipeline, text: str, problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        read_case(written(tmp_path, text), pipeline)
    assert problem in str(caught.value)


def test_cases_are_found_by_name(tmp_path: Path) -> None:
    with pytest.raises(NoCases, match=r"has no tests: write the first one as .*orders\.tests/NAME\.toml"):
        case_files(tmp_path / "orders.toml")
    written(tmp_path, "", "late")
    written(tmp_path, "", "broken")
    assert [file.stem for file in case_files(tmp_path / "orders.toml")] == ["broken", "late"]
    assert [file.stem for file in case_files(tmp_path / "orders.toml", ["late"])] == ["late"]
    with pytest.raises(NoCases, match=r"has no case lat\. Did you mean late\?"):
        case_files(tmp_path / "orders.toml", ["lat"])


def test_a_test_needs_no_variables_and_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME_OF_IT", "orders")
    text = PIPELINE.replace('"orders"', '"${NAME_OF_IT}"', 1).replace('"orders.dead"', '"${DEAD_TOPIC}"')
    text = text.replace('"out"', '"${OUT:-elsewhere}"')
    (tmp_path / "orders.toml").write_text(text)
    found = load_for_test(tmp_path / "orders.toml", ["customers"])
    assert (found.name, found.dead_letters and found.dead_letters.topic) == ("orders", "test")
    assert getattr(found.sinks[0], "path", None) == "elsewhere"
    with pytest.raises(DeclarationError, match=r"customers\.parquet not found"):
        load_for_test(tmp_path / "orders.toml")


AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}%s]}'
REGISTERED = """
name = "trades"
checkpoint = "state"

[[source]]
name = "trades"
topics = ["trades"]
format = "avro"
registry = "http://127.0.0.1:1"
event_time = "at"

[[sink]]
name = "table"
format = "parquet"
path = "out"
"""


def test_schemas_in_a_case_take_the_place_of_the_registry(tmp_path: Path) -> None:
    (tmp_path / "orders.toml").write_text(REGISTERED)
    file = written(
        tmp_path,
        """
        [registry]
        trades-value = ["v1.avsc", "v2.avsc"]
        [[batch]]
        trades = [
          {id = 1, _schema = 1},
          {id = 2, at = 2026-01-01T00:00:00Z},
        ]
        [expected]
        table = []
        """,
    )
    (file.parent / "v1.avsc").write_text(AVRO % "")
    at = ', {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}'
    (file.parent / "v2.avsc").write_text(AVRO % at)
    loaded = load_case(tmp_path / "orders.toml", file)
    assert [one.name for one in loaded.case.schemas["trades-value"]] == ["v1.avsc", "v2.avsc"]
    schemas = {"trades-value": [Registered(7, AVRO % ""), Registered(8, AVRO % at)]}
    source = loaded.pipeline.sources[0]
    values = [encoded(one, source, loaded.pipeline, schemas).value for one in loaded.case.batches[0]["trades"]]
    assert values[0] == b"\0\0\0\0\x07\x02"
    assert values[1] is not None
    assert values[1].startswith(b"\0\0\0\0\x08\x04")
    text = file.read_text()
    for old, new, message in (
        ("_schema = 1", "_schema = 3", "record 1 of trades: _schema must be a version from 1 to 2, not 3"),
        ("_schema = 1", "at = 'noon'", "record 1 of trades: it does not match the Avro schema"),
        ("{id = 1,", "{no = 1,", "record 1 of trades: the Avro schema has no field no"),
        ("v1.avsc", "v9.avsc", "v9.avsc not found"),
        ('["v1.avsc", "v2.avsc"]', "1", "trades-value must be a file with a schema, or a list of them, oldest first"),
        ("trades-value", "trade-value", "reads the subject trade-value. Did you mean trades-value?"),
        ('trades-value = ["v1.avsc", "v2.avsc"]', "", 'add [registry] with trades-value = "FILE", or write'),
    ):
        file.write_text(text.replace(old, new))
        with pytest.raises(DeclarationError) as raised:
            read_case(file, loaded.pipeline)
        assert message in str(raised.value), message
