"""The transactions of our producer over real sockets, read by our consumer and by librdkafka's.

Each test runs with both versions of the protocol, unless it is about something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from compat.waiting import until
from ottla import Consumer, Producer, TopicPartition, aio, errors
from ottla.clients.blocking import IllegalUse
from ottla.clients.producer import transaction_requests
from ottla.consuming.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.producing.errors import TransactionTimeout
from ottla.producing.transaction_states import State, TransactionMisuse

from .conftest import MakeTopic
from .transaction_scenes import committed, committed_by_ours, values

Make = Callable[..., Producer]


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The protocol version of the producer; the broker has enabled the second one."""
    if request.param == 1:
        monkeypatch.setattr(transaction_requests, "_version", lambda connection: 1)
    return int(request.param)


@pytest.fixture
def make(bootstrap_servers: str) -> Iterator[Make]:
    made: list[Producer] = []

    def make(transactional_id: str | None = None, *, init: bool = True, **options: Any) -> Producer:
        servers = options.pop("bootstrap_servers", bootstrap_servers)
        name = transactional_id or uuid4().hex
        made.append(Producer(bootstrap_servers=servers, transactional_id=name, linger_ms=0, **options))
        if init:
            made[-1].init_transactions()
        return made[-1]

    yield make
    for producer in made:
        producer.close(timeout=2)


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    bootstrap_servers: str, make_topic: MakeTopic, make: Make, version: int
) -> None:
    topic, producer = make_topic(2), make()
    for round_ in range(3):
        with producer.transaction():
            futures = [producer.send(topic, b"kept-%d" % (round_ * 4 + n), partition=n % 2) for n in range(4)]
        assert all(future.done() for future in futures)
        producer.begin_transaction()
        producer.send(topic, b"dropped", partition=0).result(30)
        producer.send(topic, b"dropped", partition=1)
        producer.abort_transaction()
    assert producer._core.transactions is not None
    assert producer._core.transactions.version == version
    assert committed(bootstrap_servers, topic, 12, 2) == values("kept", 12)


def test_an_open_transaction_is_not_read_past(bootstrap_servers: str, make_topic: MakeTopic, make: Make) -> None:
    topic, producer, other = make_topic(), make(), make()
    producer.begin_transaction()
    producer.send(topic, b"open").result(30)
    with other.transaction():
        other.send(topic, b"behind")
    assert committed_by_ours(bootstrap_servers, topic) == []
    producer.commit_transaction()
    assert committed(bootstrap_servers, topic, 2) == [b"behind", b"open"]


def test_a_block_that_raises_is_aborted(bootstrap_servers: str, make_topic: MakeTopic, make: Make) -> None:
    topic, producer = make_topic(), make()

    def failing() -> None:
        with producer.transaction():
            producer.send(topic, b"dropped").result(30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    with producer.transaction() as same:
        same.send(topic, b"kept")
    with producer.transaction():
        producer.send(topic, b"dropped")
        producer.abort_transaction()  # the end of the block has nothing left to do
    assert committed(bootstrap_servers, topic, 1) == [b"kept"]


def test_a_table_goes_in_a_transaction(bootstrap_servers: str, make_topic: MakeTopic, make: Make) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    topic, producer = make_topic(2), make()
    table = pyarrow.table({"value": values("row", 50)})
    with pytest.raises(TransactionMisuse, match="outside a transaction"):
        producer.send_arrow(topic, table)
    with producer.transaction():
        assert producer.send_arrow(topic, table).result(30).records == 50
    producer.begin_transaction()
    producer.send_arrow(topic, table)
    producer.abort_transaction()
    assert committed(bootstrap_servers, topic, 50, 2) == values("row", 50)


LARGE = {"value": [b"small", b"x" * 2_000_000, b"small"], "partition": [0, 0, 0]}


@pytest.mark.parametrize("table", [LARGE, {"value": [b"v"], "partition": [7]}, {"text": ["v"]}])
def test_a_table_that_cannot_be_sent_must_be_aborted(
    bootstrap_servers: str, make_topic: MakeTopic, make: Make, table: dict[str, Any]
) -> None:
    topic, producer = make_topic(), make()
    producer.begin_transaction()
    producer.send(topic, b"dropped")
    with pytest.raises((errors.MessageTooLarge, ValueError)):
        producer.send_arrow(topic, table)
    with pytest.raises(errors.KafkaError, match="abort_transaction") as caught:
        producer.commit_transaction()
    assert caught.value.remedy == "abort"
    producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"kept")
    assert committed(bootstrap_servers, topic, 1) == [b"kept"]


