"""Well-formed but harmful requests: the broker responds and keeps working."""

from __future__ import annotations

import asyncio
import struct
from uuid import UUID

import pytest
from crc32c import crc32c

import ottla
from ottla import errors
from ottla.broker.handlers import HANDLERS
from ottla.protocol.apis import ApiKey
from unit.broker.permission_requests import requests
from unit.broker.wire import Wire, batch, fetch_request

MANY = 30_000


def with_unreadable_records(data: bytes) -> bytes:
    """Return the batch with invalid records and a correct CRC."""
    head = bytearray(data[:61] + b"\xff" * (len(data) - 61))
    struct.pack_into(">I", head, 17, crc32c(bytes(head[21:])))
    return bytes(head)


def test_a_search_by_time_that_comes_to_unreadable_records_has_an_error_code(wire: Wire) -> None:
    """The broker checks only the header of a batch until it has to read the records."""
    wire.create_topic("unreadable")
    assert wire.produce("unreadable", with_unreadable_records(batch(b"value" * 20))).error_code == 0
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1}
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "unreadable", "partitions": [partition]}]}
    answer = wire.call(ApiKey.LIST_OFFSETS, 5, asked).topics[0].partitions[0]
    assert answer.error_code == errors.CorruptMessage.code
    partition["timestamp"] = -1
    assert wire.call(ApiKey.LIST_OFFSETS, 5, asked).topics[0].partitions[0].offset == 1


@pytest.mark.parametrize("max_wait", [60_000, 2**31 - 1])
def test_a_fetch_waits_no_longer_than_a_connection_may_be_idle(max_wait: int) -> None:
    """The client may be gone long since, and would hold its connection for weeks."""
    with ottla.Broker(connections_max_idle_ms=1000) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("waiting")
        answer = wire.call(1, 12, fetch_request("waiting", 0, max_wait=max_wait))
        assert answer.responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", [1, 9, 12, 13])
def test_an_empty_topic_name_is_repeated_in_the_answer(wire: Wire, version: int) -> None:
    """A Java producer cannot handle an answer without a name, and never recovers."""
    (answer,) = wire.call(ApiKey.METADATA, version, {"topics": [{"name": "", "topic_id": None}]}).topics
    assert (answer.error_code, answer.name) == (errors.InvalidTopicException.code, "")


def test_an_unknown_topic_id_has_no_name(wire: Wire) -> None:
    unknown = UUID(int=7)
    (answer,) = wire.call(ApiKey.METADATA, 12, {"topics": [{"name": "", "topic_id": unknown}]}).topics
    assert (answer.error_code, answer.name, answer.topic_id) == (errors.UnknownTopicId.code, None, unknown)


def test_a_config_of_a_new_topic_is_not_longer_than_kafka_allows(wire: Wire) -> None:
    """Later versions of the protocol can carry longer texts, which would fill the metadata of the cluster."""
    configs = [{"name": "leader.replication.throttled.replicas", "value": ",".join(f"{n}:1" for n in range(300_000))}]
    entry = {"name": "long", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    (answer,) = wire.call(ApiKey.CREATE_TOPICS, 7, {"topics": [entry], "timeout": 1000}).topics
    assert answer.error_code == errors.InvalidConfig.code
    assert "longer than 32767 bytes" in answer.error_message


def test_a_request_about_very_many_topics_is_answered_for_each(wire: Wire) -> None:
    entries = [
        {"name": f"many-{n}", "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": []}
        for n in range(MANY)
    ]
    answer = wire.call(ApiKey.CREATE_TOPICS, 4, {"topics": entries, "timeout": 1000, "validate_only": True})
    assert [topic.name for topic in answer.topics] == [entry["name"] for entry in entries]
    assert {topic.error_code for topic in answer.topics} == {errors.InvalidReplicationFactor.code}


def test_a_request_about_very_many_resources_is_answered_for_each(wire: Wire) -> None:
    resources = [{"resource_type": 2, "resource_name": f"many-{n}", "configs": []} for n in range(MANY)]
    answer = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
    assert [response.resource_name for response in answer.responses] == [r["resource_name"] for r in resources]


@pytest.mark.parametrize(
    "api_key",
    [
        ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.TXN_OFFSET_COMMIT,
    ],
)  # fmt: skip
def test_others_are_served_while_very_many_topics_are_looked_up(
    wire: Wire, api_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each topic may cost a refusal, so the work between two turns of the event loop has an end."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("ottla.broker.large_requests.asyncio.sleep", pause)
    asked = requests([f"many-{n}" for n in range(1000)], {}, fresh=())[api_key]
    answer = wire.call(api_key, HANDLERS[api_key].last, asked)
    assert len(answer.topics) == 1000
    assert pauses.count(0) >= 10


def test_what_is_named_twice_is_refused_once(wire: Wire) -> None:
    entry = {"name": "twice", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    request = {"topics": [entry, {**entry, "name": "alone"}, entry], "timeout": 1000, "validate_only": True}
    answer = wire.call(ApiKey.CREATE_TOPICS, 4, request)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("twice", errors.InvalidRequest.code),
        ("alone", 0),
    ]


def test_a_request_about_more_things_than_a_cluster_has_closes_the_connection(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        wire.send(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["t"] * 200_001, "timeout": 1000})
        assert wire.is_closed()


def test_offsets_may_be_kept_for_ever(wire: Wire) -> None:
    """The expiry of such a retention does not fit into its record."""
    wire.create_topic("committed")
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    request = {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "retention_time": 2**63 - 1,
        "topics": [{"name": "committed", "partitions": [partition]}],
    }  # fmt: skip
    assert wire.call(ApiKey.FIND_COORDINATOR, 1, {"key": "g", "key_type": 0}).error_code == 0
    assert wire.call(ApiKey.OFFSET_COMMIT, 2, request).topics[0].partitions[0].error_code == 0
