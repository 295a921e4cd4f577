"""`ottla pipeline` on a real Spark: the tutorial, stopping, and failures."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

import ottla
from compat.waiting import until
from ottla.broker.broker import Broker
from ottla.cli.main import main
from ottla.spark.pipelines.audit.stored import stored_audit
from ottla.spark.pipelines.loading import load
from ottla.spark.pipelines.run_lock import holder
from ottla.spark.pipelines.stored_run import stored_run
from ottla.spark.reading import DOUBT_SECONDS
from spark.cluster import Cluster
from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_session")]

TUTORIAL = Path(__file__).parents[2] / "docs" / "spark-tutorial.md"
DECLARED = """\
name = "NAME"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["NAME"]
schema = "id BIGINT NOT NULL"
group_id = "NAME-group"
max_offsets_per_trigger = 20

[[sink]]
name = "table"
format = "parquet"
path = "table"
"""
BREAKS = """
[[step]]
name = "broken"
python = "breaking:break_it"

[[sink]]
name = "other"
format = "parquet"
path = "other"
input = "orders"
"""
BREAKING = """
from pyspark.sql import functions as fn


@fn.udf("bigint")
def halved(number):
    return number // (number - 7)


def break_it(frame):
    return frame.withColumn("id", halved("id"))
"""


@pytest.fixture
def made(topics: Topics, tmp_path: Path) -> Callable[[str], tuple[Path, str]]:
    def make(more: str = "") -> tuple[Path, str]:
        """A pipeline's file, and the topic that it reads, with 100 records."""
        topic = topics.make(2)
        file = tmp_path / "orders.toml"
        file.write_text(DECLARED.replace("NAME", topic) + more)
        send(topics, topic, range(100))
        return file, topic

    return make


def send(topics: Topics, topic: str, numbers: range) -> None:
    sent = [topics.producer.send(topic, b'{"id": %d}' % number, partition=number % 2) for number in numbers]
    for future in sent:
        future.result(20)


def ids(topics: Topics, table: Path) -> list[int]:
    return sorted(row.id for row in topics.spark.read.parquet(str(table)).select("id").collect())


