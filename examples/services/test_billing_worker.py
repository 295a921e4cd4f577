"""The worker in the situations in which people are billed twice."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator

import pytest
from billing_worker import GROUP, TOPIC, Worker

from ottla import Broker, Producer
from ottla.testing import Snapshot

ORDERS = 20


@pytest.fixture(scope="module")
def prepared() -> Iterator[Snapshot]:
    """A broker with orders, prepared once for all tests of this file."""
    with Broker(num_partitions=2) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer="json") as producer:
            for number in range(ORDERS):
                producer.send(TOPIC, {"id": number, "total": number * 10}, partition=number % 2)
        yield broker.snapshot()


@pytest.fixture
def broker(prepared: Snapshot) -> Iterator[Broker]:
    # Orders are kept forever. By default Kafka deletes them after a week, like the offsets of an idle group.
    with Broker(from_snapshot=prepared, clock="manual", log_retention_ms=-1) as one:
        yield one


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def work_until_done(broker: Broker, *workers: Worker) -> int:
    """Let the workers work until the group has no lag; return how many records they processed."""
    processed, deadline = 0, time.monotonic() + 30
    while len(broker.groups[GROUP].offsets if GROUP in broker.groups else ()) < 2 or broker.groups[GROUP].lag:
        assert time.monotonic() < deadline, "the workers do not get on"
        processed += sum(worker.work() for worker in workers)
    return processed


def invoices(database: sqlite3.Connection) -> list[int]:
    return [row[0] for row in database.execute("SELECT order_id FROM invoices ORDER BY order_id")]


def test_a_session_that_is_lost_in_the_middle_of_a_batch(broker: Broker, database: sqlite3.Connection) -> None:
    worker = Worker(broker.bootstrap_servers, database)
    lost: list[str] = []

    def lose() -> None:
        if not lost:
            lost.extend(broker.faults.expire_session(GROUP))

    worker.before_commit = lose
    processed = work_until_done(broker, worker)
    worker.close()
    assert lost
    assert processed > ORDERS, "orders came twice"
    assert invoices(database) == list(range(ORDERS)), "but nobody was billed twice"


def test_a_rebalance_between_two_workers(broker: Broker, database: sqlite3.Connection) -> None:
    first, second = (Worker(broker.bootstrap_servers, database) for _ in range(2))
    first.work()
    second.work()
    broker.faults.rebalance(GROUP)
    work_until_done(broker, first, second)
    first.close()
    second.close()
    assert invoices(database) == list(range(ORDERS))


def test_a_coordinator_that_is_away_during_the_commit(broker: Broker, database: sqlite3.Connection) -> None:
    worker = Worker(broker.bootstrap_servers, database)
    with broker.faults.fail("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", times=2) as fault:
        assert work_until_done(broker, worker) == ORDERS, "the commit was tried again, and nothing came twice"
        assert fault.hits == 2
    worker.close()


def test_two_weeks_of_standstill(broker: Broker, database: sqlite3.Connection) -> None:
    worker = Worker(broker.bootstrap_servers, database)
    work_until_done(broker, worker)
    worker.close()
    broker.clock.advance(days=5)
    assert broker.groups[GROUP].lag == 0
    broker.clock.advance(days=3)
    assert GROUP not in broker.groups, "Kafka forgets the offsets of a group after offsets.retention.minutes, a week"
    again = Worker(broker.bootstrap_servers, database)
    assert work_until_done(broker, again) == ORDERS, "all orders come again"
    again.close()
    assert invoices(database) == list(range(ORDERS))
    assert json.loads(broker.topics[TOPIC].records(0)[0].value) == {"id": 0, "total": 0}
