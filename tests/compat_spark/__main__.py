"""Run all cases with both data sources and compare.

    python -m tests.compat_spark                    print the table, and exit with 1 after an unexpected difference
    python -m tests.compat_spark --only update      only the cases whose name contains this
    python -m tests.compat_spark --docs docs/spark.md   write the table into the page

Spark's connector comes from Maven Central. Without it nothing is compared, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import Unavailable
from benchmarks.spark_connector import VERSION, jars
from tests.compat_spark import reading, streaming, writing  # noqa: F401
from tests.compat_spark.cases import CASES, Case
from tests.compat_spark.differences import ELSEWHERE, REASONS
from tests.compat_spark.world import World

import ottla
from ottla.spark import activate, session

BEGIN, END = "<!-- differences -->", "<!-- end of differences -->"


@dataclass(frozen=True)
class Outcome:
    case: Case
    found: dict[str, str]
    seconds: dict[str, float]

    @property
    def failed(self) -> bool:
        """A case that should be refused says so; any other exception is a failure."""
        return any(text.startswith("failed: ") for text in self.found.values())

    @property
    def equal(self) -> bool:
        return not self.failed and len(set(self.found.values())) == 1

    @property
    def expected(self) -> bool:
        return not self.failed and self.equal != (self.case.name in REASONS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat_spark", description="Compare both data sources.")
    parser.add_argument("--only", default="", help="only the cases whose section or name contains this text")
    parser.add_argument("--docs", type=Path, help="a page whose table of differences is written")
    args = parser.parse_args()
    chosen = [one for one in CASES if args.only in f"{one.section}: {one.name}"]
    unknown = sorted(REASONS.keys() - {one.name for one in CASES})
    if unknown or not chosen:
        print(f"no such case: {unknown or args.only}", file=sys.stderr)
        return 2
    try:
        import pyspark

        files = jars()
    except Unavailable as why:
        print(f"skipped: Spark's Kafka connector is not available. {why}")
        return 0
    print(f"Spark {pyspark.__version__}, Spark's Kafka connector {VERSION}, {len(chosen)} cases", flush=True)
    outcomes = _compared(chosen, files)
    if args.docs:
        _publish(args.docs)
    wrong = [one for one in outcomes if not one.expected]
    same, known = sum(one.equal for one in outcomes), sum(one.expected and not one.equal for one in outcomes)
    print(f"\n{same} equal, {known} different as documented, {len(wrong)} unexpected")
    return 1 if wrong else 0


def _compared(chosen: list[Case], files: list[Path]) -> list[Outcome]:
    settings = {"spark.jars": ",".join(map(str, files)), "spark.sql.codegen.wholeStage": "false"}
    outcomes = []
    with (
        tempfile.TemporaryDirectory(prefix="ottla-compat-spark-") as directory,
        ottla.Broker(Path(directory) / "broker", config={"auto.create.topics.enable": "false"}) as broker,
        ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        settings["spark.sql.warehouse.dir"] = f"{directory}/warehouse"
        spark = session("compat", master="local[2]", fast=True, log_level="off", conf=settings)
        try:
            for one in chosen:
                activate(spark)
                shared: list[str] = []
                found: dict[str, str] = {}
                seconds = {}
                for name in ("kafka", "ottla"):
                    world = World(spark, broker.bootstrap_servers, Path(directory), name, admin, producer, shared)
                    began = time.monotonic()
                    found[name] = _run(one, world)
                    seconds[name] = time.monotonic() - began
                outcome = Outcome(one, found, seconds)
                outcomes.append(outcome)
                _print(outcome)
        finally:
            spark.stop()
    return outcomes


def _run(one: Case, world: World) -> str:
    try:
        return repr(one.run(world))
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"failed: {type(error).__name__}: {' '.join(lines[:1])[:300]}"


def _print(outcome: Outcome) -> None:
    word = "equal" if outcome.equal else "different"
    if not outcome.expected:
        word += ", unexpectedly"
    times = " / ".join(f"{seconds:.1f} s" for seconds in outcome.seconds.values())
    print(f"{outcome.case.section + ': ' + outcome.case.name:90} {word} ({times})", flush=True)
    if not outcome.equal:
        for name, text in outcome.found.items():
            print(f"    {name:6} {text[:400]}", flush=True)


def table() -> str:
    """The known differences as a table."""
    names = {one.name: one.section for one in CASES}
    rows = [f"| {names[name]}: {name} | {kafka} | {here} | {why} |" for name, (kafka, here, why) in REASONS.items()]
    rows += [f"| {name} | {kafka} | {here} | {why} |" for name, (kafka, here, why) in ELSEWHERE.items()]
    return "\n".join(["| | `kafka` | `ottla` | reason |", "| --- | --- | --- | --- |", *rows])


def _publish(page: Path) -> None:
    text = page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