def test_a_second_producer_fences_the_first(
    bootstrap_servers: str, make_topic: MakeTopic, make: Make, version: int
) -> None:
    topic, name = make_topic(), uuid4().hex
    first = make(name)
    first.begin_transaction()
    first.send(topic, b"zombie").result(30)
    second = make(name)
    with second.transaction():
        second.send(topic, b"kept")
    with pytest.raises(KafkaError) as caught:
        first.send(topic, b"zombie").result(30)
    with pytest.raises(errors.ProducerFenced, match="To stop: either another producer"):
        first.abort_transaction()
    with pytest.raises(errors.ProducerFenced), first.transaction():
        pass
    assert committed(bootstrap_servers, topic, 1) == [b"kept"]
    assert isinstance(caught.value, errors.InvalidProducerEpoch | errors.ProducerFenced)


def test_a_fenced_producer_says_so_at_the_end_of_a_block(make_topic: MakeTopic, make: Make, version: int) -> None:
    topic, name = make_topic(), uuid4().hex
    first = make(name)

    def fenced() -> None:
        with first.transaction():
            make(name)
            first.send(topic, b"zombie").result(30)

    with pytest.raises(errors.ProducerFenced) as caught:
        fenced()
    assert caught.value.remedy == "stop"


def test_a_transaction_that_takes_too_long_is_aborted(own_broker: Any, make: Make, version: int) -> None:
    broker = own_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms="50")
    producer = make(bootstrap_servers=broker.bootstrap_servers, transaction_timeout_ms=200)
    producer.begin_transaction()
    producer.send("t", b"late").result(30)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, isolation_level="read_committed") as consumer:
        key = TopicPartition("t", 0)
        until(lambda: consumer.end_offsets([key])[key] == 2, "the abort marker")
    with pytest.raises(KafkaError, match=r"transaction\.timeout\.ms"):
        producer.commit_transaction()
    assert committed_by_ours(broker.bootstrap_servers, "t") == []
    with make(producer.config.transactional_id, bootstrap_servers=broker.bootstrap_servers).transaction() as next_one:
        next_one.send("t", b"kept")
    assert committed_by_ours(broker.bootstrap_servers, "t") == [b"kept"]


def test_offsets_move_with_the_records(bootstrap_servers: str, make_topic: MakeTopic, make: Make, version: int) -> None:
    source, target, producer, group = make_topic(), make_topic(), make(), uuid4().hex
    key = TopicPartition(source, 0)
    with producer.transaction():
        for number in range(6):
            producer.send(source, b"in-%d" % number)
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
        isolation_level="read_committed", max_poll_records=3,
    ) as consumer:  # fmt: skip
        consumer.subscribe([source])
        for commit in (False, True):
            records = consumer.poll(10)
            assert [record.offset for record in records] == [0, 1, 2]
            producer.begin_transaction()
            for record in records:
                producer.send(target, record.value)
            producer.send_offsets_to_transaction({key: OffsetAndMetadata(3, "note")}, consumer.group_metadata())
            (producer.commit_transaction if commit else producer.abort_transaction)()
            expected = OffsetAndMetadata(3, "note") if commit else None
            found = consumer.committed([key])[key]
            assert (found and found[:2]) == (expected and expected[:2])
            consumer.seek(key, 0)
        stale = consumer.group_metadata()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({}, stale)
        with pytest.raises(TypeError, match="group_metadata"):
            producer.send_offsets_to_transaction({key: 3}, group)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="negative"):
            producer.send_offsets_to_transaction({key: -1}, stale)
        wrong = ConsumerGroupMetadata(group, stale.generation_id + 7, stale.member_id)
        with pytest.raises(errors.IllegalGeneration, match="belong to other members now") as caught:
            producer.send_offsets_to_transaction({key: 5}, wrong)
        assert caught.value.remedy == "abort"
        producer.abort_transaction()
        assert consumer.committed([key])[key] is not None
    assert committed(bootstrap_servers, target, 3) == values("in", 3)


def test_a_broker_that_restarts_in_the_middle_changes_nothing(own_broker: Any, make: Make, version: int) -> None:
    broker = own_broker()
    producer = make(bootstrap_servers=broker.bootstrap_servers)
    for commit in (True, False):
        producer.begin_transaction()
        for number in range(3):
            producer.send("t", b"%s-%d" % (b"kept" if commit else b"dropped", number)).result(30)
        broker.stop()
        broker.start()
        (producer.commit_transaction if commit else producer.abort_transaction)()
    with producer.transaction():
        producer.send("t", b"kept-3")
    assert committed(broker.bootstrap_servers, "t", 4) == values("kept", 4)