def test_the_tutorial_runs(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"orders_{uuid4().hex[:8]}"
    text = re.sub(r"\borders\b", name, TUTORIAL.read_text().replace("localhost:9092", topics.servers))
    blocks = re.findall(r"<!-- (runs|file: \S+|add: \S+) -->\n```(\w+)\n(.*?)```", text, re.DOTALL)
    kinds = "python python toml sh toml sh sh python sh sh sh toml python sh sh"
    assert " ".join(kind for _, kind, _ in blocks) == kinds
    told = []
    for mark, kind, code in blocks:
        if kind == "toml":
            path = tmp_path / mark.partition(" ")[2]
            path.parent.mkdir(exist_ok=True)
            with path.open("a" if mark.startswith("add: ") else "w") as file:
                file.write(code)
        elif kind == "python":
            # Java has another working directory.
            exec(compile(code.replace('"tables/', f'"{tmp_path}/tables/'), "block", "exec"), {})
        else:
            for line in code.splitlines():
                capfd.readouterr()
                assert main(shlex.split(line)[1:]) == 0, f"{line}: {capfd.readouterr().err}"
                told.append(capfd.readouterr())
    init, _, tested, check, run, status, groups, dry, _letters, some, again, rest, _check, ruled, audit = told
    assert "wrote sampled.toml: json, 3 columns, dedupe by id" in init.out
    assert "1 case passed" in tested.out
    assert check.out.startswith(f"{name}.toml is valid: 1 source, 1 step, 1 sink")
    # Dedupe adds an empty batch that removes old keys.
    assert [line.split()[1::2] for line in run.out.splitlines()[1:3]] == [["ended", "1023"]] * 2
    assert run.out.splitlines()[3] == "3 dead letters"
    assert f"dead-letters.{name}, batch 0: 1,023 rows in" in run.err
    assert "3 dead letters so far" in run.err
    assert [line.split()[-1] for line in status.out.splitlines()[2:4]] == ["0", "0"], "the last batch is committed"
    assert "3 dead letters wait" in status.out
    assert f"{name}-pipeline" in groups.out
    assert dry.out.count("malformed JSON") == 3
    assert some.out.splitlines() == ["2 dead letters sent back", "1 dead letter still waiting: over the limit"]
    assert again.out.splitlines()[3] == "2 dead letters"
    assert rest.out.splitlines() == [
        "1 dead letter sent back",
        "2 dead letters still waiting: already replayed 1 time",
    ]
    assert [line.split("  ")[0] for line in ruled.out.splitlines()[-2:]] == ["has_customer", "positive"]
    assert "1 of 11 (9.1 %)" in ruled.out
    assert audit.out.splitlines()[-1] == (
        "OK: 1,038 produced, 1,010 arrived (20 duplicates dropped, 7 in dead letters, 1 filtered), nothing lost, "
        "nothing repeated"
    )
    # The console shows the last run and the last audit.
    pipeline = load(tmp_path / f"{name}.toml")
    kept, stored = stored_run(pipeline), stored_audit(pipeline)
    assert kept is not None
    assert (kept.ending, len(kept.flows)) == ("done", 2)
    assert all(flow.rows >= 11 and flow.recent[0].seconds > 0 for flow in kept.flows)
    assert stored is not None
    assert (stored.report["ok"], stored.text.splitlines()[-1]) == (True, audit.out.splitlines()[-1])


def test_sigterm_in_the_middle_and_then_the_rest(
    topics: Topics, made: Callable[[str], tuple[Path, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, topic = made("")
    state = file.parent / "state"

    def stop() -> None:
        """Stop after some batches, while records keep arriving."""
        number = 100
        while sum(topics.committed(f"{topic}-group").values()) < 40:
            time.sleep(0.05)
        refused.append(main(["pipeline", "run", str(file), "--once"]))
        os.kill(os.getpid(), signal.SIGTERM)
        while holder(str(state)) is not None:
            send(topics, topic, range(number, number + 10))
            number += 10
            time.sleep(0.05)
        sent.append(number)

    sent: list[int] = []
    refused: list[int] = []
    thread = threading.Thread(target=stop)
    thread.start()
    assert main(["pipeline", "run", str(file), "--json"]) == 143
    thread.join()
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["event"] == "stopped"
    assert refused == [3]
    done = sum(event.get("rows", 0) for event in events)
    assert sum(topics.committed(f"{topic}-group").values()) == done, "what is finished is committed"
    assert ids(topics, file.parent / "table") == sorted(set(ids(topics, file.parent / "table")))
    assert main(["pipeline", "run", str(file), "--once", "-q"]) == 0
    assert ids(topics, file.parent / "table") == list(range(sent[0]))


def test_a_flow_that_fails_is_told_in_two_lines(
    topics: Topics, made: Callable[[str], tuple[Path, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, topic = made(BREAKS)
    (file.parent / "breaking.py").write_text(BREAKING)
    assert main(["pipeline", "run", str(file), "-q"]) == 1
    errors = capsys.readouterr().err.splitlines()
    # Python 3.14 calls it "division by zero".
    assert re.fullmatch(
        r"ottla: error: flow table: ZeroDivisionError: .* by zero \(line 7 of breaking\.py, in halved\)", errors[0]
    )
    assert re.fullmatch(rf"ottla: error: flow table: it was reading {topic}-0 up to offset \d+, .*", errors[1])
    assert errors[2:] == [f"ottla: Spark's log is {file.parent}/state/spark.log"]
    assert not topics.spark.streams.active, "the other flow is stopped"


@pytest.mark.long  # tests/unit/spark/pipelines/test_pipeline_sql.py has the messages
def test_check_finds_wrong_sql(
    topics: Topics, made: Callable[[str], tuple[Path, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """sqlglot rejects the first step, but Spark's parser accepts it; the second has a syntax error."""
    step = """
[[step]]
name = "counts"
sql = "SELECT window.start, count(*) AS n FROM orders GROUP BY window(_timestamp, '5 minutes')"

[[step]]
name = "large"
sql = \"\"\"
SELECT id
FROM orders
WHERE (id > 5
\"\"\"
"""
    file, _ = made(step)
    assert main(["pipeline", "check", str(file)]) == 2
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if text.startswith("WHERE"))
    assert capsys.readouterr().err.splitlines() == [
        f"{file}:{line}: sql, line 4 position 1: Syntax error at or near end of input",
        f"{file}: 1 problem",
    ]
    file.write_text(file.read_text().replace("(id > 5", "idd > 5"))
    assert main(["pipeline", "check", str(file)]) == 0
    capsys.readouterr()
    assert main(["pipeline", "check", str(file), "--spark"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == (
        f"{file}:{line}: sql, line 3 position 7: column idd does not exist. Did you mean id? orders has id"
    )


def test_a_topic_that_is_not_there_is_one_line(
    topics: Topics, made: Callable[[str], tuple[Path, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, topic = made("")
    file.write_text(file.read_text().replace(f'"{topic}"]', '"nowhere-to-be-found"]'))
    assert main(["pipeline", "run", str(file), "--once", "-q"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == (
        "ottla: error: flow table: topic nowhere-to-be-found does not exist: create it, or correct its name"
    )


@pytest.mark.cluster
def test_a_process_of_its_own(topics: Topics, made: Callable[[str], tuple[Path, str]]) -> None:
    """Ctrl-C reaches all processes, but only the command reacts, without output from Spark."""
    file, topic = made("")
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--interval", "0"]
    options = ["--conf", "spark.driver.memory=512m", "--master", "local[2]"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        until(lambda: sum(topics.committed(f"{topic}-group").values()) == 100, "all is committed", 100)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == 130, err
    assert out.splitlines()[0].split() == ["FLOW", "STATE", "BATCHES", "ROWS", "LAG"]
    assert out.splitlines()[1].split() == ["table", "stopped", "5", "100", "0"]
    assert all(re.match(r"\d\d:\d\d:\d\d table, batch", line) for line in err.splitlines()), err
    assert ids(topics, file.parent / "table") == list(range(100))


@pytest.mark.cluster
def test_a_second_ctrl_c_ends_at_once(topics: Topics, made: Callable[[str], tuple[Path, str]]) -> None:
    file, _ = made('[[step]]\nname = "slow"\npython = "slow:wait"\n')
    (file.parent / "slow.py").write_text(
        "import time\nfrom pyspark.sql import functions as fn\n"
        '@fn.udf("bigint")\ndef late(number):\n    time.sleep(60)\n    return number\n'
        'def wait(frame):\n    return frame.withColumn("id", late("id"))\n'
    )
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--master", "local[1]", "-q"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        until(lambda: any((file.parent / "state").glob("**/offsets/0")), "the first batch has begun", 100)
        os.killpg(process.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # it waits for the batch
            process.wait(1)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert err == "ottla: stopped at once; the next run repeats what was not finished\n"


def test_a_broker_that_is_away_for_a_while_fails_nothing(tmp_path: Path) -> None:
    """Read like a query: plan in the driver, read in a worker."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from ottla.spark.options import ReadOptions
    from ottla.spark.source import COLUMNS, StreamReader

    broker = Broker(tmp_path / "data")
    broker.start()
    servers = broker.bootstrap_servers
    with ottla.Producer(bootstrap_servers=servers) as producer:
        producer.send("orders", b"before").result(20)
    options = {"kafka.bootstrap.servers": servers, "subscribe": "orders", "startingOffsets": "earliest"}
    reader = StreamReader(ReadOptions.of(options, streaming=True), COLUMNS)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    broker.stop()
    found: list[object] = []

    def read() -> None:
        found.extend(batch.num_rows for part in reader.partitions(begin, end) for batch in reader.read(part))
        found.append(reader.latestOffset(end, ReadAllAvailable()))

    thread = threading.Thread(target=read)
    thread.start()
    # Longer than DOUBT_SECONDS.
    thread.join(DOUBT_SECONDS + 1.5)
    assert thread.is_alive(), "it waits"
    again = Broker(tmp_path / "data", listen=servers)
    again.start()
    try:
        thread.join(60)
        assert found == [1, end]
    finally:
        reader.stop()
        again.stop()


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_on_a_cluster_by_its_address_alone(topics: Topics, made: Callable[[str], tuple[Path, str]]) -> None:
    """The executors get the user's module, too."""
    file, _ = made('\n[[step]]\nname = "moved"\npython = "moving:move"\n')
    (file.parent / "moving.py").write_text(BREAKING.replace("(number - 7)", "1 + 1000").replace("break_it", "move"))
    with Cluster(workers=2) as cluster:
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--once", "--json"]
        memory = ["--conf", "spark.driver.memory=512m", "--conf", "spark.executor.memory=512m"]
        job = subprocess.run(
            [*command, "--master", cluster.master, *memory], capture_output=True, text=True, timeout=240, check=False
        )
        assert job.returncode == 0, job.stderr
        assert cluster.executors() == [0, 1]
    assert job.stderr == ""
    events = [json.loads(line) for line in job.stdout.splitlines()]
    assert sum(event.get("rows", 0) for event in events) == 100
    assert ids(topics, file.parent / "table") == list(range(1000, 1100))
