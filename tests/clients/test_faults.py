"""``broker.faults``: what each fault does to real clients."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from compat.waiting import until
from ottla import Admin, Broker, Consumer, KafkaError, NewTopic, OttlaError, Producer, errors
from ottla.broker.faults import Fault, Faults, FullDisk
from ottla.broker.faults.rules import WrongFault
from ottla.cluster.faults import http_target

from .consumer_scenes import Log, poll_until

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(
        ottla_faults_listener="127.0.0.1:0",
        group_consumer_min_session_timeout_ms=100,
        group_consumer_min_heartbeat_interval_ms=50,
        group_consumer_heartbeat_interval_ms=100,
    ) as one:
        with Admin(bootstrap_servers=one.bootstrap_servers) as admin:
            admin.create_topics(NewTopic(TOPIC, num_partitions=1))
        yield one


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5, linger_ms=0) as one:
        yield one


def values(broker: Broker) -> list[bytes | None]:
    return broker.topics[TOPIC].values()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_producer_survives_errors_that_pass(broker: Broker, producer: Producer) -> None:
    with broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        assert producer.send(TOPIC, b"1").get(20).offset == 0
        assert fault.hits == 3
    assert fault.hits == 3, "it can be asked after the block too"
    assert values(broker) == [b"1"]


def test_an_error_that_does_not_pass_reaches_the_caller(broker: Broker, producer: Producer) -> None:
    with (
        broker.faults.fail("Produce", errors.TopicAuthorizationFailed),
        pytest.raises(errors.TopicAuthorizationFailed),
    ):
        producer.send(TOPIC, b"1").get(20)
    assert producer.send(TOPIC, b"2").get(20).offset == 0


def test_an_error_may_be_its_code(broker: Broker, producer: Producer) -> None:
    from confluent_kafka import KafkaError as Confluent

    for error in (6, Confluent.NOT_LEADER_FOR_PARTITION, errors.NotLeaderOrFollower()):
        with broker.faults.fail("Produce", error, times=1) as fault:
            producer.send(TOPIC, b"1").get(20)
            assert fault.hits == 1
            assert [each["error"] for each in http(broker, "GET", "/faults")] == ["NOT_LEADER_OR_FOLLOWER"]


@pytest.mark.parametrize("fault", ["fail", "cut", "drop"])
def test_a_lost_answer_repeats_nothing_with_idempotence(broker: Broker, fault: str) -> None:
    """The record is written, and the producer does not know it."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300, retry_backoff_ms=5) as producer:
        producer.send(TOPIC, b"1").get(20)
        arguments = ("Produce", "REQUEST_TIMED_OUT") if fault == "fail" else ("Produce",)
        with getattr(broker.faults, fault)(*arguments, times=1, after=True) as lost:
            assert producer.send(TOPIC, b"2").get(20).offset == 1
            assert lost.hits == 1
    assert values(broker) == [b"1", b"2"]


def test_a_lost_answer_repeats_a_record_without_idempotence(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, enable_idempotence=False, retry_backoff_ms=5) as producer,
        broker.faults.cut("Produce", times=1, after=True),
    ):
        producer.send(TOPIC, b"1").get(20)
    assert values(broker) == [b"1", b"1"]


def test_a_request_that_is_never_answered_times_out(broker: Broker) -> None:
    with (
        broker.faults.drop("Metadata"),
        Admin(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=200, default_api_timeout_ms=500) as admin,
        pytest.raises(KafkaError),
    ):
        admin.list_topics()
    assert TOPIC in broker.topics


def test_delay_and_throttle_take_their_time(broker: Broker, producer: Producer) -> None:
    producer.send(TOPIC, b"0").get(20)
    with broker.faults.delay("Produce", 0.2, times=1):
        started = time.monotonic()
        producer.send(TOPIC, b"1").get(20)
        assert time.monotonic() - started >= 0.2
    with broker.faults.throttle("Produce", 0.3, times=1):
        started = time.monotonic()
        producer.send(TOPIC, b"2").get(20)
        answered = time.monotonic() - started
        producer.send(TOPIC, b"3").get(20)
        assert time.monotonic() - started >= 0.25, "the next request waits"
        assert answered < 0.25, "but the answer came at once"
    assert values(broker) == [b"0", b"1", b"2", b"3"]


