"""Compare a cluster of three ottla brokers with three nodes of Apache Kafka: `python -m benchmarks.cluster`.

Both clusters run on this machine and take turns, with the same librdkafka clients, replication factor 3, acks=all and
min.insync.replicas=2. ottla's ZooKeeper counts in its CPU time and memory. The table shows both results, the ratio and
its target. benchmarks/results/ has every repetition as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from benchmarks import apache_kafka, latency, load, ottla_broker, throughput
from benchmarks.clusters import BROKERS, ONE_REPLICA, KafkaCluster, OttlaCluster, PeerCluster
from benchmarks.comparison import add_quick, new_parser, reporting, say
from benchmarks.lifecycle import acknowledge
from benchmarks.report import Report, Target

BENCHMARKS = ("throughput", "latency", "failover", "start", "memory", "catchup", "election", "cores")
RATE, CPU, LATENCY = Target(">=", 1.0), Target("<=", 0.6), Target("<=", 1.0)
START, MEMORY, CATCH_UP = Target("<=", 0.3), Target("<=", 0.2), Target("<=", 1.0)
PATIENCE = 120.0
MakeCluster = Callable[[], PeerCluster]


def main() -> None:
    options = parse()
    report = Report({"librdkafka": confluent_kafka.libversion()[0], "kafka": apache_kafka.KAFKA_VERSION})
    makers = choose(options)
    with reporting(report):
        in_turns(makers, report, options)
        alone(makers, report, options)
        if "cores" in options.only:
            for brokers in (1, 2, 4):
                say(f"{brokers} brokers with one replica")
                note_cores(report, brokers, options)


def parse() -> argparse.Namespace:
    parser = new_parser("Compare a cluster with one of Apache Kafka on this machine.", BENCHMARKS)
    add_quick(parser)
    options = parser.parse_args()
    options.only = options.only or list(BENCHMARKS)
    options.repetitions = 1 if options.quick else 3
    return options


def choose(options: argparse.Namespace) -> list[MakeCluster]:
    if problem := ottla_broker.missing():
        raise SystemExit(problem)
    if options.without_kafka:
        return [OttlaCluster]
    if problem := apache_kafka.missing():
        say(f"No comparison, ottla runs alone: {problem}")
        return [OttlaCluster]
    return [OttlaCluster, KafkaCluster]


def in_turns(makers: Sequence[MakeCluster], report: Report, options: argparse.Namespace) -> None:
    """Measure rates, latency and failover with both clusters running, one after the other in each round."""
    wanted = {"throughput", "latency", "failover"} & set(options.only)
    if not wanted:
        return
    with contextlib.ExitStack() as stack:
        clusters: list[Any] = [stack.enter_context(make()) for make in makers]
        say("warm-up")
        for cluster in clusters:
            warm_up(cluster)
        for number in range(options.repetitions):
            order = clusters if number % 2 == 0 else clusters[::-1]
            if "throughput" in wanted:
                for case in cases(options.quick):
                    say(f"throughput, {case.label}, round {number + 1} of {options.repetitions}")
                    for cluster in order:
                        note_throughput(report, cluster, case, number)
            if "latency" in wanted:
                say(f"latency, round {number + 1} of {options.repetitions}")
                note_latency(report, order, number, quick=options.quick)
        if "failover" in wanted:
            for number in range(2 if options.quick else 8):
                say(f"kill -9 of a leader, round {number + 1}")
                for cluster in clusters if number % 2 == 0 else clusters[::-1]:
                    note_failover(report, cluster, number)


def warm_up(cluster: Any) -> None:
    """Warm up just-in-time compilers before the first repetition."""
    load.create_topic(cluster, "warm-up", 6)
    for size, records in ((1024, 300_000), (100, 1_000_000)):
        load.produce(cluster, "warm-up", size=size, records=records)
    load.delete_topic(cluster, "warm-up")


def cases(quick: bool) -> list[throughput.Case]:
    scale = 0.3 if quick else 1
    return [
        throughput.Case("100 B", 100, int(1_500_000 * scale)),
        throughput.Case("1 KB", 1024, int(600_000 * scale)),
    ]


def note_throughput(report: Report, cluster: Any, case: throughput.Case, number: int) -> None:
    topic = f"rate-{case.size}-{number}"
    load.create_topic(cluster, topic, 6)
    totals = load.produce(cluster, topic, size=case.size, records=case.records)
    payload = totals.records * case.size
    report.measure("Produce, acks=all", case.label, "records/s", RATE).add(
        cluster.name, totals.records / totals.seconds
    )
    report.measure("Cluster CPU per GB in", case.label, "s/GB", CPU).add(
        cluster.name, totals.broker_cpu / (payload / 1e9)
    )
    report.other_cores.append(totals.other_cores)
    load.delete_topic(cluster, topic)


def note_latency(report: Report, clusters: Sequence[Any], number: int, *, quick: bool) -> None:
    pace = latency.Pace(rate=250, seconds=6 if quick else 12)  # What three brokers and clients can do on two cores.
    latency.measure(list(clusters), report, pace, number)
    for measure in report.measures:
        if measure.section == latency.SECTION and measure.name.startswith(("p50 ", "p99 ")):
            measure.target = LATENCY


def note_failover(report: Report, cluster: Any, number: int) -> None:
    """Kill the leader of a partition and measure the time until a record that is sent then is acknowledged.

    The dead leader has acknowledged earlier records, and its answers may still arrive. The producer writes to three
    partitions: one that is connected to the dead broker only looks once a second for another one.
    """
    topic = f"failover-{number}"
    load.create_topic(cluster, topic, BROKERS)
    acknowledged: list[tuple[float, float]] = []

    def delivered(error: object, message: Message) -> None:
        if error is None and message.partition() == 0:
            acknowledged.append((float(message.value() or 0), time.monotonic()))

    producer = Producer(
        {
            **load.PRODUCER,
            **load.IMPATIENT,
            "enable.idempotence": True,
            "linger.ms": 0,
            "bootstrap.servers": cluster.bootstrap_servers,
        }
    )
    send_for(producer, topic, delivered, 2.0)
    leader = leader_of(cluster, topic)
    killed = time.monotonic()
    cluster.node(leader).kill()
    dead = time.monotonic()
    after: list[float] = []
    while not after and time.monotonic() < killed + PATIENCE:
        send_for(producer, topic, delivered, 0.02)
        after = [at for sent, at in acknowledged if sent > dead]
    report.measure("kill -9 of a leader", "to the next acknowledged record", "s", LATENCY, max).add(
        cluster.name, min(after) - killed
    )
    send_for(producer, topic, delivered, 0.5)
    producer.flush(PATIENCE)
    cluster.node(leader).start()
    until_in_sync(cluster, topic)


def send_for(producer: Producer, topic: str, delivered: Callable[[object, Message], None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = f"{time.monotonic():<100}"  # When it was sent.
        for partition in range(BROKERS):
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0.001)


def partitions_of(cluster: Any, topic: str) -> dict[int, Any]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    found: dict[int, Any] = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return found


def leader_of(cluster: Any, topic: str) -> int:
    return int(partitions_of(cluster, topic)[0].leader)


def until_in_sync(cluster: Any, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while any(len(each.isrs) < len(each.replicas) for each in partitions_of(cluster, topic).values()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the replicas of {topic} in {cluster.name} are not in sync after {PATIENCE:g} s")
        time.sleep(0.05)


def alone(makers: Sequence[MakeCluster], report: Report, options: argparse.Namespace) -> None:
    """Measure what needs a cluster for itself."""
    for number in range(options.repetitions):
        for make in makers if number % 2 == 0 else makers[::-1]:
            if "start" in options.only:
                say(f"start, round {number + 1} of {options.repetitions}")
                note_start(report, make)
    for make in makers:
        if "memory" in options.only:
            say("memory")
            note_memory(report, make)
        if "catchup" in options.only:
            say("a follower catches up")
            note_catch_up(report, make, 100_000_000 if options.quick else 1_000_000_000)
        if "election" in options.only:
            for partitions in (1_000,) if options.quick else (1_000, 10_000):
                say(f"election of {partitions:,} leaders")
                note_election(report, make, partitions)


def note_start(report: Report, make: MakeCluster) -> None:
    """Measure the time from the start of three brokers, with data, to the first acknowledged record."""
    with make() as cluster:
        any_cluster: Any = cluster
        load.create_topic(any_cluster, "start", 1)
        acknowledge(cluster, lambda: None)
        cluster.stop()
        seconds = acknowledge(cluster, cluster.launch)
        report.measure("Start of three brokers", "to the first acknowledged record", "s", START).add(
            cluster.name, seconds
        )


def note_memory(report: Report, make: MakeCluster) -> None:
    with make() as cluster:
        any_cluster: Any = cluster
        measure = report.measure("Resident memory of the cluster", "after the start", "MB", MEMORY)
        measure.add(cluster.name, cluster.resident_bytes() / 1e6)
        load.create_topic(any_cluster, "memory", 6)
        load.produce(any_cluster, "memory", size=1024, records=500_000)
        measure = report.measure("Resident memory of the cluster", "after load", "MB", MEMORY)
        measure.add(cluster.name, cluster.resident_bytes() / 1e6)


def note_catch_up(report: Report, make: MakeCluster, size: int) -> None:
    """Measure the time that a broker with an empty disk needs to be in sync again."""
    with make() as cluster:
        any_cluster: Any = cluster
        load.create_topic(any_cluster, "catchup", 6)
        load.produce(any_cluster, "catchup", size=1024, records=size // 1024)
        follower = cluster.node(3)
        follower.stop()
        kept = [each for each in follower.data_dir.iterdir() if each.is_dir() and each.name.startswith("catchup-")]
        for directory in kept:
            shutil.rmtree(directory)
        begin = time.monotonic()
        follower.start()
        until_in_sync(cluster, "catchup")
        label = f"{size / 1e9:g} GB"
        report.measure("A follower catches up", label, "s", CATCH_UP).add(cluster.name, time.monotonic() - begin)


def note_election(report: Report, make: MakeCluster, partitions: int) -> None:
    """Measure the time from kill -9 of a broker until the cluster shows another leader for all of its partitions."""
    with make() as cluster:
        any_cluster: Any = cluster
        for first in range(0, partitions, 1_000):
            load.create_topic(any_cluster, f"many-{first}", 1_000)
        topics = [f"many-{first}" for first in range(0, partitions, 1_000)]
        for topic in topics:
            until_in_sync(cluster, topic)
        servers = ",".join(node.bootstrap_servers for node in cluster.nodes[1:])
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        begin = time.monotonic()
        cluster.node(1).kill()
        for topic in topics:
            while any(
                each.leader in (1, -1)
                for each in admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
            ):
                if time.monotonic() - begin > PATIENCE:
                    raise RuntimeError(f"{cluster.name} has partitions without a leader after {PATIENCE:g} s")
                time.sleep(0.01)
        label = f"of a dead broker with {partitions:,} partitions"
        report.measure("New leaders", label, "s").add(cluster.name, time.monotonic() - begin)


def note_cores(report: Report, brokers: int, options: argparse.Namespace) -> None:
    """Measure how brokers on one machine share the work: each of them can use a core."""
    records = 600_000 if options.quick else 2_000_000
    with OttlaCluster(brokers, ONE_REPLICA) as cluster:
        any_cluster: Any = cluster
        load.create_topic(any_cluster, "cores", 8)
        for number in range(options.repetitions + 1):
            before = [node.cpu_seconds() for node in cluster.nodes]
            totals = load.produce(any_cluster, "cores", size=100, records=records, config={"batch.size": 4096})
            busiest = max(node.cpu_seconds() - then for node, then in zip(cluster.nodes, before, strict=True))
            if number == 0:  # a warm-up
                continue
            rate = report.measure(f"{brokers} brokers, one replica, 100 B, 4 KB batches", "records/s", "records/s")
            rate.add(cluster.name, totals.records / totals.seconds)
            cpu = report.measure(rate.section, "CPU of the busiest broker per million records", "s")
            cpu.add(cluster.name, busiest / (totals.records / 1e6))


if __name__ == "__main__":
    main()
