"""What each API needs: THE table. The broker's checks, docs/reference/permissions.md and the tests are made from it.

Names of APIs and fields are those of ``protocol/_schemas.py``. The rules are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from ottla.security.acls import Operation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


class Denied(Enum):
    """What happens without the permission."""

    REQUEST = "the request is refused"
    PART = "this part is refused, the others work"
    HIDDEN = "left out of the response"


class When(NamedTuple):
    """The condition of a need: in words, and for a decoded request of some version."""

    text: str
    holds: Callable[[Any, int], bool] = lambda request, version: True


class Need(NamedTuple):
    """A permission that an API needs."""

    operation: Operation
    resource_type: ResourceType
    field: str = ""
    """Where the request has the name of the resource, or the response for what is left out. Empty for the cluster."""
    denied: Denied = Denied.PART
    when: When | None = None
    instead: tuple[Operation, ResourceType] | None = None
    """Another permission that is enough: on the cluster, or on any topic."""
    error: ResourceType | None = None
    """The type in the error code, if it is another one."""


def _cluster(operation: Operation, **rest: Any) -> tuple[Need, ...]:
    return (Need(operation, _CLUSTER, denied=Denied.REQUEST, **rest),)


def _group(operation: Operation) -> Need:
    return Need(operation, _GROUP, "group_id", Denied.REQUEST)


def _writes(field: str = "transactional_id", when: When | None = None) -> Need:
    return Need(Operation.WRITE, _TRANSACTIONAL_ID, field, Denied.REQUEST, when)


def _configs(operation: Operation) -> tuple[Need, ...]:
    field = "resources.resource_name"
    return (
        Need(operation, _TOPIC, field, when=When("for a topic")),
        Need(operation, _GROUP, field, when=When("for a group")),
        Need(operation, _CLUSTER, field, when=When("for a broker")),
    )


_IS_TRANSACTIONAL = When("it has a transactional id", lambda request, _: request.transactional_id is not None)
_IS_NOT_TRANSACTIONAL = When("it has no transactional id", lambda request, _: request.transactional_id is None)
_OF_BROKERS = When("from version 4", lambda _, version: version >= 4)
_OF_CLIENTS = When("up to version 3", lambda _, version: version < 4)
_DESCRIBES_OPERATIONS = Need(
    Operation.DESCRIBE, _CLUSTER, "cluster_authorized_operations", Denied.HIDDEN, When("the client asks for it")
)

PERMISSIONS: dict[str, tuple[Need, ...]] = {
    "produce": (
        _writes(when=_IS_TRANSACTIONAL),
        Need(Operation.WRITE, _TOPIC, "topic_data.name"),
    ),
    "fetch": (
        Need(Operation.READ, _TOPIC, "topics.topic", when=When("from a consumer")),
        Need(Operation.CLUSTER_ACTION, _CLUSTER, when=When("from a follower"), error=_TOPIC),
    ),
    "list_offsets": (Need(Operation.DESCRIBE, _TOPIC, "topics.name"),),
    "metadata": (
        Need(Operation.DESCRIBE, _TOPIC, "topics.name", when=When("the request names topics")),
        Need(Operation.DESCRIBE, _TOPIC, "topics.name", Denied.HIDDEN, When("the request asks for all topics")),
        Need(
            Operation.CREATE, _TOPIC, "topics.name", when=When("the topic would be created"),
            instead=(Operation.CREATE, _CLUSTER),
        ),
        _DESCRIBES_OPERATIONS,
    ),
    "offset_commit": (_group(Operation.READ), Need(Operation.READ, _TOPIC, "topics.name")),
    "offset_fetch": (
        Need(Operation.DESCRIBE, _GROUP, "groups.group_id"),
        Need(Operation.DESCRIBE, _TOPIC, "groups.topics.name", when=When("the request names topics")),
        Need(
            Operation.DESCRIBE, _TOPIC, "groups.topics.name", Denied.HIDDEN, When("the request asks for all topics"),
        ),
    ),
    "find_coordinator": (
        Need(Operation.DESCRIBE, _GROUP, "coordinator_keys", when=When("for a group")),
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, "coordinator_keys", when=When("for a transactional id")),
    ),
    "join_group": (_group(Operation.READ),),
    "heartbeat": (_group(Operation.READ),),
    "leave_group": (_group(Operation.READ),),
    "sync_group": (_group(Operation.READ),),
    "describe_groups": (Need(Operation.DESCRIBE, _GROUP, "groups"),),
    "list_groups": (
        Need(
            Operation.DESCRIBE, _GROUP, "groups.group_id", Denied.HIDDEN, instead=(Operation.DESCRIBE, _CLUSTER),
        ),
    ),
    "sasl_handshake": (),
    "api_versions": (),
    "create_topics": (
        Need(Operation.CREATE, _TOPIC, "topics.name", instead=(Operation.CREATE, _CLUSTER)),
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, "topics.configs", Denied.HIDDEN),
    ),
    "delete_topics": (
        Need(Operation.DELETE, _TOPIC, "topics.name", instead=(Operation.DELETE, _CLUSTER)),
        Need(
            Operation.DESCRIBE, _TOPIC, "topics.name", when=When("the request has the topic's name"),
            instead=(Operation.DELETE, _CLUSTER),
        ),
        Need(
            Operation.DESCRIBE, _TOPIC, "responses.name", Denied.HIDDEN, When("the request has the topic's id"),
            instead=(Operation.DELETE, _CLUSTER),
        ),
    ),
    "delete_records": (Need(Operation.DELETE, _TOPIC, "topics.name"),),
    "init_producer_id": (
        _writes(when=_IS_TRANSACTIONAL),
        *_cluster(Operation.IDEMPOTENT_WRITE, when=_IS_NOT_TRANSACTIONAL, instead=(Operation.WRITE, _TOPIC)),
    ),
    "offset_for_leader_epoch": (
        Need(Operation.DESCRIBE, _TOPIC, "topics.topic", instead=(Operation.CLUSTER_ACTION, _CLUSTER)),
    ),
    "add_partitions_to_txn": (
        *_cluster(Operation.CLUSTER_ACTION, when=_OF_BROKERS),
        _writes("v3_and_below_transactional_id", _OF_CLIENTS),
        Need(Operation.WRITE, _TOPIC, "v3_and_below_topics.name", when=_OF_CLIENTS),
    ),
    "add_offsets_to_txn": (_writes(), _group(Operation.READ)),
    "end_txn": (_writes(),),
    "write_txn_markers": _cluster(Operation.CLUSTER_ACTION, instead=(Operation.ALTER, _CLUSTER)),
    "txn_offset_commit": (_writes(), _group(Operation.READ), Need(Operation.READ, _TOPIC, "topics.name")),
    "describe_acls": _cluster(Operation.DESCRIBE),
    "create_acls": _cluster(Operation.ALTER),
    "delete_acls": _cluster(Operation.ALTER),
    "describe_configs": _configs(Operation.DESCRIBE_CONFIGS),
    "alter_configs": _configs(Operation.ALTER_CONFIGS),
    "alter_replica_log_dirs": _cluster(Operation.ALTER),
    "describe_log_dirs": _cluster(Operation.DESCRIBE),
    "sasl_authenticate": (),
    "create_partitions": (Need(Operation.ALTER, _TOPIC, "topics.name"),),
    "create_delegation_token": (
        Need(
            Operation.CREATE_TOKENS, ResourceType.USER, "owner_principal_name", Denied.REQUEST,
            When("the token is for another user"),
        ),
    ),
    "renew_delegation_token": (),
    "expire_delegation_token": (),
    "describe_delegation_token": (
        Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "tokens.token_id", Denied.HIDDEN),
    ),
    "delete_groups": (Need(Operation.DELETE, _GROUP, "groups_names"),),
    "elect_leaders": _cluster(Operation.ALTER),
    "incremental_alter_configs": _configs(Operation.ALTER_CONFIGS),
    "alter_partition_reassignments": _cluster(Operation.ALTER),
    "list_partition_reassignments": _cluster(Operation.DESCRIBE),
    "offset_delete": (_group(Operation.DELETE), Need(Operation.READ, _TOPIC, "topics.name")),
    "describe_client_quotas": _cluster(Operation.DESCRIBE_CONFIGS),
    "alter_client_quotas": _cluster(Operation.ALTER_CONFIGS),
    "describe_user_scram_credentials": _cluster(Operation.DESCRIBE),
    "alter_user_scram_credentials": _cluster(Operation.ALTER),
    "describe_quorum": _cluster(Operation.DESCRIBE),
    "alter_partition": _cluster(Operation.CLUSTER_ACTION),
    "update_features": _cluster(Operation.ALTER),
    "envelope": _cluster(Operation.CLUSTER_ACTION),
    "describe_cluster": (_DESCRIBES_OPERATIONS,),
    "describe_producers": (Need(Operation.READ, _TOPIC, "topics.name"),),
    "broker_heartbeat": _cluster(Operation.CLUSTER_ACTION),
    "unregister_broker": _cluster(Operation.ALTER),
    "describe_transactions": (
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, "transactional_ids"),
        Need(Operation.DESCRIBE, _TOPIC, "transaction_states.topics.topic", Denied.HIDDEN),
    ),
    "list_transactions": (
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, "transaction_states.transactional_id", Denied.HIDDEN),
    ),
    "allocate_producer_ids": _cluster(Operation.CLUSTER_ACTION),
    "consumer_group_heartbeat": (
        _group(Operation.READ),
        Need(Operation.DESCRIBE, _TOPIC, "subscribed_topic_names", Denied.REQUEST),
        Need(
            Operation.DESCRIBE, _TOPIC, "assignment.topic_partitions", Denied.HIDDEN,
            When("a regular expression matches the topic"),
        ),
    ),
    "consumer_group_describe": (
        Need(Operation.DESCRIBE, _GROUP, "group_ids"),
        Need(
            Operation.DESCRIBE, _TOPIC, "groups.members.subscribed_topic_names", when=When("the group uses the topic"),
        ),
    ),
    "get_telemetry_subscriptions": (),
    "push_telemetry": (),
    "assign_replicas_to_dirs": _cluster(Operation.CLUSTER_ACTION),
    "list_config_resources": _cluster(Operation.DESCRIBE_CONFIGS),
    "describe_topic_partitions": (
        Need(Operation.DESCRIBE, _TOPIC, "topics.name", when=When("the request names topics")),
        Need(Operation.DESCRIBE, _TOPIC, "topics.name", Denied.HIDDEN, When("the request asks for all topics")),
    ),
}  # fmt: skip
"""The needs of each API. None at all means that everybody may use it."""


def need(
    api: str, operation: Operation, resource_type: ResourceType, denied: Denied = Denied.PART, when: str = ""
) -> Need:
    """Return an entry of the table; KeyError if there is none.

    >>> need("produce", Operation.WRITE, ResourceType.TOPIC).field
    'topic_data.name'
    """
    for each in PERMISSIONS[api]:
        told = (each.operation, each.resource_type, each.denied)
        if told == (operation, resource_type, denied) and (not when or (each.when and each.when.text == when)):
            return each
    raise KeyError(f"{api} has no entry for {operation.name} on {resource_type.name} in the table of permissions")


def needs_of_request(api: str) -> tuple[Need, ...]:
    """Return what a request needs as a whole.

    >>> [each.operation.name for each in needs_of_request("join_group")]
    ['READ']
    """
    return tuple(each for each in PERMISSIONS[api] if each.denied is Denied.REQUEST)
