"""Distributed Connect: a file goes through a topic to another file while workers and the broker are killed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.peer import HOST, Peer, free_port
from tests.ecosystem.jvm import Failed, Program, running, until
from tests.ecosystem.topics import committed, create

import ottla

LINES = 3000
TOPIC = "lines"


def run(broker: Peer, directory: Path) -> str:
    """Copy lines under kills; return a line about the result."""
    workers = [_worker(broker, directory, number) for number in (1, 2)]
    (first, url), (second, other_url) = workers
    source, sink = directory / "source.txt", directory / "sink.txt"
    lines = [f"line {number}" for number in range(LINES)]
    source.touch()
    create(broker.bootstrap_servers, ottla.NewTopic(TOPIC, 1))
    with running(first, second):
        until(lambda: _get(url, "/connectors") == [], "the first worker does not answer", first, second)
        _put(url, "from-file", {"connector.class": "FileStreamSource", "file": str(source), "topic": TOPIC})
        _put(url, "to-file", {"connector.class": "FileStreamSink", "file": str(sink), "topics": TOPIC})
        _append(source, lines[:1000])
        until(lambda: _is_in(sink, lines[:1000]), "the first lines are not there", first, second)
        first.kill()
        _append(source, lines[1000:2000])
        until(lambda: _is_in(sink, lines[:2000]), "a worker was killed, and lines are missing", second)
        first.start()
        broker.kill()
        _append(source, lines[2000:])
        broker.start()
        until(lambda: _is_in(sink, lines), "the broker was killed, and lines are missing", first, second)
        until(lambda: _states(other_url) == {"RUNNING"}, "tasks do not run", first, second)
        second.stop()
        first.stop()
    written = [record.value.decode() for record in committed(broker.bootstrap_servers, TOPIC) if record.value]
    if written != lines:
        raise Failed(f"the source is exactly once: {len(lines)} lines became {len(written)} records")
    return f"{LINES:,} lines through a topic, each exactly once there; 1 kill of a worker, 1 of the broker"


def _worker(broker: Peer, directory: Path, number: int) -> tuple[Program, str]:
    url = f"http://{HOST}:{free_port()}"
    text = "org.apache.kafka.connect.storage.StringConverter"
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "connect",
        "listeners": url,
        "key.converter": text,
        "value.converter": text,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "500",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "1000",
    }
    for name in ("config", "offset", "status"):
        config |= {f"{name}.storage.topic": f"connect-{name}", f"{name}.storage.replication.factor": "1"}
    file = directory / f"worker-{number}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    return Program(directory, f"worker-{number}", main, [str(file)]), url


def _get(url: str, path: str) -> Any:
    try:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            return json.load(answer)
    except (OSError, urllib.error.URLError):
        return None


def _put(url: str, name: str, config: dict[str, str]) -> None:
    body = json.dumps(config | {"tasks.max": "1"}).encode()
    request = urllib.request.Request(
        f"{url}/connectors/{name}/config", body, {"Content-Type": "application/json"}, method="PUT"
    )

    def created() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=60):
                return True
        except urllib.error.HTTPError as error:
            if error.code in (409, 500, 503):  # It is rebalancing.
                return False
            raise Failed(f"{name}: {error.code} {error.read()!r}") from error

    until(created, f"the connector {name} was not created")


def _states(url: str) -> set[str]:
    found = (_get(url, f"/connectors/{name}/status") for name in ("from-file", "to-file"))
    return {task["state"] for status in found for task in (status or {"tasks": [{"state": "unknown"}]})["tasks"]}


def _append(file: Path, lines: list[str]) -> None:
    with file.open("a") as target:
        target.writelines(f"{line}\n" for line in lines)


def _is_in(file: Path, lines: list[str]) -> bool:
    return file.exists() and set(lines) <= set(file.read_text().splitlines())
