"""Run a single-node Apache Kafka, for comparisons and for tests.

    with ApacheKafka(config={"num.partitions": 3}) as kafka:
        kafka.bootstrap_servers, kafka.pid, kafka.data_dir

`python -m benchmarks.apache_kafka --port 9093` runs one until Ctrl-C. Maven downloads the jars once. The JVM
has the flags of kafka-server-start.sh. The broker has Kafka's defaults, except for the settings that a single node
needs.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from benchmarks import maven
from benchmarks.peer import HOST, Peer, Unavailable, free_port

KAFKA_VERSION = "4.2.0"
SCALA_VERSION = "2.13"
LOG4J_VERSION = "2.25.3"
NEEDED_JAVA = 17

# The flags of kafka-server-start.sh and kafka-run-class.sh, without the GC log and the JMX agent, which only
# helps Kafka.
JVM_FLAGS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]

# Settings that a single node needs, and no wait before the first rebalance, as in Kafka's sample.
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}

KAFKA = (f"org.apache.kafka:kafka_{SCALA_VERSION}:{KAFKA_VERSION}",)
_LOGGING = f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}"

_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class ApacheKafka(Peer):
    """Apache Kafka in KRaft combined mode. Raises `Unavailable` without Java or the jars."""

    name = "kafka"

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.controller_port = free_port()
        self.cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:21]  # never starts with "-"

    def prepare(self) -> None:
        properties = self._properties()
        lines = [f"{name}={value}" for name, value in properties.items()]
        self._properties_file.write_text("\n".join(lines) + "\n")
        (self.work_dir / "log4j2.properties").write_text(_LOG4J)
        if not (self.data_dir / "meta.properties").exists():
            self._format_storage()

    def command(self) -> list[str]:
        return [*self._java(*JVM_FLAGS), "kafka.Kafka", str(self._properties_file)]

    @property
    def _properties_file(self) -> Path:
        return self.work_dir / "server.properties"

    def _properties(self) -> dict[str, str]:
        listeners = self.config.get("listeners", f"PLAINTEXT://{HOST}:{self.port}")
        own = {
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "log.dirs": str(self.data_dir),
        }
        with_controller = {"listeners": f"{listeners},CONTROLLER://{HOST}:{self.controller_port}"}
        return {**SINGLE_NODE, **own, **self.config, **with_controller}

    def _format_storage(self) -> None:
        arguments = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self._properties_file)]
        done = subprocess.run([*self._java(), *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")

    def _java(self, *flags: str) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self.work_dir / 'log4j2.properties'}"
        return [find_java(), *flags, log4j, "-cp", class_path()]


def missing() -> str | None:
    """Return why Apache Kafka cannot run here, or None. Downloads missing jars."""
    try:
        find_java()
        class_path()
    except Unavailable as problem:
        return str(problem)
    return None


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise Unavailable(f"Apache Kafka {KAFKA_VERSION} needs Java {NEEDED_JAVA} or newer; no java found {where}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < NEEDED_JAVA:
        raise Unavailable(
            f"Apache Kafka {KAFKA_VERSION} needs Java {NEEDED_JAVA} or newer; {java} says {said.strip()!r}"
        )
    return java


def class_path(name: str = "kafka", artifacts: Sequence[str] = KAFKA) -> str:
    """Return the class path of artifacts with what they need. Maven downloads them on first use."""
    return f"{maven.directory(f'{name}-{KAFKA_VERSION}', [*artifacts, _LOGGING])}/*"


def _leave(number: int, frame: object) -> None:
    raise SystemExit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=f"Run Apache Kafka {KAFKA_VERSION} on one node until Ctrl-C.")
    parser.add_argument("--port", type=int, default=9092, help="the port on the loopback address (0 picks a free one)")
    parser.add_argument("--data-dir", type=Path, help="the data directory (default: a temporary one)")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a broker config")
    options = parser.parse_args()
    config = dict(entry.split("=", 1) for entry in options.config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        with ApacheKafka(config, port=options.port, data_dir=options.data_dir) as kafka:
            where = f"{kafka.bootstrap_servers}, pid {kafka.pid}, data in {kafka.data_dir}"
            print(f"Apache Kafka {KAFKA_VERSION} on {where}", flush=True)
            while True:
                signal.pause()
    except Unavailable as problem:
        parser.exit(1, f"{problem}\n")


if __name__ == "__main__":
    main()