def test_a_throttled_fetch_still_brings_its_records(broker: Broker, producer: Producer) -> None:
    producer.send(TOPIC, b"1" * 20_000).get(20)
    with broker.faults.throttle("Fetch", 0.05, times=3) as fault:
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([TOPIC])
            assert next(iter(consumer)).value == b"1" * 20_000
        assert fault.hits


def test_only_the_topic_and_the_client_that_were_named(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, client_id="a", retry_backoff_ms=5) as a,
        Producer(bootstrap_servers=servers, client_id="b", retry_backoff_ms=5) as b,
        broker.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", client_id="a", topic=TOPIC, times=1) as fault,
    ):
        b.send(TOPIC, b"b").get(20)
        a.send("others", b"a").get(20)
        assert fault.hits == 0
        a.send(TOPIC, b"a").get(20)
        assert fault.hits == 1


def test_other_clients_see_the_same(broker: Broker) -> None:
    from confluent_kafka import Producer as Confluent

    told: list[Any] = []
    other = Confluent({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 5})
    with broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        other.produce(TOPIC, b"1", on_delivery=lambda error, message: told.append(error))
        other.flush(20)
        assert fault.hits == 2
    assert told == [None]
    with broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED"):
        other.produce(TOPIC, b"2", on_delivery=lambda error, message: told.append(error.name()))
        other.flush(20)
    assert told == [None, "TOPIC_AUTHORIZATION_FAILED"]


TRANSIENT = [
    ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("SyncGroup", "REBALANCE_IN_PROGRESS"),
    ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ("ListOffsets", "LEADER_NOT_AVAILABLE"),
    ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
    ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
]


@pytest.mark.parametrize("client", ["ottla", "confluent"])
def test_consumers_survive_whatever_passes(broker: Broker, producer: Producer, client: str) -> None:
    from confluent_kafka import Consumer as Confluent

    producer.send(TOPIC, b"1").get(20)
    faults = [broker.faults.fail(api, error, times=1) for api, error in TRANSIENT]
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    if client == "ottla":
        with Consumer(config, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            assert next(iter(consumer)).value == b"1"
            consumer.commit()
    else:
        other = Confluent({**config, "enable.auto.commit": False})
        other.subscribe([TOPIC])
        message = other.poll(20)
        assert message is not None
        assert message.value() == b"1"
        until(lambda: _committed(other), "the commit succeeds")
        other.close()
    assert [fault.hits for fault in faults] == [1] * len(faults)
    assert broker.groups["g"].lag == 0


def _committed(consumer: Any) -> bool:
    from confluent_kafka import KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


def test_metadata_can_fail_too(broker: Broker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5) as producer,
        broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=2) as fault,
    ):
        assert producer.send(TOPIC, b"1").get(20).offset == 0
        assert fault.hits == 2


@pytest.mark.parametrize("client", ["ottla", "kafka-python", "confluent"])
def test_an_idle_consumer_gets_the_errors_of_its_partitions(broker: Broker, producer: Producer, client: str) -> None:
    """Its requests name no topics, because it has a fetch session. The last client has none."""
    producer.send(TOPIC, b"1").get(20)
    with reader(broker, client) as values:
        until(lambda: values() == [b"1"], "the record")
        until(lambda: not values() and (client == "confluent" or is_continued(broker)), "a fetch session")
        with broker.faults.fail("Fetch", "OFFSET_OUT_OF_RANGE", times=1, topic=TOPIC) as fault:
            until(lambda: values() == [b"1"], "it starts again")
            assert fault.hits == 1


def is_continued(broker: Broker) -> bool:
    return any(session.epoch > 2 for session in broker._running().node.sessions._sessions.values())


