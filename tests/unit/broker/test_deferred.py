"""A batch must not overtake one of the same producer that was refused and will be sent again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

import ottla
from ottla import errors
from ottla.broker.deferred import MOST, REMEMBERED_MS, DeferredBatches, producer_of
from unit.storage.log_material import T0, Store, record_batch

TOPIC: Any = SimpleNamespace(name="orders", topic_id=uuid.UUID(int=0))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.crash()


def batch(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> Any:
    records = record_batch([b"v"], producer_id=producer_id, epoch=epoch, sequence=sequence)
    return SimpleNamespace(index=0, records=memoryview(bytes(records)))


def test_a_batch_waits_for_the_lowest_refused_sequence(store: Store) -> None:
    deferred = DeferredBatches()
    for sequence in (5, 0, 3):
        deferred.add(TOPIC, batch(sequence), now=T0)
    with pytest.raises(errors.OutOfOrderSequenceNumber, match="sequence 0 was refused"):
        deferred.check(TOPIC, batch(3), store.log.producers, now=T0)
    deferred.check(TOPIC, batch(0), store.log.producers, now=T0)
    assert not deferred
    deferred.check(TOPIC, batch(3), store.log.producers, now=T0)


def test_the_log_of_a_known_producer_decides_alone(store: Store) -> None:
    store.append(producer_id=7, sequence=0)
    deferred = DeferredBatches()
    deferred.add(TOPIC, batch(1), now=T0)
    deferred.check(TOPIC, batch(2), store.log.producers, now=T0)
    assert not deferred


def test_a_new_epoch_and_other_producers_are_free(store: Store) -> None:
    deferred = DeferredBatches()
    deferred.add(TOPIC, batch(0), now=T0)
    deferred.check(TOPIC, batch(3, producer_id=8), store.log.producers, now=T0)
    deferred.check(TOPIC, batch(3, epoch=1), store.log.producers, now=T0)
    deferred.add(TOPIC, batch(3, epoch=1), now=T0)
    deferred.add(TOPIC, batch(2, epoch=2), now=T0)
    with pytest.raises(errors.OutOfOrderSequenceNumber, match="sequence 2 was refused"):
        deferred.check(TOPIC, batch(4, epoch=2), store.log.producers, now=T0)


def test_refused_batches_are_forgotten(store: Store) -> None:
    deferred = DeferredBatches()
    deferred.add(TOPIC, batch(0), now=T0)
    deferred.check(TOPIC, batch(1), store.log.producers, now=T0 + REMEMBERED_MS)
    assert not deferred
    for producer_id in range(MOST + 1):
        deferred.add(TOPIC, batch(0, producer_id=producer_id), now=T0)
    deferred.check(TOPIC, batch(1, producer_id=0), store.log.producers, now=T0)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        deferred.check(TOPIC, batch(1, producer_id=1), store.log.producers, now=T0)


def test_batches_without_a_producer_are_not_remembered() -> None:
    deferred = DeferredBatches()
    deferred.add(TOPIC, SimpleNamespace(index=0, records=None), now=T0)
    deferred.add(TOPIC, SimpleNamespace(index=0, records=memoryview(b"short")), now=T0)
    deferred.add(TOPIC, batch(-1, producer_id=-1), now=T0)
    assert not deferred
    assert producer_of(memoryview(bytes(100))) is None, "of magic 0"


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_librdkafka_loses_no_record_behind_a_refused_one(error: str) -> None:
    """It takes a refused batch for written as soon as one behind it is, and reports it as delivered."""
    reported: list[bytes] = []

    def on_delivery(failure: KafkaError | None, message: Message) -> None:
        assert failure is None
        reported.append(message.value() or b"")

    with ottla.Broker() as broker:
        with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(ottla.NewTopic("orders", num_partitions=1))
        settings = {"linger.ms": 0, "batch.num.messages": 1, "retry.backoff.ms": 50, "enable.idempotence": True}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        sent = [b"%d" % number for number in range(50)]
        with broker.faults.fail("Produce", error, times=1) as fault:
            for value in sent:
                producer.produce("orders", value, on_delivery=on_delivery)
            assert producer.flush(30) == 0
        assert fault.hits == 1
        assert reported == sent
        assert broker.topics["orders"].values() == sent
