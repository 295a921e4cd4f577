"""The job while connections are cut and leaders seem to move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from totals_job import SOURCE, TARGET, run

from ottla import Broker, Producer

CUSTOMERS, ORDERS = 7, 700


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from ottla.spark import session

    with session("totals-test", master="local[2]", fast=True) as spark:
        yield spark


def test_the_totals_are_right_in_spite_of_faults(spark: Any, ottla_broker: Broker) -> None:
    servers = ottla_broker.bootstrap_servers
    with Producer(bootstrap_servers=servers, value_serializer="json") as producer:
        for number in range(ORDERS):
            producer.send(SOURCE, {"customer": f"c{number % CUSTOMERS}", "total": number})
    with (
        ottla_broker.faults.cut("Fetch", times=1) as cut,
        ottla_broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2) as moved,
        ottla_broker.faults.cut("Produce", times=1, after=True) as lost,
    ):
        run(spark, servers)
        assert (cut.hits, moved.hits, lost.hits) == (1, 2, 1), "they all happened"
    written = {record.key: record.value for record in ottla_broker.topics[TARGET].records()}
    expected = {
        f"c{customer}".encode(): str(sum(range(customer, ORDERS, CUSTOMERS))).encode() for customer in range(CUSTOMERS)
    }
    assert written == expected
    assert len(ottla_broker.topics[TARGET].records()) == CUSTOMERS, "and none is there twice"