@contextmanager
def reader(broker: Broker, client: str) -> Iterator[Callable[[], list[bytes | None]]]:
    """A function that returns the values which a client of some kind has read since the last call."""
    servers = broker.bootstrap_servers
    if client == "ottla":
        with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            yield lambda: [record.value for record in consumer.poll(0.2)]
    elif client == "kafka-python":
        import kafka

        other = kafka.KafkaConsumer(TOPIC, bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
        yield lambda: [each.value for found in other.poll(timeout_ms=200).values() for each in found]
        other.close()
    else:
        from confluent_kafka import Consumer as Confluent

        third = Confluent({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
        third.subscribe([TOPIC])
        yield lambda: [message.value() for message in third.consume(10, 0.2)]
        third.close()


def test_a_topic_that_a_consumer_does_not_read_is_not_delayed(broker: Broker, producer: Producer) -> None:
    producer.send(TOPIC, b"1").get(20)
    with reader(broker, "ottla") as values, broker.faults.drop("Fetch", topic="others") as others:
        until(lambda: values() == [b"1"], "the record")
        until(lambda: not values() and is_continued(broker), "a fetch session")
        with broker.faults.delay("Fetch", 0.2, times=1, topic=TOPIC) as fault:
            until(lambda: values() == [] and fault.hits, "a fetch of the session")
        producer.send(TOPIC, b"2").get(20)
        until(lambda: values() == [b"2"], "the next record")
        assert others.hits == 0


def test_a_list_of_all_topics_with_an_error_that_passes(broker: Broker) -> None:
    with (
        Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5) as admin,
        broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=1) as fault,
    ):
        assert TOPIC in admin.list_topics()
        assert fault.hits == 1


@pytest.mark.parametrize("client", ["ottla", "confluent"])
def test_consumers_wait_for_stable_offsets(broker: Broker, producer: Producer, client: str) -> None:
    producer.send(TOPIC, b"1").get(20)
    with (
        broker.faults.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", times=1) as fault,
        reader(broker, client) as values,
    ):
        until(lambda: values() == [b"1"], "the record")
        assert fault.hits == 1


@pytest.mark.parametrize("client", ["ottla", "kafka-python", "confluent"])
def test_clients_fall_back_to_a_version_that_the_broker_knows(broker: Broker, producer: Producer, client: str) -> None:
    producer.send(TOPIC, b"1").get(20)
    with broker.faults.fail("ApiVersions", "UNSUPPORTED_VERSION") as fault, reader(broker, client) as values:
        until(lambda: values() == [b"1"], "the record")
        assert fault.hits


def test_without_faults_the_brokers_own_dispatcher_is_back(broker: Broker) -> None:
    server = broker._running()
    own = server._dispatcher
    fault = broker.faults.cut("Fetch")
    assert server._dispatcher is not own
    fault.remove()
    assert server._dispatcher is own
    broker.faults.cut("Fetch")
    broker.faults.delay("Fetch")
    broker.faults.clear()
    assert server._dispatcher is own


# ── groups, disks ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_forced_rebalance(broker: Broker, protocol: str) -> None:
    log = Log()
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", group_protocol=protocol,
        **({"heartbeat_interval_ms": 50} if protocol == "classic" else {}),
    ) as consumer:  # fmt: skip
        consumer.subscribe([TOPIC], listener=log)
        poll_until([consumer], consumer.assignment, "partitions")
        before = consumer.group_metadata().generation_id
        broker.faults.rebalance("g")
        poll_until([consumer], lambda: consumer.group_metadata().generation_id > before, "the next generation")
        poll_until([consumer], lambda: broker.groups["g"].state == "Stable", "the end of the rebalance")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_groups("g")["g"].members == ()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_expired_session(broker: Broker, protocol: str) -> None:
    log = Log()
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", group_protocol=protocol,
        **({"heartbeat_interval_ms": 50} if protocol == "classic" else {}),
    ) as consumer:  # fmt: skip
        consumer.subscribe([TOPIC], listener=log)
        poll_until([consumer], consumer.assignment, "partitions")
        (member,) = broker.groups["g"].members
        assert broker.faults.expire_session("g", member) == [member]
        assert member not in broker.groups["g"].members
        poll_until([consumer], lambda: ("lost", [0]) in log.events, "to be told")
        poll_until([consumer], consumer.assignment, "to be back")
        with pytest.raises(WrongFault, match="has no member nobody"):
            broker.faults.expire_session("g", "nobody")


def test_a_group_that_nobody_has_joined(broker: Broker) -> None:
    for fault in (broker.faults.rebalance, broker.faults.expire_session):
        with pytest.raises(OttlaError, match="there is no group billing"):
            fault("billing")


def test_a_full_disk(broker: Broker, producer: Producer) -> None:
    producer.send(TOPIC, b"1").get(20)
    with broker.faults.full_disk():
        future = producer.send(TOPIC, b"2")
        with pytest.raises(TimeoutError):
            future.get(0.3)
        assert values(broker) == [b"1"], "what is there can be read"
    assert future.get(20).offset == 1, "the producer tried again"


