"""Every API in every version with all permissions, without any, and with some: made from the table of permissions.

All requests go over a socket. The authorizer of the broker is replaced for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

import ottla
from ottla import errors
from ottla.broker.authorization import _ERRORS
from ottla.broker.handlers import HANDLERS
from ottla.broker.node import Node
from ottla.protocol.apis import ApiKey
from ottla.security.acls import CLUSTER_NAME, IMPLIED, AclBinding, PatternType, ResourceType
from ottla.security.authorizer import Acls, Authorizer
from ottla.security.permissions import PERMISSIONS, Denied, Need
from unit.broker.permission_requests import requests
from unit.broker.wire import Wire, batch

#: These refuse clients without a login before they check permissions: test_delegation_tokens.py has their tests.
FOR_LOGINS = {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
#: Kafka asks the token itself who may do this.
OF_TOKENS = {"renew_delegation_token", "expire_delegation_token"}
HERE = {
    key: handler
    for key, handler in HANDLERS.items()
    if not handler.only_in_cluster and PERMISSIONS[handler.name] and key not in FOR_LOGINS
}
SERVED = [(key, version) for key, h in sorted(HERE.items()) for version in range(h.first, h.last + 1)]
IDS = [f"{HANDLERS[key].name}-v{version}" for key, version in SERVED]
EVERY = pytest.mark.parametrize(("key", "version"), SERVED, ids=IDS)
REFUSED = {each.code for each in _ERRORS.values()}
MINE, THEIRS = "mine", "theirs"


def test_every_api_is_in_the_table() -> None:
    assert PERMISSIONS.keys() == {each.name.lower() for each in ApiKey}
    served_to_everybody = {handler.name for handler in HANDLERS.values() if not PERMISSIONS[handler.name]}
    assert served_to_everybody <= {"api_versions", "sasl_handshake", "sasl_authenticate"} | OF_TOKENS


@pytest.fixture(scope="module")
def ids(broker: ottla.Broker) -> dict[str, UUID]:
    """Topics, groups and transactional ids of two names."""
    found = {}
    with Wire(broker.bootstrap_servers) as wire:
        for name in (MINE, THEIRS):
            # On a slow machine, retention would remove records while the tests compare the logs.
            found[name] = wire.create_topic(name, cleanup_policy="delete", retention_ms="-1").topic_id
            assert wire.produce(name, batch(b"a", b"b")).error_code == 0
            wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": name})
            wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": name, "key_type": 1})
            offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
            topics = [{"name": each, "partitions": [offset]} for each in found]
            commit = wire.call(ApiKey.OFFSET_COMMIT, 8, {"group_id": name, "member_id": "", "topics": topics})
            assert codes_in(commit) == {0}
            begun = wire.call(ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": name, "transaction_timeout": 60_000})
            assert begun.error_code == 0
    return found


class Client:
    """Sends requests to a broker whose authorizer has only the given rules."""

    def __init__(self, broker: ottla.Broker, ids: dict[str, UUID]) -> None:
        self.broker = broker
        self.ids = ids
        self.node: Node = broker._running().node

    @contextmanager
    def rules(self, *bindings: AclBinding) -> Iterator[None]:
        self.node.authorizer = Authorizer(Acls(bindings))
        try:
            yield
        finally:
            self.node.authorizer = None

    def call(self, key: int, version: int, bindings: Iterable[AclBinding], *names: str, **changes: Any) -> Any:
        fresh = [f"{name}-{HANDLERS[key].name}-{version}" for name in names]
        message = requests(names, self.ids, fresh=fresh)[key] | changes
        with Wire(self.broker.bootstrap_servers) as wire:
            if key == ApiKey.DELETE_TOPICS:
                for name in fresh:
                    if name not in self.node.metadata.topics:
                        wire.create_topic(name)
            with self.rules(*bindings):
                return wire.call(key, version, message)

    def state(self, about: str = "") -> Any:
        """Return everything that a request could change, of all resources or of one name."""
        metadata = [each for each in self.node.metadata.snapshot() if about in str(each)]
        logs = {str(each.log.topic_partition): (each.log.log_start_offset, each.log.log_end_offset)
                for each in self.node.local() if about in each.topic}  # fmt: skip
        return metadata, logs


@pytest.fixture
def client(broker: ottla.Broker, ids: dict[str, UUID]) -> Client:
    return Client(broker, ids)


def codes_in(answer: Any) -> set[int]:
    """Return all error codes anywhere in a response."""
    if isinstance(answer, list | tuple):
        return {code for item in answer for code in codes_in(item)}
    if not hasattr(answer, "__slots__") or isinstance(answer, bytes):
        return set()
    found = {getattr(answer, name) for name in answer.__slots__ if name.endswith("error_code") and "config" not in name}
    return found | {code for name in answer.__slots__ for code in codes_in(getattr(answer, name))}


def parts_of(answer: Any, name: str, topic_id: UUID) -> Iterator[Any]:
    """Yield the smallest parts of a response that are about a resource of some name, which may have a suffix."""
    if isinstance(answer, list | tuple):
        for item in answer:
            yield from parts_of(item, name, topic_id)
    elif hasattr(answer, "__slots__") and not isinstance(answer, bytes):
        values = [getattr(answer, slot) for slot in answer.__slots__]
        inner = [part for value in values for part in parts_of(value, name, topic_id)]
        if inner:
            yield from inner
        elif any(value == topic_id or (isinstance(value, str) and value.split("-")[0] == name) for value in values):
            yield answer


def rule(need: Need, name: str = "*", pattern: PatternType = PatternType.LITERAL) -> AclBinding:
    if need.resource_type == ResourceType.CLUSTER:
        return AclBinding(need.resource_type, CLUSTER_NAME, operation=need.operation)
    return AclBinding(need.resource_type, name, pattern, operation=need.operation)


def rules_for(key: int, *but: Need) -> list[AclBinding]:
    """Return rules for everything that an API needs, except for some."""
    gone = {rule(each) for each in but}
    return [given for need in PERMISSIONS[HANDLERS[key].name] if (given := rule(need)) not in gone]


def code(need: Need) -> int:
    return _ERRORS[need.error or need.resource_type].code


@EVERY
def test_with_all_permissions_nothing_is_refused(client: Client, key: int, version: int) -> None:
    assert not codes_in(client.call(key, version, rules_for(key), MINE)) & REFUSED


@EVERY
def test_another_permission_is_enough_where_the_table_says_so(client: Client, key: int, version: int) -> None:
    needs = PERMISSIONS[HANDLERS[key].name]
    bindings = [
        rule(need if need.instead is None else need._replace(operation=need.instead[0], resource_type=need.instead[1]))
        for need in needs
    ]
    assert not codes_in(client.call(key, version, bindings, MINE)) & REFUSED


@EVERY
def test_without_permissions_everything_is_refused_or_hidden(client: Client, key: int, version: int) -> None:
    before = client.state()
    answer = client.call(key, version, (), MINE)
    expected = {code(need) for need in PERMISSIONS[HANDLERS[key].name] if need.denied is not Denied.HIDDEN}
    found = codes_in(answer)
    assert found & REFUSED <= expected
    hides = not expected or (key in OLD_RESPONSES and version <= OLD_RESPONSES[key])
    assert hides or (found & REFUSED and not found - REFUSED - {0})
    if key == ApiKey.DELETE_TOPICS:
        assert f"{MINE}-delete_topics-{version}" in client.node.metadata.topics
    else:
        assert client.state() == before
    for each in parts_of(answer, MINE, client.ids[MINE]):
        assert hides or codes_in(each) & REFUSED or codes_in(answer) == expected


#: The last version whose response has no place for an error: it is empty instead.
OLD_RESPONSES = {ApiKey.DESCRIBE_LOG_DIRS: 2}


@EVERY
def test_each_permission_is_needed(client: Client, key: int, version: int) -> None:
    for need in PERMISSIONS[HANDLERS[key].name]:
        others = rules_for(key, need)
        is_implied = any(
            need.operation in IMPLIED.get(each.operation, ()) and each.resource_type == need.resource_type
            for each in others
        )
        if need.denied is Denied.HIDDEN or is_implied or not applies(need, key, version):
            continue
        fresh = requests([f"no-{MINE}-topic"], {}, fresh=[])[key] if need.operation.name == "CREATE" else {}
        answer = client.call(key, version, others, MINE, **(fresh if key == ApiKey.METADATA else {}))
        hides = key in OLD_RESPONSES and version <= OLD_RESPONSES[key]
        assert code(need) in codes_in(answer) or hides, f"{need} is not checked"


def applies(need: Need, key: int, version: int) -> bool:
    """Whether the request of this test has what the need is about."""
    text = "" if need.when is None else need.when.text
    if text in ("from a follower", "for a transactional id", "the group uses the topic"):
        return False
    if text == "it has a transactional id":
        return key == ApiKey.INIT_PRODUCER_ID
    if text == "it has no transactional id":
        return key == ApiKey.PRODUCE
    return need.when is None or need.when.holds(None, version)


def has_parts(key: int, version: int) -> bool:
    """Whether a request can be refused in part. Brokers send AddPartitionsToTxn from v4 on, and are refused it all."""
    if key in (ApiKey.FIND_COORDINATOR, ApiKey.ADD_PARTITIONS_TO_TXN):
        return (version >= 4) == (key == ApiKey.FIND_COORDINATOR)
    return any(need.denied is Denied.PART for need in PERMISSIONS[HANDLERS[key].name])


@pytest.mark.parametrize(
    ("key", "version"),
    [each for each in SERVED if has_parts(*each)],
    ids=[name for name, each in zip(IDS, SERVED, strict=True) if has_parts(*each)],
)
def test_a_denied_part_has_no_effect_and_the_others_work(client: Client, key: int, version: int) -> None:
    needs = PERMISSIONS[HANDLERS[key].name]
    before = client.state(THEIRS)
    bindings = [rule(need, MINE, PatternType.PREFIXED) for need in needs]
    answer = client.call(key, version, bindings, MINE, THEIRS)
    mine = [codes_in(each) for each in parts_of(answer, MINE, client.ids[MINE])]
    theirs = [codes_in(each) for each in parts_of(answer, THEIRS, client.ids[THEIRS])]
    assert mine
    assert theirs
    assert all(found & REFUSED for found in theirs)
    if key == ApiKey.OFFSET_FETCH and version >= 8:  # Their group is refused with all its topics.
        mine = [codes_in(each) for each in parts_of(answer.groups[0], MINE, client.ids[MINE])]
    assert not any(found & REFUSED for found in mine)
    if key == ApiKey.DELETE_TOPICS:
        assert f"{THEIRS}-delete_topics-{version}" in client.node.metadata.topics
        assert f"{MINE}-delete_topics-{version}" not in client.node.metadata.topics
    else:
        assert client.state(THEIRS) == before


def test_a_refused_request_without_acknowledgement_closes_the_connection(client: Client) -> None:
    message = requests([MINE], client.ids, fresh=[])[ApiKey.PRODUCE] | {"acks": 0}
    for changes in ({}, {"transactional_id": MINE}):
        with client.rules(), Wire(client.broker.bootstrap_servers) as wire:
            wire.send(ApiKey.PRODUCE, 9, message | changes)
            assert wire.is_closed()


@pytest.mark.parametrize("version", range(3, 14))
def test_a_producer_needs_its_transactional_id(client: Client, version: int) -> None:
    topics = rules_for(ApiKey.PRODUCE)[1:]
    answer = client.call(ApiKey.PRODUCE, version, topics, MINE, transactional_id=MINE)
    assert codes_in(answer) == {errors.TransactionalIdAuthorizationFailed.code}


def test_the_coordinator_of_a_transactional_id_is_secret(client: Client) -> None:
    for version in range(1, 7):
        answer = client.call(ApiKey.FIND_COORDINATOR, version, rules_for(ApiKey.FIND_COORDINATOR)[:1], MINE, key_type=1)
        assert errors.TransactionalIdAuthorizationFailed.code in codes_in(answer)


def test_only_brokers_may_follow(client: Client) -> None:
    readers = [AclBinding(ResourceType.TOPIC, "*")]
    for version in range(4, 18):
        state = {"replica_id": 1, "replica_state": {"replica_id": 1, "replica_epoch": -1}}
        answer = client.call(ApiKey.FETCH, version, readers, MINE, **state)
        assert errors.TopicAuthorizationFailed.code in codes_in(answer)


def test_lists_have_only_what_the_client_may_see(client: Client) -> None:
    mine = [AclBinding(kind, MINE) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)]
    call = client.call
    for version in range(14):
        topics = call(ApiKey.METADATA, version, mine, MINE, topics=[] if version == 0 else None).topics
        assert [topic.name for topic in topics] == [MINE]
    for version in range(6):
        assert [group.group_id for group in call(ApiKey.LIST_GROUPS, version, mine, MINE).groups] == [MINE]
    for version in range(3):
        answer = call(ApiKey.LIST_TRANSACTIONS, version, mine, MINE)
        assert [each.transactional_id for each in answer.transaction_states] == [MINE]
    assert [t.name for t in call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, mine, MINE, topics=[]).topics] == [MINE]
    # The group "theirs" has offsets of both topics.
    seen = [*mine, AclBinding(ResourceType.GROUP, THEIRS)]
    for version in range(2, 11):
        all_topics = {"topics": None, "group_id": THEIRS, "groups": [{"group_id": THEIRS, "topics": None}]}
        answer = call(ApiKey.OFFSET_FETCH, version, seen, MINE, **all_topics)
        topics = answer.topics if version < 8 else answer.groups[0].topics
        assert [topic.topic_id if version >= 10 else topic.name for topic in topics] == [
            client.ids[MINE] if version >= 10 else MINE
        ]


def test_the_id_of_a_topic_does_not_tell_its_name(client: Client) -> None:
    for version in (12, 13):
        asked = [{"name": None, "topic_id": client.ids[THEIRS]}]
        topic = client.call(ApiKey.METADATA, version, (), MINE, topics=asked).topics[0]
        assert (topic.error_code, topic.name, topic.topic_id) == (29, None, client.ids[THEIRS])
    asked = [{"name": None, "topic_id": client.ids[THEIRS]}]
    found = client.call(ApiKey.DELETE_TOPICS, 6, (), MINE, topics=asked).responses[0]
    assert (found.error_code, found.name, found.topic_id) == (29, None, client.ids[THEIRS])
    produced = client.call(ApiKey.PRODUCE, 13, (), THEIRS).responses[0]
    assert produced.topic_id == client.ids[THEIRS]
    assert THEIRS not in str(produced)


def test_a_topic_is_created_by_metadata_only_with_a_permission(client: Client) -> None:
    describe = AclBinding(ResourceType.TOPIC, "*", operation=rules_for(ApiKey.METADATA)[0].operation)
    asked = [{"name": "new-by-metadata", "topic_id": None}]
    answer = client.call(ApiKey.METADATA, 12, [describe], MINE, topics=asked, allow_auto_topic_creation=True)
    assert answer.topics[0].error_code == 29
    assert "new-by-metadata" not in client.node.metadata.topics
    forbidden = client.call(ApiKey.METADATA, 12, [describe], MINE, topics=asked, allow_auto_topic_creation=False)
    assert forbidden.topics[0].error_code == 3
    rules = rules_for(ApiKey.METADATA)
    answer = client.call(ApiKey.METADATA, 12, rules, MINE, topics=asked, allow_auto_topic_creation=True)
    assert answer.topics[0].error_code == 0


def test_a_new_topic_without_describe_configs_does_not_tell_its_configs(client: Client) -> None:
    create = rules_for(ApiKey.CREATE_TOPICS)[0]
    created = client.call(ApiKey.CREATE_TOPICS, 7, [create], "secretive").topics[0]
    assert (created.error_code, created.topic_config_error_code, created.configs) == (0, 29, None)


def test_a_write_to_any_topic_lets_a_producer_be_idempotent(client: Client) -> None:
    write = AclBinding(ResourceType.TOPIC, "one", operation=rules_for(ApiKey.PRODUCE)[1].operation)
    assert client.call(ApiKey.INIT_PRODUCER_ID, 4, [write], MINE, transactional_id=None).error_code == 0
    assert client.call(ApiKey.INIT_PRODUCER_ID, 4, (), MINE, transactional_id=None).error_code == 31


def test_the_operations_that_a_client_may_do_are_told(client: Client) -> None:
    rules = [AclBinding(ResourceType.TOPIC, MINE, operation=rules_for(ApiKey.FETCH)[0].operation)]
    topic = client.call(ApiKey.METADATA, 10, rules, MINE).topics[0]
    assert topic.topic_authorized_operations == 1 << 3 | 1 << 8
    answer = client.call(ApiKey.METADATA, 10, rules, MINE)
    assert answer.cluster_authorized_operations == 0
    cluster = [AclBinding(ResourceType.CLUSTER, CLUSTER_NAME)]
    answer = client.call(ApiKey.DESCRIBE_CLUSTER, 0, cluster, MINE)
    assert answer.cluster_authorized_operations == sum(1 << each for each in (5, 7, 8, 9, 10, 11, 12))


def heartbeat(client: Client, group: str, rules: Iterable[AclBinding], **changes: Any) -> Any:
    joining = {"group_id": group, "member_epoch": 0, "rebalance_timeout": 10_000, "topic_partitions": []}
    message = {"subscribed_topic_names": None, **joining, **changes}
    return client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, rules, MINE, **message)


def test_a_regular_expression_matches_only_what_the_member_may_see(client: Client) -> None:
    rules = [AclBinding("topic", MINE), AclBinding("group", "by-regex")]
    answer = heartbeat(client, "by-regex", rules, subscribed_topic_regex=".*")
    deadline = time.monotonic() + 20
    while not answer.assignment or not answer.assignment.topic_partitions:
        assert answer.error_code == 0, answer.error_message
        assert time.monotonic() < deadline
        again = {"member_epoch": answer.member_epoch, "topic_partitions": None, "rebalance_timeout": -1}
        answer = heartbeat(client, "by-regex", rules, **again)
    assert [each.topic_id for each in answer.assignment.topic_partitions] == [client.ids[MINE]]


def test_a_group_is_not_described_to_who_may_not_know_its_topics(client: Client) -> None:
    joined = heartbeat(
        client, "uses-theirs", [AclBinding("topic", "*"), AclBinding("group", "*")], subscribed_topic_names=[THEIRS]
    )
    assert joined.error_code == 0
    rules = [AclBinding("group", "*"), AclBinding("topic", MINE)]
    for version in (0, 1):
        asked = {"group_ids": ["uses-theirs"]}
        group = client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, version, rules, MINE, **asked).groups[0]
        assert (group.error_code, len(group.members)) == (29, 0)
        assert THEIRS not in str(group).replace("uses-theirs", "")
    allowed = client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, [*rules, AclBinding("topic", THEIRS)], MINE, **asked)
    assert len(allowed.groups[0].members) == 1


def test_a_transaction_is_described_without_the_topics_that_are_secret(client: Client) -> None:
    everything = [AclBinding(kind, "*") for kind in ("topic", "transactional-id")]
    producer = client.call(ApiKey.INIT_PRODUCER_ID, 4, everything, "both")
    who = {"transactional_id": "both", "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    message = {f"v3_and_below_{key}": value for key, value in who.items()}
    assert codes_in(client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, everything, MINE, THEIRS, **message)) == {0}
    rules = [AclBinding("transactional-id", "*"), AclBinding("topic", MINE)]
    state = client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, rules, "both").transaction_states[0]
    assert (state.error_code, [topic.topic for topic in state.topics]) == (0, [MINE])
    client.call(ApiKey.END_TXN, 3, everything, "both", **who)


def test_a_partition_that_is_refused_keeps_the_others_out_of_a_transaction(client: Client) -> None:
    rules = [AclBinding("transactional-id", "*"), AclBinding("topic", MINE)]
    answer = client.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, rules, MINE, THEIRS)
    codes = [each.results_by_partition[0].partition_error_code for each in answer.results_by_topic_v3_and_below]
    assert codes == [errors.OperationNotAttempted.code, errors.TopicAuthorizationFailed.code]


def test_a_refused_batch_does_not_become_part_of_a_transaction(client: Client) -> None:
    everything = [AclBinding("transactional-id", "*"), AclBinding("topic", MINE)]
    producer = client.call(ApiKey.INIT_PRODUCER_ID, 4, everything, "refused")
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
    records = batch(b"x", transactional=True, **who)
    data = [
        {"name": name, "topic_id": client.ids[name], "partition_data": [{"index": 0, "records": records}]}
        for name in (MINE, THEIRS)
    ]
    answer = client.call(ApiKey.PRODUCE, 12, everything, MINE, transactional_id="refused", topic_data=data)
    assert [each.partition_responses[0].error_code for each in answer.responses] == [0, 29]
    state = client.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, [*everything, AclBinding("topic", "*")], "refused")
    assert [topic.topic for topic in state.transaction_states[0].topics] == [MINE]
    ended = {"transactional_id": "refused", "producer_id": producer.producer_id, "committed": False}
    client.call(ApiKey.END_TXN, 3, everything, "refused", **ended, producer_epoch=producer.producer_epoch)
