"""Invalid arguments of the admin client raise errors that say what to give, before anything is sent.

Nothing listens at the address, so anything that is sent ends in another error.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import MemberToRemove
from ottla.clients.admin.values import Append, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType
from ottla.consuming.values import OffsetAndMetadata
from ottla.types import TopicPartition, whole

P0 = TopicPartition("orders", 0)
Call = Callable[[AsyncAdmin], Coroutine[Any, Any, object]]


def outcome(call: Call) -> Exception:
    """Return what a call raises."""

    async def main() -> Exception:
        patience = {"request_timeout_ms": 100, "default_api_timeout_ms": 100}
        async with AsyncAdmin(bootstrap_servers="127.0.0.1:1", **patience) as admin:
            try:
                await call(admin)
            except Exception as error:
                return error
            raise AssertionError("it worked, although nothing listens")

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda admin: admin.create_topics(NewTopic("q", 1.0)), "num_partitions of topic q must be an int, not 1.0"),
        (lambda admin: admin.create_topics(NewTopic("q", 1, 40_000)), "replication_factor .* fit into 16 bits"),
        (lambda admin: admin.create_topics(NewTopic("q", configs={"a": None})), "config a of topic q must be text"),
        (lambda admin: admin.create_topics(NewTopic("q", configs={"cleanup.policy": ["compact"]})), "with commas"),
        (lambda admin: admin.create_topics(NewTopic("q", replica_assignments={0: "1"})), "the replicas of topic q"),
        (lambda admin: admin.create_topics([5]), r"a topic to create \(or a NewTopic\) must be text, not 5"),
        (lambda admin: admin.create_topics({"q": "3"}), "num_partitions of topic q must be an int, not '3'"),
        (lambda admin: admin.delete_topics(None), "the names of topics must be a list, not None"),
        (lambda admin: admin.delete_topics(["a", 5]), "the name of one of the topics must be text, not 5"),
        (lambda admin: admin.describe_topics(b"orders"), "must be a list, not b'orders'"),
        (lambda admin: admin.create_partitions({"t": "5"}), "the new number of partitions of topic t must be an int"),
        (lambda admin: admin.create_partitions(["t"]), r'give a dict, such as \{"orders": 5\}'),
        (lambda admin: admin.create_partitions({"t": NewPartitions(3, [1])}), "must be a list, not 1"),
        (lambda admin: admin.delete_records({P0: 1.0}), r"the offset of orders-0 must be an int, not 1\.0"),
        (lambda admin: admin.delete_records({P0: -2}), "at least -1, not -2"),
        (lambda admin: admin.delete_records({("orders", 0): 1}), r"write ottla.TopicPartition\('orders', 0\)"),
        (lambda admin: admin.describe_configs([5]), "a topic's name, or a ConfigResource"),
        (lambda admin: admin.describe_configs(ConfigResource("table", "t")), "one of topic, broker, .* not 'table'"),
        (lambda admin: admin.alter_configs({"t": {"a": [1, 2]}}), "config a of topic t .* with commas"),
        (lambda admin: admin.alter_configs({"t": {"a": Append(None)}}), "config a of topic t must be text"),
        (lambda admin: admin.alter_configs({"t": "a=b"}), "give a dict"),
        (lambda admin: admin.list_offsets([P0]), r'TopicPartition\("orders", 0\): "latest"'),
        (lambda admin: admin.list_offsets({P0: 1.5}), r"not 1\.5: write int\(1\.5 \* 1000\)"),
        (lambda admin: admin.list_offsets({P0: -9}), "at least -5"),
        (lambda admin: admin.list_offsets({P0: "newest"}), "there is no offset 'newest'"),
        (lambda admin: admin.list_offsets({P0: 1}, isolation_level="serializable"), "one of read_uncommitted"),
        (lambda admin: admin.describe_log_dirs(["1"]), "the id of a broker must be an int"),
        (lambda admin: admin.elect_leaders("any"), "election_type must be one of preferred, unclean"),
        (lambda admin: admin.alter_partition_reassignments({P0: "12"}), "the brokers of orders-0"),
        (lambda admin: admin.list_groups(states=[None]), "text, not None"),
        (lambda admin: admin.remove_members("g", [5]), "a member .* not 5"),
        (lambda admin: admin.remove_members("g", MemberToRemove(member_id=None)), "the id of a member"),
        (lambda admin: admin.list_group_offsets(["g"]), "the id of a group must be text"),
        (lambda admin: admin.alter_group_offsets("g", {P0: -5}), "the offset of orders-0 must be at least 0, not -5"),
        (lambda admin: admin.alter_group_offsets("g", {P0: "5"}), "an int, not '5'"),
        (lambda admin: admin.alter_group_offsets("g", {P0: True}), "an int, not True"),
        (lambda admin: admin.alter_group_offsets("g", {P0: OffsetAndMetadata(-1)}), "at least 0"),
        (lambda admin: admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1, 7)}), "orders-0 must be text"),
        (lambda admin: admin.delete_group_offsets("g", [TopicPartition("t", "0")]), "partition of a TopicPartition"),
        (lambda admin: admin.list_topics(timeout_ms=-1), "timeout_ms .* at least 0, not -1"),
        (lambda admin: admin.delete_topics("orders", timeout_ms="5"), "timeout_ms .* not '5'"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected_before_anything_is_sent(call: Call, words: str) -> None:
    error = outcome(call)
    assert isinstance(error, TypeError | ValueError), repr(error)
    with pytest.raises(type(error), match=words):
        raise error


METHODS = [
    name
    for name in dir(AsyncAdmin)
    if not name.startswith("_") and inspect.iscoroutinefunction(getattr(AsyncAdmin, name))
]


@pytest.mark.parametrize("method", METHODS)
def test_no_argument_of_any_method_reaches_the_wire_unchecked(method: str) -> None:
    parameters = [*inspect.signature(getattr(AsyncAdmin, method)).parameters.values()][1:]
    needed: list[Any] = ["g" if one.name == "group_id" else {} for one in parameters if one.default is one.empty]
    for place, parameter in enumerate(one for one in parameters if one.default is one.empty):
        dicts: list[Any] = [{P0: object()}, {"t": object()}] if "Mapping" in parameter.annotation else []
        if dicts and not parameter.annotation.endswith("| str"):
            dicts.append("orders")
        number = [] if parameter.annotation == "BrokerId" else [5]
        for wrong in (None, 1.5, object(), b"orders", [None], [1.5], {None: None}, *number, *dicts):
            given = [*needed[:place], wrong, *needed[place + 1 :]]
            error = outcome(lambda admin, given=given: getattr(admin, method)(*given))
            assert isinstance(error, TypeError | ValueError), f"{parameter.name}={wrong!r}: {error!r}"


def test_one_name_is_a_name_and_not_its_letters() -> None:
    for call in (
        lambda admin: admin.delete_topics("orders"),
        lambda admin: admin.delete_groups("orders"),
        lambda admin: admin.list_groups(states="Stable"),
        lambda admin: admin.remove_members("g", "one"),
        lambda admin: admin.describe_producers(P0),
        lambda admin: admin.describe_log_dirs(1),
    ):
        assert not isinstance(outcome(call), TypeError | ValueError)


def test_types_of_resources_may_be_names() -> None:
    assert ConfigResource("Broker", "1") == ConfigResource(ResourceType.BROKER, "1") == ConfigResource.broker(1)
    assert ConfigResource(2, "t") == ConfigResource("topic", "t")  # type: ignore[arg-type]
    assert str(ConfigResource("group", "billing")) == "group billing"


def test_whole_numbers_of_other_libraries_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert NewTopic("t", numpy.int32(3)).num_partitions == 3
    assert OffsetSpec.given(numpy.int64(1_700_000_000_000)) == 1_700_000_000_000
    with pytest.raises(TypeError, match="must be an int"):
        whole(numpy.float64(3), "it")