@pytest.mark.parametrize("end", ["remove", "clear"])
def test_a_full_disk_without_a_block(broker: Broker, producer: Producer, end: str) -> None:
    disk = broker.faults.full_disk()
    future = producer.send(TOPIC, b"1")
    with pytest.raises(TimeoutError):
        future.get(0.3)
    if end == "remove":
        disk.remove()
    else:
        broker.faults.clear()
    assert future.get(20).offset == 0
    disk.remove()  # It may be removed twice.


def test_a_disk_is_full_until_its_last_fault_ends(broker: Broker, producer: Producer) -> None:
    broker.faults.full_disk()
    broker.faults.full_disk().remove()
    future = producer.send(TOPIC, b"1")
    with pytest.raises(TimeoutError):
        future.get(0.3)
    broker.faults.clear()
    assert future.get(20).offset == 0


# ── mistakes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_mistakes_are_told_at_once() -> None:
    faults = Faults(list)
    with pytest.raises(WrongFault, match=r"no API 'Prodcue'\. Did you mean Produce\?"):
        faults.cut("Prodcue")
    with pytest.raises(WrongFault, match=r"no error 'NOT_LEADER'"):
        faults.fail("Produce", "NOT_LEADER")
    for old in ("NOT_LEADER_FOR_PARTITION", "NOT_LEADER"):
        with pytest.raises(WrongFault, match=r"Did you mean NOT_LEADER_OR_FOLLOWER\?"):
            faults.fail("Produce", old)
    with pytest.raises(WrongFault, match="Kafka has no error with the code 9999"):
        faults.fail("Produce", 9999)
    with pytest.raises(WrongFault, match=r"no error with the code -185\. Codes below -1 are those of librdkafka"):
        faults.fail("Produce", -185)
    with pytest.raises(WrongFault, match="the code 0 means that there is no error"):
        faults.fail("Produce", 0)
    for error in (True, 6.0, None, OttlaError, errors.RetriableError):
        with pytest.raises(WrongFault, match="an error is a name such as NOT_LEADER_OR_FOLLOWER, or a code such as 6"):
            faults.fail("Produce", error)  # type: ignore[arg-type]
    with pytest.raises(WrongFault, match="times must be a whole number of at least 1, not 0"):
        faults.cut(times=0)
    with pytest.raises(WrongFault, match="delay needs a time above 0"):
        faults.delay(seconds=0)
    for seconds in (-1, "2", float("inf")):
        with pytest.raises(WrongFault, match=f"seconds must be a number of at least 0, not {seconds!r}"):
            faults.delay("Produce", seconds)  # type: ignore[arg-type]
    with pytest.raises(OttlaError, match="no broker is running"):
        faults.rebalance("g")


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def http(broker: Broker, method: str, path: str, **values: Any) -> Any:
    return sent(broker, method, path, json.dumps(values).encode() if values else None)


def sent(broker: Broker, method: str, path: str, body: bytes | None) -> Any:
    assert broker.faults_address is not None
    url = "http://{}:{}".format(*broker.faults_address) + path
    request = Request(url, body, method=method)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=20) as answer:
            return json.load(answer)["result"]
    except HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


