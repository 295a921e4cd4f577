"""The examples of docs/delivery.md, each killed in the middle and restarted: what is lost and what is repeated."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .consumer_scenes import numbers, write
from .transaction_scenes import committed

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDS = 25
CRASH_AFTER = 14


def run(example: str, directory: Path, expected: int, *arguments: str) -> int:
    """Run an example that waits long for this many records, and ends soon when no more come."""
    code = (EXAMPLES / f"{example}.py").read_text()
    patient, count = re.subn(r"consumer\.poll\(.+\):", f"consumer.poll(40.0 if processed < {expected} else 1.0):", code)
    assert count == 1
    script = directory / f"{example}.py"
    script.write_text(patient)
    return subprocess.run([sys.executable, str(script), *arguments], timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("example", "left", "lost", "doubled"),
    [("at_most_once", 5, 6, 0), ("at_least_once", 15, 0, 4), ("exactly_once", 15, 0, 0)],
)
def test_what_a_crash_costs(own_broker: Any, tmp_path: Path, example: str, left: int, lost: int, doubled: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    servers = own_broker(group_min_session_timeout_ms="500").bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(20)
    write(servers, "orders", numbers(0, RECORDS))
    database = tmp_path / "results.db"
    arguments = (servers, "orders", str(database))
    assert run(example, tmp_path, CRASH_AFTER, *arguments, "--crash-after", str(CRASH_AFTER)) == 1
    # The member that crashed holds its partitions until its session ends; somebody may also remove it.
    remove_members(servers, example.replace("_", "-"))
    assert run(example, tmp_path, left, *arguments) == 0
    with sqlite3.connect(database) as results:
        seen = Counter(row[0] for row in results.execute("SELECT value FROM results"))
    results.close()
    expected = {str(number) for number in range(RECORDS)}
    assert len(expected - set(seen)) == lost
    assert sum(count - 1 for count in seen.values()) == doubled


@pytest.mark.parametrize(
    "example",
    ["at_most_once", "at_least_once", "exactly_once", "exactly_once_transactions", "exactly_once_unique_keys"],
)
def test_examples_wait_longer_than_for_the_session_of_one_that_crashed(example: str) -> None:
    code = (EXAMPLES / f"{example}.py").read_text()
    (session,) = re.findall(r"session_timeout_ms=(\d+)", code)
    (patience,) = re.findall(r"(?:consumer\.poll\(|default=)(\d+\.\d)", code)
    assert float(patience) > int(session) / 1000


def remove_members(servers: str, group: str) -> None:
    from ottla.clients.admin.blocking import Admin

    with Admin(bootstrap_servers=servers) as admin:
        admin.remove_members(group)


def test_from_topic_to_topic_a_crash_costs_nothing(own_broker: Any, tmp_path: Path) -> None:
    from ottla import Admin, NewTopic

    servers = own_broker(group_min_session_timeout_ms="500").bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        for topic in ("orders", "invoices"):
            admin.create_topics(NewTopic(topic, num_partitions=1))
    write(servers, "orders", numbers(0, RECORDS))
    example, arguments = "exactly_once_transactions", (servers, "orders", "invoices")
    assert run(example, tmp_path, CRASH_AFTER, *arguments, "--crash-after", str(CRASH_AFTER)) == 1
    remove_members(servers, "invoices")
    assert run(example, tmp_path, 15, *arguments) == 0
    assert committed(servers, "invoices", RECORDS) == sorted(b"invoice for %d" % number for number in range(RECORDS))


def example(name: str, *arguments: object) -> int:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, timeout=60, check=False).returncode


def values_of(servers: str, topic: str) -> list[bytes]:
    from ottla import Consumer, TopicPartition

    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        found: list[bytes] = []
        end = consumer.end_offsets([partition])[partition]
        while len(found) < end:
            found += [record.value for record in consumer.poll(5)]
        return found


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "input.txt"
    path.write_text("".join(f"{number}\n" for number in range(RECORDS)))
    return path


def test_a_single_writer_resumes_behind_its_last_record(own_broker: Any, lines: Path) -> None:
    servers = own_broker().bootstrap_servers
    make_topic(servers, "lines")
    expected = [b"%d" % number for number in range(RECORDS)]
    for crash_after in (3, 7, 5):
        assert example("exactly_once_single_writer", servers, "lines", lines, "--crash-after", crash_after) == 1
        written = values_of(servers, "lines")
        assert written == expected[: len(written)]
    assert example("exactly_once_single_writer", servers, "lines", lines) == 0
    assert values_of(servers, "lines") == expected


def test_unique_keys_make_repeated_records_harmless(own_broker: Any, lines: Path, tmp_path: Path) -> None:
    servers, database = own_broker(group_min_session_timeout_ms="500").bootstrap_servers, tmp_path / "results.db"
    make_topic(servers, "orders")
    assert example("exactly_once_unique_keys", "write", servers, "orders", lines, "--crash-after", CRASH_AFTER) == 1
    assert example("exactly_once_unique_keys", "write", servers, "orders", lines) == 0
    assert len(values_of(servers, "orders")) == CRASH_AFTER + RECORDS
    reading = ("read", servers, "orders", str(database))
    script = "exactly_once_unique_keys"
    assert run(script, tmp_path, CRASH_AFTER, *reading, "--crash-after", str(CRASH_AFTER)) == 1
    remove_members(servers, "unique-keys")
    assert run(script, tmp_path, RECORDS, *reading) == 0
    with sqlite3.connect(database) as results:
        seen = [row[0] for row in results.execute("SELECT value FROM results")]
    results.close()
    assert sorted(seen, key=int) == [str(number) for number in range(RECORDS)]


def make_topic(servers: str, name: str) -> None:
    from ottla import Admin, NewTopic

    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(NewTopic(name, num_partitions=1))
