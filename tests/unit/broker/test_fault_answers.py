"""The answers of failed requests that depend on more than the request: sessions, all topics, all offsets, versions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import Admin, Broker, TopicPartition, errors
from ottla.broker.handlers import HANDLERS
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from unit.broker.wire import Wire, batch, fetch_request

CODE = errors.NotLeaderOrFollower.code
GROUP = "readers"


@pytest.fixture
def topics(broker: Broker, wire: Wire) -> list[str]:
    """Two topics with one record each."""
    if "orders" not in broker.topics:
        for topic in ("orders", "users"):
            wire.create_topic(topic)
            wire.produce(topic, batch(b"1"))
    return ["orders", "users"]


class Session:
    """A fetch session at the end of some topics."""

    def __init__(self, wire: Wire, topics: list[str]) -> None:
        self._wire = wire
        self.id, self.epoch = 0, 0
        wanted = [each for topic in topics for each in fetch_request(topic, 1)["topics"]]
        self.id = self.fetch(topics=wanted).session_id
        assert self.id > 0

    def fetch(self, **changes: Any) -> Struct:
        nothing = fetch_request("", 0, topics=[], session_id=self.id, session_epoch=self.epoch)
        self.epoch += 1
        return self._wire.call(ApiKey.FETCH, 12, nothing | changes)

    def forget(self, topic: str) -> Struct:
        return self.fetch(forgotten_topics_data=[{"topic": topic, "partitions": [0]}])


def told(response: Struct) -> dict[str, int]:
    assert response.error_code == 0
    return {topic.topic: each.error_code for topic in response.responses for each in topic.partitions}


# ── fetches ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("after", [False, True])
def test_all_partitions_of_a_session_fail(broker: Broker, wire: Wire, topics: list[str], after: bool) -> None:
    session = Session(wire, topics)
    with broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=1, after=after) as fault:
        failed = session.fetch()
        assert told(failed) == {"orders": CODE, "users": CODE}
        assert (failed.session_id, fault.hits) == (session.id, 1)
    assert told(session.fetch()) == {"orders": 0, "users": 0}, "after an error a partition is told again"
    assert told(session.fetch()) == {}


@pytest.mark.parametrize("after", [False, True])
def test_a_new_session_fails(broker: Broker, wire: Wire, topics: list[str], after: bool) -> None:
    with broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=1, topic="orders", after=after) as fault:
        session = Session(wire, topics)
        assert fault.hits == 1
    assert told(session.fetch()) == {"orders": 0, "users": 0}


def test_the_topic_of_a_fault_may_be_only_in_the_session(broker: Broker, wire: Wire, topics: list[str]) -> None:
    both, one = Session(wire, topics), Session(wire, ["users"])
    with broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders") as fault:
        assert told(one.fetch()) == {}
        assert told(both.fetch()) == {"orders": CODE, "users": CODE}
        assert told(both.forget("orders")) == {"users": 0}, "it does not fetch this topic any more"
        assert fault.hits == 1


def test_an_error_of_the_session_is_told_for_the_whole_request(broker: Broker, wire: Wire, topics: list[str]) -> None:
    with broker.faults.fail("Fetch", "FETCH_SESSION_ID_NOT_FOUND", times=1) as fault:
        session = Session(wire, topics)
        assert fault.hits == 0, "a request for a new session cannot get it"
        failed = session.fetch()
        assert (failed.error_code, failed.session_id) == (errors.FetchSessionIdNotFound.code, 0)
        assert list(failed.responses) == []
        session.epoch -= 1
        assert told(session.fetch()) == {}, "the session is as it was"


def test_a_fetch_of_nothing_cannot_fail(broker: Broker, wire: Wire, topics: list[str]) -> None:
    session = Session(wire, topics)
    with broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER") as fault:
        session.epoch += 1
        assert session.fetch().error_code == errors.InvalidFetchSessionEpoch.code
        session.epoch = -1
        assert told(session.fetch()) == {}
        assert fault.hits == 0


# ── metadata ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_fails(broker: Broker, wire: Wire, topics: list[str], version: int) -> None:
    with broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=1):
        every = wire.call(ApiKey.METADATA, version, {"topics": None if version else []})
    assert {topic.name: topic.error_code for topic in every.topics} == dict.fromkeys(topics, 5)
    assert len(every.brokers) == 1
    assert (every.topics[0].topic_id is not None) is (version >= 10)


def test_metadata_without_topics_has_no_place_for_an_error(broker: Broker, wire: Wire, topics: list[str]) -> None:
    with broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=1) as fault:
        nothing = wire.call(ApiKey.METADATA, 13, {"topics": []})
        assert (list(nothing.topics), len(nothing.brokers), nothing.error_code) == ([], 1, 0)
        assert fault.hits == 0


def test_only_the_newest_metadata_can_ask_for_another_bootstrap(broker: Broker, wire: Wire, topics: list[str]) -> None:
    with broker.faults.fail("Metadata", "REBOOTSTRAP_REQUIRED", times=1):
        assert wire.call(ApiKey.METADATA, 12, {"topics": None}).topics[0].error_code == 0
        whole = wire.call(ApiKey.METADATA, 13, {"topics": None})
        assert (whole.error_code, list(whole.topics)) == (errors.RebootstrapRequired.code, [])


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch_offsets(wire: Wire, version: int, named: list[str] | None, stable: bool = True) -> tuple[int, dict[str, int]]:
    """The error of the group, and of each partition."""
    topics = None if named is None else [{"name": topic, "partition_indexes": [0]} for topic in named]
    group = {"group_id": GROUP, "topics": topics}
    message = {"groups": [group]} if version >= 8 else group
    answer = wire.call(ApiKey.OFFSET_FETCH, version, {**message, "require_stable": stable})
    (one,) = answer.groups or [answer]
    return one.error_code, {topic.name: each.error_code for topic in one.topics for each in topic.partitions}


@pytest.fixture
def committed(broker: Broker, topics: list[str]) -> str:
    """A topic of which the group has an offset."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets(GROUP, {TopicPartition("orders", 0): 1})
    return "orders"


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize(
    ("error", "named", "everything"),
    [
        (errors.UnstableOffsetCommit, (0, {"users": 88}), (0, {"orders": 88})),
        (errors.UnknownTopicOrPartition, (0, {"users": 3}), (0, {})),
        (errors.TopicAuthorizationFailed, (0, {"users": 29}), (0, {})),
        (errors.CoordinatorLoadInProgress, (14, {}), (14, {})),
        (errors.GroupAuthorizationFailed, (30, {}), (30, {})),
        (errors.UnknownMemberId, (25, {}), (25, {})),
    ],
)
def test_offsets_fail_by_partition_or_by_group(
    broker: Broker,
    wire: Wire,
    committed: str,
    version: int,
    error: type[errors.KafkaError],
    named: tuple[int, dict[str, int]],
    everything: tuple[int, dict[str, int]],
) -> None:
    with broker.faults.fail("OffsetFetch", error, times=2) as fault:
        assert fetch_offsets(wire, version, ["users"]) == named
        assert fetch_offsets(wire, version, None) == everything
        assert fault.hits == 2
    assert fetch_offsets(wire, version, None) == (0, {committed: 0})


