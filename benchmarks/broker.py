"""Compare the broker under load with Apache Kafka: `python -m benchmarks.broker`, or `make bench`.

Both brokers run on this machine and take turns, with the same librdkafka clients. The table shows both results, the
ratio and its target. benchmarks/results/ has every repetition as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence

import confluent_kafka

from benchmarks import apache_kafka, latency, lifecycle, ottla_broker, throughput, wire
from benchmarks.comparison import add_quick, new_parser, reporting, say
from benchmarks.lifecycle import MakePeer
from benchmarks.peer import Peer
from benchmarks.report import Report

BENCHMARKS = ("throughput", "latency", "wire", "start", "memory", "recovery")


def main() -> None:
    options = parse()
    report = Report({"librdkafka": confluent_kafka.libversion()[0], "kafka": apache_kafka.KAFKA_VERSION})
    make_peers = choose_peers(options)
    with reporting(report):
        run_in_session(make_peers, report, options)
        run_alone(make_peers, report, options)


def parse() -> argparse.Namespace:
    parser = new_parser("Compare the broker with Apache Kafka on this machine.", BENCHMARKS)
    extent = parser.add_mutually_exclusive_group()
    add_quick(extent)
    extent.add_argument("--full", action="store_true", help="more sizes and codecs, longer repetitions")
    parser.add_argument("--without-ottla", action="store_true", help="measure Apache Kafka alone")
    options = parser.parse_args()
    options.only = options.only or list(BENCHMARKS)
    options.repetitions = 1 if options.quick else 5 if options.full else 3
    return options


def choose_peers(options: argparse.Namespace) -> list[MakePeer]:
    chosen: list[MakePeer] = []
    if not options.without_ottla:
        if problem := ottla_broker.missing():
            raise SystemExit(problem)
        chosen.append(ottla_broker.OttlaBroker)
    if not options.without_kafka:
        if problem := apache_kafka.missing():
            say(f"No comparison, ottla runs alone: {problem}")
        else:
            chosen.append(apache_kafka.ApacheKafka)
    if not chosen:
        raise SystemExit("There is no broker left to measure.")
    return chosen


def run_in_session(make_peers: Sequence[MakePeer], report: Report, options: argparse.Namespace) -> None:
    """Run the benchmarks of warm brokers, which start once and take turns."""
    if not {"throughput", "latency", "wire"} & set(options.only):
        return
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(make()) for make in make_peers]
        say("warm-up")
        throughput.warm_up(peers, quick=options.quick)
        if "throughput" in options.only:
            run_throughput(peers, report, options)
        if "latency" in options.only:
            run_latency(peers, report, options)
        if "wire" in options.only:
            run_wire(peers, report, options)


def run_throughput(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    for repetition in range(options.repetitions):
        for case in throughput.cases(quick=options.quick, full=options.full):
            say(f"throughput, {case.label}, round {repetition + 1} of {options.repetitions}")
            throughput.measure(peers, report, case, repetition)


def run_latency(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    pace = latency.Pace(seconds=5 if options.quick else 30 if options.full else 12)
    for repetition in range(options.repetitions):
        say(f"latency, round {repetition + 1} of {options.repetitions}")
        latency.measure(peers, report, pace, repetition)


def run_wire(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    for repetition in range(options.repetitions):
        say(f"without a client library, round {repetition + 1} of {options.repetitions}")
        wire.measure(peers, report, repetition, quick=options.quick)


def run_alone(make_peers: Sequence[MakePeer], report: Report, options: argparse.Namespace) -> None:
    """Run the benchmarks that start their own broker process."""
    makers = list(make_peers)
    if "start" in options.only:
        say("start")
        lifecycle.start(makers, report, 3 if options.quick else 7)
    if "memory" in options.only:
        say("memory")
        lifecycle.memory(makers, report, partitions=1000, load_records=300_000 if options.quick else 1_000_000)
    if "recovery" in options.only:
        say("recovery")
        lifecycle.recovery(makers, report, repetitions=options.repetitions)


if __name__ == "__main__":
    main()
