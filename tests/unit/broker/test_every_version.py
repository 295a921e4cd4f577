"""Every advertised version of every API answers a valid request according to its schema."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

import ottla
from ottla.broker.handlers import HANDLERS
from ottla.errors import (
    BrokerIdNotRegistered,
    DelegationTokenRequestNotAllowed,
    IllegalSaslState,
    LogDirNotFound,
    SecurityDisabled,
)
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire, batch, fetch_request

HERE = {key: handler for key, handler in HANDLERS.items() if not handler.only_in_cluster}
SERVED = [(key, version) for key, h in sorted(HERE.items()) for version in range(h.first, h.last + 1)]
MEMBERSHIP = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP}
GROUPS = set(range(ApiKey.OFFSET_COMMIT, ApiKey.LIST_GROUPS + 1)) | {
    ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
}  # fmt: skip
TRANSACTIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
}  # fmt: skip
#: The right answers to requests that do not fit the only broker, or its listener without SASL.
#: Requests for delegation tokens, which need a login.
TOKENS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: {
        "owner_principal_type": None, "owner_principal_name": None, "renewers": [], "max_lifetime": -1,
    },
    ApiKey.RENEW_DELEGATION_TOKEN: {"hmac": b"x", "renew_period": 1},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"hmac": b"x", "expiry_time_period": 1},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {"owners": None},
}  # fmt: skip
EXPECTED = {
    ApiKey.ALTER_REPLICA_LOG_DIRS: LogDirNotFound.code,
    ApiKey.UNREGISTER_BROKER: BrokerIdNotRegistered.code,
    ApiKey.SASL_HANDSHAKE: IllegalSaslState.code,
    ApiKey.SASL_AUTHENTICATE: IllegalSaslState.code,
    ApiKey.CREATE_ACLS: SecurityDisabled.code,
    ApiKey.DESCRIBE_ACLS: SecurityDisabled.code,
    ApiKey.DELETE_ACLS: SecurityDisabled.code,
    **dict.fromkeys(TOKENS, DelegationTokenRequestNotAllowed.code),
}
IDS = [f"{HANDLERS[key].name}-v{version}" for key, version in SERVED]


@pytest.fixture(scope="module")
def topic(broker: ottla.Broker) -> Any:
    with Wire(broker.bootstrap_servers) as wire:
        created = wire.create_topic("orders", 2, retention_ms="86400000")
        assert wire.produce("orders", batch(b"a", b"b", b"c")).error_code == 0
    return created


def requests(version: int, topic_id: UUID) -> dict[int, dict[str, Any]]:
    named = {"name": "orders", "topic_id": topic_id}
    produced = [{"index": 1, "records": batch(b"x")}]
    resource = {"resource_type": 2, "resource_name": "orders"}
    retention = {"name": "retention.ms", "value": "1234567", "config_operation": 0}
    entry = {"name": f"new-{version}", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    acl_filter = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    fetch = fetch_request("orders", 0)
    fetch["topics"][0]["topic_id"] = topic_id
    return {
        ApiKey.PRODUCE: {
            "transactional_id": None, "acks": 1, "timeout": 1, "topic_data": [{**named, "partition_data": produced}],
        },
        ApiKey.FETCH: fetch,
        ApiKey.LIST_OFFSETS: {
            "replica_id": -1, "isolation_level": 0, "timeout": 1,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        ApiKey.METADATA: {"topics": [{"name": "orders", "topic_id": None}]},
        ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1.0"},
        ApiKey.CREATE_TOPICS: {"topics": [entry]},
        ApiKey.DELETE_TOPICS: {
            "topic_names": [f"gone-{version}"], "topics": [{"name": f"gone-{version}", "topic_id": None}], "timeout": 1,
        },
        ApiKey.DELETE_RECORDS: {
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": 1,
        },
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": None, "transaction_timeout": 1},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": "orders", "partitions": [{"partition": 0,
        "leader_epoch": 0}]}]},
        ApiKey.DESCRIBE_CONFIGS: {"resources": [{**resource, "configuration_keys": ["retention.ms"]}]},
        ApiKey.ALTER_CONFIGS: {"resources": [{**resource, "configs": [{"name": "retention.ms", "value": "86400000"}]}]},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": [{**resource, "configs": [retention]}], "validate_only": True},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
        ApiKey.CREATE_PARTITIONS: {
            "topics": [{"name": "orders", "count": 3, "assignments": None}], "timeout": 1, "validate_only": True,
        },
        ApiKey.DESCRIBE_CLUSTER: {},
        ApiKey.DESCRIBE_QUORUM: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        ApiKey.UPDATE_FEATURES: {"feature_updates": [{"feature": "group.version", "max_version_level": 1}]},
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": "orders", "partition_indexes": [0]}]},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": "orders"}]},
        ApiKey.ELECT_LEADERS: {"election_type": 0, "topic_partitions": None, "timeout": 1},
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1]}]}], "timeout": 1,
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None},
        ApiKey.UNREGISTER_BROKER: {"broker_id": 4711},
        ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
        ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b""},
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
            "deletions": [],
            "upsertions": [{"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}],
        },
        ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/", "topics": [{"name": "orders", "partitions": [0]}]}]},
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": []},
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        ApiKey.CREATE_ACLS: {"creations": [{
            "resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:etl",
            "host": "*", "operation": 3, "permission_type": 3,
        }]},
        ApiKey.DESCRIBE_ACLS: acl_filter,
        ApiKey.DELETE_ACLS: {"filters": [acl_filter]},
        **group_requests(topic_id),
    }  # fmt: skip


def group_requests(topic_id: UUID) -> dict[int, dict[str, Any]]:
    """Requests of the group "readers", which has offsets but no members."""
    named = {"name": "orders", "topic_id": topic_id}
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    asked = {**named, "partition_indexes": [0]}
    return {
        ApiKey.FIND_COORDINATOR: {"key": "readers", "coordinator_keys": ["readers"]},
        ApiKey.OFFSET_COMMIT: {"group_id": "readers", "member_id": "", "topics": [{**named, "partitions": [offset]}]},
        ApiKey.OFFSET_FETCH: {
            "group_id": "readers", "topics": [{"name": "orders", "partition_indexes": [0]}],
            "groups": [{"group_id": "readers", "topics": [asked]}],
        },
        ApiKey.LIST_GROUPS: {},
        ApiKey.DESCRIBE_GROUPS: {"groups": ["readers"]},
        ApiKey.DELETE_GROUPS: {"groups_names": ["leavers"]},
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            "group_id": "consumers", "member_id": str(topic_id), "member_epoch": 0, "rebalance_timeout": 10_000,
            "subscribed_topic_names": ["orders"], "topic_partitions": [],
        },
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["consumers"]},
        ApiKey.OFFSET_DELETE: {
            "group_id": "readers", "topics": [{"name": "orders", "partitions": [{"partition_index": 1}]}],
        },
        **TOKENS,
    }  # fmt: skip


def commit(wire: Wire, group_id: str) -> None:
    wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": group_id})
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    message = {"group_id": group_id, "member_id": "", "topics": [{"name": "orders", "partitions": [offset]}]}
    assert errors_in(wire.call(ApiKey.OFFSET_COMMIT, 8, message)) == {0}


def errors_in(answer: Any) -> set[int]:
    """Return all error codes anywhere in a response."""
    if isinstance(answer, list | tuple):
        return {code for item in answer for code in errors_in(item)}
    if not hasattr(answer, "__slots__") or isinstance(answer, bytes):
        return set()
    found = {getattr(answer, name) for name in answer.__slots__ if name == "error_code"}
    return found | {code for name in answer.__slots__ for code in errors_in(getattr(answer, name))}


@pytest.mark.parametrize(("key", "version"), SERVED, ids=IDS)
def test_a_sensible_request_succeeds(broker: ottla.Broker, topic: Any, key: int, version: int) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        if key == ApiKey.DELETE_TOPICS:
            wire.create_topic(f"gone-{version}")
        if key in MEMBERSHIP:
            pytest.skip("a member's requests follow on each other: see the test below")
        if key in TRANSACTIONS:
            pytest.skip("the requests of a transaction follow on each other: see test_transactions_wire")
        if key in GROUPS:
            commit(wire, "readers")
            commit(wire, "leavers")
        answer = wire.call(key, version, requests(version, topic.topic_id)[key])
        assert errors_in(answer) <= {EXPECTED.get(ApiKey(key), 0)}
        # The connection is still in sync: it answers another request.
        assert wire.call(ApiKey.METADATA, 9, {"topics": []}).controller_id == 1


def test_only_what_is_served_is_advertised(broker: ottla.Broker) -> None:
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(ApiKey.API_VERSIONS, 0, {})
    assert {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys} == {
        key: (0 if key == ApiKey.PRODUCE else handler.first, handler.last) for key, handler in HERE.items()
    }


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_beats_and_leaves_in_every_version(broker: ottla.Broker, topic: Any, version: int) -> None:
    group = {"group_id": f"members-{version}"}
    with Wire(broker.bootstrap_servers) as wire:
        wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": group["group_id"]})
        protocols = [{"name": "range", "metadata": b"subscription"}]
        join = {
            **group,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        joined = wire.call(ApiKey.JOIN_GROUP, version, join)
        if version >= 4:
            assert joined.error_code == 79
            joined = wire.call(ApiKey.JOIN_GROUP, version, {**join, "member_id": joined.member_id})
        assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
        member = {**group, "generation_id": 1, "member_id": joined.member_id}
        given = [{"member_id": joined.member_id, "assignment": b"partitions"}]
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        synced = wire.call(ApiKey.SYNC_GROUP, min(version, 5), {**member, **protocol, "assignments": given})
        assert (synced.error_code, synced.assignment) == (0, b"partitions")
        assert wire.call(ApiKey.HEARTBEAT, min(version, 4), member).error_code == 0
        leave = {**group, "member_id": joined.member_id, "members": [{"member_id": joined.member_id}]}
        assert errors_in(wire.call(ApiKey.LEAVE_GROUP, min(version, 5), leave)) == {0}
        assert wire.call(ApiKey.HEARTBEAT, min(version, 4), member).error_code == 25
