"""Client quotas over a socket: how they are set, and what they do to clients."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.compat.waiting import until

import ottla
from ottla import errors
from ottla.protocol.apis import ApiKey
from ottla.security.acls import AclBinding
from ottla.security.authorizer import Acls, Authorizer
from unit.broker.wire import Wire, batch, fetch_request

#: A client that was idle may use one second at once.
SHORT = {"quota.window.num": 2}


@pytest.fixture
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker(config=SHORT) as broker:
        yield broker


def parts(entity: dict[str, str | None]) -> list[dict[str, str | None]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()]


def alter(wire: Wire, entity: dict[str, str | None], quotas: dict[str, float | None], **more: Any) -> Any:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
    message = {"entries": [{"entity": parts(entity), "ops": ops}], **more}
    return wire.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, message).entries[0]


def put(broker: ottla.Broker, quotas: dict[str, float | None], **entity: str | None) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        answer = alter(wire, entity, quotas)
        assert answer.error_code == 0, answer.error_message


def described(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    message = {
        "components": [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components],
        "strict": strict,
    }
    return wire.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, message)


def found(answer: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    assert answer.error_code == 0, answer.error_message
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


def produce(wire: Wire, size: int, *, acks: int = 1) -> Any:
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch(b"x" * size)}]}]
    message = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": data}
    return wire.call(ApiKey.PRODUCE, 9, message)


# ── setting ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_quotas_are_set_described_and_removed(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        assert found(described(wire)) == {}
        assert alter(wire, {"user": "alice"}, {"producer_byte_rate": 1000, "request_percentage": 50.5}).error_code == 0
        assert alter(wire, {"client-id": None, "user": "alice"}, {"consumer_byte_rate": 7}).error_code == 0
        assert alter(wire, {"ip": "10.0.0.1"}, {"connection_creation_rate": 3}).error_code == 0
        assert found(described(wire)) == {
            (("user", "alice"),): {"producer_byte_rate": 1000, "request_percentage": 50.5},
            (("user", "alice"), ("client-id", None)): {"consumer_byte_rate": 7},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": 3},
        }
        assert list(found(described(wire, ("user", 0, "alice"), strict=True))) == [(("user", "alice"),)]
        assert alter(wire, {"user": "alice"}, {"producer_byte_rate": None}).error_code == 0
        assert found(described(wire, ("user", 0, "alice"), strict=True)) == {
            (("user", "alice"),): {"request_percentage": 50.5}
        }
        assert alter(wire, {"user": "alice"}, {"request_percentage": None}).error_code == 0
        assert found(described(wire, ("user", 0, "alice"), strict=True)) == {}


def test_validating_changes_nothing(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        assert alter(wire, {"user": "alice"}, {"producer_byte_rate": 1}, validate_only=True).error_code == 0
        answer = alter(wire, {"user": "alice"}, {"producer_byte_rate": -1}, validate_only=True)
        assert answer.error_code == errors.InvalidRequest.code
        assert found(described(wire)) == {}


def test_a_wrong_entity_leaves_the_others_alone(broker: ottla.Broker) -> None:
    def entry(entity: dict[str, str | None], *keys: str) -> dict[str, Any]:
        return {"entity": parts(entity), "ops": [{"key": key, "value": 5.0, "remove": False} for key in keys]}

    with Wire(broker.bootstrap_servers) as wire:
        entries = [
            entry({"user": "alice"}, "producer_byte_rate"),
            entry({"user": "alice"}, "consumer_byte_rate"),
            entry({"user": "bob"}, "producer_byte_rate", "producer_byte_rate"),
            entry({}, "producer_byte_rate"),
        ]
        answers = wire.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries}).entries
        assert [each.error_code for each in answers] == [0, 42, 42, 42]
        assert "duplicate entity user=alice" in answers[1].error_message
        assert "Duplicate quota key producer_byte_rate" in answers[2].error_message
        assert found(described(wire)) == {(("user", "alice"),): {"producer_byte_rate": 5}}
        refused = described(wire, ("group", 0, "a"))
        assert (refused.error_code, refused.entries) == (errors.UnsupportedVersion.code, None)


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with ottla.Broker(tmp_path, config=SHORT) as broker, Wire(broker.bootstrap_servers) as wire:
            if not found(described(wire)):
                wire.create_topic("orders")
                put(broker, {"producer_byte_rate": 1000}, client_id="wire")
    with ottla.Broker(tmp_path, config=SHORT) as broker, Wire(broker.bootstrap_servers) as wire:
        assert found(described(wire)) == {(("client-id", "wire"),): {"producer_byte_rate": 1000}}
        assert produce(wire, 5000).throttle_time > 3000


# ── bytes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("acks", [1, 0])
def test_a_producer_that_sends_too_much_gets_its_answer_and_must_pause(broker: ottla.Broker, acks: int) -> None:
    put(broker, {"producer_byte_rate": 10_000}, user=None)
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        begun = time.monotonic()
        if acks:
            assert 450 <= produce(wire, 15_000).throttle_time <= 600
        else:
            data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch(b"x" * 15_000)}]}]
            message = {"transactional_id": None, "acks": 0, "timeout": 1000, "topic_data": data}
            wire.send(ApiKey.PRODUCE, 9, message)
        # A client that ignores the pause finds that its next request waits.
        wire.call(ApiKey.API_VERSIONS, 0, {})
        assert 0.45 <= time.monotonic() - begun < 5


def test_a_muted_connection_does_not_stop_others(broker: ottla.Broker) -> None:
    put(broker, {"producer_byte_rate": 1_000}, client_id="greedy")
    with Wire(broker.bootstrap_servers, client_id="greedy") as greedy, Wire(broker.bootstrap_servers) as other:
        other.create_topic("orders")
        assert produce(greedy, 20_000).throttle_time > 15_000
        assert produce(other, 20_000).throttle_time == 0
        greedy.send(ApiKey.API_VERSIONS, 0, {})
        greedy.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            greedy.receive(ApiKey.API_VERSIONS, 0)


def test_a_client_that_closes_while_it_must_pause_is_forgotten(broker: ottla.Broker) -> None:
    put(broker, {"producer_byte_rate": 1}, client_id="greedy")
    connections = broker._running().servers[0].connections
    with Wire(broker.bootstrap_servers, client_id="greedy") as greedy:
        greedy.create_topic("orders")
        assert produce(greedy, 20_000).throttle_time > 10_000_000
        assert len(connections) == 1
    until(lambda: not connections, "the connection is closed")


def test_clients_of_one_user_share_its_quota(broker: ottla.Broker) -> None:
    put(broker, {"producer_byte_rate": 10_000}, user="ANONYMOUS")
    put(broker, {"producer_byte_rate": 10}, client_id="first")  # The quota of the user is more specific.
    with Wire(broker.bootstrap_servers, client_id="first") as first, Wire(broker.bootstrap_servers) as second:
        first.create_topic("orders")
        assert produce(first, 9_000).throttle_time == 0
        assert produce(second, 9_000).throttle_time > 0


def test_a_consumer_that_reads_too_much_gets_an_empty_response(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        for _ in range(4):
            produce(wire, 8_000)
        put(broker, {"consumer_byte_rate": 9_000}, client_id=None)
        first = wire.call(ApiKey.FETCH, 12, fetch_request("orders", 0))
        assert first.throttle_time == 0
        # Not more than the quota allows at once.
        assert 8_000 < len(first.responses[0].partitions[0].records) < 9_000
        begun = time.monotonic()
        second = wire.call(ApiKey.FETCH, 12, fetch_request("orders", 1, session_epoch=0))
        assert second.throttle_time > 0
        assert (list(second.responses), second.session_id, second.error_code) == ([], 0, 0)
        third = wire.call(ApiKey.FETCH, 12, fetch_request("orders", 1))
        assert len(third.responses[0].partitions[0].records) > 8_000
        assert time.monotonic() - begun >= 0.9 * second.throttle_time / 1000


def test_a_batch_that_is_larger_than_the_quota_is_delivered_once(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        produce(wire, 30_000)
        put(broker, {"consumer_byte_rate": 10_000}, client_id=None)
        answer = wire.call(ApiKey.FETCH, 12, fetch_request("orders", 0))
        assert len(answer.responses[0].partitions[0].records) > 30_000
        assert 1_900 < answer.throttle_time < 2_200


def test_a_fetch_session_goes_on_after_a_pause(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        for _ in range(3):
            produce(wire, 8_000)
        put(broker, {"consumer_byte_rate": 9_000}, client_id="wire")
        opened = wire.call(ApiKey.FETCH, 12, fetch_request("orders", 0, session_epoch=0))
        session = opened.session_id
        assert session
        following = fetch_request("orders", 1, session_id=session, session_epoch=1)
        answer = wire.call(ApiKey.FETCH, 12, following)
        assert (answer.session_id, list(answer.responses), answer.error_code) == (session, [], 0)
        assert answer.throttle_time > 0
        following = fetch_request("orders", 1, session_id=session, session_epoch=2)
        answer = wire.call(ApiKey.FETCH, 12, following)
        assert len(answer.responses[0].partitions[0].records) > 8_000


def test_followers_are_never_throttled(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        produce(wire, 8_000)
        put(broker, {"consumer_byte_rate": 1, "request_percentage": 0.0001}, user=None)
        for _ in range(3):
            answer = wire.call(ApiKey.FETCH, 12, fetch_request("orders", 0, replica_id=7))
            assert answer.throttle_time == 0


@pytest.fixture
def pretender(broker: ottla.Broker) -> Iterator[Wire]:
    """A client that may write to a topic, but not act for the cluster."""
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        quotas = {"producer_byte_rate": 10_000.0, "request_percentage": 0.001}
        put(broker, quotas, user=None)
        broker._running().node.authorizer = Authorizer(Acls([AclBinding("topic", "orders", operation="write")]))
        yield wire


def test_who_only_pretends_to_be_a_follower_must_pause(pretender: Wire) -> None:
    pretender.call(ApiKey.FETCH, 12, fetch_request("orders", 0, replica_id=7))
    begun = time.monotonic()
    assert produce(pretender, 15_000).throttle_time >= 450
    pretender.call(ApiKey.API_VERSIONS, 0, {})
    assert time.monotonic() - begun >= 0.45


def test_refused_requests_of_brokers_count(pretender: Wire) -> None:
    answers = [pretender.call(ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": []}) for _ in range(2)]
    assert {each.error_code for each in answers} == {errors.ClusterAuthorizationFailed.code}
    assert any(each.throttle_time for each in answers)


def test_long_client_ids_do_not_fill_memory_and_metrics(broker: ottla.Broker) -> None:
    put(broker, {"request_percentage": 0.001}, client_id=None)
    with Wire(broker.bootstrap_servers, client_id="x" * 30_000) as wire:
        assert any(wire.call(ApiKey.METADATA, 12, {"topics": None}).throttle_time for _ in range(2))
    quotas = broker._running().node.quotas
    assert quotas is not None
    assert max(len(meter.client_id) for meter in quotas.throttled()) == 300


# ── request time ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_time_of_requests_counts(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        put(broker, {"request_percentage": 0.001}, client_id="wire")
        pauses = [wire.call(ApiKey.METADATA, 12, {"topics": None}).throttle_time for _ in range(2)]
        assert max(pauses) > 0
        assert max(pauses) <= 1_000  # Not longer than a window.
        put(broker, {"request_percentage": None}, client_id="wire")
        assert wire.call(ApiKey.METADATA, 12, {"topics": None}).throttle_time == 0


def test_responses_that_are_made_as_bytes_tell_the_pause(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": "readers"})
        put(broker, {"request_percentage": 0.001}, client_id="wire")
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
        commit = {"group_id": "readers", "member_id": "", "topics": [{"name": "orders", "partitions": [offset]}]}
        pauses = [wire.call(ApiKey.OFFSET_COMMIT, 8, commit) for _ in range(2)]
        assert max(answer.throttle_time for answer in pauses) > 0
        assert {each.topics[0].partitions[0].error_code for each in pauses} == {0}


# ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────────


def create(wire: Wire, name: str, partitions: int, version: int = 7) -> Any:
    entry = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    return wire.call(ApiKey.CREATE_TOPICS, version, {"topics": [entry]})


@pytest.fixture
def slow_broker() -> Iterator[ottla.Broker]:
    config = {"controller.quota.window.num": 2}
    with ottla.Broker(config=config) as broker:
        put(broker, {"controller_mutation_rate": 20}, user=None)
        yield broker


def test_too_many_changes_are_refused(slow_broker: ottla.Broker) -> None:
    with Wire(slow_broker.bootstrap_servers) as wire:
        # 40 partitions are allowed at once, and as long as some are left a request may overdraw.
        first = create(wire, "first", 70)
        assert (first.topics[0].error_code, first.throttle_time) == (0, 0)
        second = create(wire, "second", 1)
        assert second.topics[0].error_code == errors.ThrottlingQuotaExceeded.code
        assert 0 < second.throttle_time <= 1_500
        assert "Try again in" in second.topics[0].error_message
        # The connection has waited, so now it works.
        assert create(wire, "second", 1).topics[0].error_code == 0


def test_all_kinds_of_changes_count(slow_broker: ottla.Broker) -> None:
    with Wire(slow_broker.bootstrap_servers) as wire:
        create(wire, "first", 38)
        more = {"topics": [{"name": "first", "count": 70, "assignments": None}], "timeout": 1000}
        answer = wire.call(ApiKey.CREATE_PARTITIONS, 3, more)
        assert (answer.results[0].error_code, answer.throttle_time) == (0, 0)
        gone = {"topics": [{"name": "first", "topic_id": None}], "timeout": 1000}
        answer = wire.call(ApiKey.DELETE_TOPICS, 6, gone)
        assert answer.responses[0].error_code == errors.ThrottlingQuotaExceeded.code
        assert answer.throttle_time > 0
        assert wire.call(ApiKey.DELETE_TOPICS, 6, gone).responses[0].error_code == 0


def test_an_old_client_is_never_refused_but_must_pause(slow_broker: ottla.Broker) -> None:
    with Wire(slow_broker.bootstrap_servers) as wire:
        answer = create(wire, "first", 70, version=5)
        assert answer.topics[0].error_code == 0
        assert 0 < answer.throttle_time <= 1_500


def test_a_refused_topic_is_not_created_and_a_wrong_one_does_not_count(slow_broker: ottla.Broker) -> None:
    with Wire(slow_broker.bootstrap_servers) as wire:
        for _ in range(5):
            assert create(wire, "bad/name", 9).throttle_time == 0
        create(wire, "first", 70)
        assert create(wire, "second", 1).topics[0].error_code == errors.ThrottlingQuotaExceeded.code
        names = [topic.name for topic in wire.call(ApiKey.METADATA, 12, {"topics": None}).topics]
        assert names == ["first"]


def test_topics_that_are_created_on_first_use_count_too(slow_broker: ottla.Broker) -> None:
    with Wire(slow_broker.bootstrap_servers) as wire:
        create(wire, "first", 70)
        wanted = {"topics": [{"name": "second", "topic_id": None}], "allow_auto_topic_creation": True}
        answer = wire.call(ApiKey.METADATA, 12, wanted)
        assert answer.topics[0].error_code == errors.LeaderNotAvailable.code
        assert answer.throttle_time > 0
        assert wire.call(ApiKey.METADATA, 12, wanted).topics[0].error_code == 0


def test_a_quota_follows_the_login() -> None:
    alice = ottla.QuotaEntity(user="alice")
    with ottla.Broker(users={"alice": "a", "bob": "b"}) as broker:
        with ottla.Admin(broker.client_config("alice"), retries=0) as admin:
            admin.alter_quotas({alice: {"controller_mutation_rate": 0.1}})
            admin.create_topics(ottla.NewTopic("first", 5))
            with pytest.raises(errors.ThrottlingQuotaExceeded):
                admin.create_topics("second")
        with ottla.Admin(broker.client_config("bob"), retries=0) as admin:
            admin.create_topics([ottla.NewTopic("second", 5), ottla.NewTopic("third", 5)])


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────


def opened(broker: ottla.Broker, count: int) -> int:
    """Open connections, and return how many of them get an answer."""
    answered = 0
    for _ in range(count):
        try:
            with Wire(broker.bootstrap_servers) as wire:
                wire.call(ApiKey.API_VERSIONS, 0, {})
                answered += 1
        except ConnectionError:
            pass
    return answered


def test_an_address_that_connects_too_often_is_cut_off_for_a_while(broker: ottla.Broker) -> None:
    put(broker, {"connection_creation_rate": 1}, ip="127.0.0.1")
    begun = time.monotonic()
    assert opened(broker, 1) == 1
    with pytest.raises(ConnectionError), Wire(broker.bootstrap_servers) as wire:
        wire.call(ApiKey.API_VERSIONS, 0, {})
    assert time.monotonic() - begun >= 0.5  # It is closed after a while, so that the client does not come at once.
    assert opened(broker, 1) == 1


def test_the_broker_accepts_connections_at_its_rate() -> None:
    with ottla.Broker(config=SHORT | {"max.connection.creation.rate": 10}) as broker:
        begun = time.monotonic()
        assert opened(broker, 16) == 16
        assert 0.45 <= time.monotonic() - begun < 5


def test_a_listener_can_have_its_own_rate_and_a_new_one() -> None:
    name = "listener.name.plaintext.max.connection.creation.rate"
    with ottla.Broker(config=SHORT | {name: 4}) as broker:
        begun = time.monotonic()
        assert opened(broker, 6) == 6
        assert time.monotonic() - begun >= 0.4


def test_a_stop_closes_connections_that_wait() -> None:
    with ottla.Broker(config={"max.connection.creation.rate": 1, "quota.window.num": 1}) as broker:
        host, port = broker.bootstrap_servers.split(":")
        sockets = [socket.create_connection((host, int(port))) for _ in range(3)]
    for each in sockets:
        each.settimeout(5)
        with each:
            try:
                assert each.recv(1) == b""
            except ConnectionError:
                pass