def test_faults_over_http(broker: Broker, producer: Producer) -> None:
    added = http(broker, "POST", "/faults", kind="fail", api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    producer.send(TOPIC, b"1", key=b"\xff").get(20)
    assert http(broker, "GET", "/faults") == [{**added, "hits": 2}]
    assert http(broker, "DELETE", f"/faults/{added['id']}")["hits"] == 2
    assert http(broker, "GET", "/faults") == []
    (record,) = http(broker, "GET", f"/topics/{TOPIC}")
    assert (record["value"], record["key"], record["offset"]) == ("1", {"base64": "/w=="}, 0)


def test_groups_and_disks_over_http(broker: Broker, producer: Producer) -> None:
    producer.send(TOPIC, b"1").get(20)
    servers = broker.bootstrap_servers
    with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        poll_until([consumer], consumer.assignment, "partitions")
        poll_until([consumer], lambda: consumer.metrics()["records-consumed-total"], "the record")
        consumer.commit()
        state = http(broker, "GET", "/groups/g")
        assert (state["lag"], len(state["members"])) == (0, 1)
        assert http(broker, "POST", "/groups/g/rebalance") is None
        assert http(broker, "POST", "/groups/g/expire") == state["members"]
    http(broker, "PUT", "/disk/full")
    future = producer.send(TOPIC, b"2")
    with pytest.raises(TimeoutError):
        future.get(0.2)
    http(broker, "DELETE", "/disk/full")
    future.get(20)


def test_mistakes_over_http(broker: Broker) -> None:
    assert http(broker, "POST", "/faults", kind="explode")[0] == 400
    assert "use one of fail, delay" in http(broker, "POST", "/faults", kind="explode")[1]
    assert "always carried out" in http(broker, "POST", "/faults", kind="throttle", milliseconds=5, after=True)[1]
    assert http(broker, "GET", "/nowhere")[0] == 404
    assert "topic nothing does not exist" in http(broker, "GET", "/topics/nothing")[1]
    assert "manual clock" in http(broker, "POST", "/clock", milliseconds=5)[1]
    until(lambda: http(broker, "GET", "/faults") == [], "it still answers")


@pytest.mark.parametrize(
    ("path", "values", "error"),
    [
        ("/faults", {"kind": "cut", "after": "false"}, "after must be true or false, not 'false'"),
        ("/faults", {"kind": "cut", "after": 0}, "after must be true or false, not 0"),
        ("/faults", {"kind": "cut", "milliseconds": 5}, "cut has no milliseconds: only delay and throttle have them"),
        ("/faults", {"kind": "delay", "milliseconds": ""}, "milliseconds must be a whole number of at least 0, not ''"),
        ("/faults", {"kind": ["fail"]}, "there is no fault ['fail']: use one of fail, delay, cut, drop, throttle"),
        ("/faults", {"kind": "fail", "api": "Produce", "error": 9999}, "Kafka has no error with the code 9999."),
        ("/faults", {"kind": "fail", "api": 0, "error": 6}, "api must be text, not 0"),
        ("/run/remove", {"id": "x"}, "id must be a whole number of at least 0, not 'x'"),
        ("/run/free_disk", {"id": "x"}, "id must be a whole number of at least 0, not 'x'"),
        ("/run/records", {"topic": 5}, "topic must be text, not 5"),
        ("/run/group", {"group": ["g"]}, "group must be text, not ['g']"),
        ("/groups/g/rebalance", {"reason": 5}, "reason must be text, not 5"),
        ("/groups/g/expire", {"member": 5}, "member must be text, not 5"),
    ],
)
def test_wrong_values_over_http(broker: Broker, path: str, values: dict[str, Any], error: str) -> None:
    assert http(broker, "POST", path, **values) == (400, error)


def test_an_order_that_nobody_can_read(broker: Broker) -> None:
    for body in (b"[]", b"x", b"\xff", b"[" * 100_000, b'{"kind": ' + b"9" * 10_000 + b"}"):
        status, error = sent(broker, "POST", "/faults", body)
        assert status == 400
        assert "the body is not valid" in error
    assert http(broker, "DELETE", f"/faults/{'9' * 10_000}")[0] == 404


def test_an_unexpected_mistake_is_answered_too(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(broker._running().control._operations, "list", fail)
    assert http(broker, "GET", "/faults") == (500, "RuntimeError: a bug")


def test_time_that_no_record_could_have() -> None:
    with Broker(ottla_faults_listener="127.0.0.1:0", clock="manual") as broker:
        status, error = http(broker, "POST", "/clock", milliseconds=10**20)
        assert status == 400
        assert "milliseconds must be at most 31536000000000" in error


def test_an_error_code_over_http(broker: Broker, producer: Producer) -> None:
    assert http(broker, "POST", "/faults", kind="fail", api="Produce", error=6)["error"] == "NOT_LEADER_OR_FOLLOWER"


def test_faults_of_a_broker_that_was_killed_have_ended() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = http_target(f"127.0.0.1:{free.getsockname()[1]}")  # Nobody listens there.
        FullDisk([(target, 1)]).remove()
        fault = Fault([(target, 1)], "cut")
        fault.remove()
        assert fault.hits == 0
        with pytest.raises(OttlaError, match="does not take orders for faults at 127"):
            Faults(lambda: [target]).full_disk()
