"""Running fake flows: ends, failures, stops, exit codes, the lock, and the commit to groups."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

import ottla as public
from ottla.cli.main import main
from ottla.clients.admin.blocking import Admin
from ottla.spark.pipelines import ConsoleSink, Pipeline, Source, exit_codes
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.limits import Counted, Limit, parse_limit
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.run_lock import FILE, AlreadyRunning, holder, local_path, run_lock
from ottla.spark.pipelines.runner import Ending, Runner, Stop, commit_groups, handle_signals

TIME = "2023-11-14T22:13:20.000Z"


class Py4JNetworkError(Exception):
    """The error of py4j when Java has exited."""


@dataclass
class FakeQuery:
    """A fake query that follows `script`, one step per wait."""

    name: str
    script: list[str] = field(default_factory=list)
    runId: str = ""  # noqa: N815 (Spark's names)
    isActive: bool = True  # noqa: N815
    error: str | None = None
    busy: bool = False
    batch: int | None = None
    stops: int = 0
    gone: bool = False

    def step(self) -> None:
        match self.script.pop(0) if self.script else "":
            case "begin":
                self.busy = True
            case "end":
                self.busy, self.batch = False, 0 if self.batch is None else self.batch + 1
            case "done":
                self.isActive = False
            case "lose":
                self.gone = True
            case "":
                pass
            case error:
                self.isActive, self.error = False, error

    @property
    def status(self) -> dict[str, Any]:
        if self.gone:
            raise Py4JNetworkError("Answer from Java side is empty")
        return {"isTriggerActive": self.busy, "isDataAvailable": self.busy}

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        if self.gone:
            raise Py4JNetworkError("Answer from Java side is empty")
        return None if self.batch is None else {"batchId": self.batch}

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        """Spark keeps some; an idle query reports the next batch number."""
        told = [] if self.batch is None else list(range(self.batch + 1))
        return [SimpleNamespace(json=json.dumps({"batchId": one, "timestamp": TIME})) for one in told]

    def exception(self) -> str | None:
        return self.error

    def stop(self) -> None:
        self.stops += 1
        self.isActive = False


@dataclass
class FakeSharing:
    """A fake shared read with a late sink."""

    readers: list[str]
    culprit: str | None = None
    error: Exception | None = None
    waiting: dict[str, int] = field(default_factory=dict)
    closed: float | None = None

    def close(self, seconds: float) -> None:
        self.closed = seconds


@dataclass
class FakeFlow:
    query: FakeQuery
    start_error: Exception | None = None
    sources: tuple[Source, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)
    shared: FakeSharing | None = None

    @property
    def name(self) -> str:
        return self.query.name

    @property
    def readers(self) -> dict[str, None]:
        return dict.fromkeys([self.name] if self.shared is None else self.shared.readers)

    def start(self) -> FakeQuery:
        if self.start_error is not None:
            raise self.start_error
        self.query.runId = f"run-{self.name}"
        return self.query


@dataclass
class Played:
    """Run fake flows; `at` has actions for the n-th wait."""

    flows: list[FakeFlow]
    ends: bool = False
    grace: float = 30.0
    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    limits: dict[str, Limit] = field(default_factory=dict)
    waits: int = 0

    def run(self) -> Ending:
        names = [name for flow in self.flows for name in flow.readers]
        self.board = Board("p", names, limits=self.limits)
        runner = Runner(self.flows, self.board, stop=self.stop, ends=self.ends, grace=self.grace, sleep=self._sleep)
        return runner.run()

    def _sleep(self, _seconds: float) -> None:
        self.waits += 1
        assert self.waits < 1000, "it waits for ever"
        self.at.get(self.waits, lambda: None)()
        for flow in self.flows:
            flow.query.step()

    @property
    def states(self) -> list[str]:
        return [flow.state for flow in self.board.flows()]


def flow(name: str, *script: str) -> FakeFlow:
    return FakeFlow(FakeQuery(name, list(script)))


def shared(query: str, *script: str, **more: Any) -> FakeFlow:
    return FakeFlow(FakeQuery(query, list(script)), shared=FakeSharing(["table", "out"], **more))


def test_sinks_that_share_a_query_end_together() -> None:
    played = Played([shared("shared.a", "done"), flow("b", "done")], ends=True)
    assert played.run().code == 0
    assert played.states == ["ended", "ended", "ended"]


def test_a_late_sink_is_waited_for_at_the_end() -> None:
    one = shared("shared.a", "done", waiting={"out": 2})
    assert one.shared is not None
    played = Played([one], ends=True, at={5: one.shared.waiting.clear})
    assert played.run().code == 0
    assert (played.waits, one.shared.closed is not None) == (5, True)


def test_a_late_sink_is_left_behind_by_a_stop() -> None:
    one = shared("shared.a", waiting={"out": 2})
    stop = Stop()
    played = Played([one], at={2: lambda: stop.request(signal.SIGTERM)}, stop=stop, grace=0.0)
    ending = played.run()
    assert (ending.code, ending.late) == (143, {"out": 2})
    assert one.shared is not None
    assert one.shared.closed == 0


def test_the_sink_that_failed_is_named() -> None:
    ending = Played([shared("shared.a", "it is gone", culprit="out")]).run()
    assert ending.failure is not None
    assert ending.failure.lines == ["flow out: it is gone"]
    late = shared("shared.a", error=ValueError("too slow"), culprit="out")
    ending = Played([late]).run()
    assert ending.failure is not None
    assert (ending.failure.lines, late.query.stops) == (["flow out: too slow"], 1)


def test_flows_that_end_are_done() -> None:
    played = Played([flow("a", "begin", "end", "done"), flow("b", "done")], ends=True)
    ending = played.run()
    assert (ending.code, ending.word, played.states) == (0, "done", ["ended", "ended"])


def test_one_that_fails_stops_the_others() -> None:
    played = Played([flow("a", "begin", "begin", "end"), flow("b", "begin", "ValueError: it is broken")])
    ending = played.run()
    assert (ending.code, ending.word, played.states) == (1, "failed", ["stopped", "failed"])
    assert ending.failure is not None
    assert ending.failure.lines == ["flow b: ValueError: it is broken"]
    assert played.flows[0].query.stops == 1


def test_one_that_does_not_start_stops_the_others() -> None:
    second = flow("b")
    second.start_error = RuntimeError("[UNRESOLVED_COLUMN] There is no column x. SQLSTATE: 42703")
    played = Played([flow("a"), second])
    ending = played.run()
    assert ending.failure is not None
    assert ending.failure.lines == ["flow b: There is no column x. (UNRESOLVED_COLUMN)"]
    assert played.states == ["stopped", "failed"]


def test_one_that_ends_although_it_should_not_is_a_failure() -> None:
    ending = Played([flow("a", "done")]).run()
    assert ending.failure is not None
    assert ending.failure.cause == "the query was stopped from outside"


def test_a_stop_waits_for_the_running_batch() -> None:
    played = Played([flow("a", *["begin"] * 8, "end"), flow("b")])
    played.at = {3: lambda: played.stop.request(signal.SIGTERM)}
    ending = played.run()
    assert (ending.code, ending.word, ending.given_up, played.states) == (143, "stopped", (), ["stopped", "stopped"])
    first, second = (one.query for one in played.flows)
    assert (first.batch, first.stops, second.stops) == (0, 1, 1)
    assert played.board.flows()[0].batches == 1, "the last batch is in the summary"


def test_a_batch_that_takes_too_long_is_given_up() -> None:
    played = Played([flow("a", *["begin"] * 50)], grace=0.0)
    played.at = {2: lambda: played.stop.request(signal.SIGINT)}
    ending = played.run()
    assert (ending.code, ending.given_up, played.flows[0].query.batch) == (130, ("a",), None)


def report(played: Played, flow: str, batch: int, rows: int, violations: int) -> None:
    observed = {"ottla.rules.orders": {"all rows": rows, "positive": violations}}
    progress = {"batchId": batch, "timestamp": TIME, "observedMetrics": observed}
    played.board.progress(f"run-{flow}", progress)


def test_an_exceeded_limit_stops_all_flows_after_their_batches() -> None:
    played = Played([flow("a"), flow("b", "begin", "", "", "", "end")], limits={"positive": parse_limit(3)})
    played.at[1] = lambda: report(played, "a", 1, 10, 3)
    played.at[2] = lambda: report(played, "a", 2, 10, 1)
    ending = played.run()
    assert (ending.code, ending.word, ending.failure) == (exit_codes.LIMIT_EXCEEDED, "limit_exceeded", None)
    assert [(one.rule, one.flow, one.exceeded) for one in ending.exceeded] == [("positive", "a", Counted(20, 4))]
    assert played.states == ["stopped", "stopped"]
    assert played.flows[1].query.batch == 0, "its batch was finished"


@pytest.mark.parametrize(
    ("ends", "code"), [(True, exit_codes.LIMIT_EXCEEDED), (False, exit_codes.stopped_by(signal.SIGTERM))]
)
def test_the_whole_of_a_run_that_ends_is_judged(ends: bool, code: int) -> None:
    """A share of a few rows says nothing about a stream that goes on."""
    played = Played([flow("a", "", "", "done")], ends=ends, limits={"positive": parse_limit("1%")})
    played.at[1] = lambda: report(played, "a", 1, 10, 3)
    if not ends:
        played.at[2] = lambda: played.stop.request(signal.SIGTERM)
    assert played.run().code == code


def test_refused_data_has_its_own_code() -> None:
    refused = "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] rule a: x is false SQLSTATE: P0001"
    assert Played([flow("a", refused)]).run().code == exit_codes.DATA_REFUSED
    assert Played([flow("a", "boom")]).run().code == exit_codes.FAILED


def test_an_output_of_another_checkpoint_has_its_own_code() -> None:
    refused = flow("a", "")
    refused.start_error = WrittenError("the table t has batches up to 3, but the checkpoint is new")
    assert Played([refused]).run().code == exit_codes.OUTPUT_REFUSED


def test_a_stop_before_the_start_starts_nothing() -> None:
    stop = Stop()
    stop.request(signal.SIGINT)
    played = Played([flow("a")], stop=stop)
    assert played.run().code == 130
    assert played.flows[0].query.runId == ""


@pytest.mark.parametrize("stopped", [False, True])
def test_java_that_is_gone_is_a_failure_unless_all_was_stopped(stopped: bool) -> None:
    played = Played([flow("a", "begin", "begin", "begin", "lose")])
    if stopped:
        played.at = {3: lambda: played.stop.request(signal.SIGTERM)}
    else:
        played.at = {4: lambda: setattr(played.flows[0].query, "isActive", False)}
        played.flows[0].query.exception = _lost  # type: ignore[method-assign]
    ending = played.run()
    if stopped:
        assert (ending.code, ending.given_up, played.states) == (143, ("a",), ["stopped"])
    else:
        assert ending.failure is not None
        assert (ending.code, ending.failure.cause) == (1, "Spark's Java process has exited")


def _lost() -> None:
    raise Py4JNetworkError("Answer from Java side is empty")


def test_signals_ask_for_a_stop_and_the_second_one_ends_at_once() -> None:
    stop, impatient = Stop(), list[int]()
    before = signal.getsignal(signal.SIGTERM)
    undo = handle_signals(stop, at_once=impatient.append)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.signal, impatient) == (signal.SIGTERM, [])
        os.kill(os.getpid(), signal.SIGINT)
        assert impatient == [signal.SIGINT]
    finally:
        undo()
    assert signal.getsignal(signal.SIGTERM) == before


# ── The lock ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    assert holder(str(tmp_path)) is None
    with run_lock(str(tmp_path)):
        found = holder(str(tmp_path))
        assert found is not None
        assert found.pid == os.getpid()
        with (
            pytest.raises(AlreadyRunning, match=rf"already running with checkpoint .* \(process {os.getpid()} on "),
            run_lock(f"file://{tmp_path}"),
        ):
            pass
    assert holder(str(tmp_path)) is None
    with run_lock(str(tmp_path)):
        pass


def test_a_second_run_is_told_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(
        'name = "orders"\ncheckpoint = "state"\nbootstrap_servers = "127.0.0.1:1"\n'
        '[[source]]\nname = "orders"\ntopics = ["orders"]\nschema = "id BIGINT"\n'
        '[[sink]]\nname = "table"\nformat = "parquet"\npath = "table"\n'
    )
    with run_lock(str(tmp_path / "state")):
        assert main(["pipeline", "run", str(file)]) == 3
    assert "stop it first, or, if that is another pipeline, set another checkpoint" in capsys.readouterr().err


def test_a_run_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    code = f"""
import os, signal
from ottla.spark.pipelines.run_lock import run_lock
with run_lock({str(tmp_path)!r}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert (tmp_path / FILE).read_text() != ""
    assert holder(str(tmp_path)) is None
    with run_lock(str(tmp_path)):
        pass


def test_other_file_systems_have_no_lock(tmp_path: Path) -> None:
    with run_lock("s3a://bucket/state"):
        assert holder("s3a://bucket/state") is None
    assert local_path("file:/tmp/a%20b") == Path("/tmp/a b")
    assert local_path("state/orders") == Path("state/orders")


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class FakeSource:
    endOffset: str  # noqa: N815
    description: str = "PythonMicroBatchStream@1"


@dataclass
class FakeProgress:
    sources: list[FakeSource]


def test_what_is_finished_is_committed_to_each_sources_group(bootstrap: str) -> None:
    topic = f"orders-{uuid4().hex[:8]}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([public.NewTopic(topic, 1), public.NewTopic(f"{topic}-b", 1)])
        sources = (Source(name="a", topics=[topic], group_id="g"), Source(name="b", pattern=f"{topic}-.*"))
        pipeline = Pipeline(
            name="p", checkpoint="c", bootstrap_servers=bootstrap, sources=sources, sinks=[ConsoleSink(name="s")]
        )
        ends = [FakeSource(f'{{"{topic}": {{"0": 5}}}}'), FakeSource(f'{{"{topic}-b": {{"0": 7}}}}')]

        class Ended(FakeQuery):
            lastProgress = FakeProgress(ends)  # type: ignore[assignment]  # noqa: N815

        one = FakeFlow(Ended("s"), sources=sources, groups={"a": f"g-{topic}", "b": f"h-{topic}"})
        commit_groups(pipeline, [one], {"s": one.query})
        assert [
            {str(key): value.offset for key, value in admin.list_group_offsets(f"{name}-{topic}").items()}
            for name in "gh"
        ] == [{f"{topic}-0": 5}, {f"{topic}-b-0": 7}]
        unreachable = Pipeline(
            name="p", checkpoint="c", bootstrap_servers="127.0.0.1:1", sources=sources, sinks=[ConsoleSink(name="s")]
        )
        commit_groups(unreachable, [FakeFlow(one.query)], {"s": one.query})
