"""A pipeline under kill -9: tables, topic and dead letters must have every input exactly once.

    python -m tests.crash.pipelines --rounds 25 --seed 1 [--read separate] [--sink delta --sink postgres] [--cluster]

All sinks and the dead letters share one read, unless `--read separate`. One of the tables is a late sink. `--sink` adds
two tables of that kind: one that appends, and one that replaces rows by key (pipeline_sinks.py). It may be repeated.
`--plant` plants a bug, which the checks must find: a kind of sink forgets the batches that it has written.

A round starts `ottla pipeline run` on the checkpoint of the previous round, lets it process small micro-batches while
numbered records arrive, and ends it with one of FAULTS: kill everything, the driver, the JVM, a worker, an executor,
the broker, or the database; at a random time, when a checkpoint file appears, or at a point between two steps of a
batch (see pipeline_doom.py). With `--cluster`, it runs on a standalone Spark cluster with two workers, which are
killed, too. After the last round it runs to the end. Then tables and topics are compared with the input, without Spark
and with the audit. The seed determines everything except the timing.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.databases.servers import Postgres
from tests.spark.cluster import Cluster

from ottla import Admin, NewTopic, Producer

from . import pipeline_doom
from .broker_process import BrokerProcess
from .pipeline_books import Writer, differences, is_broken, open_transactions, read_table, read_topic, repeats, value_of
from .pipeline_doom import PLANTS, POINTS
from .pipeline_faults import FAULTS, LOCAL, ON_A_CLUSTER, Fault, await_doom, choose, sink_of
from .pipeline_process import CONF, JAVA, Application, Flow, Stuck
from .pipeline_report import Round, tell
from .pipeline_sinks import EXTRA, declared, newest, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
BURST = 20
A_BATCH = 40
#: Generous: a start takes several seconds on two cores, which other tests may use too.
GIVE_UP_SECONDS = 900.0
BROKER = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}
NUMBER = "get_json_object(cast(value AS STRING), '$.n')"


class Run:
    """The broker, the writer, the application and the rounds."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        servers: str | None = None,
        say: Callable[[str], None] = print,
        read: str = "shared",
        plant: str = "",
        sinks: Sequence[str] = (),
        cluster: bool = False,
    ) -> None:
        self.directory = directory
        self.chance = random.Random(seed)
        self.broker = None if servers else BrokerProcess(directory / "data", directory / "broker.log", BROKER)
        self.rounds: list[Round] = []
        self.problems: list[str] = []
        self.leftovers = Counter[str]()
        self.replayed_at_the_end = 0
        self._seed = seed
        self._say = say
        self._servers = servers or ""
        name = f"kills-{random.randrange(10**8):08}"  # unique, because the broker may outlive this run
        self.topics = {"numbers": name, "copies": f"{name}-copies", "dead": f"{name}-dead"}
        self._read = read
        self._plant_bug = plant
        self.sinks = sinks
        self.database = Postgres() if any(EXTRA[kind].needs_postgres for kind in sinks) else None
        self.cluster = Cluster(environment=JAVA) if cluster else None
        names = ["table", "copies", "dead-letters/numbers", *(name for kind in sinks for name in tables_of(kind))]
        self.flows = [Flow(directory / "state" / name) for name in (["shared/numbers"] if read == "shared" else names)]
        self.tables = ("table", "late") if read == "shared" else ("table",)
        self._writer: Writer
        self._applications: list[Application] = []
        self._states: dict[str, str] | None = None

    @property
    def servers(self) -> str:
        return self._servers if self.broker is None else self.broker.bootstrap_servers

    def go(self, faults: list[Fault], seconds: float = math.inf) -> None:
        """Run the rounds, starting none after the time limit, and then the final check."""
        deadline = time.monotonic() + seconds
        self._begin()
        try:
            for number, fault in enumerate(faults):
                if time.monotonic() > deadline:
                    break
                self._round(number, fault)
                self._check_so_far()
            self._writer.finish()
            self._end()
        finally:
            self._close()

    def _begin(self) -> None:
        if self.broker is not None:
            self.broker.start()
        if self.database is not None:
            self.database.start()
            (self.directory / "database").write_text(self.database.plain_url)
        if self.cluster is not None:
            self.cluster.__enter__()
        with Admin(bootstrap_servers=self.servers) as admin:
            for topic in self.topics.values():
                admin.create_topics(NewTopic(topic, num_partitions=PARTITIONS))
        self._writer = Writer(self.servers, self.topics["numbers"], PARTITIONS, self._seed, BURST)
        self._writer.start()
        self._writer.go_on()

    def _declare(self, batch: int) -> Path:
        file = self.directory / "kills.toml"
        given = {"servers": self.servers, "batch": str(batch), "read": self._read, **self.topics}
        file.write_text(declared(given, self.sinks, self.database.plain_url if self.database else ""))
        return file

    # ── A round ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _round(self, number: int, fault: Fault) -> None:
        begin, had = time.monotonic(), self.finished
        replayed = sum(flow.is_unfinished for flow in self.flows)
        doom = {}
        if fault.point is not None:
            count = self.chance.randint(1, POINTS[fault.point].most)
            doom = {"OTTLA_DOOM": fault.point, "OTTLA_DOOM_COUNT": str(count), "OTTLA_DOOM_VICTIM": fault.victim}
        if self._plant_bug:
            doom["OTTLA_PLANT"] = self._plant_bug
        application = Application(
            self._declare(A_BATCH),
            self.directory / f"round-{number + 1}",
            master=fault.master if self.cluster is None else self.cluster.master,
            doom=doom,
            cluster=self.cluster,
        )
        self._applications.append(application)
        self._states = None
        how = (fault.strike or await_doom)(self, application)
        code = application.code
        self._end_application(application, fault)
        self.mark(application)
        took = time.monotonic() - begin
        done = Round(fault.name, sink_of(fault), how, replayed, self.finished - had, code, took, self._states or {})
        self.rounds.append(done)
        self._say(
            f"round {number + 1:3}  {done.fault:36} {done.how:44} {done.replayed} replayed, {done.finished:3} batches "
            f"finished, {self._writer.sent:6,} sent, {done.seconds:4.0f} s"
        )

    def mark(self, application: Application) -> None:
        """Remember where the tables are when something is killed; the first call of a round counts."""
        if self._states is None:
            done = {flow.directory.name: flow.last("commits") for flow in self.flows}
            writes = application.writes()
            ended = {(sink, batch) for moment, sink, batch in writes if moment == "end"}
            self._states = {
                sink: "written" if (sink, batch) in ended else "writing"
                for moment, sink, batch in writes
                if moment == "begin" and batch > done.get(sink, done.get("numbers", -1))
            }

    def _end_application(self, application: Application, fault: Fault) -> None:
        """Processes that outlive their driver or JVM may run during the next round; they are checked afterwards."""
        for other in self._applications[:-1]:
            for name in other.leftovers(0):
                self.leftovers[name] += 1
        self._applications = [application]
        if fault.name not in ("driver", "java") and application.code is None:
            application.kill_all()

    def _check_so_far(self) -> None:
        """The output must never have duplicates, and the input must be as intended."""
        copies = read_topic(self.servers, self.topics["copies"])
        found = repeats(copies, "copies")
        for table in self.tables:
            found += repeats(read_table(self.directory / table), table)
        found += repeats(read_topic(self.servers, self.topics["dead"]), "dead letters")
        for kind in self.sinks:
            for table in tables_of(kind):
                found += repeats(EXTRA[kind].read(self.directory, table), table)
        if found:
            raise AssertionError("\n".join(found))

    @property
    def finished(self) -> int:
        return sum(flow.finished for flow in self.flows)

    def until(self, application: Application, condition: Callable[[], bool], what: str, *, tick: float = 0.03) -> bool:
        """Wait for a condition; False if the application ended first."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while not condition():
            if application.code is not None:
                return condition()
            if time.monotonic() > deadline:
                raise Stuck(f"not within {GIVE_UP_SECONDS:g} s: {what}\n{application.last_words()}")
            time.sleep(tick)
        return True

    def until_working(self, application: Application, batches: int = 1) -> bool:
        had = self.finished
        return self.until(application, lambda: self.finished >= had + batches, "a batch was finished")

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _end(self) -> None:
        """Run to the end, and compare input and output."""
        from ottla.spark import session
        from ottla.spark.pipelines import compile_pipeline, load
        from ottla.spark.pipelines.runner import Runner, board_of

        for application in self._applications:
            for name in application.leftovers():
                self.leftovers[name] += 1
        self.replayed_at_the_end = sum(flow.is_unfinished for flow in self.flows)
        spark = session("kills", master=LOCAL, log_level="fatal", conf=CONF)
        try:
            pipeline = load(self._declare(1_000_000))
            flows = compile_pipeline(pipeline, spark, trigger="available-now")
            ending = Runner(flows, board_of(pipeline, flows), ends=True).run()
            assert ending.failure is None, "\n".join(ending.failure.lines)
            self._compare()
            self._audit(spark)
            self._plant(spark)
        finally:
            spark.stop()

    def _compare(self) -> None:
        sent = range(self._writer.sent)
        good = [number for number in sent if not is_broken(number)]
        broken = [value_of(number) for number in sent if is_broken(number)]
        topics = {name: read_topic(self.servers, topic) for name, topic in self.topics.items()}
        self.problems += self._writer.problems
        self.problems += differences(topics["numbers"], map(value_of, sent), "the input itself")
        for table in self.tables:
            self.problems += differences(read_table(self.directory / table), good, table)
        self.problems += differences(map(int, topics["copies"]), good, "copies")
        self.problems += differences(topics["dead"], broken, "dead letters")
        for kind in self.sinks:
            for table, wanted in zip(tables_of(kind), (good, newest(good)), strict=True):
                self.problems += differences(EXTRA[kind].read(self.directory, table), wanted, table)
        self.problems += open_transactions(self.servers, self.topics.values())

    def _audit(self, spark: SparkSession) -> None:
        wanted = self._writer.sent
        for what, report in (("table", self.audit_table(spark)), ("copies", self.audit_topic(spark))):
            total = report.total
            if not report.ok or (total.produced, total.arrived + total.dead) != (wanted, wanted):
                self.problems.append(f"the audit of {what} says:\n{report}")

    def audit_table(self, spark: SparkSession, rows: Any = None) -> Any:
        from ottla.spark.audit import audit

        return audit(
            spark, self.topics["numbers"], bootstrap_servers=self.servers, dead_letters=self.topics["dead"],
            checkpoint=str(self.flows[0].directory), table=rows or str(self.directory / "table"),
        )  # fmt: skip

    def audit_topic(self, spark: SparkSession) -> Any:
        from ottla.spark.audit import audit

        return audit(
            spark, self.topics["numbers"], bootstrap_servers=self.servers, dead_letters=self.topics["dead"],
            checkpoint=str(self.flows[-1 if self._read == "shared" else 1].directory), topic=self.topics["copies"],
            key=NUMBER, target_key="cast(value AS STRING)", order="partition",
        )  # fmt: skip

    def _plant(self, spark: SparkSession) -> None:
        """Remove a row, repeat another, and let the audit find both."""
        table = spark.read.parquet(str(self.directory / "table"))
        planted = self.audit_table(spark, table.where("n != 1").unionByName(table.where("n = 2"))).total
        if (planted.lost, planted.repeated) != (1, 1):
            self.problems.append(f"the audit of the table did not find what was planted: {planted}")
        with Producer(bootstrap_servers=self.servers) as producer:
            producer.send(self.topics["copies"], b"3").result(20)
        planted = self.audit_topic(spark).total
        if (planted.lost, planted.repeated) != (0, 1):
            self.problems.append(f"the audit of the topic did not find what was planted: {planted}")

    def _close(self) -> None:
        self._writer.finish()
        for application in self._applications:
            application.close()
        if self.cluster is not None:
            self.cluster.__exit__()
        if self.broker is not None:
            self.broker.close()
        if self.database is not None:
            self.database.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--faults", help="names, separated by commas: only these, in this order; `list` shows them")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no round after so long")
    parser.add_argument("--bootstrap", help="use a running broker, such as Apache Kafka; it is not killed")
    parser.add_argument("--read", choices=("shared", "separate"), default="shared", help="default: shared")
    parser.add_argument("--sink", choices=[*EXTRA, "all"], action="append", help="two tables of this kind; repeatable")
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster with two workers")
    parser.add_argument("--plant", choices=PLANTS, default="", help="plant a bug, which the checks must find")
    parser.add_argument("--directory", type=Path, default=None, help="where the data goes; kept when something fails")
    args = parser.parse_args()
    if args.faults == "list":
        print("\n".join(fault.name for fault in (ON_A_CLUSTER if args.cluster else FAULTS)))
        return 0
    if gone := pipeline_doom.unknown():
        print("\n".join(gone), file=sys.stderr)
        return 2
    seed = random.randrange(10**6) if args.seed is None else args.seed
    given = args.sink or []
    sinks = [kind for kind in EXTRA if kind in given or "all" in given]
    faults = choose(
        args.faults,
        args.rounds,
        seed,
        with_broker=args.bootstrap is None,
        shared=args.read == "shared",
        sinks=sinks,
        cluster=args.cluster,
    )
    directory = args.directory or Path(tempfile.mkdtemp(prefix="ottla-pipelines-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, data in {directory}", flush=True)
    begin = time.monotonic()
    run = Run(
        directory,
        seed,
        servers=args.bootstrap,
        say=lambda line: print(line, flush=True),
        read=args.read,
        plant=args.plant,
        sinks=sinks,
        cluster=args.cluster,
    )
    try:
        run.go(faults, args.seconds)
    except Exception as problem:
        if not isinstance(problem, AssertionError):
            traceback.print_exc()
        run.problems.append(str(problem))
    tell(run.rounds, run.replayed_at_the_end, run.leftovers, sinks)
    if run.problems:
        print("\n".join(run.problems), f"\nFAILED (seed {seed}, data kept in {directory})", sep="\n")
        return 1
    replayed = sum(one.replayed for one in run.rounds) + run.replayed_at_the_end
    print(
        f"\n{len(run.rounds)} rounds in {time.monotonic() - begin:.0f} s, {run.finished:,} batches, {replayed} "
        f"replayed, {run._writer.sent:,} inputs: each is there exactly once, and the audit says so"
    )
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
