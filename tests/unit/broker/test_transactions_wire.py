"""Transactions over the wire: every request in every version, every rejection, both protocol versions.

The expected codes were taken from Apache Kafka 4.2.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import ottla
from ottla.protocol.apis import ApiKey
from unit.broker.transaction_wire import Producer, committed, everything, offset_of, patiently, write_marker
from unit.broker.wire import Wire, batch, fetch_request

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50, "offsets.topic.num.partitions": 2}
    with ottla.Broker(config={**config, "transaction.state.log.num.partitions": 3}) as broker:
        yield broker


@pytest.fixture
def topic(wire: Wire) -> str:
    name = f"topic-{next(_numbers)}"
    wire.create_topic(name, 2)
    return name


@pytest.fixture
def producer(wire: Wire, topic: str) -> Producer:
    return Producer(wire, f"id-{topic}")


# ── every version ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("own", ["__consumer_offsets", "__transaction_state"])
def test_a_client_cannot_add_the_own_topics_of_the_broker(producer: Producer, topic: str, own: str) -> None:
    assert producer.add_offsets(f"group-{topic}") == 0
    assert producer.add(own, 0, 1, version=3) == [29, 29]  # TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_of_the_first_version_in_every_version_of_its_requests(
    wire: Wire, topic: str, version: int
) -> None:
    group = f"group-{topic}"
    producer = Producer(wire, f"id-{topic}", version=version)
    assert producer.add(topic, 0, 1, version=min(version, 3)) == [0, 0]
    assert producer.produce(topic, b"a", b"b") == (0, 0)
    assert producer.add_offsets(group, version=version) == 0
    assert producer.commit_offset(group, topic, 7, version=version) == 0
    assert producer.end(True, version=version).code == 0
    assert committed(wire, topic) == [b"a", b"b"]
    assert offset_of(wire, group, topic) == (7, 0)


def test_a_transaction_of_the_second_version(wire: Wire, topic: str) -> None:
    group = f"group-{topic}"
    producer = Producer(wire, f"id-{topic}")
    topic_id = wire.call(ApiKey.METADATA, 12, {"topics": [{"name": topic, "topic_id": None}]}).topics[0].topic_id
    assert producer.produce(topic, b"a", version=12) == (0, 0)
    assert producer.commit_offset(group, topic, 7, version=5) == 0
    assert producer.end_second(True) == 0
    assert (producer.epoch, producer.state()) == (1, "CompleteCommit")
    records = batch(
        b"b",
        timestamp=int(time.time() * 1000),
        producer_id=producer.producer_id,
        producer_epoch=1,
        base_sequence=0,
        transactional=True,
    )
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": records}]}]
    message = {"transactional_id": producer.id, "acks": -1, "timeout": 1000, "topic_data": data}
    assert wire.call(ApiKey.PRODUCE, 13, message).responses[0].partition_responses[0].error_code == 0
    assert producer.end_second(False) == 0
    assert committed(wire, topic) == [b"a"]
    assert everything(wire, topic) == [b"a", b"b"]
    assert offset_of(wire, group, topic) == (7, 0)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_for_many_transactions_at_once(wire: Wire, topic: str, version: int) -> None:
    producer = Producer(wire, f"id-{topic}")
    assert producer.verify(topic, 0, version=version) == [120]
    assert producer.add(topic, 0, version=version) == [0]
    assert producer.verify(topic, 0, 1, version=version) == [0, 120]
    transactions = [
        {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": 0, "verify_only": True,
         "topics": [{"name": topic, "partitions": [0]}]}
        for name in (producer.id, "nobody", "")
    ]  # fmt: skip
    answer = wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": transactions})
    assert [
        (each.transactional_id, each.topic_results[0].results_by_partition[0].partition_error_code)
        for each in answer.results_by_transaction
    ] == [(producer.id, 0), ("nobody", 49), ("", 42)]


def test_the_second_version_of_transactions_is_advertised(wire: Wire) -> None:
    software = {"client_software_name": "test", "client_software_version": "1.0"}
    metadata = ("metadata.version", 7, 25)
    since_zero = [("eligible.leader.replicas.version", 0, 1), ("group.version", 0, 1), ("transaction.version", 0, 2)]
    for version, supported in ((3, [metadata]), (4, sorted([metadata, *since_zero]))):
        answer = wire.call(ApiKey.API_VERSIONS, version, software)
        assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == supported
        finalized = {f.name: f.max_version_level for f in answer.finalized_features}
        assert finalized["transaction.version"] == 2
        assert answer.finalized_features_epoch >= 0


# ── rejections ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_producer_id_is_refused_for(wire: Wire, producer: Producer) -> None:
    assert producer.init(timeout=0).error_code == 50
    assert producer.init(timeout=900_001).error_code == 50
    assert producer.init(producer_id=5).error_code == 42
    empty = {"transactional_id": "", "transaction_timeout": 1000}
    assert wire.call(ApiKey.INIT_PRODUCER_ID, 5, empty).error_code == 42


def test_a_batch_is_refused_that_belongs_to_no_transaction(wire: Wire, topic: str, producer: Producer) -> None:
    assert producer.produce(topic) == (48, -1)
    assert producer.produce(topic, version=11) == (120, -1)
    producer.add(topic, 0)
    assert producer.produce(topic, partition=1) == (48, -1)
    assert producer.produce(topic, epoch=3) == (47, -1)
    assert producer.produce(topic, b"good") == (0, 0)
    assert producer.produce(topic, sequence=1, transactional=False) == (48, -1)
    producer.end(True)
    assert producer.produce(topic, sequence=1) == (48, -1), "after the end"
    assert committed(wire, topic) == [b"good"]
    stranger = Producer(wire, f"stranger-{topic}")
    stranger.id = producer.id
    assert stranger.produce(topic) == (49, -1)


def test_the_first_batch_of_the_second_version_begins_with_sequence_0(topic: str, producer: Producer) -> None:
    assert producer.produce(topic, sequence=3, version=12) == (45, -1)
    assert producer.state() == "Empty"


def test_several_producers_in_one_request_are_refused(wire: Wire, topic: str, producer: Producer) -> None:
    other = producer.producer_id + 1
    data = [
        {"index": index, "records": batch(b"x", producer_id=who, producer_epoch=0, base_sequence=0, transactional=True)}
        for index, who in ((0, producer.producer_id), (1, other))
    ]
    message = {
        "transactional_id": producer.id, "acks": -1, "timeout": 1,
        "topic_data": [{"name": topic, "partition_data": data}],
    }  # fmt: skip
    answer = wire.call(ApiKey.PRODUCE, 12, message).responses[0].partition_responses
    assert [each.error_code for each in answer] == [49, 49]


def test_all_partitions_are_added_or_none(topic: str, producer: Producer) -> None:
    assert producer.add(topic, 0, 7) == [55, 3]
    assert producer.state() == "Empty"


def test_a_fenced_producer_is_told_so_by_the_version_it_speaks(wire: Wire, topic: str, producer: Producer) -> None:
    group = f"group-{topic}"
    newer = Producer(wire, producer.id)
    assert newer.epoch == 1
    assert [producer.add(topic, version=version) for version in (1, 2, 3)] == [[47], [90], [90]]
    assert [producer.add_offsets(group, version=version) for version in (1, 2)] == [47, 90]
    assert [producer.end(True, version=version).code for version in (1, 2, 5)] == [47, 90, 90]
    assert [producer.produce(topic, version=version)[0] for version in (9, 12)] == [47, 47]
    assert producer.commit_offset(group, topic, 1) == 47
    expected = {"producer_id": producer.producer_id, "producer_epoch": 0}
    assert [producer.init(version=version, **expected).error_code for version in (3, 4)] == [47, 90]
    assert newer.add(topic) == [0]


def test_a_producer_that_starts_again_aborts_what_it_left_open(wire: Wire, topic: str, producer: Producer) -> None:
    producer.add(topic)
    producer.produce(topic, b"lost")
    assert producer.init().error_code == 51
    newer = Producer(wire, producer.id)
    assert newer.epoch == 2
    newer.add(topic)
    newer.produce(topic, b"kept")
    newer.end(True)
    assert committed(wire, topic) == [b"kept"]
    assert everything(wire, topic) == [b"lost", b"kept"]


def test_offsets_are_refused_for(wire: Wire, topic: str, producer: Producer) -> None:
    group = f"group-{topic}"
    assert [producer.commit_offset(group, topic, 1, version=version) for version in (3, 4)] == [48, 120]
    assert producer.add_offsets(group) == 0
    assert producer.commit_offset("", topic, 1) == 24
    assert producer.commit_offset(group, "no-such-topic", 1) == 3
    assert producer.commit_offset(group, topic, 1, generation_id=3, member_id="m") == 22
    assert producer.commit_offset(group, topic, 1) == 0


def test_offsets_of_what_does_not_exist_are_told_so_whatever_the_group_says(
    wire: Wire, topic: str, producer: Producer
) -> None:
    who = {"transactional_id": producer.id, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}

    def commit(group: str, **places: list[int]) -> dict[str, list[int]]:
        committed = {"committed_offset": 1, "committed_metadata": ""}
        topics = [
            {"name": name, "partitions": [{"partition_index": index, **committed} for index in indexes]}
            for name, indexes in places.items()
        ]
        answer = wire.call(ApiKey.TXN_OFFSET_COMMIT, 3, {**who, "group_id": group, "topics": topics})
        return {each.name: [partition.error_code for partition in each.partitions] for each in answer.topics}

    assert commit("", **{"no-such-topic": [0], topic: [0, 99]}) == {"no-such-topic": [3], topic: [24, 3]}
    assert commit("", **{"no-such-topic": [0]}) == {"no-such-topic": [3]}
    group = f"group-{topic}"
    assert commit(group, **{topic: [99, 0], "no-such-topic": [0]}) == {topic: [3, 48], "no-such-topic": [3]}
    assert producer.add_offsets(group) == 0
    assert commit(group, **{topic: [99, 0], "no-such-topic": [0]}) == {topic: [3, 0], "no-such-topic": [3]}


# ── what readers see ──────────────────────────────────────────────────────────────────────────────────────────────


def test_readers_of_committed_records_stop_where_something_is_open(wire: Wire, topic: str, producer: Producer) -> None:
    wire.produce(topic, batch(b"before", timestamp=int(time.time() * 1000)))
    producer.add(topic)
    producer.produce(topic, b"inside")
    wire.produce(topic, batch(b"behind", timestamp=int(time.time() * 1000)))
    assert committed(wire, topic) == [b"before"]
    answer = wire.fetch(topic, 0, isolation_level=1)
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
    producer.end(False)
    assert committed(wire, topic) == [b"before", b"behind"]
    assert [each.first_offset for each in wire.fetch(topic, 0, isolation_level=1).aborted_transactions] == [1]
    assert wire.fetch(topic, 0, isolation_level=1).last_stable_offset == 4


def test_offsets_of_an_open_transaction_are_unstable(wire: Wire, topic: str, producer: Producer) -> None:
    group = f"group-{topic}"
    producer.add_offsets(group)
    producer.commit_offset(group, topic, 5)
    assert offset_of(wire, group, topic) == (-1, 88)
    assert offset_of(wire, group, topic, stable=False) == (-1, 0)
    producer.end(True)
    assert offset_of(wire, group, topic) == (5, 0)
    producer.add_offsets(group)
    producer.commit_offset(group, topic, 9)
    producer.end(False)
    assert offset_of(wire, group, topic) == (5, 0)


@pytest.mark.parametrize("commits", [True, False])
def test_a_waiting_fetch_is_woken_when_the_last_stable_offset_moves(
    broker: ottla.Broker, wire: Wire, topic: str, producer: Producer, commits: bool
) -> None:
    producer.add(topic)
    producer.produce(topic, b"x" * 100)
    with Wire(broker.bootstrap_servers) as reader:
        request = fetch_request(topic, 0, isolation_level=1, max_wait=15_000)
        reader.send(ApiKey.FETCH, 12, request)
        answers: list[Any] = []
        waiting = threading.Thread(target=lambda: answers.append(reader.receive(ApiKey.FETCH, 12)))
        waiting.start()
        producer.produce(topic, b"y", sequence=1)
        wire.fetch(topic, 0)
        assert not answers, "what is written in the transaction is nothing to it"
        started = time.monotonic()
        producer.end(commits)
        waiting.join(30)
    assert time.monotonic() - started < 10
    assert len(answers[0].responses[0].partitions[0].records) > 0


def test_a_reader_gets_the_aborted_transactions_of_what_it_reads_only(
    wire: Wire, topic: str, producer: Producer
) -> None:
    for sequence in range(20):
        producer.add(topic)
        producer.produce(topic, b"x" * 3000, sequence=sequence)
        producer.end(False)
    answer = wire.fetch(topic, 0, isolation_level=1, max_bytes=10_000)
    listed = [each.first_offset for each in answer.aborted_transactions]
    ends = scan_end(bytes(answer.records))
    assert listed == list(range(0, ends, 2))
    assert 0 < ends < 40


def scan_end(data: bytes) -> int:
    from ottla.records import scan

    return scan(data, 0, len(data)).batches[-1][1].next_offset


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_that_takes_too_long_is_aborted(wire: Wire, topic: str) -> None:
    producer = Producer(wire, f"id-{topic}", timeout=100)
    producer.add(topic)
    producer.produce(topic, b"slow")
    deadline = time.monotonic() + 40
    while producer.state() != "CompleteAbort" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (producer.end(True).code, producer.produce(topic, sequence=1)[0], producer.add(topic)) == (90, 47, [90])
    answer = producer.init(producer_id=producer.producer_id, producer_epoch=0)
    assert (answer.error_code, answer.producer_epoch) == (0, 1), "it may go on"
    assert committed(wire, topic) == []
    assert wire.fetch(topic, 0, isolation_level=1).last_stable_offset == 2


# ── weaknesses of the first protocol version ───────────────────────────────────────────────────────────────────────


def test_a_late_produce_request_after_an_abort(wire: Wire, topic: str) -> None:
    """A request that was in flight when the transaction was aborted arrives after the next one has started.

    The producer of the first version keeps its epoch, so the batch becomes part of the wrong transaction. In the second
    version the epoch has changed.
    """
    first = Producer(wire, f"first-{topic}")
    first.add(topic, 0)
    first.end(False)
    first.add(topic, 0)
    assert first.produce(topic, b"late") == (0, 1)
    first.end(True)
    assert committed(wire, topic) == [b"late"]

    second = Producer(wire, f"second-{topic}")
    assert second.produce(topic, b"begun", partition=1, version=12) == (0, 0)
    old = second.epoch
    assert second.end_second(False) == 0
    assert second.produce(topic, b"next", partition=1, version=12)[0] == 0
    assert second.produce(topic, b"late", epoch=old, sequence=1, partition=1, version=12) == (47, -1)
    assert second.produce(topic, b"late", epoch=old, partition=0, version=12) == (47, -1)
    assert second.end_second(True) == 0
    assert committed(wire, topic, partition=1) == [b"next"]
    assert committed(wire, topic) == [b"late"], "of the first one only"


def test_without_verification_a_late_request_leaves_a_transaction_open_for_ever(broker: ottla.Broker) -> None:
    config = {"transaction.partition.verification.enable": "false", "transaction.state.log.num.partitions": 1}
    with ottla.Broker(config=config) as unsafe, Wire(unsafe.bootstrap_servers) as wire:
        wire.create_topic("orders")
        producer = Producer(wire, "id")
        producer.add("orders")
        producer.end(False)
        assert producer.produce("orders", b"late") == (0, 1)
        assert wire.fetch("orders", 0, isolation_level=1).last_stable_offset == 1
        assert producer.state() == "CompleteAbort", "and nobody is going to end it"
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("verified")
        producer = Producer(wire, "verified")
        producer.add("verified")
        producer.end(False)
        assert producer.produce("verified", b"late") == (48, -1)
        answer = wire.fetch("verified", 0, isolation_level=1)
        assert answer.last_stable_offset == answer.high_watermark


def test_a_marker_that_comes_late(wire: Wire, topic: str) -> None:
    """The marker of an earlier transaction arrives again while the next one is open.

    In the first version it has the same epoch and ends the wrong transaction. In the second its epoch gives it away.
    """
    first = Producer(wire, f"first-{topic}")
    first.add(topic)
    first.produce(topic, b"one")
    first.end(True)
    first.add(topic)
    first.produce(topic, b"two", sequence=1)
    assert write_marker(wire, first, topic, epoch=first.epoch) == 0
    assert committed(wire, topic) == [b"one", b"two"], "before anybody committed it"
    first.end(False)
    assert committed(wire, topic) == [b"one", b"two"]

    other = f"other-{topic}"
    wire.create_topic(other)
    second = Producer(wire, f"second-{topic}")
    second.produce(other, b"one", version=12)
    second.end_second(True)
    second.produce(other, b"two", version=12)
    for epoch in (second.epoch, second.epoch - 1):
        assert write_marker(wire, second, other, epoch=epoch, transaction_version=2) == 47
    assert committed(wire, other) == [b"one"]
    second.end_second(False)
    assert committed(wire, other) == [b"one"]


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [1, 2])
def test_markers_by_request(wire: Wire, topic: str, producer: Producer, version: int) -> None:
    producer.add(topic)
    producer.produce(topic, b"hangs")
    assert write_marker(wire, producer, "no-such-topic", epoch=0, version=version) == 3
    assert write_marker(wire, producer, topic, epoch=0, committed=False, coordinator_epoch=5, version=version) == 0
    assert write_marker(wire, producer, topic, epoch=0, coordinator_epoch=4, version=version) == 52
    assert write_marker(wire, producer, topic, epoch=-1, version=version) == 42
    (known,) = (
        wire.call(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": topic, "partition_indexes": [0]}]})
        .topics[0]
        .partitions[0]
        .active_producers
    )
    assert (known.producer_epoch, known.coordinator_epoch, known.current_txn_start_offset) == (0, 5, -1)
    assert committed(wire, topic) == []


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed(wire: Wire, topic: str, version: int) -> None:
    producer = Producer(wire, f"listed-{topic}")
    producer.add(topic)

    def names(**filters: Any) -> tuple[int, list[str], bool]:
        answer = wire.call(ApiKey.LIST_TRANSACTIONS, version, filters)
        found = [each for each in answer.transaction_states if each.transactional_id == producer.id]
        return answer.error_code, list(answer.unknown_state_filters), bool(found)

    assert names() == (0, [], True)
    assert names(state_filters=["Ongoing", "Strange"]) == (0, ["Strange"], True)
    assert names(state_filters=["Empty"]) == (0, [], False)
    assert names(state_filters=["Strange"]) == (0, ["Strange"], False)
    assert names(producer_id_filters=[producer.producer_id]) == (0, [], True)
    assert names(producer_id_filters=[10**6]) == (0, [], False)
    if version >= 1:
        assert names(duration_filter=10**7) == (0, [], False)
    if version >= 2:
        assert names(transactional_id_pattern="listed-.*") == (0, [], True)
        assert names(transactional_id_pattern="listed") == (0, [], False)
        assert names(transactional_id_pattern="(") == (128, [], False)


def test_a_transaction_is_described(wire: Wire, topic: str, producer: Producer) -> None:
    producer.add(topic, 0, 1)
    asked = {"transactional_ids": [producer.id, "nobody", ""]}
    mine, nobody, empty = wire.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, asked).transaction_states
    assert (mine.error_code, mine.transaction_state, mine.transaction_timeout) == (0, "Ongoing", 60_000)
    assert (mine.producer_id, mine.producer_epoch) == (producer.producer_id, 0)
    assert [(each.topic, list(each.partitions)) for each in mine.topics] == [(topic, [0, 1])]
    assert mine.transaction_start_time > 1_700_000_000_000
    assert (nobody.error_code, empty.error_code) == (105, 42)


def test_before_anybody_has_asked_for_a_coordinator() -> None:
    with ottla.Broker() as fresh, Wire(fresh.bootstrap_servers) as wire:
        wire.create_topic("orders")
        assert wire.call(ApiKey.LIST_TRANSACTIONS, 2, {}).error_code == 0
        who = {"transactional_id": "id", "producer_id": 1, "producer_epoch": 0}
        assert wire.call(ApiKey.END_TXN, 5, {**who, "committed": True}).error_code == 15
        records = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": records}]}]
        message = {"transactional_id": "id", "acks": -1, "timeout": 1, "topic_data": data}
        assert wire.call(ApiKey.PRODUCE, 12, message).responses[0].partition_responses[0].error_code == 19
        answer = patiently(
            lambda: wire.call(ApiKey.INIT_PRODUCER_ID, 5, {"transactional_id": "id", "transaction_timeout": 5})
        )
        assert answer.error_code == 0


def test_a_broker_that_forces_everything_to_disk_first() -> None:
    config = {"log.flush.interval.messages": 1, "transaction.state.log.num.partitions": 1}
    with ottla.Broker(config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        producer = Producer(wire, "id")
        for value, commits in ((b"a" * 5_000, True), (b"b", False), (b"c", True)):
            assert producer.produce("orders", value, version=12)[0] == 0
            assert producer.commit_offset("group", "orders", len(value), version=5) == 0
            assert producer.end_second(commits) == 0
        assert committed(wire, "orders") == [b"a" * 5_000, b"c"]
        assert offset_of(wire, "group", "orders") == (1, 0)
