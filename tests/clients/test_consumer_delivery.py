"""The examples of docs/delivery.md, each killed in the middle and restarted: what is lost and what is repeated."""

from __future__ import annotations

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


def run(example: str, servers: str, topic: str, database: Path, *options: str) -> int:
    # Reading ends when nothing arrives for some seconds; a test need not wait that long.
    code = (EXAMPLES / f"{example}.py").read_text().replace("consumer.poll(5.0)", "consumer.poll(1.0)")
    script = database.with_name(f"{example}.py")
    script.write_text(code)
    command = [sys.executable, str(script), servers, topic, str(database), *options]
    return subprocess.run(command, timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("example", "lost", "doubled"), [("at_most_once", 6, 0), ("at_least_once", 0, 4), ("exactly_once", 0, 0)]
)
def test_what_a_crash_costs(own_broker: Any, tmp_path: Path, example: str, lost: int, doubled: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    servers = own_broker(group_min_session_timeout_ms="500").bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(20)
    write(servers, "orders", numbers(0, RECORDS))
    database = tmp_path / "results.db"
    assert run(example, servers, "orders", database, "--crash-after", str(CRASH_AFTER)) == 1
    # The crashed member keeps its partitions until its session ends; an admin may also remove it.
    remove_members(servers, example.replace("_", "-"))
    assert run(example, servers, "orders", database) == 0
    with sqlite3.connect(database) as results:
        seen = Counter(row[0] for row in results.execute("SELECT value FROM results"))
    results.close()
    expected = {str(number) for number in range(RECORDS)}
    assert len(expected - set(seen)) == lost
    assert sum(count - 1 for count in seen.values()) == doubled


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
    command = [sys.executable, str(EXAMPLES / "exactly_once_transactions.py"), servers, "orders", "invoices"]
    crashed = subprocess.run([*command, "--crash-after", str(CRASH_AFTER)], timeout=60, check=False)
    assert crashed.returncode == 1
    remove_members(servers, "invoices")
    subprocess.run([*command, "--patience", "1"], timeout=60, check=True)
    assert committed(servers, "invoices", RECORDS) == sorted(b"invoice for %d" % number for number in range(RECORDS))
