"""A request of every API that names resources: topics, groups and transactional ids with the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.protocol.apis import ApiKey
from unit.broker.wire import batch

Requests = dict[int, dict[str, Any]]


def requests(names: Sequence[str], ids: Mapping[str, UUID], *, fresh: Sequence[str]) -> Requests:
    """Return a request of each API with a part for each name. ``fresh`` names the topics to create and delete."""
    first = names[0]
    return {
        **_topics(names, ids, fresh),
        **_groups(first, names, ids),
        **_transactions(first, names),
        **_cluster(names, first),
    }


def _topics(names: Sequence[str], ids: Mapping[str, UUID], fresh: Sequence[str]) -> Requests:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    new = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}

    def topics(field: str = "name", **rest: Any) -> list[dict[str, Any]]:
        return [{field: name, **rest} for name in names]

    def with_ids(field: str, **rest: Any) -> list[dict[str, Any]]:
        return [{field: name, "topic_id": ids.get(name), **rest} for name in names]

    return {
        ApiKey.PRODUCE: {
            "transactional_id": None, "acks": 1, "timeout": 1000,
            "topic_data": with_ids("name", partition_data=[{"index": 0, "records": batch(b"x")}]),
        },
        ApiKey.FETCH: {
            "max_wait": 0, "min_bytes": 1, "topics": with_ids("topic", partitions=[wanted]),
            "forgotten_topics_data": [],
        },
        ApiKey.LIST_OFFSETS: {
            "replica_id": -1, "isolation_level": 0, "timeout": 1,
            "topics": topics(partitions=[{"partition_index": 0, "timestamp": -1}]),
        },
        ApiKey.METADATA: {
            "topics": [{"name": name, "topic_id": None} for name in names],
            "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True,
        },
        ApiKey.CREATE_TOPICS: {"topics": [{"name": name, **new} for name in fresh]},
        ApiKey.DELETE_TOPICS: {
            "topic_names": list(fresh), "topics": [{"name": name, "topic_id": None} for name in fresh], "timeout": 1,
        },
        ApiKey.DELETE_RECORDS: {"topics": topics(partitions=[{"partition_index": 0, "offset": 0}]), "timeout": 1},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": topics("topic", partitions=[{"partition": 0, "leader_epoch": 0}])},
        ApiKey.CREATE_PARTITIONS: {
            "topics": topics(count=2, assignments=None), "timeout": 1, "validate_only": True,
        },
        ApiKey.DESCRIBE_PRODUCERS: {"topics": topics(partition_indexes=[0])},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": name} for name in names]},
    }  # fmt: skip


def _groups(first: str, names: Sequence[str], ids: Mapping[str, UUID]) -> Requests:
    member = {"group_id": first, "generation_id": 1, "member_id": "nobody"}
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    named = [{"name": name, "topic_id": ids.get(name)} for name in names]
    asked = [{**each, "partition_indexes": [0]} for each in named]
    commits = [{**each, "partitions": [offset]} for each in named]
    return {
        ApiKey.OFFSET_COMMIT: {"group_id": first, "member_id": "", "topics": commits},
        ApiKey.OFFSET_FETCH: {
            "group_id": first, "topics": [{"name": name, "partition_indexes": [0]} for name in names],
            "groups": [{"group_id": name, "topics": asked} for name in names],
        },
        ApiKey.FIND_COORDINATOR: {"key": first, "coordinator_keys": list(names)},
        ApiKey.JOIN_GROUP: {
            "group_id": first, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "nobody",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        },
        ApiKey.SYNC_GROUP: {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []},
        ApiKey.HEARTBEAT: member,
        ApiKey.LEAVE_GROUP: {"group_id": first, "member_id": "nobody", "members": [{"member_id": "nobody"}]},
        ApiKey.DESCRIBE_GROUPS: {"groups": list(names), "include_authorized_operations": True},
        ApiKey.LIST_GROUPS: {},
        ApiKey.DELETE_GROUPS: {"groups_names": [f"{name}-gone" for name in names]},
        ApiKey.OFFSET_DELETE: {
            "group_id": first, "topics": [{"name": name, "partitions": [{"partition_index": 0}]} for name in names],
        },
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            "group_id": f"{first}-consumers", "member_id": "a-member", "member_epoch": 0, "rebalance_timeout": 10_000,
            "subscribed_topic_names": list(names), "topic_partitions": [],
        },
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [f"{name}-consumers" for name in names]},
    }  # fmt: skip


def _transactions(first: str, names: Sequence[str]) -> Requests:
    who = {"transactional_id": first, "producer_id": 4711, "producer_epoch": 0}
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    partitions = [{"name": name, "partitions": [0]} for name in names]
    markers = [{"name": name, "partition_indexes": [0]} for name in names]
    return {
        ApiKey.INIT_PRODUCER_ID: {"transactional_id": first, "transaction_timeout": 60_000},
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            **{f"v3_and_below_{key}": value for key, value in who.items()}, "v3_and_below_topics": partitions,
            "transactions": [{**who, "topics": partitions}],
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {**who, "group_id": first},
        ApiKey.END_TXN: {**who, "committed": True},
        ApiKey.WRITE_TXN_MARKERS: {
            "markers": [
                {
                    "producer_id": 4711, "producer_epoch": 0, "transaction_result": False, "topics": markers,
                    "coordinator_epoch": 0,
                }
            ],
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            **who, "group_id": first, "topics": [{"name": name, "partitions": [offset]} for name in names],
        },
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": list(names)},
        ApiKey.LIST_TRANSACTIONS: {"state_filters": [], "producer_id_filters": []},
    }  # fmt: skip


def _cluster(names: Sequence[str], first: str) -> Requests:
    acl = {"resource_type": 2, "resource_name": first, "resource_pattern_type": 3, "principal": "User:x", "host": "*"}
    acl_filter = {
        "resource_type_filter": 2, "resource_name_filter": "nothing", "pattern_type_filter": 3,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    resources = [{"resource_type": kind, "resource_name": name} for kind in (2, 32) for name in names]
    resources.append({"resource_type": 4, "resource_name": "1"})
    described = [{**each, "configuration_keys": None} for each in resources]
    unchanged = [{**each, "configs": []} for each in resources]
    return {
        ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1.0"},
        ApiKey.CREATE_ACLS: {"creations": [{**acl, "operation": 3, "permission_type": 3}]},
        ApiKey.DESCRIBE_ACLS: acl_filter,
        ApiKey.DELETE_ACLS: {"filters": [acl_filter]},
        ApiKey.DESCRIBE_CONFIGS: {"resources": described},
        ApiKey.ALTER_CONFIGS: {"resources": unchanged, "validate_only": True},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {"resources": unchanged, "validate_only": True},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2]},
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
        ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/", "topics": [{"name": first, "partitions": [0]}]}]},
        ApiKey.DESCRIBE_CLUSTER: {"include_cluster_authorized_operations": True},
        ApiKey.DESCRIBE_QUORUM: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
        },
        ApiKey.UPDATE_FEATURES: {"feature_updates": [{"feature": "group.version", "max_version_level": 1}]},
        ApiKey.ELECT_LEADERS: {
            "election_type": 0, "topic_partitions": [{"topic": first, "partitions": [0]}], "timeout": 1,
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "topics": [{"name": first, "partitions": [{"partition_index": 0, "replicas": [1]}]}], "timeout": 1,
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": None},
        ApiKey.UNREGISTER_BROKER: {"broker_id": 4711},
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {"components": []},
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [{"entity": [{"entity_type": "user", "entity_name": "nobody"}], "ops": []}],
            "validate_only": True,
        },
    }  # fmt: skip
