"""Summaries of failed flows. The texts are from Spark 4.3, with other paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.spark.pipelines.failures import Failure, cause_of, reading_of

HEAD = "[STREAM_FAILED] Query [id = 64658c3e, runId = 11b8d9e7] terminated with exception: "
STATE = """
=== Streaming Query ===
Identifier: orders.table [id = 64658c3e, runId = 11b8d9e7]
Current Committed Offsets: {org.apache.spark.PythonMicroBatchStream@1486e527: {"orders": {"0": 40}}}
Current Available Offsets: {org.apache.spark.PythonMicroBatchStream@1486e527: {"orders": {"0": 42, "1": 58}}}

Current State: ACTIVE
"""
IN_A_FUNCTION = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/home/u/cleaning.py", line 21, in price
    return 1 // 0
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000 SQLSTATE: XXKST"""
IN_THE_SOURCE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
latestOffset: Traceback (most recent call last):
  File "/lib/site-packages/pyspark/sql/streaming/python_streaming_source_runner.py", line 281, in main
    latest_offset_admission_control_func(reader, infile, outfile)
  File "/lib/site-packages/ottla/spark/loss.py", line 20, in report_loss
    raise DataLoss(
ottla.spark.loss.DataLoss: offsets 0 to 7 of orders-0 are gone: its log begins at 7. The query stops because \
failOnDataLoss is true: set it to false to go on with what is left
 SQLSTATE: 38000 SQLSTATE: XXKST"""
IN_A_BATCH = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach \
batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/lib/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/lib/site-packages/ottla/spark/pipelines/sinks.py", line 25, in write
    frame.collect()
  File "/lib/site-packages/pyspark/errors/exceptions/captured.py", line 262, in deco
    raise converted from None
pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom in sql SQLSTATE: P0001
 SQLSTATE: 39000 SQLSTATE: XXKST"""
IN_JAVA = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 \
in stage 3.0 (TID 6) (10.0.0.2 executor driver): java.io.IOException: Mkdirs failed to create file:/proc/nope/t
\tat org.apache.hadoop.fs.RawLocalFileSystem.create(RawLocalFileSystem.java:626)
\tat org.apache.spark.scheduler.Task.run(Task.scala:147)

Driver stacktrace:"""
IN_SQL = """[CAST_INVALID_INPUT] The value 'x' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018
== SQL (line 1, position 1) ==
cast('x' as int) as value
^^^^^^^^^^^^^^^^
"""
WRAPPED = """An error occurred while calling o1.start.
: org.apache.spark.SparkException: outer
\tat a.B.c(D.scala:1)
Caused by: java.net.ConnectException: Connection refused
\t... 12 more"""
KILLED = (
    "Job aborted due to stage failure: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (IN_A_FUNCTION, "ZeroDivisionError: integer division or modulo by zero (line 21 of cleaning.py, in price)"),
        (
            IN_THE_SOURCE,
            "offsets 0 to 7 of orders-0 are gone: its log begins at 7. The query stops because fail_on_data_loss is "
            "true: set it to false to go on with what is left",
        ),
        (IN_A_BATCH, "boom in sql"),
        (IN_JAVA, "IOException: Mkdirs failed to create file:/proc/nope/t"),
        (IN_SQL, 'The value \'x\' of the type "STRING" cannot be cast to "INT". (CAST_INVALID_INPUT)'),
        (WRAPPED, "ConnectException: Connection refused"),
        (KILLED, "a Python worker of Spark exited unexpectedly: it was killed, perhaps because memory ran out"),
        ("it was stopped from outside", "it was stopped from outside"),
        (ValueError(), "ValueError"),
        ("x" * 5000, "x" * 599 + "…"),
    ],
)
def test_the_real_cause(text: object, cause: str) -> None:
    if isinstance(text, str):
        assert cause_of(HEAD + text + STATE) == cause
    assert cause_of(text) == cause


def test_two_lines_say_everything() -> None:
    failure = Failure.of("table", HEAD + IN_A_FUNCTION + STATE)
    assert failure.lines == [
        "flow table: ZeroDivisionError: integer division or modulo by zero (line 21 of cleaning.py, in price)",
        "flow table: it was reading orders-0 from offset 40 to 41, orders-1 up to offset 57",
    ]
    assert "Traceback" in failure.details
    (line,) = Failure.of("shared.orders", "topic orders does not exist").lines
    assert line == "the shared read of source orders: topic orders does not exist"


def test_options_of_the_source_are_keys_of_the_declaration() -> None:
    told = (
        "Traceback (most recent call last):\nottla.spark.loss.DataLoss: other topics (subscribe, subscribePattern, "
        "assign): name them again, or use a new checkpointLocation for other topics. failOnDataLoss is true"
    )
    assert cause_of(told) == (
        "other topics (topics, pattern, assign): name them again, or start again from the beginning with "
        "`ottla pipeline reset --all`. fail_on_data_loss is true"
    )


def test_refused_data_is_not_any_failure() -> None:
    refused = "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] rule a: x is false SQLSTATE: P0001"
    assert Failure.of("table", HEAD + refused + STATE).is_refusal
    assert Failure.of("table", HEAD + refused + STATE).cause == "rule a: x is false"
    assert not Failure.of("table", HEAD + IN_SQL + STATE).is_refusal


def test_what_was_read_is_told_where_it_is_known() -> None:
    assert reading_of("nothing of the kind") == ""
    assert reading_of("Current Committed Offsets: {}\nCurrent Available Offsets: {}\n") == ""
    others = 'Current Committed Offsets: {}\nCurrent Available Offsets: {FileStreamSource[f]: {"logOffset":3}}\n'
    assert reading_of(others) == ""
    many = '{"t": {' + ", ".join(f'"{number}": 5' for number in range(9)) + "}}"
    told = reading_of(f"Current Committed Offsets: {{}}\nCurrent Available Offsets: {{a@1: {many}}}\n")
    assert told.endswith("t-3 up to offset 4 and 5 more partitions")


def test_changed_steps_lead_to_a_reset_and_not_to_sparks_advice() -> None:
    text = (
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key schema. If you "
        "want to force running the query, please set spark.sql.streaming.stateStore.stateSchemaCheck to false."
    )
    failure = Failure.of("table", HEAD + text)
    assert failure.cause.startswith("the steps have changed, and the state in the checkpoint is of the old ones. Undo")
    assert "ottla pipeline reset" in failure.cause
    assert failure.code == 6


def test_a_registry_that_is_away_is_worth_another_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.toml"
    file.write_text("""\
name = "orders"
checkpoint = "state"
bootstrap_servers = "127.0.0.1:1"
[[source]]
name = "orders"
topics = ["orders"]
format = "avro"
registry = "http://127.0.0.1:9"
[[sink]]
name = "table"
format = "parquet"
path = "table"
""")
    assert main(["pipeline", "run", str(file)]) == 1
    assert "does not answer" in capsys.readouterr().err
    file.write_text(file.read_text().replace("parquet", "parket"))
    assert main(["pipeline", "run", str(file)]) == 2
