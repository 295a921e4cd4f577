"""The bytes that members send each other: subscriptions, assignments, and the user data of the sticky assignors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.assignors import Assignment, CooperativeStickyAssignor, StickyAssignor, Subscription
from ottla.assignors.embedded import (
    MalformedProtocol,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    version_of,
)
from ottla.assignors.sticky import decode_user_data, encode_user_data

TOPICS = st.text(min_size=1, max_size=8)
NUMBERS = st.integers(0, 2**31 - 1)
PARTITIONS = st.dictionaries(TOPICS, st.lists(NUMBERS, min_size=1, max_size=4, unique=True).map(sorted), max_size=4)
SUBSCRIPTIONS = st.builds(
    Subscription,
    st.lists(TOPICS, unique=True).map(lambda topics: tuple(sorted(topics))),
    st.none() | st.binary(max_size=8),
    PARTITIONS,
    st.integers(-1, 2**31 - 1),
    st.none(),
    st.none() | st.text(min_size=1, max_size=5),
)


@given(SUBSCRIPTIONS)
def test_a_subscription_is_read_as_it_was_written(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(SUBSCRIPTIONS, st.integers(0, 3))
def test_old_versions_keep_what_they_have_a_field_for(subscription: Subscription, version: int) -> None:
    read = decode_subscription(encode_subscription(subscription, version))
    assert (read.topics, read.user_data) == (subscription.topics, subscription.user_data)
    assert read.owned_partitions == (subscription.owned_partitions if version >= 1 else {})
    assert read.generation == (subscription.generation if version >= 2 else -1)
    assert read.rack_id == (subscription.rack_id if version >= 3 else None)


@given(PARTITIONS, st.none() | st.binary(max_size=8), st.integers(0, 3))
def test_an_assignment_is_read_as_it_was_written(
    partitions: dict[str, list[int]], user_data: bytes | None, version: int
) -> None:
    assignment = Assignment(partitions, user_data)
    data = encode_assignment(assignment, version)
    assert decode_assignment(data) == assignment
    assert version_of(data) == version


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    data = encode_subscription(Subscription(("t",)))
    assert decode_subscription(b"\x00\x09" + data[2:] + b"later fields") == Subscription(("t",))


@given(SUBSCRIPTIONS, st.data())
def test_a_cut_subscription_is_rejected(subscription: Subscription, data: st.DataObject) -> None:
    whole = encode_subscription(subscription)
    with pytest.raises(MalformedProtocol):
        decode_subscription(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedProtocol:
            pass
    decode_user_data(data)


def test_kafkas_own_bytes_of_a_subscription() -> None:
    # ConsumerProtocol.serializeSubscription of topics b, a; owned a-1, a-0; generation 5; rack r.
    data = bytes.fromhex(
        "0003 00000002 0001 61 0001 62 ffffffff 00000001 0001 61 00000002 00000000 00000001 00000005 0001 72"
    )
    subscription = Subscription(("a", "b"), None, {"a": [0, 1]}, 5, None, "r")
    assert decode_subscription(data) == subscription
    assert encode_subscription(Subscription(["b", "a"], None, {"a": [1, 0]}, 5, None, "r")) == data


def test_sticky_sends_what_it_had_and_in_which_generation() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t"]) is None
    assignor.on_assignment(Assignment({"t": [0, 2]}), 7)
    data = assignor.subscription_user_data(["t"])
    assert data == bytes.fromhex("00000001 0001 74 00000002 00000000 00000002 00000007")
    assert decode_user_data(data) == (7, {"t": [0, 2]})


def test_sticky_reads_user_data_without_a_generation_and_forgets_what_it_cannot_read() -> None:
    assert decode_user_data(encode_user_data({"t": [1]}, 7)[:-4]) == (-1, {"t": [1]})
    assert decode_user_data(b"nonsense") == (-1, {})
    assert decode_user_data(None) == (-1, {})


def test_sticky_believes_the_newer_generation_and_neither_of_two_equal_ones() -> None:
    def claim(generation: int) -> Subscription:
        return Subscription(["t"], user_data=encode_user_data({"t": [0]}, generation))

    newer = StickyAssignor().assign({"t": 2}, {"a": claim(1), "b": claim(2)})
    assert newer["b"].partitions == {"t": (0,)}
    same = StickyAssignor().assign({"t": 2}, {"a": claim(2), "b": claim(2)})
    assert {member: each.partitions for member, each in same.items()} == {"a": {"t": (0,)}, "b": {"t": (1,)}}


def test_cooperative_sticky_takes_the_generation_from_the_user_data_of_old_subscriptions() -> None:
    old = CooperativeStickyAssignor()
    assert old.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"
    old.on_assignment(Assignment({"t": [0]}), 4)
    zombie = Subscription(["t"], owned_partitions={"t": [0]}, generation=3)
    current = Subscription(["t"], old.subscription_user_data(["t"]), {"t": [0]})
    result = CooperativeStickyAssignor().assign({"t": 2}, {"a": zombie, "b": current})
    assert {member: each.partitions for member, each in result.items()} == {"a": {"t": (1,)}, "b": {"t": (0,)}}


def test_cooperative_sticky_assigns_a_contested_partition_after_all_have_revoked_it() -> None:
    claim = Subscription(["t"], owned_partitions={"t": [0]}, generation=3)
    result = CooperativeStickyAssignor().assign({"t": 2}, {"a": claim, "b": claim})
    assert {member: each.partitions for member, each in result.items()} == {"a": {}, "b": {"t": (1,)}}
