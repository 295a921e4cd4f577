"""Transactions that one producer writes and another one ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from compat.brokers import start_broker
from compat.waiting import until
from ottla.clients.admin.blocking import Admin
from ottla.clients.producer import transaction_requests
from ottla.clients.producer.prepared import Described, Prepared, PreparingProducer, fate
from ottla.consuming.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.errors import KafkaError, ProducerFenced
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    configs = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
    with start_broker(configs, tmp_path_factory.mktemp("prepared")) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics(ottla.NewTopic("t", 1))
        yield broker.bootstrap_servers


@pytest.fixture(params=[1, 2], autouse=True)
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protocol version of the producers; the broker has enabled the second one."""
    if request.param == 1:
        monkeypatch.setattr(transaction_requests, "_version", lambda connection: 1)


@pytest.fixture
def producers(servers: str) -> Iterator[tuple[PreparingProducer, PreparingProducer]]:
    config = {"bootstrap.servers": servers, "transactional.id": "any"}
    with PreparingProducer(config) as first, PreparingProducer(config) as second:
        yield first, second


def visible(servers: str) -> int:
    with Admin(bootstrap_servers=servers) as admin:
        return admin.list_offsets({KEY: "latest"}, isolation_level="read_committed")[KEY].offset


def prepare(producer: PreparingProducer, name: str) -> Prepared:
    producer.take_over(name)
    producer.begin_transaction()
    producer.producer.send("t", b"x", partition=0)
    return producer.prepare()


def test_another_producer_commits_what_one_has_prepared(
    servers: str, producers: tuple[PreparingProducer, PreparingProducer]
) -> None:
    first, second = producers
    before = visible(servers)
    a, b = prepare(first, "job-0"), prepare(first, "job-1")
    assert visible(servers) == before
    found = second.describe(["job-0", "job-1", "nobody"])
    assert found["nobody"] is None
    assert [fate(one, found[one.transactional_id]) for one in (a, b)] == ["open", "open"]
    assert {one.transactional_id for one in second.open_transactions("job")} == {"job-0", "job-1"}
    for _ in range(2):  # a repetition is recognized
        assert second.end([a], commit=True) == {"job-0": None}
        assert second.end([b], commit=False) == {"job-1": None}
    found = second.describe(["job-0", "job-1"])
    assert fate(a, found["job-0"]) == "committed"
    assert fate(b, found["job-1"]) == "lost"
    until(lambda: visible(servers) == before + 4, "two records and two markers are seen")
    assert second.open_transactions("job") == []


def test_taking_over_an_id_aborts_and_fences(
    servers: str, producers: tuple[PreparingProducer, PreparingProducer]
) -> None:
    first, second = producers
    old = prepare(first, "job-2")
    new = prepare(second, "job-2")
    error = first.end([old], commit=True)["job-2"]
    assert isinstance(error, KafkaError)
    assert not error.retriable
    found = first.describe(["job-2"])["job-2"]
    assert (fate(old, found), fate(new, found)) == ("lost", "open")
    assert first.end([new], commit=True) == {"job-2": None}


def test_offsets_of_a_group_are_changed_by_one_at_a_time(
    producers: tuple[PreparingProducer, PreparingProducer],
) -> None:
    first, second = producers
    group = ConsumerGroupMetadata("ledger")

    def change(producer: PreparingProducer, number: int) -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({KEY: OffsetAndMetadata(number, f"n{number}")}, group)
        producer.commit_transaction()

    first.take_over("ledger")
    change(first, 1)
    change(first, 2)
    assert second.stable_offsets("ledger")[KEY].metadata == "n2"
    second.take_over("ledger")
    with pytest.raises(ProducerFenced):
        change(first, 3)
    assert second.stable_offsets("ledger")[KEY].offset == 2
    change(second, 4)
    assert second.stable_offsets("ledger")[KEY].offset == 4


def test_fates() -> None:
    first, second = Prepared("a-0", 7, 3, 1), Prepared("a-0", 7, 3, 2)
    assert fate(first, None) == "lost"
    assert fate(first, Described("CompleteCommit", 7, 3)) == "committed"
    assert fate(first, Described("CompleteCommit", 7, 4)) == "lost"
    assert fate(second, Described("PrepareCommit", 7, 4)) == "committed"
    assert fate(second, Described("Ongoing", 7, 4)) == "lost"
    assert fate(second, Described("Empty", 7, 4)) == "lost"
    assert fate(second, Described("CompleteCommit", 8, 0)) == "lost"
    assert fate(Prepared("a-0", 7, 2**15 - 2, 2), Described("CompleteCommit", 8, 0)) == "committed"