def test_only_who_wants_stable_offsets_is_told_of_unstable_ones(broker: Broker, wire: Wire, committed: str) -> None:
    with broker.faults.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT") as fault:
        assert fetch_offsets(wire, 8, [committed], stable=False) == (0, {committed: 0})
        assert fault.hits == 0


# ── versions ──────────────────────────────────────────────────────────────────────────────────────────────────────


SOFTWARE = {"client_software_name": "wire", "client_software_version": "1"}


@pytest.mark.parametrize("version", range(1, 5))
def test_an_unsupported_version_is_answered_in_version_0(broker: Broker, wire: Wire, version: int) -> None:
    with broker.faults.fail("ApiVersions", "UNSUPPORTED_VERSION") as fault:
        wire.send(ApiKey.API_VERSIONS, version, SOFTWARE if version >= 3 else {})
        refused = wire.receive(ApiKey.API_VERSIONS, 0)
        assert refused.error_code == errors.UnsupportedVersion.code
        assert [(each.api_key, each.min_version, each.max_version) for each in refused.api_keys] == [(18, 0, 0)]
        served = wire.call(ApiKey.API_VERSIONS, 0, {})
        assert served.error_code == 0, "each broker knows version 0"
        assert len(served.api_keys) == sum(not handler.only_in_cluster for handler in HANDLERS.values())
        assert fault.hits == 1


def test_other_errors_of_versions_come_in_the_version_of_the_request(broker: Broker, wire: Wire) -> None:
    with broker.faults.fail("ApiVersions", "INVALID_REQUEST", times=1):
        assert wire.call(ApiKey.API_VERSIONS, 4, SOFTWARE).error_code == errors.InvalidRequest.code
