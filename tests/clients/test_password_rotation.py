"""Clients keep working while passwords are rotated, and sessions are renewed without a failed request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.broker.sasl_wire import SaslBroker, sasl_broker

import ottla
from compat.waiting import until
from ottla.errors import SaslAuthenticationFailed

TOPIC = "rotation"


def access(sasl: SaslBroker, name: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": sasl.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": name,
        "sasl_password": password,
    }


class Load(threading.Thread):
    """Writes all the time, and remembers what failed."""

    def __init__(self, producer: ottla.Producer) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._ends = threading.Event()
        self.written = 0
        self.problems: list[Exception] = []

    def run(self) -> None:
        while not self._ends.is_set() and not self.problems:
            try:
                self._producer.send(TOPIC, b"%d" % self.written).get(20)
                self.written += 1
            except Exception as error:
                self.problems.append(error)

    def more(self, count: int) -> bool:
        """Wait until more was written; whether nothing has failed."""
        target = self.written + count
        until(lambda: self.written >= target or self.problems, "more is written")
        return not self.problems

    def end(self) -> None:
        self._ends.set()
        self.join()


@pytest.fixture(scope="module")
def sasl() -> Iterator[SaslBroker]:
    with sasl_broker(**{"listener.name.sasl.connections.max.reauth.ms": "1100"}) as broker:
        with ottla.Admin(bootstrap_servers=broker.plain) as admin:
            admin.create_topics(ottla.NewTopic(TOPIC, 1))
            admin.alter_users({"alice": "first", "bob": "first"})
        yield broker


def authentications(sasl: SaslBroker, result: str = "success") -> int:
    """Return how often clients have authenticated, or tried to."""
    text = sasl.broker._running().node.metrics.registry.render()
    lines = [line for line in text.splitlines() if line.startswith("ottla_authentications_total")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if f'result="{result}"' in line)


def test_sessions_are_renewed_without_a_failed_request(sasl: SaslBroker) -> None:
    with ottla.Producer(**access(sasl, "bob", "first"), retries=0, linger_ms=0) as producer:
        load = Load(producer)
        load.start()
        assert load.more(1)
        before = authentications(sasl)
        until(lambda: authentications(sasl) >= before + 2 or load.problems, "the session is renewed twice")
        load.end()
        assert load.problems == []
    with ottla.Consumer(**access(sasl, "bob", "first")) as consumer:
        consumer.assign([ottla.TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        read = 0
        while read < load.written:
            read += len(consumer.poll(5))
        before = authentications(sasl)
        while authentications(sasl) < before + 2:
            consumer.poll(0.1)


def test_a_second_user_takes_over_while_the_first_one_is_removed(sasl: SaslBroker) -> None:
    """The recipe of docs/security.md."""
    short = {"linger_ms": 0, "delivery_timeout_ms": 3000, "request_timeout_ms": 2000}
    with ottla.Producer(**access(sasl, "alice", "first"), **short) as producer:
        load = Load(producer)
        load.start()
        assert load.more(10)
        with ottla.Admin(bootstrap_servers=sasl.plain) as admin:
            admin.alter_users({"alice-2": "second"})
        with ottla.Producer(**access(sasl, "alice-2", "second"), linger_ms=0) as successor:
            next_load = Load(successor)
            next_load.start()
            assert load.more(10)
            assert next_load.more(10)
            load.end()
            with ottla.Admin(bootstrap_servers=sasl.plain) as admin:
                admin.alter_users({"alice": None})
            assert next_load.more(10)
            next_load.end()
        # A forgotten client is refused when its session ends.
        forgotten = Load(producer)
        forgotten.start()
        until(lambda: forgotten.problems, "the old user cannot write any more")
        assert authentications(sasl, "failure") > 0
        forgotten.end()


def test_a_client_with_the_new_password_connects_at_once(sasl: SaslBroker) -> None:
    with ottla.Admin(bootstrap_servers=sasl.plain) as admin:
        admin.alter_users({"carol": "first"})
        with ottla.Admin(**access(sasl, "carol", "first")) as old:
            old.describe_cluster()
            admin.alter_users({"carol": "second"})
            old.describe_cluster()
        with ottla.Admin(**access(sasl, "carol", "second")) as new:
            new.describe_cluster()
        with ottla.Admin(**access(sasl, "carol", "first")) as late, pytest.raises(SaslAuthenticationFailed):
            late.describe_cluster()