def test_a_coordinator_that_is_away_is_waited_for_and_asked_again(own_broker: Any, make: Make) -> None:
    broker = own_broker()
    producer = make(init=False, bootstrap_servers=broker.bootstrap_servers, max_block_ms=500)
    patiently(producer.init_transactions)
    producer.begin_transaction()
    patiently(lambda: producer.partitions_for("t"))
    producer.send("t", b"kept").result(30)
    broker.stop()
    with pytest.raises(TransactionTimeout, match=r"To retry: make the same call again") as caught:
        producer.commit_transaction()
    assert caught.value.remedy == "retry"
    with pytest.raises(TransactionMisuse, match="being committed"):
        producer.begin_transaction()
    broker.start()
    patiently(producer.commit_transaction)
    assert committed_by_ours(broker.bootstrap_servers, "t") == [b"kept"]


def test_a_call_that_finished_after_its_timeout_may_be_repeated(make: Make) -> None:
    producer = make(init=False, max_block_ms=1)
    patiently(producer.init_transactions)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        patiently(end)
        with pytest.raises(TransactionMisuse):
            end()


def patiently(call: Callable[[], object]) -> None:
    """Repeat a call until it succeeds, as its timeout error says."""

    def done() -> bool:
        try:
            call()
        except errors.RequestTimedOut:
            return False
        return True

    until(done, "a call that comes through")


def test_a_record_that_cannot_be_sent_must_be_aborted(make_topic: MakeTopic, make: Make) -> None:
    topic, producer = make_topic(), make(max_request_size=1_000)
    producer.begin_transaction()
    with pytest.raises(errors.MessageTooLarge):
        producer.send(topic, b"x" * 2_000)
    with pytest.raises(errors.MessageTooLarge, match="To abort"):
        producer.commit_transaction()
    producer.abort_transaction()
    with pytest.raises(errors.MessageTooLarge), producer.transaction():
        producer.send(topic, b"x" * 2_000)
    with producer.transaction():
        producer.send(topic, b"kept")


def test_misuse_says_what_to_call(bootstrap_servers: str, make_topic: MakeTopic, make: Make) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as plain:
        with pytest.raises(IllegalUse, match=r"set transactional\.id"):
            plain.init_transactions()
        with pytest.raises(IllegalUse, match=r"set transactional\.id"):
            plain.begin_transaction()
    producer = make(init=False)
    with pytest.raises(TransactionMisuse, match="call init_transactions"):
        producer.send(topic, b"x")
    producer.init_transactions()
    with pytest.raises(TransactionMisuse, match=r"init_transactions\(\) was called before\. A producer calls it once"):
        producer.init_transactions()
    for _ in range(2):
        with pytest.raises(TransactionMisuse, match="call begin_transaction"):
            producer.send(topic, b"x")
        with producer.transaction():
            producer.send(topic, b"y")
    with pytest.raises(errors.InvalidTransactionTimeout, match="To stop"):
        make(transaction_timeout_ms=2**31 - 1)


def test_closing_aborts_what_is_open(bootstrap_servers: str, make_topic: MakeTopic, make: Make) -> None:
    topic, producer = make_topic(), make()
    producer.begin_transaction()
    producer.send(topic, b"dropped").result(30)
    producer.close()
    with make().transaction() as other:
        other.send(topic, b"kept")
    assert committed(bootstrap_servers, topic, 1) == [b"kept"]


async def test_the_same_with_asyncio(bootstrap_servers: str, make_topic: MakeTopic, version: int) -> None:
    topic, group = make_topic(), uuid4().hex
    key = TopicPartition(topic, 0)

    async def failing(producer: aio.Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"dropped")
            raise ZeroDivisionError

    async with aio.Producer(bootstrap_servers=bootstrap_servers, transactional_id=uuid4().hex) as producer:
        with pytest.raises(TransactionMisuse, match="init_transactions"):
            await producer.send(topic, b"x")
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"kept-0")
            await producer.send_offsets_to_transaction({key: 4}, ConsumerGroupMetadata(group))
        with pytest.raises(ZeroDivisionError):
            await failing(producer)
        producer.begin_transaction()
        await producer.send_and_wait(topic, b"kept-1")
        await producer.commit_transaction()
        producer.begin_transaction()
        await producer.send(topic, b"dropped")
        await producer.abort_transaction()
        assert producer._core.transactions is not None
        assert producer._core.transactions.state is State.READY
    assert committed(bootstrap_servers, topic, 2) == values("kept", 2)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        found = consumer.committed([key])[key]
        assert found is not None
        assert found.offset == 4
