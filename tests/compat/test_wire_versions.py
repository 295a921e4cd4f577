"""Every advertised version of every API, called with Kafka's own message schemas.

The libraries use a few versions each; other clients, older and newer, use the rest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import MakeTopic, unique_name
from .wire import API_KEYS, RECENT, Disconnected, Wire, batch, versions_known

TOPIC, BROKER = 2, 4  # resource types of configs
SERVED = [
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "describe_configs",
    "alter_configs",
    "describe_log_dirs",
    "create_partitions",
    "incremental_alter_configs",
    "describe_cluster",
    "describe_producers",
    "describe_topic_partitions",
]


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[Wire]:
    with Wire(bootstrap_servers) as connection:
        yield connection


def served(wire: Wire, api: str) -> list[int]:
    """Return the versions that both the broker and the schemas have."""
    answer = wire.call("api_versions", 3, {"client_software_name": "wire", "client_software_version": "1"})
    (entry,) = (key for key in answer.api_keys if key.api_key == API_KEYS[api])
    versions = [v for v in versions_known(api) if entry.min_version <= v <= entry.max_version]
    assert versions, f"{api} is served in {entry.min_version} to {entry.max_version}, known are {versions_known(api)}"
    return versions


def topic_id(wire: Wire, topic: str) -> uuid.UUID:
    answer = wire.call("metadata", 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    found = answer.topics[0].topic_id
    assert isinstance(found, uuid.UUID)
    return found


def produce(topic: str, known_id: uuid.UUID, records: bytes, acks: int = -1) -> dict[str, Any]:
    data = {"index": 0, "records": records}
    return {
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "topic_id": known_id, "partition_data": [data]}],
    }


def fetch(topic: str, known_id: uuid.UUID, offset: int, **more: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000, "current_leader_epoch": -1}
    topics = [{"topic": topic, "topic_id": known_id, "partitions": [partition]}]
    return {"replica_id": -1, "max_wait": 200, "min_bytes": 1, "max_bytes": 10_000_000, "topics": topics, **more}


def test_the_apis_that_a_broker_needs_are_served(wire: Wire) -> None:
    for api in SERVED:
        assert served(wire, api)


def test_api_versions(wire: Wire) -> None:
    for version in served(wire, "api_versions"):
        content = {"client_software_name": "wire", "client_software_version": "1.0"}
        answer = wire.call("api_versions", version, content)
        assert answer.error_code == 0
        keys = [key.api_key for key in answer.api_keys]
        assert len(keys) == len(set(keys))
        assert all(key.min_version <= key.max_version for key in answer.api_keys)


def test_a_too_new_api_versions_request_is_answered_in_version_0(wire: Wire) -> None:
    wire.send_bytes((18).to_bytes(2, "big") + (99).to_bytes(2, "big") + (5).to_bytes(4, "big") + b"\xff\xff\x00")
    answer = wire.receive("api_versions", 0, 5)
    assert answer.error_code == 35
    assert API_KEYS["api_versions"] in {key.api_key for key in answer.api_keys}
    assert wire.call("api_versions", 0, {}).error_code == 0  # the connection still works


@pytest.mark.parametrize("header", [(999, 0), (3, 99), (1, 0)], ids=["unknown api", "too new", "too old"])
def test_a_request_that_is_not_served_ends_its_connection(
    bootstrap_servers: str, wire: Wire, header: tuple[int, int]
) -> None:
    api, version = header
    with Wire(bootstrap_servers) as other:
        other.send_bytes(api.to_bytes(2, "big") + version.to_bytes(2, "big") + (5).to_bytes(4, "big") + b"\xff\xff\x00")
        with pytest.raises(Disconnected):
            other.receive_bytes()
    assert wire.call("api_versions", 0, {}).error_code == 0


def test_metadata(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    for version in served(wire, "metadata"):
        answer = wire.call("metadata", version, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        (found,) = answer.topics
        assert (found.error_code, found.name) == (0, topic)
        node = answer.brokers[0].node_id
        partitions = sorted(found.partitions, key=lambda p: int(p.partition_index))
        assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in partitions] == [
            (0, node, (node,), (node,)),
            (1, node, (node,), (node,)),
        ]
        everything = wire.call("metadata", version, {"topics": [] if version == 0 else None})
        assert topic in {t.name for t in everything.topics}
        if version > 0:
            nothing = wire.call("metadata", version, {"topics": []})
            assert not nothing.topics
            assert answer.controller_id == node


def test_metadata_by_topic_id(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    known, unknown = topic_id(wire, topic), uuid.uuid4()
    for version in (v for v in served(wire, "metadata") if v >= 12):
        for name in (None, ""):  # the Java client sends the empty name
            topics = [{"topic_id": known, "name": name}, {"topic_id": unknown, "name": name}]
            answer = wire.call("metadata", version, {"topics": topics})
            found = {t.topic_id: (int(t.error_code), t.name) for t in answer.topics}
            assert found == {known: (0, topic), unknown: (100, None)}


def test_metadata_of_a_topic_that_is_not_there(wire: Wire) -> None:
    name = unique_name()
    for version in (v for v in served(wire, "metadata") if v >= 4):
        answer = wire.call("metadata", version, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        assert [(int(t.error_code), t.name) for t in answer.topics] == [(3, name)]
        answer = wire.call("metadata", version, {"topics": [{"name": "not/good"}], "allow_auto_topic_creation": True})
        assert [int(t.error_code) for t in answer.topics] == [17]


def test_produce_and_fetch(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    known, expected = topic_id(wire, topic), 0
    for version in served(wire, "produce"):
        answer = wire.call("produce", version, produce(topic, known, batch([b"the first", b"the second"])))
        (partition,) = answer.responses[0].partition_responses
        assert (partition.error_code, partition.base_offset) == (0, expected)
        expected += 2
    for version in served(wire, "fetch"):
        answer = wire.call("fetch", version, fetch(topic, known, 0))
        ((partition,),) = (t.partitions for t in answer.responses)
        assert (partition.error_code, partition.high_watermark) == (0, expected)
        assert partition.last_stable_offset == expected
        assert (partition.records or b"").count(b"the first") == expected // 2
        empty = wire.call("fetch", version, fetch(topic, known, expected, max_wait=10))
        assert not any(p.records for t in empty.responses for p in t.partitions)


def test_list_offsets(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    wire.call("produce", 9, produce(topic, uuid.uuid4(), batch([b"a", b"b", b"c"], timestamp=RECENT)))

    def ask(version: int, timestamp: int) -> tuple[int, int, int]:
        partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        content = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}], "timeout": 5_000}
        (found,) = wire.call("list_offsets", version, content).topics[0].partitions
        return int(found.error_code), found.offset, found.timestamp

    for version in served(wire, "list_offsets"):
        assert ask(version, -1) == (0, 3, -1)
        assert ask(version, -2) == (0, 0, -1)
        assert ask(version, RECENT + 1) == (0, 1, RECENT + 1)
        assert ask(version, RECENT + 3) == (0, -1, -1)
        if version >= 7:
            assert ask(version, -3) == (0, 2, RECENT + 2)
        if version >= 8:
            assert ask(version, -4) == (0, 0, -1)  # earliest on local storage
        if version >= 9:
            assert ask(version, -5) == (0, -1, -1)  # last on remote storage: there is none


def test_topics_are_created_grown_and_deleted(wire: Wire) -> None:
    deletes, grows = served(wire, "delete_topics"), served(wire, "create_partitions")
    for number, version in enumerate(served(wire, "create_topics")):
        name = unique_name()
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
        configs = [{"name": "retention.ms", "value": "100000"}]
        answer = wire.call("create_topics", version, {"topics": [{**topic, "configs": configs}], "timeout": 10_000})
        assert [(t.name, int(t.error_code)) for t in answer.topics] == [(name, 0)]
        if version >= 5:
            assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (2, 1)
            assert {c.name: c.value for c in answer.topics[0].configs}["retention.ms"] == "100000"
        growing = {"topics": [{"name": name, "count": 4, "assignments": None}], "timeout": 10_000}
        grown = wire.call("create_partitions", grows[number % len(grows)], growing)
        assert [(t.name, int(t.error_code)) for t in grown.results] == [(name, 0)]
        deleting = {"topic_names": [name], "topics": [{"name": name}], "timeout": 10_000}
        deleted = wire.call("delete_topics", deletes[number % len(deletes)], deleting)
        assert [(t.name, int(t.error_code)) for t in deleted.responses] == [(name, 0)]


def test_a_topic_is_deleted_by_its_id(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    known, unknown = topic_id(wire, topic), uuid.uuid4()
    content = {"topics": [{"name": None, "topic_id": known}, {"name": None, "topic_id": unknown}], "timeout": 10_000}
    answer = wire.call("delete_topics", 6, content)
    assert {t.topic_id: int(t.error_code) for t in answer.responses} == {known: 0, unknown: 100}


def test_delete_records(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    wire.call("produce", 9, produce(topic, uuid.uuid4(), batch([b"x"] * 10)))
    for number, version in enumerate(served(wire, "delete_records")):
        partitions = [{"partition_index": 0, "offset": number + 1}]
        content = {"topics": [{"name": topic, "partitions": partitions}], "timeout": 10_000}
        (found,) = wire.call("delete_records", version, content).topics[0].partitions
        assert (int(found.error_code), found.low_watermark) == (0, number + 1)


def test_init_producer_id(wire: Wire) -> None:
    ids = []
    for version in served(wire, "init_producer_id"):
        content = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = wire.call("init_producer_id", version, content)
        assert (int(answer.error_code), answer.producer_epoch) == (0, 0)
        ids.append(answer.producer_id)
    assert len(set(ids)) == len(ids)


def test_offset_for_leader_epoch(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    wire.call("produce", 9, produce(topic, uuid.uuid4(), batch([b"x"] * 4)))
    epoch = wire.call("metadata", 9, {"topics": [{"name": topic}]}).topics[0].partitions[0].leader_epoch

    def ask(version: int, leader_epoch: int, current: int) -> tuple[int, int, int]:
        partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": leader_epoch}
        content = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
        (found,) = wire.call("offset_for_leader_epoch", version, content).topics[0].partitions
        return int(found.error_code), found.leader_epoch, found.end_offset

    for version in served(wire, "offset_for_leader_epoch"):
        assert ask(version, epoch, -1) == (0, epoch, 4)
        assert ask(version, epoch, epoch) == (0, epoch, 4)
        assert ask(version, epoch + 1, -1) == (0, -1, -1)
        assert ask(version, epoch, epoch + 1)[0] == 75  # the client's leader epoch is newer than the broker's


def test_describe_configs(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="777777")
    node = wire.call("metadata", 9, {"topics": []}).brokers[0].node_id
    for version in served(wire, "describe_configs"):
        content = {
            "resources": [
                {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None},
                {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["max.message.bytes"]},
                {"resource_type": BROKER, "resource_name": str(node), "configuration_keys": ["log.retention.ms"]},
            ],
            "include_synonyms": True,
            "include_documentation": True,
        }
        everything, one, broker = wire.call("describe_configs", version, content).results
        assert {r.error_code for r in (everything, one, broker)} == {0}
        assert len(everything.configs) > 20
        (limit,) = one.configs
        assert (limit.name, limit.value, limit.is_sensitive) == ("max.message.bytes", "777777", False)
        assert [c.name for c in broker.configs] == ["log.retention.ms"]
        if version >= 1:
            assert limit.config_source == 1
            synonyms = [(s.name, s.value, s.source) for s in limit.synonyms]
            assert synonyms == [("max.message.bytes", "777777", 1), ("message.max.bytes", "1048588", 5)]
        if version >= 3:
            assert limit.config_type == 3
            assert limit.documentation


def test_configs_are_altered(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    configs: list[dict[str, Any]]
    for version in served(wire, "alter_configs"):
        configs = [{"name": "flush.ms", "value": str(1000 + version)}]
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
        (answer,) = wire.call("alter_configs", version, {"resources": [resource]}).responses
        assert (int(answer.error_code), answer.resource_name) == (0, topic)
    for version in served(wire, "incremental_alter_configs"):
        configs = [{"name": "flush.ms", "config_operation": 0, "value": str(2000 + version)}]
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
        (answer,) = wire.call("incremental_alter_configs", version, {"resources": [resource]}).responses
        assert (int(answer.error_code), answer.resource_name) == (0, topic)


def test_describe_log_dirs(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    records = batch([b"x" * 100])
    wire.call("produce", 9, produce(topic, uuid.uuid4(), records))
    for version in served(wire, "describe_log_dirs"):
        answer = wire.call("describe_log_dirs", version, {"topics": [{"topic": topic, "partitions": [0]}]})
        found = [(p.partition_index, p.partition_size) for r in answer.results for t in r.topics for p in t.partitions]
        assert found == [(0, len(records))]
        assert all(r.error_code == 0 and r.log_dir for r in answer.results)
        everything = wire.call("describe_log_dirs", version, {"topics": None})
        assert topic in {t.name for r in everything.results for t in r.topics}


def test_describe_cluster(wire: Wire, bootstrap_servers: str) -> None:
    for version in served(wire, "describe_cluster"):
        answer = wire.call("describe_cluster", version, {"endpoint_type": 1})
        assert answer.error_code == 0
        assert bootstrap_servers in {f"{b.host}:{b.port}" for b in answer.brokers}
        assert answer.controller_id in {b.broker_id for b in answer.brokers}


def test_describe_producers(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    records = batch([b"a", b"b"], producer_id=4_000_001, producer_epoch=0, base_sequence=0)
    wire.call("produce", 9, produce(topic, uuid.uuid4(), records))
    for version in served(wire, "describe_producers"):
        content = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        (found,) = wire.call("describe_producers", version, content).topics[0].partitions
        (producer,) = found.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4_000_001, 0, 1)
        assert producer.current_txn_start_offset == -1


def test_describe_topic_partitions(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic(5)
    for version in served(wire, "describe_topic_partitions"):
        content = {"topics": [{"name": topic}], "response_partition_limit": 3, "cursor": None}
        first = wire.call("describe_topic_partitions", version, content)
        assert [p.partition_index for p in first.topics[0].partitions] == [0, 1, 2]
        eligible = {(p.eligible_leader_replicas, p.last_known_elr) for p in first.topics[0].partitions}
        assert eligible == {((), ())}  # empty but not null: the Java client does not expect null
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == (topic, 3)
        content["cursor"] = {"topic_name": topic, "partition_index": 3}
        rest = wire.call("describe_topic_partitions", version, content)
        assert [p.partition_index for p in rest.topics[0].partitions] == [3, 4]
        assert rest.next_cursor is None
