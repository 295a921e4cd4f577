"""Kafka's command-line tools on ottla. Each must end as on Apache Kafka and, but for names and sizes, say the same.

All tools of a broker run in one JVM, one after the other. What differs on purpose is listed in `DIFFERENT`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.apache_kafka import ApacheKafka, find_java
from benchmarks.peer import Peer
from tests.ecosystem.jvm import HERE, Failed, jars

TOOLS = "org.apache.kafka.tools."
NAMES = {
    "topics": f"{TOOLS}TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "produce": f"{TOOLS}ConsoleProducer",
    "consume": f"{TOOLS}consumer.ConsoleConsumer",
    "consumer-groups": f"{TOOLS}consumer.group.ConsumerGroupCommand",
    "groups": f"{TOOLS}GroupsCommand",
    "get-offsets": f"{TOOLS}GetOffsetShell",
    "delete-records": f"{TOOLS}DeleteRecordsCommand",
    "log-dirs": f"{TOOLS}LogDirsCommand",
    "transactions": f"{TOOLS}TransactionsCommand",
    "leader-election": f"{TOOLS}LeaderElectionCommand",
    "reassign": f"{TOOLS}reassign.ReassignPartitionsCommand",
    "acls": f"{TOOLS}AclCommand",
    "cluster": f"{TOOLS}ClusterTool",
    "features": f"{TOOLS}FeatureCommand",
    "api-versions": f"{TOOLS}BrokerApiVersionsCommand",
    "quorum": f"{TOOLS}MetadataQuorumCommand",
    "client-metrics": f"{TOOLS}ClientMetricsCommand",
    "delegation-tokens": f"{TOOLS}DelegationTokenCommand",
    "producer-perf": f"{TOOLS}ProducerPerformance",
    "consumer-perf": f"{TOOLS}ConsumerPerformance",
}
#: What to run, in this order. BROKER is the address; FILE:NAME a file of `FILES`; what follows < is stdin.
COMMANDS = """\
topics --create --topic orders --partitions 3 --config retention.ms=86400000
topics --create --topic orders --partitions 3
topics --create --topic orders --if-not-exists
topics --create --topic bad/name
topics --create --topic wide --partitions 1 --replication-factor 3
topics --list
topics --describe --topic orders
topics --describe --topic missing
topics --describe --under-replicated-partitions
topics --alter --topic orders --partitions 4
topics --alter --topic orders --partitions 2
configs --alter --entity-type topics --entity-name orders --add-config cleanup.policy=compact,min.insync.replicas=1
configs --alter --entity-type topics --entity-name orders --add-config retention.ms=soon
configs --describe --entity-type topics --entity-name orders
configs --alter --entity-type topics --entity-name orders --delete-config cleanup.policy
configs --alter --entity-type users --entity-name ann --add-config SCRAM-SHA-256=[iterations=4096,password=x]
configs --describe --entity-type users --entity-name ann
configs --alter --entity-type users --entity-name ann --add-config producer_byte_rate=1000000
configs --describe --entity-type users --entity-name ann --user-defaults
configs --describe --entity-type clients
produce --topic orders --property parse.key=true --property key.separator=: < a:1\\nb:2\\nc:3\\nd:4
consume --topic orders --from-beginning --group billing --max-messages 4 --timeout-ms 20000 | sorted
consume --topic orders --partition 9 --offset 0 --timeout-ms 3000
consumer-groups --list
consumer-groups --describe --group billing | sorted
consumer-groups --describe --group billing --state
consumer-groups --describe --group billing --members
consumer-groups --describe --group nobody
consumer-groups --reset-offsets --group billing --topic orders --to-earliest --dry-run | sorted
consumer-groups --reset-offsets --group billing --topic orders --shift-by -1 --execute | sorted
consumer-groups --delete-offsets --group billing --topic orders | sorted
consumer-groups --delete --group billing
groups --list
get-offsets --topic orders
get-offsets --topic orders --time earliest
get-offsets --topic missing
delete-records --offset-json-file FILE:delete.json
get-offsets --topic orders --time -2
log-dirs --describe --topic-list orders
transactions list
transactions describe --transactional-id nobody
transactions find-hanging --broker-id 1
leader-election --election-type preferred --topic orders --partition 0
leader-election --election-type preferred --all-topic-partitions
reassign --reassignment-json-file FILE:move.json --execute
reassign --reassignment-json-file FILE:move.json --verify
reassign --list
acls --list
acls --add --allow-principal User:ann --operation Read --topic orders
cluster cluster-id
cluster list-endpoints
features describe
api-versions
quorum describe --status
quorum describe --replication
client-metrics --list
delegation-tokens --create --max-life-time-period -1 --command-config FILE:empty.properties
producer-perf --topic orders --num-records 1000 --record-size 100 --throughput -1 --bootstrap-server BROKER
consumer-perf --topic orders --num-records 1000 --timeout 20000
topics --delete --topic orders
topics --delete --topic missing
topics --list
"""
FILES = {
    "delete.json": json.dumps({"partitions": [{"topic": "orders", "partition": 0, "offset": -1}], "version": 1}),
    "move.json": json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}),
    "empty.properties": "",
}
_WORDS = "the same error in other words"
_LEFT_OUT = "share groups, streams groups and KRaft are left out"
#: Commands whose output differs, and why. They must still end with the same code.
DIFFERENT = {
    "topics --create --topic bad/name": _WORDS,
    "topics --create --topic wide --partitions 1 --replication-factor 3": _WORDS,
    "topics --describe --topic orders": "Kafka sets min.insync.replicas for the cluster when it starts",
    "topics --alter --topic orders --partitions 2": _WORDS,
    "configs --alter --entity-type topics --entity-name orders --add-config retention.ms=soon": _WORDS,
    "configs --describe --entity-type topics --entity-name orders": "as above; ottla names the default of retention.ms",
    "acls --list": _WORDS,
    "acls --add --allow-principal User:ann --operation Read --topic orders": _WORDS,
    "features describe": _LEFT_OUT,
    "api-versions": _LEFT_OUT,
    "quorum describe --status": "the only voter of Kafka has a listener for controllers",
}
SERVER_FIRST = ("features", "quorum", "transactions")


class Command(NamedTuple):
    """A line of `COMMANDS`."""

    text: str
    tool: str
    arguments: list[str]
    stdin: str
    is_sorted: bool

    def line(self, broker: Peer, directory: Path) -> str:
        arguments = [
            each.replace("BROKER", broker.bootstrap_servers).replace("FILE:", f"{directory}/")
            for each in self.arguments
        ]
        if "--bootstrap-server" not in arguments:
            server = ["--bootstrap-server", broker.bootstrap_servers]
            arguments = server + arguments if self.tool in SERVER_FIRST else arguments + server
        return "\t".join([NAMES[self.tool], *arguments, self.stdin])


class Said(NamedTuple):
    """How a tool ended, and what it printed without what differs between two brokers."""

    code: int
    text: str


def run(broker: Peer, directory: Path) -> str:
    """Run all tools on the broker and on Apache Kafka; return a line about the result."""
    for name, text in FILES.items():
        (directory / name).write_text(text)
    commands = list(_commands())
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka({"num.partitions": "1"}))
        ours, theirs = (dict(_answers(each, commands, directory)) for each in (broker, kafka))
    problems = [_compared(command, ours[command.text], theirs[command.text]) for command in commands]
    found = [problem for problem in problems if problem is not None]
    if found:
        raise Failed(f"{len(found)} of {len(commands)} commands differ from Apache Kafka\n" + "\n".join(found))
    return f"{len(commands)} commands, {len(commands) - len(DIFFERENT)} alike, {len(DIFFERENT)} different for a reason"


def _commands() -> Iterator[Command]:
    for text in COMMANDS.splitlines():
        rest, _, stdin = text.partition(" < ")
        rest, bar, _ = rest.partition(" | sorted")
        tool, *arguments = shlex.split(rest)
        yield Command(text, tool, arguments, stdin, bool(bar))


def _answers(broker: Peer, commands: list[Command], directory: Path) -> Iterator[tuple[str, Said]]:
    java = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", jars(), str(HERE / "Tools.java")]
    lines = "".join(command.line(broker, directory) + "\n" for command in commands)
    done = subprocess.run(java, input=lines, capture_output=True, text=True, timeout=600, check=False)
    answers = done.stdout.split("\x04\n")
    if len(answers) != len(commands) + 1:
        raise Failed(f"the tools ended after {len(answers) - 1} commands\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    for command, answer in zip(commands, answers, strict=False):
        first, _, text = answer.partition("\n")
        yield command.text, Said(int(first.removeprefix("code ")), _plain(text, broker, directory, command.is_sorted))


def _plain(text: str, broker: Peer, directory: Path, is_sorted: bool) -> str:
    """What was said, without addresses, ids, times and rates."""
    text = text.replace(broker.bootstrap_servers, "BROKER").replace(str(broker.data_dir), "DATA")
    text = text.replace(str(directory), "DIRECTORY").replace(str(broker.port), "PORT")
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    lines = [_masked(line) for line in lines if line and not line.startswith(_NOISE)]
    return "\n".join(sorted(lines) if is_sorted else lines)


#: Traces, logs, and what tools print of the exception that stands for the end of the process.
_NOISE = ("at ", "...", "WARN", "SLF4J", "null", "Tools$Ended")
_VARYING = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:]\d+", "TIME"),
    (r"(TopicId: |Cluster ID: |ClusterId: |^1 )[\w-]{22}( \d+)?", r"\1ID"),
    (r"(Epoch: |HighWatermark: |\"size\":)\d+", r"\1N"),
    (r"\b\d{13}\b", "MILLIS"),
    (r"^TIME, TIME, .*", "RATES"),
    (r"\d+\.\d+|\d+ ms", "N"),
    (r"console-consumer-\d+", "GROUP"),
)


def _masked(line: str) -> str:
    for pattern, name in _VARYING:
        line = re.sub(pattern, name, line)
    return line


def _compared(command: Command, ours: Said, theirs: Said) -> str | None:
    if ours == theirs or (command.text in DIFFERENT and ours.code == theirs.code):
        return None
    return f"\n$ {command.text}\n--- ottla, code {ours.code}\n{ours.text}\n--- Kafka, code {theirs.code}\n{theirs.text}"
