"""The error response to every request that the broker serves: it can be read, and has the error for each thing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.faults.responses import error_response, topics_of
from ottla.errors import GroupSubscribedToTopic, NotLeaderOrFollower, UnknownMemberId, UnstableOffsetCommit
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from unit.broker.test_every_version import IDS, SERVED, requests

TOPIC_ID = UUID(int=7)
CODE = NotLeaderOrFollower.code
_PARTITIONS = [{"name": "orders", "partitions": [0, 1]}]
#: Requests that the other test makes in another way.
OTHERS: dict[int, dict[str, Any]] = {
    ApiKey.JOIN_GROUP: {
        "group_id": "g", "session_timeout": 1, "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    ApiKey.SYNC_GROUP: {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []},
    ApiKey.HEARTBEAT: {"group_id": "g", "generation_id": 1, "member_id": "m"},
    ApiKey.LEAVE_GROUP: {"group_id": "g", "member_id": "m", "members": [{"member_id": "m"}]},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 1,
        "v3_and_below_topics": _PARTITIONS,
        "transactions": [{
            "transactional_id": "t", "producer_id": 1, "producer_epoch": 1, "verify_only": False, "topics": _PARTITIONS,
        }],
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {"transactional_id": "t", "producer_id": 1, "producer_epoch": 1, "group_id": "g"},
    ApiKey.END_TXN: {"transactional_id": "t", "producer_id": 1, "producer_epoch": 1, "committed": True},
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": [{
            "producer_id": 1, "producer_epoch": 1, "transaction_result": True, "coordinator_epoch": 1,
            "topics": [{"name": "orders", "partition_indexes": [0]}],
        }]
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": "t", "group_id": "g", "producer_id": 1, "producer_epoch": 1,
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 1,
        "committed_metadata": ""}]}],
    },
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["t"]},
    ApiKey.LIST_TRANSACTIONS: {"state_filters": [], "producer_id_filters": []},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": [{"name": "orders", "partition_indexes": [0]}]},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
}  # fmt: skip
#: They have no place for an error in these versions.
WITHOUT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2), (ApiKey.ELECT_LEADERS, 0)}


def decoded(key: int, version: int) -> Struct:
    message = OTHERS.get(key) or requests(version, TOPIC_ID).get(key)
    assert message is not None, f"give an example of {ApiKey(key).name}"
    frame = codec.encode_request(key, version, 1, "test", message)[4:]
    return codec.decode_request_body(key, version, frame, codec.decode_request_header(frame).body)


def codes_in(answer: Any) -> set[int]:
    """Return all error codes anywhere in a response, also `partition_error_code`."""
    if isinstance(answer, list | tuple):
        return {code for item in answer for code in codes_in(item)}
    if not isinstance(answer, Struct):
        return set()
    own = {getattr(answer, name) for name in answer.__slots__ if name.endswith("error_code")}
    return own | {code for name in answer.__slots__ for code in codes_in(getattr(answer, name))}


@pytest.mark.parametrize(("key", "version"), SERVED, ids=IDS)
def test_every_version_of_every_api_can_fail(key: int, version: int) -> None:
    if (key, version) in WITHOUT:
        return
    message = error_response(key, version, decoded(key, version), NotLeaderOrFollower)
    answer = codec.decode_response(key, version, codec.encode_response(key, version, 5, message)[4:])
    assert codes_in(answer) - {0} == {CODE}


def test_each_partition_gets_the_error() -> None:
    produced = error_response(ApiKey.PRODUCE, 12, decoded(ApiKey.PRODUCE, 12), NotLeaderOrFollower)
    (topic,) = produced["responses"]
    assert topic["name"] == "orders"
    assert [(each["index"], each["error_code"]) for each in topic["partition_responses"]] == [(1, CODE)]
    fetched = error_response(ApiKey.FETCH, 16, decoded(ApiKey.FETCH, 16), NotLeaderOrFollower)
    assert fetched["error_code"] == 0, "an error of the session would be another thing"
    assert fetched["responses"][0]["topic_id"] == TOPIC_ID
    assert fetched["responses"][0]["partitions"][0]["error_code"] == CODE


def test_an_error_of_a_group_is_told_once() -> None:
    left = error_response(ApiKey.LEAVE_GROUP, 4, decoded(ApiKey.LEAVE_GROUP, 4), NotLeaderOrFollower)
    assert (left["error_code"], left["members"]) == (CODE, ())
    fetched = error_response(ApiKey.OFFSET_FETCH, 8, decoded(ApiKey.OFFSET_FETCH, 8), NotLeaderOrFollower)
    assert [(each["group_id"], each["error_code"]) for each in fetched["groups"]] == [("readers", CODE)]


def test_an_error_of_a_member_or_partition_is_told_for_each() -> None:
    left = error_response(ApiKey.LEAVE_GROUP, 4, decoded(ApiKey.LEAVE_GROUP, 4), UnknownMemberId)
    assert (left["error_code"], [(each["member_id"], each["error_code"]) for each in left["members"]]) == (
        0,
        [("m", 25)],
    )
    deleted = error_response(ApiKey.OFFSET_DELETE, 0, decoded(ApiKey.OFFSET_DELETE, 0), GroupSubscribedToTopic)
    assert (deleted["error_code"], codes(deleted["topics"])) == (0, {86})
    fetched = error_response(ApiKey.OFFSET_FETCH, 8, decoded(ApiKey.OFFSET_FETCH, 8), UnstableOffsetCommit)
    assert [(each["error_code"], codes(each["topics"])) for each in fetched["groups"]] == [(0, {88})]


def codes(topics: list[dict[str, Any]]) -> set[int]:
    return {each["error_code"] for topic in topics for each in topic["partitions"]}


def test_only_what_the_error_is_about_is_repeated() -> None:
    (found,) = error_response(10, 4, decoded(ApiKey.FIND_COORDINATOR, 4), NotLeaderOrFollower)["coordinators"]
    assert (found["key"], found["host"], found["node_id"]) == ("readers", "", -1)
    (group,) = error_response(15, 5, decoded(ApiKey.DESCRIBE_GROUPS, 5), NotLeaderOrFollower)["groups"]
    assert (group["group_id"], group["group_state"], group["protocol_type"]) == ("readers", "", "")
    (marker,) = error_response(27, 1, decoded(ApiKey.WRITE_TXN_MARKERS, 1), NotLeaderOrFollower)["markers"]
    assert (marker["producer_id"], marker["topics"][0]["partitions"][0]["partition_index"]) == (1, 0)


@pytest.mark.parametrize(
    ("key", "version", "topics"),
    [
        (ApiKey.PRODUCE, 3, {"orders"}),
        (ApiKey.PRODUCE, 13, {TOPIC_ID}),
        (ApiKey.FETCH, 12, {"orders"}),
        (ApiKey.FETCH, 17, {TOPIC_ID}),
        (ApiKey.METADATA, 12, {"orders"}),
        (ApiKey.OFFSET_COMMIT, 8, {"orders"}),
        (ApiKey.OFFSET_FETCH, 8, {"orders"}),
        (ApiKey.DELETE_TOPICS, 3, {"gone-3"}),
        (ApiKey.WRITE_TXN_MARKERS, 1, {"orders"}),
        (ApiKey.HEARTBEAT, 4, set()),
    ],
)
def test_the_topics_of_a_request(key: int, version: int, topics: set[object]) -> None:
    assert topics_of(key, version, decoded(key, version)) == topics
