"""SQL in declarations: where it is, what sqlglot says, and how Spark's errors read. Nothing here starts Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.spark.pipelines import DeclarationError, Pipeline, Sql, load
from ottla.spark.pipelines.checks.sql import is_plain
from ottla.spark.pipelines.sql_errors import problem_of, read_error
from ottla.spark.pipelines.sql_texts import SqlText, sql_texts

TEXT = '''\
name = "shop"
checkpoint = "state"
bootstrap_servers = "localhost:9092"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT, total DOUBLE, at TIMESTAMP"
require = [
    "total >= 0",
    "id > 0",
]

[[step]]
name = "large"
sql = """
SELECT id,
       totl
FROM orders
"""

[[step]]
name = "small"
sql_file = "small.sql"

[[step]]
name = "counts"
window = "1 minute"
watermark = "1 minute"
aggregate = {n = "count(*)", sum = "sum(totl)"}

[[sink]]
name = "out"
input = "large"
format = "topic"
topic = "large"
key = "id"
'''


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "small.sql").write_text("SELECT *\nFROM orders\nWHERE totl < 5\n")
    (tmp_path / "shop.toml").write_text(TEXT)
    return load(tmp_path / "shop.toml")


def test_every_sql_is_found_with_its_line(pipeline: Pipeline) -> None:
    parts = [*pipeline.sources, *pipeline.steps, *pipeline.sinks]
    found = [one for part in parts for one in sql_texts(pipeline, part)]
    assert [(one.key, one.is_query) for one in found] == [
        ("require.0", False),
        ("require.1", False),
        ("sql", True),
        ("sql_file", True),
        ("aggregate.n", False),
        ("aggregate.sum", False),
        ("key", False),
    ]
    lines = [one.problem("wrong", 1, 2) for one in found]
    assert [one.line for one in lines] == [10, 11, 17, 1, 30, 30, 37]
    assert str(found[2].problem("wrong", 2, 8)).endswith("shop.toml:18: sql, line 2 position 8: wrong")
    assert found[2].problem("wrong", 4, 1).line == 19, "the end is empty"
    assert str(found[3].problem("wrong", 3, 7)).endswith("small.sql:3: position 7: wrong")
    assert str(found[1].problem("wrong", 1, 4)).endswith("shop.toml:11: require.1, position 4: wrong")


COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `totl` cannot be "
    "resolved. Did you mean one of the following? [`total`, `id`]. SQLSTATE: 42703; line 2 pos 7;\n"
    "'Project [id#1, 'totl]\n+- SubqueryAlias orders\n"
)


def test_an_unknown_column_is_told_without_the_plan(pipeline: Pipeline) -> None:
    columns = {"orders": ["id", "total", "at", "_topic", "_offset"], "large": ["x"]}
    step = pipeline.steps[0]
    told = problem_of(pipeline, step, COLUMN, columns)
    assert (told.line, told.message) == (
        18,
        "sql, line 2 position 8: column totl does not exist. Did you mean total? orders has id, total, at",
    )
    # With several texts, the one with the name is meant.
    told = problem_of(pipeline, pipeline.steps[2], COLUMN.replace("line 2 pos 7", "line 1 pos 4"), columns)
    assert (told.line, told.message.split(":")[0]) == (30, "aggregate.sum, position 5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM': extra input 'FORM'. SQLSTATE: 42601 (line 1, pos 9)"
            "\n\n== SQL ==\nSELECT 1 FORM",
            "Syntax error at or near 'FORM': extra input 'FORM'",
        ),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `ordres` cannot be found. Verify the spelling and correctness "
            "of the schema and catalog.\nIf you did not. SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]",
            "source, table or step ordres does not exist. Did you mean orders?",
        ),
        (
            '[MISSING_AGGREGATION] The non-aggregating expression "id" is based on columns which are not participating'
            " in the GROUP BY clause.\nAdd the columns. SQLSTATE: 42803;\nAggregate [a]",
            'The non-aggregating expression "id" is based on columns which are not participating in the GROUP BY '
            "clause. Add the columns",
        ),
    ],
)
def test_errors_of_spark_become_one_line(text: str, message: str) -> None:
    assert read_error(text, names=["orders", "people"]).message == message


@pytest.mark.parametrize("sql", ["DROP TABLE orders", "-- x\n/* y */ insert into t values (1)", "SET a = 1", "--"])
def test_a_step_must_be_a_query(tmp_path: Path, sql: str) -> None:
    (tmp_path / "small.sql").write_text(sql)
    (tmp_path / "shop.toml").write_text(TEXT)
    with pytest.raises(DeclarationError, match="a SQL step must be a query that begins with SELECT"):
        load(tmp_path / "shop.toml")


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ("SELECT id, total FROM orders WHERE total > 5", True),
        ("WITH x AS (SELECT 1 AS a) SELECT `a` FROM x;", True),
        ("SELECT a FROM t LATERAL VIEW explode(xs) AS x", True),
        ("SELECT filter(xs, x -> x > 1), v:a FROM t", True),
        ("SELECT id total FORM orders WHERE", False),
        ("SELECT count(* FROM orders", False),
        ("SELECT 'a FROM orders", False),
        ("SELECT 1; SELECT 2", False),
        ("SELECT cast(id AS int FROM orders", False),
        ("SELECT if(, id, total), FROM orders", False),
        # Spark accepts this; doubt is no error.
        ("SELECT window.start, count(*) FROM t GROUP BY window(at, '5 minutes')", False),
    ],
)
def test_what_sqlglot_rejects_is_only_doubtful(sql: str, plain: bool) -> None:
    step = Sql(name="s", sql=sql)
    assert is_plain(SqlText(step, "sql", sql, is_query=True)) == plain


@pytest.mark.parametrize(("sql", "plain"), [("total >= 0", True), ("total >= 0 FROM x", False), ("a, b", False)])
def test_expressions(sql: str, plain: bool) -> None:
    assert is_plain(SqlText(Sql(name="s"), "key", sql, is_query=False)) == plain
